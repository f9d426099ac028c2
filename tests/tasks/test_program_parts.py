"""Parts of programs: joined effects tell exactly which tokens are a program, and which are part of one."""

from itertools import product

import pytest

from permalign.tasks.geoquery.signatures import program_grammar
from permalign.tasks.grammar import Grammar, Rule
from permalign.tasks.program_parts import NOTHING, ProgramParts

UNARY = Grammar(["A"], [Rule("f", "A", ("B",)), Rule("g", "B", ("A",)), Rule("x", "A"), Rule("y", "B")])
BINARY = Grammar(["A"], [Rule("f", "A", ("A", "B")), Rule("g", "B", ("B",)), Rule("x", "A"), Rule("y", "B")])
OVERLOADED = Grammar(
    ["A", "B"], [Rule("f", "A", ("A",)), Rule("f", "B", ("A", "B")), Rule("x", "A"), Rule("x", "B")]
)
OPTIONAL = Grammar(
    ["A"],
    [Rule("f", "A", ("All",)), Rule("f", "A", ("A",)), Rule("g", "A", ("A", "All")), Rule("x", "All")],
    optional=["x"],
)
OPTIONAL_START = Grammar(["All"], [Rule("x", "All"), Rule("f", "All", ("All",))], optional=["x"])
GRAMMARS = {
    "unary": UNARY,
    "binary": BINARY,
    "overloaded": OVERLOADED,
    "optional": OPTIONAL,
    "optional start": OPTIONAL_START,
}


def effects(parts, tokens):
    """The effects of tokens, joined from left to right."""
    joined = NOTHING
    for token in tokens:
        joined = parts.join(joined, parts.of_token(token))
    return joined


def strings(grammar, longest):
    return [string for size in range(longest + 1) for string in product(sorted(grammar.tokens), repeat=size)]


def is_program(grammar, tokens):
    try:
        return grammar.state(tokens).complete
    except ValueError:
        return False


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
def test_the_same_strings_are_programs_as_by_the_grammar(grammar):
    parts = ProgramParts(grammar)
    for tokens in strings(grammar, 5):
        assert parts.is_program(effects(parts, tokens)) == is_program(grammar, tokens), tokens


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
def test_tokens_have_effects_if_and_only_if_they_are_part_of_a_program(grammar):
    parts, short = ProgramParts(grammar), 2
    programs = [tokens for tokens in strings(grammar, 6) if is_program(grammar, tokens)]
    inside = {
        program[start : start + size]
        for program in programs
        for size in range(short + 1)
        for start in range(len(program) - size + 1)
    }
    for tokens in strings(grammar, short):
        assert bool(effects(parts, tokens)) == (tokens in inside), tokens


@pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)
def test_parts_can_be_joined_in_any_order(grammar):
    parts = ProgramParts(grammar)
    for tokens in strings(grammar, 4):
        for middle in range(len(tokens) + 1):
            halves = effects(parts, tokens[:middle]), effects(parts, tokens[middle:])
            assert parts.join(*halves) == effects(parts, tokens)


def test_only_writable_tokens_are_parts():
    parts = ProgramParts(UNARY, tokens=["f", "y"])
    assert not parts.of_token("x")
    assert parts.is_program(effects(parts, ["f", "y"]))


def test_the_grammar_of_geoquery():
    parts = ProgramParts(program_grammar())
    longest = ["longest", "river", "loc_2", "countryid_ENTITY"]
    assert parts.is_program(effects(parts, longest))
    assert not parts.is_program(effects(parts, longest[:-1]))
    assert not effects(parts, ["len", "state"])
