"""The subprograms of a program that is written without brackets: which tokens they are, and their types."""

from collections.abc import Sequence
from typing import NamedTuple

from permalign.tasks.grammar import Grammar, Rule
from permalign.tasks.program import Program


class Subprogram(NamedTuple):
    """A function with its arguments, as part of a program.

    Attributes:
        start: the position of its first token.
        end: the position after its last token.
        kinds: the types that it can have where it stands.
    """

    start: int
    end: int
    kinds: frozenset[str]


def find_subprograms(grammar: Grammar, tokens: Sequence[str]) -> list[Subprogram]:
    """Find all subprograms with at least one token, in prefix order; the first is the program itself.

    >>> noun = [Rule("river", "River", ("All",)), Rule("all", "All"), Rule("utah", "State")]
    >>> rules = [*noun, Rule("len", "Num", ("River",)), Rule("in", "River", ("State",))]
    >>> grammar = Grammar(["Num"], rules, optional=["all"])
    >>> [(part.start, part.end, *part.kinds) for part in find_subprograms(grammar, ["len", "in", "utah"])]
    [(0, 3, 'Num'), (1, 3, 'River'), (2, 3, 'State')]

    Raises:
        GrammarError: the tokens are not a program of the grammar.
    """
    by_function: dict[str, list[Rule]] = {}
    for rule in grammar.rules:
        by_function.setdefault(rule.function, []).append(rule)
    program = grammar.read(tokens)
    left_out = grammar.optional if len(tokens) < sum(1 for _ in program.nodes()) else frozenset()
    found: list[Subprogram] = []

    def visit(node: Program, kinds: frozenset[str], start: int) -> int:
        """Add the node and all below it; returns the position after its last token."""
        written = node.function not in left_out
        index = len(found)
        if written:
            found.append(Subprogram(start, start, kinds))
        end = start + written
        options = [_kinds(argument, by_function) for argument in node.arguments]
        rules = [rule for rule in _fitting(node, options, by_function) if rule.result in kinds]
        for number, argument in enumerate(node.arguments):
            end = visit(argument, frozenset(rule.arguments[number] for rule in rules), end)
        if written:
            found[index] = found[index]._replace(end=end)
        return end

    visit(program, frozenset(grammar.start) & _kinds(program, by_function), 0)
    return found


def _kinds(program: Program, by_function: dict[str, list[Rule]]) -> frozenset[str]:
    """The types that a program can have by itself."""
    options = [_kinds(argument, by_function) for argument in program.arguments]
    return frozenset(rule.result for rule in _fitting(program, options, by_function))


def _fitting(
    program: Program, options: Sequence[frozenset[str]], by_function: dict[str, list[Rule]]
) -> list[Rule]:
    """The rules of the program's function whose arguments can have the types in ``options``."""
    return [
        rule
        for rule in by_function[program.function]
        if len(rule.arguments) == len(options)
        and all(kind in kinds for kind, kinds in zip(rule.arguments, options, strict=True))
    ]
