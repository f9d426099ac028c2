"""The explorer's server: a page, and a JSON API with the types of the Python API."""
