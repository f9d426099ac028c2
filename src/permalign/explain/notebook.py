"""What a notebook shows of our objects. `permalign.showing` finds this module when it is asked for."""

from permalign.explain.account import Account, nodes_of
from permalign.explain.in_words import figures, notes_list
from permalign.explain.markup import safe
from permalign.explain.picture import svg
from permalign.prediction import Explanation
from permalign.structures import Derivation


def as_html(shown: Account | Explanation | Derivation) -> str:
    """A picture with its own style; tokens of a derivation have numbers for names.

    >>> from permalign.structures import Tree
    >>> tree = Tree(0, 2, "I", (Tree(0, 1), Tree(1, 2)))
    >>> "inverted" in as_html(Derivation(tree, tree.order, -0.1))
    True
    """
    account = account_of(shown)
    return f'<div style="overflow-x:auto">{svg(account)}</div>{notes_list(account)}<p>{safe(_figures(account))}</p>'


def _figures(account: Account) -> str:
    return ", ".join(f"{name} {value}" for name, value, _ in figures(account))


def account_of(shown: Account | Explanation | Derivation) -> Account:
    """What is known of an explanation or a derivation, which have no distribution at hand."""
    if isinstance(shown, Account):
        return shown
    if isinstance(shown, Derivation):
        names = tuple(map(str, range(len(shown.order))))
        return Account(names, (), order=shown.order, nodes=nodes_of(shown.tree))
    return Account(
        shown.source,
        shown.target,
        order=shown.order,
        nodes=() if shown.derivation is None else nodes_of(shown.derivation.tree),
        segments=shown.segments,
    )
