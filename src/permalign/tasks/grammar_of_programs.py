"""The part of a grammar that given programs use, such as the training programs of a run."""

from collections.abc import Iterable, Sequence

from permalign.tasks.grammar import Grammar, Rule
from permalign.tasks.program import Program


def restrict_to_programs(grammar: Grammar, programs: Iterable[Sequence[str]]) -> Grammar:
    """The grammar of the rules and start types that the given programs use.

    Decoding with it knows nothing about outputs that the programs do not show, such as a function that is applied to a
    new type of argument. Where a program is well typed in several ways (in GeoQuery, ``loc_2 stateid_ENTITY`` denotes
    cities, places or rivers), all of them count as used.

    >>> noun = [Rule("river", "River", ("All",)), Rule("river", "River", ("River",)), Rule("all", "All")]
    >>> grammar = Grammar(["River", "Num"], [*noun, Rule("len", "Num", ("River",))], optional=["all"])
    >>> used = restrict_to_programs(grammar, [["len", "river"]])
    >>> [" ".join([rule.function, *rule.arguments]) for rule in used.rules], used.start
    (['river All', 'all', 'len River'], ('Num',))

    Args:
        grammar: a grammar that reads all the programs.
        programs: the tokens of each program, at least one.

    Raises:
        GrammarError: the grammar does not read a program.
        ValueError: there are no programs.
    """
    by_function: dict[str, list[Rule]] = {}
    for rule in grammar.rules:
        by_function.setdefault(rule.function, []).append(rule)
    used: set[Rule] = set()
    start: set[str] = set()
    for tokens in dict.fromkeys(map(tuple, programs)):
        typings = _rules_by_type(grammar.read(tokens), by_function)
        for kind in typings.keys() & set(grammar.start):
            start.add(kind)
            used |= typings[kind]
    if not start:
        raise ValueError("there are no programs; expected at least one.")
    return Grammar(
        [kind for kind in grammar.start if kind in start],
        [rule for rule in grammar.rules if rule in used],
        grammar.optional & {rule.function for rule in used},
    )


def _rules_by_type(program: Program, by_function: dict[str, list[Rule]]) -> dict[str, set[Rule]]:
    """For each type that the program can have, the rules that it uses if it has this type."""
    arguments = [_rules_by_type(argument, by_function) for argument in program.arguments]
    typings: dict[str, set[Rule]] = {}
    for rule in by_function[program.function]:
        if len(rule.arguments) == len(arguments) and all(
            kind in argument for kind, argument in zip(rule.arguments, arguments, strict=True)
        ):
            typings.setdefault(rule.result, set()).update(
                {rule}, *(argument[kind] for kind, argument in zip(rule.arguments, arguments, strict=True))
            )
    return typings
