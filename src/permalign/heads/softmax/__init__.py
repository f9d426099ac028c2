"""Softmaxes over the output vocabulary: plain, and factored over pairs of a source cell and an output step."""
