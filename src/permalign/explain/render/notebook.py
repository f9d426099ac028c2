"""What a notebook shows of our objects. `permalign.showing` finds this module when it is asked for."""

from permalign.explain.render.description import figures, notes_list
from permalign.explain.render.markup import safe
from permalign.explain.render.svg import svg
from permalign.explain.trace.records import Trace, nodes_of
from permalign.prediction import Explanation
from permalign.structures import Derivation


def as_html(shown: Trace | Explanation | Derivation) -> str:
    """A picture with its own style; tokens of a derivation have numbers for names.

    >>> from permalign.structures import Tree
    >>> tree = Tree(0, 2, "I", (Tree(0, 1), Tree(1, 2)))
    >>> "inverted" in as_html(Derivation(tree, tree.order, -0.1))
    True
    """
    trace = build_trace(shown)
    return f'<div style="overflow-x:auto">{svg(trace)}</div>{notes_list(trace)}<p>{safe(_figures(trace))}</p>'


def _figures(trace: Trace) -> str:
    return ", ".join(f"{name} {value}" for name, value, _ in figures(trace))


def build_trace(shown: Trace | Explanation | Derivation) -> Trace:
    """What is known of an explanation or a derivation, which have no distribution at hand."""
    if isinstance(shown, Trace):
        return shown
    if isinstance(shown, Derivation):
        names = tuple(map(str, range(len(shown.order))))
        return Trace(names, (), order=shown.order, nodes=nodes_of(shown.tree))
    return Trace(
        shown.source,
        shown.target,
        order=shown.order,
        nodes=() if shown.derivation is None else nodes_of(shown.derivation.tree),
        segments=shown.segments,
    )
