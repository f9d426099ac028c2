"""Execute FunQL programs on the facts of Geobase.

Every function maps sets to sets. A noun keeps the things of its kind (``river``); a relation returns everything related
to some member of its argument (``next_to_2``); a superlative keeps the members with the largest or smallest measure,
ties included (``longest``); a measure returns the numbers of its members (``population_1``). Things without a measure
are ignored: cities have no area, so no city is the densest.

``most`` and ``fewest`` count: ``most(state(loc_1(city(all))))`` are those members of
``state(loc_1(city(all)))`` that are in the relation ``loc_1`` to the most members of ``city(all)``.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from permalign.tasks.geoquery.funql import ANSWER
from permalign.tasks.geoquery.signatures import ALL, ENTITIES
from permalign.tasks.geoquery.world import Measure, Number, Thing, World, inverse
from permalign.tasks.program import Program

Things = frozenset[Thing]
Numbers = Mapping[Thing | None, Number]
"""The number of each thing that has one; a number that belongs to no thing has the key None."""

Denotation = frozenset[str | Number]
"""The result of a program: entities as FunQL names them, or numbers."""

MAJOR = {"city": ("population", 150_000), "river": ("length", 750), "lake": ("area", 5_000)}
"""A major city has more inhabitants, a major river is longer (km), a major lake is larger (square km).

