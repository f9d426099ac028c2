"""Grammars of some programs of GeoQuery, generalized to other types."""

import pytest

from permalign.tasks.geoquery.generalization import generalize
from permalign.tasks.geoquery.signatures import program_grammar
from permalign.tasks.grammar import GrammarError
from permalign.tasks.grammar_of_programs import restrict_to_programs

SEEN = (
    "most state next_to_1 state",
    "traverse_1 river",
    "largest_one population_1 city loc_2 stateid_ENTITY",
    "density_1 stateid_ENTITY",
    "count city loc_2 countryid_ENTITY",
    "city",
    "elevation_1 highest place",
)


@pytest.fixture(scope="module")
def seen():
    return restrict_to_programs(program_grammar(), map(str.split, SEEN))


@pytest.mark.parametrize(
    "program",
    [
        "traverse_1 most river",  # a selection of another type
        "density_1 countryid_ENTITY",  # a number of another type
        "largest_one density_1 state",  # selection by another measure, for another type
        "largest_one density_1 city loc_2 stateid_ENTITY",
        "count highest river",
    ],
)
def test_functions_are_generalized_to_other_types(seen, program):
    tokens = program.split()
    with pytest.raises(GrammarError):
        seen.read(tokens)
    assert generalize(seen).linearize(generalize(seen).read(tokens)) == tokens


@pytest.mark.parametrize(
    "program",
    [
        "longest river",  # an unseen function
        "mountain loc_2 stateid_ENTITY",
        "traverse_1 state",  # a relation between different types keeps them
        "state river",
        "city population_1 stateid_ENTITY",  # a number is not an entity
        "largest_one count city",  # a count is not a measure
    ],
)
def test_other_rules_stay_as_they_are(seen, program):
    assert not _accepts(generalize(seen), program.split())


def test_every_rule_of_the_programs_is_kept(seen):
    general = generalize(seen)
    assert general.rules[: len(seen.rules)] == seen.rules
    assert (general.start, general.optional) == (seen.start, seen.optional)
    assert set(generalize(general).rules) == set(general.rules)


def _accepts(grammar, tokens):
    try:
        grammar.read(tokens)
    except GrammarError:
        return False
    return True
