"""Execute FunQL programs on the facts of Geobase.

Every function maps a set to a set:

- a noun (``river``) keeps the entities of its kind;
- a relation (``next_to_2``) returns all entities that are related to at least one member of its argument;
- a measure (``population_1``) returns the numbers of its members; members without a number are ignored;
- a superlative (``longest``) keeps the members with the largest or smallest number, including ties; members without a
  number are ignored (cities have no area, so no city is the densest);
- ``most`` and ``fewest`` keep the members that are related to the largest or smallest number of entities:
  ``most(state(loc_1(city(all))))`` denotes the states that contain the most cities.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from permalign.tasks.geoquery.funql import ANSWER
from permalign.tasks.geoquery.signatures import ALL, ENTITIES
from permalign.tasks.geoquery.world import Entity, Measure, Number, World, inverse
from permalign.tasks.program import Program

Entities = frozenset[Entity]
Numbers = Mapping[Entity | None, Number]
"""The number of each entity; a number that belongs to no entity, such as a count, has the key None."""

Denotation = frozenset[str | Number]
"""The result of a program: a set of entities, written as FunQL expressions, or a set of numbers."""

MAJOR = {"city": ("population", 150_000), "river": ("length", 750), "lake": ("area", 5_000)}
"""The measure and the threshold above which a city (inhabitants), a river (km) or a lake (square km) is major.

