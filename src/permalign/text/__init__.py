"""Vocabularies, which map tokens to ids, and batches of token ids."""
