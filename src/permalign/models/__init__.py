"""Whole models: one transducer, an ensemble of several, and one whose outputs an inverse model reranks."""