The thresholds for cities and rivers agree with the recorded answers of the corpus. No question is about major lakes;
the threshold for them selects the five Great Lakes and the Great Salt Lake.
"""


class ExecutionError(ValueError):
    """A program cannot be executed, such as one that asks for the population of a number."""


class Executor:
    """Executes FunQL programs on the facts of Geobase.

    Args:
        world: the entities and relations that the facts describe; see `build_world`.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        capitals = {city for cities in world.capital.values() for city in cities}
        population, area = world.measures["population"], world.measures["area"]
        length, elevation = world.measures["length"], world.measures["elevation"]
        land_area = {entity: number for entity, number in area.items() if entity.kind in {"state", "country"}}
        inhabitants = {entity: number for entity, number in population.items() if entity.kind == "city"}
        density = {entity: population[entity] / number for entity, number in land_area.items()}
        size = land_area | inhabitants  # the size of a city is its population
        self._filters: dict[str, Callable[[Entity], bool]] = {
            "state": lambda entity: entity.kind == "state",
            "city": lambda entity: entity.kind == "city",
            "river": lambda entity: entity.kind == "river",
            "lake": lambda entity: entity.kind == "lake",
            "place": lambda entity: entity.kind in {"place", "lake"},
            "mountain": lambda entity: entity in world.mountains,
            "capital": lambda entity: entity in capitals,
            "major": self._is_major,
        }
        self._relations: dict[str, Callable[[Entity], Iterable[Entity]]] = {
            "loc_1": _lookup(world.within),
            "loc_2": _lookup(inverse(world.within)),
            "next_to_1": _lookup(world.borders),
            "next_to_2": _lookup(inverse(world.borders)),
            "traverse_1": _lookup(world.traverses),
            "traverse_2": _lookup(inverse(world.traverses)),
            "capital_1": _lookup(world.capital),
            "capital_2": _lookup(inverse(world.capital)),
            "high_point_1": _lookup(world.high_point),
            "high_point_2": _lookup(inverse(world.high_point)),
            "low_point_1": _lookup(world.low_point),
            "low_point_2": _lookup(inverse(world.low_point)),
            "higher_2": lambda entity: _with_larger_measure(elevation, entity),
            "lower_2": lambda entity: _with_larger_measure(
                {place: -n for place, n in elevation.items()}, entity
            ),
            "longer": lambda entity: _with_larger_measure(length, entity),
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
        """Execute a complete program, ``answer(...)``.

        Raises:
            ExecutionError: the program cannot be executed.
        """
        if program.function != ANSWER or len(program.arguments) != 1:
            raise ExecutionError(
                f"expected a program {ANSWER}(...) with one argument, found {program.function!r}."
            )
        value = self._value(program.arguments[0])
        if isinstance(value, frozenset):
            return frozenset(entity.funql for entity in value)
        return frozenset(value.values())

    def _value(self, program: Program) -> Entities | Numbers:
        function, arguments = program.function, program.arguments
        if function in ENTITIES:
            return self._entity(function, [argument.function for argument in arguments])
        if function == ALL and not arguments:
            return frozenset(self._world.entities)
        if function.isdecimal() and not arguments:
            return {None: int(function)}
        if function in {"exclude", "intersection"} and len(arguments) == 2:
            first, second = self._entities(arguments[0]), self._entities(arguments[1])
            return first - second if function == "exclude" else first & second
        if len(arguments) != 1:
            raise ExecutionError(f"unknown function {function!r} with {len(arguments)} arguments.")
        return self._apply(function, arguments[0])

    def _apply(self, function: str, argument: Program) -> Entities | Numbers:
        """Apply a function to its only argument."""
        if function in self._filters:
            return frozenset(filter(self._filters[function], self._entities(argument)))
        if function in self._relations:
            related = self._relations[function]
            return frozenset(other for entity in self._entities(argument) for other in related(entity))
        if function in self._measures:
            measure = self._measures[function]
            return {entity: measure[entity] for entity in self._entities(argument) if entity in measure}
        if function in {"most", "fewest"}:
            return _best(self._counts(argument), max if function == "most" else min)
        if function in {"largest_one", "smallest_one"}:
            return _best(self._numbers(argument), max if function == "largest_one" else min)
        if function == "count":
            return {None: len(self._entities(argument))}
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

    def _superlative(self, function: str, value: Entities | Numbers) -> Entities | Numbers:
        measure, best = self._superlatives[function]
        if isinstance(value, frozenset):
            return _best({entity: measure[entity] for entity in value if entity in measure}, best)
        return {None: best(value.values())} if value else {}

    def _entity(self, function: str, names: list[str]) -> Entities:
        kind = function.removesuffix("id")
        name, *state = [name.strip("'") for name in names] or [""]
        namesakes = self._world.named.get((kind, name), set())
        if kind == "place":
            namesakes = namesakes | self._world.named.get(("lake", name), set())
        return frozenset(entity for entity in namesakes if state in ([], ["_"], [entity.state]))

    def _counts(self, program: Program) -> Counter[Entity]:
        """For each member of a relation's result, the number of members of its argument that it is related to."""
        function = program.function
        if len(program.arguments) == 1 and function in self._relations:
            related = self._relations[function]
            return Counter(
                other for entity in self._entities(program.arguments[0]) for other in set(related(entity))
            )
        if len(program.arguments) == 1 and function in self._filters:
            counts = self._counts(program.arguments[0])
            return Counter({entity: n for entity, n in counts.items() if self._filters[function](entity)})
        raise ExecutionError(
            f"{function!r} is not a relation, but `most` and `fewest` count the entities that members are related to."
        )

    def _entities(self, program: Program) -> Entities:
        value = self._value(program)
        if not isinstance(value, frozenset):
            raise ExecutionError(
                f"{program.function!r} returns numbers, but a set of entities, such as cities, was expected."
            )
        return value

    def _numbers(self, program: Program) -> Numbers:
        value = self._value(program)
        if isinstance(value, frozenset):
            raise ExecutionError(
                f"{program.function!r} returns a set of entities, but numbers were expected."
            )
        return value

    def _is_major(self, entity: Entity) -> bool:
        if entity.kind not in MAJOR:
            return False
        measure, threshold = MAJOR[entity.kind]
        return self._world.measures[measure].get(entity, 0) > threshold


def _lookup(relation: Mapping[Entity, set[Entity]]) -> Callable[[Entity], Iterable[Entity]]:
    return lambda entity: relation.get(entity, ())


def _with_larger_measure(measure: Mapping[Entity, Number], entity: Entity) -> Iterable[Entity]:
    """The entities whose number is larger than that of the given entity."""
    if entity not in measure:
        return ()
    return (other for other, number in measure.items() if number > measure[entity])


def _best(numbers: Mapping[Entity, Number] | Numbers, best: Callable[[Iterable[Number]], Number]) -> Entities:
    """The entities with the largest (or smallest) number."""
    if not numbers:
        return frozenset()
    extreme = best(numbers.values())
    return frozenset(entity for entity, number in numbers.items() if entity is not None and number == extreme)
