"""Pictures of our objects in notebooks. `permalign.notebooks` imports this module when a notebook asks for one."""

from permalign.explain.render.description import confidence_rows, notes_list
from permalign.explain.render.markup import safe
from permalign.explain.render.svg import svg
from permalign.explain.trace.trace import Trace
from permalign.explain.trace.tree_nodes import flatten_tree
from permalign.models.prediction import Explanation
from permalign.structures import Derivation


def as_html(shown: Trace | Explanation | Derivation) -> str:
    """Return a picture with its own style; the tokens of a derivation are numbered.

    >>> from permalign.structures import Tree
    >>> tree = Tree(0, 2, "I", (Tree(0, 1), Tree(1, 2)))
    >>> "inverted" in as_html(Derivation(tree, tree.order, -0.1))
    True
    """
    trace = trace_of(shown)
    return f'<div style="overflow-x:auto">{svg(trace)}</div>{notes_list(trace)}<p>{safe(_confidence_text(trace))}</p>'


def _confidence_text(trace: Trace) -> str:
    return ", ".join(f"{name} {value}" for name, value, _ in confidence_rows(trace))


def trace_of(shown: Trace | Explanation | Derivation) -> Trace:
    """Return what can be shown of an explanation or a derivation, which do not have a distribution."""
    if isinstance(shown, Trace):
        return shown
    if isinstance(shown, Derivation):
        names = tuple(map(str, range(len(shown.order))))
        return Trace(names, (), order=shown.order, nodes=flatten_tree(shown.tree))
    return Trace(
        shown.source,
        shown.target,
        order=shown.order,
        nodes=() if shown.derivation is None else flatten_tree(shown.derivation.tree),
        segments=shown.segments,
    )
