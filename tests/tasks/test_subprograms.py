from itertools import product

import pytest
from hypothesis import given
from tests.tasks.programs import TOY, programs

from permalign.tasks.grammar import Grammar, GrammarError
from permalign.tasks.subprograms import find_subprograms


def kinds_by_enumeration(program):
    """For each node in prefix order, its types in all ways in which the program is well typed."""
    nodes = list(program.nodes())
    choices = [[rule for rule in TOY.rules if rule.function == node.function] for node in nodes]
    kinds = [set() for _ in nodes]
    for rules in product(*choices):
        expected, fits = [TOY.start], True
        for node, rule in zip(nodes, rules, strict=True):
            fits = fits and rule.result in expected.pop() and len(rule.arguments) == len(node.arguments)
            if not fits:
                break
            expected += [(kind,) for kind in reversed(rule.arguments)]
        if fits:
            for found, rule in zip(kinds, rules, strict=True):
                found.add(rule.result)
    return kinds


@given(programs(TOY, depth=2))
def test_subprograms_are_the_nodes_of_the_program_with_all_their_types(program):
    tokens = TOY.linearize(program)
    parts = find_subprograms(TOY, tokens)
    written = "all" in tokens
    pairs = zip(program.nodes(), kinds_by_enumeration(program), strict=True)
    nodes = [(node, kinds) for node, kinds in pairs if written or node.function != "all"]
    assert [part.kinds for part in parts] == [kinds for _, kinds in nodes]
    assert [part.start for part in parts] == list(range(len(tokens)))
    for part, (node, _) in zip(parts, nodes, strict=True):
        functions = [below.function for below in node.nodes() if written or below.function != "all"]
        assert tokens[part.start : part.end] == functions
        kind = sorted(part.kinds)[0]
        assert Grammar([kind], TOY.rules, TOY.optional).state(tokens[part.start : part.end]).complete


def test_tokens_that_are_no_program_have_no_subprograms():
    with pytest.raises(GrammarError):
        find_subprograms(TOY, ["less", "austin"])
