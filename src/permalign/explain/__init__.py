"""Explanations of outputs: trees, reordered sentences and segments, as text, pictures and pages.

trace = explain(model, "a sentence")   # or with a target: explain(model, "a sentence", "its output")
print(text(trace))                     # for a terminal
svg(trace), html(trace)                # a picture; a self-contained page
"""

from permalign.explain.render.html_page import html
from permalign.explain.render.svg import svg
from permalign.explain.render.terminal import text
from permalign.explain.trace.explain import compare, explain, sample
from permalign.explain.trace.trace import Comparison, Confidence, DecodingVariant, Node, Trace

__all__ = [
    "Comparison",
    "Confidence",
    "DecodingVariant",
    "Node",
    "Trace",
    "compare",
    "explain",
    "html",
    "sample",
    "svg",
    "text",
]
