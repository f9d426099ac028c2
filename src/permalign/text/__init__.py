"""Tokens as numbers, and numbers in batches."""
