"""Search for the most probable outputs of a model."""
