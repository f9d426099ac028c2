"""Pictures of our objects in notebooks. `permalign.notebooks` imports this module when a notebook asks for one."""

from math import log

from torch import no_grad

from permalign.explain.render.description import confidence_rows, notes_list
from permalign.explain.render.markup import safe
from permalign.explain.render.svg import svg
from permalign.explain.trace.trace import Comparison, Trace
from permalign.explain.trace.tree_nodes import flatten_tree
from permalign.models.prediction import Explanation, Prediction
from permalign.structures import Derivation, OrderDistribution

MAX_SHOWN = 3
"""How many sentences of a distribution are shown."""


def as_html(shown: Trace | Explanation | Derivation | Prediction | Comparison | OrderDistribution) -> str:
    """Return a picture with its own style; the tokens of a derivation are numbered.

    A prediction is shown as a table of outputs, followed by its explanation if it has one; a comparison as its variants
    one below the other; a distribution by the most probable derivation of its first sentences.

    >>> from permalign.structures import Tree
    >>> tree = Tree(0, 2, "I", (Tree(0, 1), Tree(1, 2)))
    >>> "inverted" in as_html(Derivation(tree, tree.order, -0.1))
    True
    """
    if isinstance(shown, Prediction):
        return _outputs_table(shown) + (as_html(shown.explanation) if shown.explanation else "")
    if isinstance(shown, Comparison):
        return "".join(
            f"<h4>{safe(variant.name)}: {safe(variant.meaning)}</h4>{as_html(variant.trace)}"
            for variant in shown.variants
        )
    if isinstance(shown, OrderDistribution):
        return _distribution_summary(shown)
    trace = trace_of(shown)
    return f'<div style="overflow-x:auto">{svg(trace)}</div>{notes_list(trace)}<p>{safe(_confidence_text(trace))}</p>'


def _outputs_table(prediction: Prediction) -> str:
    rows = "".join(
        f"<tr><td>{output.score:.3f}</td><td>{safe(output.text)}</td></tr>"
        for output in (prediction, *prediction.alternatives)
    )
    return (
        f"<table><thead><tr><th>log-probability</th><th>output</th></tr></thead><tbody>{rows}</tbody></table>"
    )


def _distribution_summary(distribution: OrderDistribution) -> str:
    """The entropy and the most probable derivation of the first sentences of a batch of at most one dimension."""
    name = safe(repr(distribution))
    with no_grad():
        derivations = distribution.best_derivation()[:MAX_SHOWN]
        entropies = (distribution.entropy() / log(2)).flatten().tolist()
    parts = [
        f"<p>sentence {number}: entropy {entropy:.2f} bits; the most probable derivation:</p>{as_html(derivation)}"
        for number, (derivation, entropy) in enumerate(zip(derivations, entropies, strict=False))
    ]
    rest = len(entropies) - len(parts)
    more = f"<p>and {rest} more</p>" if rest > 0 else ""
    return f"<p><code>{name}</code></p>{''.join(parts)}{more}"


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
