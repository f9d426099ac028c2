"""What an explanation says: plain data (`records`), and how it is computed from a model."""
