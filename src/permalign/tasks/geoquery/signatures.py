"""The types of FunQL's functions, as the 880 questions use them, and the grammars of masked programs.

FunQL says nothing about types. These were read off the productions that come with the corpus: each function,
its result and its argument. A question outside these types (``len`` of a city) is not well typed here.
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
"""The functions that name one thing in the world, and its type. A masked program has only the function."""

MASK = "_ENTITY"
"""What a masked program writes after the function: ``stateid_ENTITY`` for ``stateid('texas')``."""

ANSWERS = ("City", "Country", "Num", "Place", "River", "State")
"""The types of question: ``answer`` takes one of these."""

ALL = "all"
"""The constant that a noun without further description is applied to: ``river(all)``, all rivers."""

# "Result: Argument Argument ..." for a function of one argument; exclude and intersection take two of the
# same type, which is also their result.
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
_TWO_ARGUMENTS = {"exclude": "City Place River State", "intersection": "City River State"}
_NUMBERS = ("0",)

# largest_one(area_1(X)) is the X of largest area: it looks at the function inside, not at its number. So
# area_1(X) has a second type here, "the areas of X", which only these two take.
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
"""The words that functions are named by: ``high``, ``point`` and ``1`` of ``high_point_1``."""


def rules() -> list[Rule]:
    """Every rule of masked programs."""
    found = [Rule(entity + MASK, kind) for entity, kind in ENTITIES.items()]
    found += [Rule(number, "Num") for number in _NUMBERS]
    found.append(Rule(ALL, "All"))
    for function, signatures in _ONE_ARGUMENT.items():
        for signature in signatures.split("; "):
            result, arguments = signature.split(": ")
            found += [Rule(function, result, (argument,)) for argument in arguments.split()]
    for function, kinds in _TWO_ARGUMENTS.items():
        found += [Rule(function, kind, (kind, kind)) for kind in kinds.split()]
    for function, measures in _BY_MEASURE.items():
        for measure, kinds in measures.items():
            for kind in kinds.split():
                measured = f"{measure} of {kind}"
                found += [Rule(function, kind, (measured,)), Rule(measure, measured, (kind,))]
    return list(dict.fromkeys(found))


@cache
def program_grammar(write_all: bool = False) -> Grammar:
    """The grammar of masked programs; `all` may be left out unless ``write_all`` is set.

    It may be left out everywhere, so a decoder whose vocabulary lacks it meets no dead end.

    >>> program_grammar().read("largest state".split()).arguments[0].arguments
    (Program(function='all', arguments=()),)
    """
    return Grammar(ANSWERS, rules(), optional=() if write_all else (ALL,))
