"""From a model to its most probable outputs."""
