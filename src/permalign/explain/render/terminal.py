"""Traces as text for a terminal."""

from collections.abc import Sequence
from dataclasses import replace
from math import exp
from unicodedata import category, combining, east_asian_width

from permalign.errors import CONTROL_CHARACTERS
from permalign.explain.render.braille import BrailleCanvas
from permalign.explain.trace.trace import Comparison, Node, Trace
from permalign.structures.derivations import MARKS

MIN_WIDTH, MAX_WIDTH = 10, 30
"""How many characters wide the crossing lines may be."""


def text(trace: Trace) -> str:
    """Return output, tree, crossing lines, segments and confidence as paragraphs.

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
    paragraphs = [
        _headline(trace),
        "\n".join(_tree_lines(trace)) if trace.nodes else "",
        "" if trace.order is None else "\n".join(_crossing_lines(trace, trace.order)),
        _segments(trace),
        _confidence(trace),
        "\n".join(f"note: {note}" for note in trace.notes),
    ]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph)


def printable(trace: Trace) -> Trace:
    r"""Replace characters that would control a terminal: escapes, changes of text direction, lone surrogates.

    >>> printable(Trace(("a\x1b[2J", "b"), ())).source
    ('a�[2J', 'b')
    """
    source, target, notes, words = (
        tuple(CONTROL_CHARACTERS.sub("\ufffd", word) for word in words)
        for words in (trace.source, trace.target, trace.notes, trace.output)
    )
    return replace(trace, source=source, target=target, notes=notes, words=words)


def comparison_text(comparison: Comparison) -> str:
    """Return the ways of decoding side by side if their trees differ, and one line if they do not."""
    if not comparison.trees_differ:
        return "Greedy, Viterbi and the most probable permutation agree on the tree."
    blocks = [_variant_lines(variant.name, printable(variant.trace)) for variant in comparison.variants]
    certificate = (
        "The most probable order is proven to be the best."
        if comparison.gap == 0
        else f"Another order may be more probable by up to {comparison.gap:.3f}."
    )
    if not comparison.orders_differ:
        verdict = "The trees differ, but the orders do not."
    elif not comparison.outputs_differ:
        verdict = "The orders differ, but the outputs do not."
    else:
        verdict = "The outputs differ."
    return f"Ways to decode. {verdict} {certificate}\n\n{side_by_side(blocks)}"


def side_by_side(blocks: Sequence[Sequence[str]], gap: str = "   ") -> str:
    """Join blocks of lines next to each other.

    >>> print(side_by_side([["a", "bcd"], ["e"]], gap=" | "))
    a   | e
    bcd |
    """
    height = max(len(block) for block in blocks)
    columns = []
    for block in blocks:
        width = max((display_width(line) for line in block), default=0)
        columns.append([padded(line, width) for line in [*block, *[""] * (height - len(block))]])
    return "\n".join(gap.join(row).rstrip() for row in zip(*columns, strict=True))


def _variant_lines(name: str, trace: Trace) -> list[str]:
    tree, order = _probability(trace.confidence.derivation), _probability(trace.confidence.order)
    lines = [name, f"tree {tree}  order {order}", ""]
    return [
        *lines,
        *_tree_lines(trace, with_probabilities=False)[1:],
        "",
        *_wrapped("→ " + " ".join(trace.output)),
    ]


def _wrapped(line: str, width: int = 32) -> list[str]:
    lines = [""]
    for word in line.split():
        if lines[-1] and len(lines[-1]) + len(word) >= width:
            lines.append(" ")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _headline(trace: Trace) -> str:
    given = " (given target)" if trace.target_given else ""
    return f"{' '.join(trace.source)} → {' '.join(trace.output) or '∅'}{given}"


def _tree_lines(trace: Trace, with_probabilities: bool = True) -> list[str]:
    """Draw one node per line; an inner node is followed by its probability and the entropy of its span."""
    drawn, pending = [], [(trace.nodes[0], "", "")]
    while pending:
        node, stem, below = pending.pop()
        drawn.append((node, "  " + stem + node_text(node, trace.source)))
        stems = [(below + "├─ ", below + "│  ")] * (len(node.children) - 1) + [(below + "└─ ", below + "   ")]
        branches = [
            (trace.nodes[child], *child_stems)
            for child, child_stems in zip(node.children, stems, strict=False)
        ]
        pending.extend(reversed(branches))
    title = "Tree (→ straight, ⇄ inverted)"
    if not with_probabilities or all(node.probability is None for node, _ in drawn):
        return [title, *(line for _, line in drawn)]
    width = max(len(title), *(display_width(line) for _, line in drawn)) + 2
    probabilities = [
        "" if node.probability is None else f"{node.probability:8.2f}{node.entropy or 0:8.2f}"
        for node, _ in drawn
    ]
    lines = (padded(line, width) + numbers for (_, line), numbers in zip(drawn, probabilities, strict=True))
    return [padded(title, width) + f"{'p':>8}{'bits':>8}", *(line.rstrip() for line in lines)]


def node_text(node: Node, words: Sequence[str]) -> str:
    """Return the rule of a node, or the words of a leaf, followed by its label in brackets."""
    text = " ".join(words[node.start : node.end]) if node.rule is None else MARKS[node.rule]
    return text if node.label is None else f"{text} [{node.label}]"


def _crossing_lines(trace: Trace, order: Sequence[int]) -> list[str]:
    """List the words before and after reordering, with a line from each word to its new position."""
    words = trace.source
    furthest = max(abs(position - token) for position, token in enumerate(order))
    columns = min(max(MIN_WIDTH, 3 * furthest), MAX_WIDTH)
    canvas = BrailleCanvas(columns, len(order))
    for position, token in enumerate(order):
        canvas.line((0, 4 * token + 2), (2 * columns - 1, 4 * position + 2))
    width = max(map(display_width, words))
    rows = zip(words, canvas.rows(), order, strict=True)
    lines = (
        f"  {' ' * (width - display_width(word))}{word} {drawn} {words[token]}" for word, drawn, token in rows
    )
    return ["Order", *lines]


def _segments(trace: Trace) -> str:
    if not trace.segments:
        return ""
    drawn = [segment.draw(trace.source, trace.written).split(" → ", 1) for segment in trace.segments]
    width = max(display_width(source) for source, _ in drawn)
    lines = [f"  {padded(source, width)} → {target}" for source, target in drawn]
    return "\n".join(["Segments", *lines])


def _confidence(trace: Trace) -> str:
    confidence = trace.confidence
    rows = [
        ("the output", confidence.output),
        ("the tree", confidence.derivation),
        ("the order, over all its trees", confidence.order),
    ]
    lines = [f"  {name:<29} {_probability(value)}" for name, value in rows if value is not None]
    if confidence.entropy is not None:
        lines.append(f"  {'entropy over trees':<29} {confidence.entropy:.2f} bits")
    if not lines:
        return ""
    return "\n".join(
        ["Confidence, given sentence and target" if trace.target_given else "Confidence", *lines]
    )


def _probability(log_prob: float | None) -> str:
    return "-" if log_prob is None else probability(log_prob)


def probability(log_prob: float) -> str:
    """Format a probability with three decimals, or with an exponent if it is very small.

    >>> probability(-0.105), probability(-20.0), probability(0.0)
    ('0.900', '2.1e-09', '1.000')
    """
    value = exp(log_prob)
    return f"{value:.3f}" if value >= 0.0005 else f"{value:.1e}"


def display_width(line: str) -> int:
    """Count the columns that a text takes in a terminal: two for East Asian characters, none for combining accents.

    >>> display_width("né"), display_width("日本")
    (2, 4)
    """
    return sum(_column_count(character) for character in line)


def _column_count(character: str) -> int:
    if combining(character) or category(character) in ("Cf", "Mn", "Me"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def padded(line: str, width: int) -> str:
    """Fill a line with spaces up to a width."""
    return line + " " * (width - display_width(line))
