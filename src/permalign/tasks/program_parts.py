"""What consecutive tokens can be part of, in a program that is written in prefix order without brackets.

After the first tokens of a program, arguments of certain types are still to be written: the *pending* types, the next
one first. Consecutive tokens from anywhere in a program replace the first of these types by others, which is their
`Effect`. The token ``len`` completes a number except for a river, and ``len river`` completes it. Joining two parts
composes their effects, so that a chart can build programs from parts in any order, not only from left to right.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise, product
from typing import NamedTuple

from permalign.tasks.grammar import Grammar, Rule


class Effect(NamedTuple):
    """What some tokens do to the pending types.

    Attributes:
        taken: the types that they take away, the next one first.
        pending: the types that are pending in their place.
    """

    taken: tuple[str, ...]
    pending: tuple[str, ...]


Effects = frozenset[Effect]
"""The effects that some tokens can have; there may be several, because a function may have several rules."""

NOTHING: Effects = frozenset({Effect((), ())})
"""The effect of no tokens."""


@cache
def balances(effects: Effects) -> tuple[int, ...]:
    """How many types the effects leave pending, less those that they take: -1 for every constant, 0 for a function.

    >>> balances(frozenset({Effect(("Num",), ("River",)), Effect(("Num",), ())}))
    (-1, 0)
    """
    return tuple(sorted({len(effect.pending) - len(effect.taken) for effect in effects}))


class ProgramParts:
    """The effects of all parts of the programs of a grammar.

    Args:
        grammar: the grammar.
        tokens: the tokens that can be written; None for all of the grammar.

    >>> rules = [Rule("len", "Num", ("River",)), Rule("in", "River", ("State",)), Rule("utah", "State")]
    >>> parts = ProgramParts(Grammar(["Num"], rules))
    >>> chain = parts.join(parts.of_token("len"), parts.of_token("in"))
    >>> chain
    frozenset({Effect(taken=('Num',), pending=('State',))})
    >>> parts.is_program(chain), parts.is_program(parts.join(chain, parts.of_token("utah")))
    (False, True)
    >>> parts.join(parts.of_token("in"), parts.of_token("len"))  # a number is nowhere an argument
    frozenset()
    """

    def __init__(self, grammar: Grammar, tokens: Iterable[str] | None = None) -> None:
        writable = grammar.tokens if tokens is None else grammar.tokens & {*tokens}
        left_out = {rule.result for rule in grammar.rules if rule.function in grammar.optional}
        written = {rule.result for rule in grammar.rules if rule.function in writable}
        self._effects: dict[str, Effects] = {}
        pairs: set[tuple[str, str]] = set()
        last_arguments: dict[str, set[str]] = {}
        for rule in grammar.rules:
            for arguments in _written_arguments(rule, left_out, written):
                if rule.function in writable:
                    effects = self._effects.get(rule.function, frozenset())
                    self._effects[rule.function] = effects | {Effect((rule.result,), arguments)}
                pairs |= set(pairwise(arguments))
                last_arguments.setdefault(rule.result, set()).update(arguments[-1:])
        # X is pending directly before Y if Y follows, among the arguments of a rule, a type that X can remain of
        self._adjacent = {
            (kind, after) for before, after in pairs for kind in _remains(before, last_arguments)
        }
        self._programs = {Effect((kind,), ()) for kind in grammar.start}
        if left_out & {*grammar.start}:
            self._programs |= NOTHING
        self.program_balances = balances(frozenset(self._programs))
        self._joined: dict[tuple[Effects, Effects], Effects] = {}

    def of_token(self, token: str) -> Effects:
        """The effects of one token; none if it is not part of any program."""
        return self._effects.get(token, frozenset())

    def join(self, first: Effects, second: Effects) -> Effects:
        """The effects of one part followed by another; none if no program contains them side by side."""
        joined = self._joined.get((first, second))
        if joined is None:
            composed = (_compose(one, other) for one in first for other in second)
            joined = frozenset(effect for effect in composed if effect and self._is_possible(effect))
            self._joined[first, second] = joined
        return joined

    def is_program(self, effects: Effects) -> bool:
        """Whether a part with these effects is a whole program."""
        return not self._programs.isdisjoint(effects)

    def _is_possible(self, effect: Effect) -> bool:
        """Whether such types can be pending one after the other."""
        return all(self._adjacent.issuperset(pairwise(kinds)) for kinds in effect)


def _written_arguments(rule: Rule, left_out: set[str], written: set[str]) -> Iterator[tuple[str, ...]]:
    """Yield the types of the arguments that are written, for each choice of those that are left out."""
    choices: list[list[tuple[str, ...]]] = [
        [(kind,)] * (kind in written) + [()] * (kind in left_out) for kind in rule.arguments
    ]
    for chosen in product(*choices):
        yield tuple(kind for kinds in chosen for kind in kinds)


def _remains(kind: str, last_arguments: dict[str, set[str]]) -> set[str]:
    """The types that can be all that is left to write of a type."""
    found, waiting = {kind}, [kind]
    while waiting:
        new = last_arguments.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found


def _compose(first: Effect, second: Effect) -> Effect | None:
    """The effect of two parts in a row; None if the second does not continue the first."""
    common = min(len(first.pending), len(second.taken))
    if first.pending[:common] != second.taken[:common]:
        return None
    return Effect(first.taken + second.taken[common:], second.pending + first.pending[common:])
