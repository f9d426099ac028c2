"""The type signatures of FunQL's functions, and the grammar of masked programs that follows from them.

FunQL itself has no types. These signatures cover the 880 questions of the corpus: they were taken from its productions,
which give the result and the arguments of every function that occurs. Any other use of a function, such as the length
(``len``) of a city, is not well typed.
"""

from functools import cache

from permalign.tasks.grammar import Grammar, Rule

ENTITIES = {
    "cityid": "City",
    "countryid": "Country",
    "placeid": "Place",
    "riverid": "River",
    "stateid": "State",
}
"""The functions whose arguments name an entity, and the entity's type. Masking replaces such a call by one token."""

MASK = "_ENTITY"
"""The suffix of a masked entity: ``stateid('texas')`` becomes the token ``stateid_ENTITY``."""

ANSWERS = ("City", "Country", "Num", "Place", "River", "State")
"""The types that the argument of ``answer`` may have."""

ALL = "all"
"""The constant for all entities: ``river(all)`` denotes all rivers."""

NUMBER = "Num"
"""The type of numbers."""

MEASURES = frozenset({"area_1", "density_1", "elevation_1", "len", "population_1", "size"})
"""The functions that give every member of a set a number."""

# The signatures of functions with one argument, written as "Result: Argument1 Argument2; Result: Argument": the result
# type, and the types that the argument may have.
_ONE_ARGUMENT = {
    "area_1": "Num: City Country State",
    "capital": "City: City Place All",
    "capital_1": "City: State",
    "capital_2": "State: City",
    "city": "City: City All",
    "count": "Num: City River State",
    "density_1": "Num: Country State",
    "elevation_1": "Num: Place",
    "elevation_2": "Place: Num",
    "fewest": "State: State",
    "high_point_1": "Place: State",
    "high_point_2": "State: Place",
    "higher_2": "Place: Place",
    "highest": "Place: Place",
    "lake": "Place: Place",
    "largest": "City: City; State: State",
    "len": "Num: River",
    "loc_1": "State: City Place River; Country: State",
    "loc_2": "City: Country State; Place: City Country State; River: Country State; State: Country",
    "longer": "River: River",
    "longest": "River: River",
    "low_point_1": "Place: State",
    "low_point_2": "State: Place",
    "lower_2": "Place: Place",
    "lowest": "Place: Place",
    "major": "City: City; Place: Place; River: River",
    "most": "River: River; State: State",
    "mountain": "Place: Place All",
    "next_to_1": "State: State",
    "next_to_2": "State: River State",
    "place": "Place: Place All",
    "population_1": "Num: City Country State",
    "river": "River: River All",
    "shortest": "River: River",
    "size": "Num: City State",
    "smallest": "City: City; Num: Num; State: State",
    "state": "State: State All",
    "sum": "Num: Num",
    "traverse_1": "State: River",
    "traverse_2": "River: City Country State",
}
# Functions with two arguments of the same type, which is also the type of their result.
_TWO_ARGUMENTS = {"exclude": "City Place River State", "intersection": "City River State"}
_NUMBERS = ("0",)

# These functions have a measure as their argument, see `measured`.
_BY_MEASURE = {
    "largest_one": {"area_1": "State", "density_1": "City State", "population_1": "City State"},
    "smallest_one": {"area_1": "State", "density_1": "State", "population_1": "City State"},
}

FUNCTION_WORDS = frozenset(
    word
    for functions in (_ONE_ARGUMENT, _TWO_ARGUMENTS, _BY_MEASURE)
    for function in functions
    for word in function.split("_")
)
"""The parts of the names of functions: ``high``, ``point`` and ``1`` for ``high_point_1``."""


def measured(measure: str, kind: str) -> str:
    """The type of a measure that selects members of a set.

    ``largest_one(area_1(X))`` denotes the member of X with the largest area, not a number. So ``area_1(X)`` has a
    second result type, "area_1 of X", which only ``largest_one`` and ``smallest_one`` accept.
    """
    return f"{measure} of {kind}"


def rules() -> list[Rule]:
    """All grammar rules of masked programs."""
    all_rules = [Rule(entity + MASK, kind) for entity, kind in ENTITIES.items()]
    all_rules += [Rule(number, "Num") for number in _NUMBERS]
    all_rules.append(Rule(ALL, "All"))
    for function, signatures in _ONE_ARGUMENT.items():
        for signature in signatures.split("; "):
            result, arguments = signature.split(": ")
            all_rules += [Rule(function, result, (argument,)) for argument in arguments.split()]
    for function, kinds in _TWO_ARGUMENTS.items():
        all_rules += [Rule(function, kind, (kind, kind)) for kind in kinds.split()]
    for function, measures in _BY_MEASURE.items():
        for measure, kinds in measures.items():
            for kind in kinds.split():
                argument = measured(measure, kind)
                all_rules += [Rule(function, kind, (argument,)), Rule(measure, argument, (kind,))]
    return list(dict.fromkeys(all_rules))


@cache
def program_grammar(write_all: bool = False) -> Grammar:
    """The grammar of masked programs; the constant ``all`` may be left out unless ``write_all`` is set.

    It may be left out at every position, so that a decoder whose vocabulary does not contain it can still complete
    every program.

    >>> program_grammar().read("largest state".split()).arguments[0].arguments
    (Program(function='all', arguments=()),)
    """
    return Grammar(ANSWERS, rules(), optional=() if write_all else (ALL,))
