"""Trees, reordered sentences and segments to look at: in the terminal, as pictures, as pages, in an explorer.

account = explain(model, "a sentence")     # or with a target: explain(model, "a sentence", "its output")
print(text(account))                       # for a terminal
svg(account), html(account)                # a picture; one self-contained page
"""

from permalign.explain.account import Account, Comparison, Node, Sureness, Way
from permalign.explain.explaining import compare, explain, sample
from permalign.explain.page import html
from permalign.explain.picture import svg
from permalign.explain.text import text

__all__ = [
    "Account",
    "Comparison",
    "Node",
    "Sureness",
    "Way",
    "compare",
    "explain",
    "html",
    "sample",
    "svg",
    "text",
]