For cities and rivers these thresholds fit the recorded answers, which have none for lakes; ours selects the five
Great Lakes and the Great Salt Lake.
"""


class ExecutionError(ValueError):
    """A program without meaning, such as a population of numbers."""


class Executor:
    """Executes programs on the facts about one world.

    Args:
        world: the facts, see `world_of`.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        capitals = {city for cities in world.capital.values() for city in cities}
        population, area = world.measures["population"], world.measures["area"]
        length, elevation = world.measures["length"], world.measures["elevation"]
        lands = {thing: number for thing, number in area.items() if thing.kind in {"state", "country"}}
        cities = {thing: number for thing, number in population.items() if thing.kind == "city"}
        density = {thing: population[thing] / number for thing, number in lands.items()}
        size = lands | cities
        self._filters: dict[str, Callable[[Thing], bool]] = {
            "state": lambda thing: thing.kind == "state",
            "city": lambda thing: thing.kind == "city",
            "river": lambda thing: thing.kind == "river",
            "lake": lambda thing: thing.kind == "lake",
            "place": lambda thing: thing.kind in {"place", "lake"},
            "mountain": lambda thing: thing in world.mountains,
            "capital": lambda thing: thing in capitals,
            "major": self._is_major,
        }
        self._relations: dict[str, Callable[[Thing], Iterable[Thing]]] = {
            "loc_1": _lookup(world.within),
            "loc_2": _lookup(inverse(world.within)),
            "next_to_1": _lookup(world.borders),
            "next_to_2": _lookup(inverse(world.borders)),
            "traverse_1": _lookup(world.crosses),
            "traverse_2": _lookup(inverse(world.crosses)),
            "capital_1": _lookup(world.capital),
            "capital_2": _lookup(inverse(world.capital)),
            "high_point_1": _lookup(world.high_point),
            "high_point_2": _lookup(inverse(world.high_point)),
            "low_point_1": _lookup(world.low_point),
            "low_point_2": _lookup(inverse(world.low_point)),
            "higher_2": lambda thing: _more(elevation, thing),
            "lower_2": lambda thing: _more({place: -n for place, n in elevation.items()}, thing),
            "longer": lambda thing: _more(length, thing),
        }
        self._measures: dict[str, Measure] = {
            "population_1": population,
            "area_1": area,
            "density_1": density,
            "elevation_1": elevation,
            "len": length,
            "size": size,
        }
        self._superlatives: dict[str, tuple[Measure, Callable[[Iterable[Number]], Number]]] = {
            "largest": (size, max),
            "smallest": (size, min),
            "longest": (length, max),
            "shortest": (length, min),
            "highest": (elevation, max),
            "lowest": (elevation, min),
        }

    def __call__(self, program: Program) -> Denotation:
        """The result of a complete program, ``answer(...)``.

        Raises:
            ExecutionError: the program has no meaning.
        """
        if program.function != ANSWER or len(program.arguments) != 1:
            raise ExecutionError(f"a question is {ANSWER}(...) of one program, not {program.function!r}.")
        value = self._value(program.arguments[0])
        if isinstance(value, frozenset):
            return frozenset(thing.funql for thing in value)
        return frozenset(value.values())

    def _value(self, program: Program) -> Things | Numbers:
        function, arguments = program.function, program.arguments
        if function in ENTITIES:
            return self._entity(function, [argument.function for argument in arguments])
        if function == ALL and not arguments:
            return frozenset(self._world.things)
        if function.isdecimal() and not arguments:
            return {None: int(function)}
        if function in {"exclude", "intersection"} and len(arguments) == 2:
            first, second = self._things(arguments[0]), self._things(arguments[1])
            return first - second if function == "exclude" else first & second
        if len(arguments) != 1:
            raise ExecutionError(f"unknown function {function!r} with {len(arguments)} arguments.")
        return self._applied(function, arguments[0])

    def _applied(self, function: str, argument: Program) -> Things | Numbers:
        """Apply a function to its only argument."""
        if function in self._filters:
            return frozenset(filter(self._filters[function], self._things(argument)))
        if function in self._relations:
            related = self._relations[function]
            return frozenset(other for thing in self._things(argument) for other in related(thing))
        if function in self._measures:
            measure = self._measures[function]
            return {thing: measure[thing] for thing in self._things(argument) if thing in measure}
        if function in {"most", "fewest"}:
            return _best(self._counts(argument), max if function == "most" else min)
        if function in {"largest_one", "smallest_one"}:
            return _best(self._numbers(argument), max if function == "largest_one" else min)
        if function == "count":
            return {None: len(self._things(argument))}
        if function == "sum":
            return {None: sum(self._numbers(argument).values())}
        if function == "elevation_2":
            elevations = set(self._numbers(argument).values())
            return frozenset(
                place for place, number in self._world.measures["elevation"].items() if number in elevations
            )
        if function in self._superlatives:
            return self._superlative(function, self._value(argument))
        raise ExecutionError(f"unknown function {function!r} with one argument.")

    def _superlative(self, function: str, value: Things | Numbers) -> Things | Numbers:
        measure, best = self._superlatives[function]
        if isinstance(value, frozenset):
            return _best({thing: measure[thing] for thing in value if thing in measure}, best)
        return {None: best(value.values())} if value else {}

    def _entity(self, function: str, names: list[str]) -> Things:
        kind = function.removesuffix("id")
        name, *state = [name.strip("'") for name in names] or [""]
        found = self._world.named.get((kind, name), set())
        if kind == "place":
            found = found | self._world.named.get(("lake", name), set())
        return frozenset(thing for thing in found if state in ([], ["_"], [thing.state]))

    def _counts(self, program: Program) -> Counter[Thing]:
        """For each member of the program, the number of members of the relation's argument it is related to."""
        function = program.function
        if len(program.arguments) == 1 and function in self._relations:
            related = self._relations[function]
            return Counter(
                other for thing in self._things(program.arguments[0]) for other in set(related(thing))
            )
        if len(program.arguments) == 1 and function in self._filters:
            counts = self._counts(program.arguments[0])
            return Counter({thing: n for thing, n in counts.items() if self._filters[function](thing)})
        raise ExecutionError(f"{function!r} is not a relation, so `most` and `fewest` do not apply.")

    def _things(self, program: Program) -> Things:
        value = self._value(program)
        if not isinstance(value, frozenset):
            raise ExecutionError(
                f"{program.function!r} returns numbers, but cities, rivers or the like are needed."
            )
        return value

    def _numbers(self, program: Program) -> Numbers:
        value = self._value(program)
        if isinstance(value, frozenset):
            raise ExecutionError(f"{program.function!r} does not return numbers.")
        return value

    def _is_major(self, thing: Thing) -> bool:
        if thing.kind not in MAJOR:
            return False
        measure, bound = MAJOR[thing.kind]
        return self._world.measures[measure].get(thing, 0) > bound


def _lookup(relation: Mapping[Thing, set[Thing]]) -> Callable[[Thing], Iterable[Thing]]:
    return lambda thing: relation.get(thing, ())


def _more(measure: Mapping[Thing, Number], thing: Thing) -> Iterable[Thing]:
    """The things with a larger measure than this one."""
    if thing not in measure:
        return ()
    return (other for other, number in measure.items() if number > measure[thing])


def _best(numbers: Mapping[Thing, Number] | Numbers, best: Callable[[Iterable[Number]], Number]) -> Things:
    """The things with the largest (or smallest) number."""
    if not numbers:
        return frozenset()
    extreme = best(numbers.values())
    return frozenset(thing for thing, number in numbers.items() if thing is not None and number == extreme)
