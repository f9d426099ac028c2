"""Random well-typed programs, and a slow but obviously correct parser to compare the grammar with."""

from functools import cache

from hypothesis import strategies as st

from permalign.tasks.grammar import Grammar, Rule
from permalign.tasks.program import Program

# A grammar that is small enough to enumerate, with everything that makes parsing hard: a constant that may be left out,
# a function with several types, and a function that takes two arguments of the same type.
TOY = Grammar(
    ["City", "State"],
    [
        Rule("all", "All"),
        Rule("city", "City", ("All",)),
        Rule("city", "City", ("City",)),
        Rule("state", "State", ("All",)),
        Rule("state", "State", ("State",)),
        Rule("in", "City", ("State",)),
        Rule("in", "State", ("City",)),
        Rule("less", "City", ("City", "City")),
        Rule("less", "State", ("State", "State")),
        Rule("austin", "City"),
    ],
    optional=["all"],
)


@st.composite
def programs(draw, grammar, kind=None, depth=6):
    """A well-typed program of one of the grammar's start types, not much deeper than ``depth``."""
    kind = kind or draw(st.sampled_from(grammar.start))
    rules = [rule for rule in grammar.rules if rule.result == kind]
    if depth <= 0:
        rules = [rule for rule in rules if _depth(grammar)[rule] == min(_depth(grammar)[r] for r in rules)]
    rule = draw(st.sampled_from(rules))
    return Program(rule.function, tuple(draw(programs(grammar, k, depth - 1)) for k in rule.arguments))


@cache
def _depth(grammar):
    """For each rule, the depth of the shallowest program that begins with it."""
    depth = dict.fromkeys(grammar.rules, float("inf"))
    for _ in grammar.rules:
        of_type = {rule.result: min(depth[r] for r in depth if r.result == rule.result) for rule in depth}
        depth = {rule: 1 + max((of_type[k] for k in rule.arguments), default=0) for rule in depth}
    return depth


@cache
def strings(grammar, kind, length):
    """All token sequences of a given length that are programs of a type, by enumeration."""
    sequences = set()
    for rule in grammar.rules:
        if rule.result == kind:
            sequences |= {
                (rule.function, *arguments) for arguments in _sequences(grammar, rule.arguments, length - 1)
            }
            if rule.function in grammar.optional and length == 0:
                sequences.add(())
    return sequences


def _sequences(grammar, kinds, length):
    if not kinds:
        return {()} if length == 0 else set()
    return {
        first + remaining
        for first_length in range(length + 1)
        for first in strings(grammar, kinds[0], first_length)
        for remaining in _sequences(grammar, kinds[1:], length - first_length)
    }


def all_readings(grammar, tokens):
    """All programs that may be written as the given tokens, each as its nodes in prefix order, by exhaustive search."""
    readings = set()
    for kind in grammar.start:
        readings |= {nodes for nodes, end in _readings(grammar, kind, tuple(tokens), 0) if end == len(tokens)}
    return readings


def _readings(grammar, kind, tokens, start):
    for rule in grammar.rules:
        if rule.result != kind:
            continue
        node = ((rule.function, len(rule.arguments)),)
        begins = [start + 1] if tokens[start : start + 1] == (rule.function,) else []
        begins += [start] if rule.function in grammar.optional else []
        for begin in begins:
            partial = [(node, begin)]
            for argument in rule.arguments:
                partial = [
                    (nodes + more, end)
                    for nodes, middle in partial
                    for more, end in _readings(grammar, argument, tokens, middle)
                ]
            yield from partial


def preferred(grammar, readings):
    """The documented parse: constants that were left out are preferred, then fewer arguments."""
    return min(readings, key=lambda nodes: [(name not in grammar.optional, n) for name, n in nodes])
