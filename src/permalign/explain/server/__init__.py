"""The explorer: a web page that shows how models read sentences, and the JSON API behind it."""
