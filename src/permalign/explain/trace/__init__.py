"""What is said about a sentence: plain data (`records`), and how it is computed from a model."""
