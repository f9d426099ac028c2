"""The world that the facts of Geobase describe: entities, relations between them, and their numeric attributes.

Where the facts are ambiguous or incomplete, the following is assumed:

- A capital is a city of its state even if no ``city`` fact mentions it (16 of 51); it then has no population.
- A place is identified by its name and its state: the low point ``atlantic ocean`` is a different place in each of its
  states. A mountain as high as the highest point of its state is that point (``whitney``, ``mount whitney``).
- Everything that is in a state is also in the country; a river that flows through a state flows through the country.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from permalign.tasks.geoquery.geobase import Fact, Geobase

Number = int | float


@dataclass(frozen=True, slots=True)
class Entity:
    """A city, country, lake, place (high point, low point or mountain), river or state.

    Attributes:
        kind: the kind of entity: ``city``, ``country``, ``lake``, ``place``, ``river`` or ``state``.
        name: the name of the entity.
        state: the abbreviation of a city's state, or the name of a place's state; empty for other kinds.
    """

    kind: str
    name: str
    state: str = ""

    @property
    def funql(self) -> str:
        """The FunQL expression for the entity; in FunQL a lake is a place, and the state of a place is not written."""
        if self.kind == "city":
            return f"cityid('{self.name}', '{self.state}')"
        kind = "place" if self.kind == "lake" else self.kind
        return f"{kind}id('{self.name}')"


Relation = defaultdict[Entity, set[Entity]]
"""The entities that each entity is related to."""

Measure = dict[Entity, Number]
"""A numeric attribute, such as the population: its value for each entity that has one."""


def _relation() -> Relation:
    return defaultdict(set)


@dataclass
class World:
    """All entities, the relations between them, and their numeric attributes."""

    entities: set[Entity] = field(default_factory=set)
    named: defaultdict[tuple[str, str], set[Entity]] = field(default_factory=lambda: defaultdict(set))
    """The entities with a given kind and name, of which there may be several."""
    within: Relation = field(default_factory=_relation)
    """The states and countries that an entity lies in."""
    borders: Relation = field(default_factory=_relation)
    """The states that a state borders on."""
    traverses: Relation = field(default_factory=_relation)
    """The states and countries that a river flows through."""
    capital: Relation = field(default_factory=_relation)
    """The capital of a state."""
    high_point: Relation = field(default_factory=_relation)
    """The highest point of a state."""
    low_point: Relation = field(default_factory=_relation)
    """The lowest point of a state."""
    mountains: set[Entity] = field(default_factory=set)
    """The places that are mountains."""
    measures: defaultdict[str, Measure] = field(default_factory=lambda: defaultdict(dict))
    """The numeric attributes by name: population, area, length and elevation."""

    def add(self, entity: Entity, *, inside: Iterable[Entity] = (), **measures: Number) -> Entity:
        """Add an entity, the states and countries that it lies in, and its numeric attributes."""
        self.entities.add(entity)
        self.named[entity.kind, entity.name].add(entity)
        self.within[entity].update(inside)
        for measure, number in measures.items():
            self.measures[measure][entity] = number
        return entity


def build_world(facts: Geobase) -> World:
    """Build the world that the facts of Geobase describe."""
    world = World()
    countries = []
    for fact in facts["country"]:
        population, area = _number(fact, "population"), _number(fact, "area")
        countries.append(world.add(Entity("country", _name(fact)), population=population, area=area))
    for fact in facts["state"]:
        population, area = _number(fact, "population"), _number(fact, "area")
        state = world.add(Entity("state", _name(fact)), inside=countries, population=population, area=area)
        capital = Entity("city", _name(fact, "capital"), _name(fact, "abbreviation"))
        world.capital[state].add(world.add(capital, inside=[state, *countries]))
    for fact in facts["city"]:
        city = Entity("city", _name(fact), _name(fact, "state_abbreviation"))
        inside = [Entity("state", _name(fact, "state")), *countries]
        world.add(city, inside=inside, population=_number(fact, "population"))
    _add_rivers_and_lakes(world, facts, countries)
    _add_points_and_mountains(world, facts, countries)
    for fact in facts["border"]:
        world.borders[Entity("state", _name(fact, "state"))].update(_states(fact, "neighbours"))
    return world


def _add_rivers_and_lakes(world: World, facts: Geobase, countries: list[Entity]) -> None:
    for fact in facts["river"]:
        states = _states(fact, "states")
        river = Entity("river", _name(fact))
        world.add(river, inside=[*states, *countries], length=_number(fact, "length"))
        world.traverses[river].update(states, countries)
    for fact in facts["lake"]:
        states = _states(fact, "states")
        world.add(Entity("lake", _name(fact)), inside=[*states, *countries], area=_number(fact, "area"))


def _add_points_and_mountains(world: World, facts: Geobase, countries: list[Entity]) -> None:
    for fact in facts["highlow"]:
        state = Entity("state", _name(fact, "state"))
        for point, relation in (("highest", world.high_point), ("lowest", world.low_point)):
            place = Entity("place", _name(fact, f"{point}_point"), state.name)
            elevation = _number(fact, f"{point}_elevation")
            relation[state].add(world.add(place, inside=[state, *countries], elevation=elevation))
    for fact in facts["mountain"]:
        state = Entity("state", _name(fact, "state"))
        height = _number(fact, "height")
        as_high = [point for point in world.high_point[state] if world.measures["elevation"][point] == height]
        mountain = as_high[0] if as_high else Entity("place", _name(fact), state.name)
        world.mountains.add(world.add(mountain, inside=[state, *countries], elevation=height))
        world.named["place", _name(fact)].add(mountain)


def _name(fact: Fact, field: str = "name") -> str:
    return cast(str, fact[field])


def _states(fact: Fact, field: str) -> list[Entity]:
    return [Entity("state", name) for name in cast(list[str], fact[field])]


def _number(fact: Fact, field: str) -> Number:
    return cast(Number, fact[field])


def inverse(relation: Mapping[Entity, set[Entity]]) -> Relation:
    """The inverse relation, from related entities back to the entities that they are related to."""
    inverted = _relation()
    for entity, related_entities in relation.items():
        for related in related_entities:
            inverted[related].add(entity)
    return inverted
