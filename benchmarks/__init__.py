"""Speed and memory, side by side in one run; ``make bench`` keeps them in ``benchmarks/results/core.json``."""
