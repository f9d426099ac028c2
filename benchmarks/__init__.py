"""Measurements of speed and memory; ``make bench`` runs them all and writes ``benchmarks/results/core.json``."""
