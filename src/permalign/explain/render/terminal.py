"""Traces as text for a terminal."""

import re
from collections.abc import Sequence
from dataclasses import replace
from math import exp
from unicodedata import category, combining, east_asian_width

from permalign.explain.render.braille import Canvas
from permalign.explain.trace.records import Comparison, Node, Trace
from permalign.structures.derivations import MARKS

STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a terminal obeys instead of showing it."""

NARROWEST, WIDEST = 10, 30
"""How many characters the crossing lines may take."""


def text(trace: Trace) -> str:
    """Output, tree, crossing lines, segments and how sure the model is, in paragraphs.

    >>> nodes = (Node(0, 2, "I", None, (1, 2), 0.9, 0.47), Node(0, 1, None), Node(1, 2, None))
    >>> print(text(Trace(("saw", "her"), ("VIO", "LA"), order=(1, 0), nodes=nodes)))
    saw her → VIO LA
    <BLANKLINE>
    Tree (→ straight, ⇄ inverted)         p    bits
      I ⇄                              0.90    0.47
      ├─ saw
      └─ her
    <BLANKLINE>
    Order
      saw ⠤⢄⣀⣀  ⣀⣀⡠⠤ her
      her ⠤⠔⠒⠒⠉⠉⠒⠒⠢⠤ saw
    """
    trace = printable(trace)
    parts = [
        _headline(trace),
        *tree_and_order(trace),
        _segments(trace),
        _confidence(trace),
        _notes(trace),
    ]
    return "\n\n".join(part for part in parts if part)


def printable(trace: Trace) -> Trace:
    r"""The trace without what would steer a terminal: control characters, changes of direction, halves of characters.

    >>> printable(Trace(("a\x1b[2J", "b"), ())).source
    ('a�[2J', 'b')
    """
    source, target, notes = (
        tuple(STEERING.sub("\ufffd", word) for word in words)
        for words in (trace.source, trace.target, trace.notes)
    )
    return replace(trace, source=source, target=target, notes=notes)


def tree_and_order(trace: Trace) -> list[str]:
    """The two paragraphs that depend on the way of decoding alone."""
    parts = []
    if trace.nodes:
        parts.append("\n".join(_tree(trace)))
    if trace.order is not None:
        parts.append("\n".join(_crossing(trace, trace.order)))
    return parts


def compared(comparison: Comparison) -> str:
    """Ways to decode side by side where they differ, and in one line where they do not."""
    if not comparison.trees_differ:
        return "Greedy, Viterbi and the most probable permutation agree on the tree."
    blocks = [_variant(variant.name, printable(variant.trace)) for variant in comparison.variants]
    proven = "proven" if comparison.gap == 0 else f"another may have {comparison.gap:.3f} more"
    if not comparison.orders_differ:
        verdict = "The trees differ, the orders do not."
    elif not comparison.outputs_differ:
        verdict = "The orders differ, the outputs do not."
    else:
        verdict = "The outputs differ."
    return f"Ways to decode. {verdict} The most probable order is {proven}.\n\n{beside(blocks)}"


def beside(blocks: Sequence[Sequence[str]], gap: str = "   ") -> str:
    """Blocks of lines next to each other.

    >>> print(beside([["a", "bcd"], ["e"]], gap=" | "))
    a   | e
    bcd |
    """
    height = max(len(block) for block in blocks)
    columns = []
    for block in blocks:
        wide = max((display_width(line) for line in block), default=0)
        columns.append([padded(line, wide) for line in [*block, *[""] * (height - len(block))]])
    return "\n".join(gap.join(row).rstrip() for row in zip(*columns, strict=True))


def _variant(name: str, trace: Trace) -> list[str]:
    sure = trace.confidence
    lines = [name, f"tree {_probability(sure.derivation)}  order {_probability(sure.order)}", ""]
    return [*lines, *_tree(trace, judged=False)[1:], "", *_wrapped("→ " + " ".join(trace.target))]


def _wrapped(line: str, width: int = 32) -> list[str]:
    lines = [""]
    for word in line.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append(" ")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _headline(trace: Trace) -> str:
    given = " (given)" if trace.target_given else ""
    return f"{' '.join(trace.source)} → {' '.join(trace.target) or '∅'}{given}"


def _tree(trace: Trace, judged: bool = True) -> list[str]:
    """One node a line; behind an inner one, its option's probability and its span's entropy."""
    drawn, waiting = [], [(trace.nodes[0], "", "")]
    while waiting:
        node, stem, below = waiting.pop()
        drawn.append((node, "  " + stem + name_of(node, trace.source)))
        stems = [(below + "├─ ", below + "│  ")] * (len(node.children) - 1) + [(below + "└─ ", below + "   ")]
        branches = [(trace.nodes[child], *stems[place]) for place, child in enumerate(node.children)]
        waiting.extend(reversed(branches))
    title = "Tree (→ straight, ⇄ inverted)"
    if not judged or all(node.probability is None for node, _ in drawn):
        return [title, *(line for _, line in drawn)]
    wide = max(len(title), *(display_width(line) for _, line in drawn)) + 2
    judgements = [
        "" if node.probability is None else f"{node.probability:8.2f}{node.entropy or 0:8.2f}"
        for node, _ in drawn
    ]
    lines = (padded(line, wide) + judged for (_, line), judged in zip(drawn, judgements, strict=True))
    return [padded(title, wide) + f"{'p':>8}{'bits':>8}", *(line.rstrip() for line in lines)]


def name_of(node: Node, words: Sequence[str]) -> str:
    """A node in words: its rule, or what it covers; a label stands in brackets."""
    name = " ".join(words[node.start : node.end]) if node.rule is None else MARKS[node.rule]
    return name if node.label is None else f"{name} [{node.label}]"


def _crossing(trace: Trace, order: Sequence[int]) -> list[str]:
    """The words one below the other, before and after, with a line from each to its new place."""
    words, places = trace.source, len(order)
    furthest = max(abs(place - token) for place, token in enumerate(order))
    columns = min(max(NARROWEST, 3 * furthest), WIDEST)
    canvas = Canvas(columns, places)
    for place, token in enumerate(order):
        canvas.line((0, 4 * token + 2), (2 * columns - 1, 4 * place + 2))
    wide = max(map(display_width, words))
    rows = zip(words, canvas.rows(), order, strict=True)
    lines = (
        f"  {' ' * (wide - display_width(word))}{word} {drawn} {words[token]}" for word, drawn, token in rows
    )
    return ["Order", *lines]


def _segments(trace: Trace) -> str:
    if not trace.segments:
        return ""
    drawn = [segment.draw(trace.source, trace.target).split(" → ", 1) for segment in trace.segments]
    wide = max(display_width(source) for source, _ in drawn)
    lines = [f"  {padded(source, wide)} → {target}" for source, target in drawn]
    return "\n".join(["Segments", *lines])


def _confidence(trace: Trace) -> str:
    sure, lines = trace.confidence, []
    rows = [
        ("the output", sure.output),
        ("the tree", sure.derivation),
        ("the order, by all its trees", sure.order),
    ]
    lines = [f"  {name:<28} {_probability(value)}" for name, value in rows if value is not None]
    if sure.entropy is not None:
        lines.append(f"  {'entropy of all trees':<28} {sure.entropy:.2f} bits")
    if not lines:
        return ""
    return "\n".join(["How sure, given both sides" if trace.target_given else "How sure", *lines])


def _notes(trace: Trace) -> str:
    return "\n".join(f"note: {note}" for note in trace.notes)


def _probability(log_prob: float | None) -> str:
    return "-" if log_prob is None else probability(log_prob)


def probability(log_prob: float) -> str:
    """As people read it: three decimals, or powers of ten where these show nothing.

    >>> probability(-0.105), probability(-20.0), probability(0.0)
    ('0.900', '2.1e-09', '1.000')
    """
    value = exp(log_prob)
    return f"{value:.3f}" if value >= 0.0005 else f"{value:.1e}"


def display_width(line: str) -> int:
    """How many columns of a terminal a text takes: two for East Asian characters, none for accents on others.

    >>> display_width("né"), display_width("日本")
    (2, 4)
    """
    return sum(_column_count(character) for character in line)


def _column_count(character: str) -> int:
    if combining(character) or category(character) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def padded(line: str, wide: int) -> str:
    """A text with spaces behind it up to a width."""
    return line + " " * (wide - display_width(line))
