"""What the facts of Geobase say: things, where they are, and what is known of them in numbers.

Choices, where the facts leave one:

- A capital is a city of its state even if no ``city`` fact names it (16 of 51); then it has no population.
- A place is a name in a state: the low point ``atlantic ocean`` is a different place in each of its states.
  A mountain with the elevation of its state's highest point is that point (``whitney``, ``mount whitney``).
- Whatever is in a state, or flows through it, is in, or flows through, the country of the facts.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from permalign.tasks.geoquery.geobase import Fact, Geobase

Number = int | float


@dataclass(frozen=True, slots=True)
class Thing:
    """A city, country, lake, place (high point, low point or mountain), river or state.

    Attributes:
        kind: which of these.
        name: its name.
        state: for a city the abbreviation of its state, for a place its state's name, else nothing.
    """

    kind: str
    name: str
    state: str = ""

    @property
    def funql(self) -> str:
        """The entity as FunQL names it; a lake counts as a place, and a place is known by its name alone."""
        if self.kind == "city":
            return f"cityid('{self.name}', '{self.state}')"
        kind = "place" if self.kind == "lake" else self.kind
        return f"{kind}id('{self.name}')"


Relation = defaultdict[Thing, set[Thing]]
Measure = dict[Thing, Number]


def _relation() -> Relation:
    return defaultdict(set)


@dataclass
class World:
    """The facts as relations between things, and as measures of them."""

    things: set[Thing] = field(default_factory=set)
    named: defaultdict[tuple[str, str], set[Thing]] = field(default_factory=lambda: defaultdict(set))
    """The things of a kind and name."""
    within: Relation = field(default_factory=_relation)
    """The states and countries that a thing is in."""
    borders: Relation = field(default_factory=_relation)
    crosses: Relation = field(default_factory=_relation)
    """The states and countries a river flows through."""
    capital: Relation = field(default_factory=_relation)
    """The capital of a state; likewise its high and low point."""
    high_point: Relation = field(default_factory=_relation)
    low_point: Relation = field(default_factory=_relation)
    mountains: set[Thing] = field(default_factory=set)
    measures: defaultdict[str, Measure] = field(default_factory=lambda: defaultdict(dict))
    """What is known in numbers: population, area, length and elevation, each of the things that have one."""

    def add(self, thing: Thing, *, inside: Iterable[Thing] = (), **measures: Number) -> Thing:
        """Record that a thing exists, where it is, and what is known of it."""
        self.things.add(thing)
        self.named[thing.kind, thing.name].add(thing)
        self.within[thing].update(inside)
        for measure, number in measures.items():
            self.measures[measure][thing] = number
        return thing


def world_of(facts: Geobase) -> World:
    """The world the facts describe."""
    world = World()
    countries = []
    for fact in facts["country"]:
        people, area = _number(fact, "population"), _number(fact, "area")
        countries.append(world.add(Thing("country", _name(fact)), population=people, area=area))
    for fact in facts["state"]:
        people, area = _number(fact, "population"), _number(fact, "area")
        state = world.add(Thing("state", _name(fact)), inside=countries, population=people, area=area)
        capital = Thing("city", _name(fact, "capital"), _name(fact, "abbreviation"))
        world.capital[state].add(world.add(capital, inside=[state, *countries]))
    for fact in facts["city"]:
        city = Thing("city", _name(fact), _name(fact, "state_abbreviation"))
        inside = [Thing("state", _name(fact, "state")), *countries]
        world.add(city, inside=inside, population=_number(fact, "population"))
    _add_waters(world, facts, countries)
    _add_places(world, facts, countries)
    for fact in facts["border"]:
        world.borders[Thing("state", _name(fact, "state"))].update(_states(fact, "neighbours"))
    return world


def _add_waters(world: World, facts: Geobase, countries: list[Thing]) -> None:
    for fact in facts["river"]:
        states = _states(fact, "states")
        river = Thing("river", _name(fact))
        world.add(river, inside=[*states, *countries], length=_number(fact, "length"))
        world.crosses[river].update(states, countries)
    for fact in facts["lake"]:
        states = _states(fact, "states")
        world.add(Thing("lake", _name(fact)), inside=[*states, *countries], area=_number(fact, "area"))


def _add_places(world: World, facts: Geobase, countries: list[Thing]) -> None:
    for fact in facts["highlow"]:
        state = Thing("state", _name(fact, "state"))
        for point, relation in (("highest", world.high_point), ("lowest", world.low_point)):
            place = Thing("place", _name(fact, f"{point}_point"), state.name)
            elevation = _number(fact, f"{point}_elevation")
            relation[state].add(world.add(place, inside=[state, *countries], elevation=elevation))
    for fact in facts["mountain"]:
        state = Thing("state", _name(fact, "state"))
        height = _number(fact, "height")
        same = [point for point in world.high_point[state] if world.measures["elevation"][point] == height]
        mountain = same[0] if same else Thing("place", _name(fact), state.name)
        world.mountains.add(world.add(mountain, inside=[state, *countries], elevation=height))
        world.named["place", _name(fact)].add(mountain)


def _name(fact: Fact, field: str = "name") -> str:
    return cast(str, fact[field])


def _states(fact: Fact, field: str) -> list[Thing]:
    return [Thing("state", name) for name in cast(list[str], fact[field])]


def _number(fact: Fact, field: str) -> Number:
    return cast(Number, fact[field])


def inverse(relation: Mapping[Thing, set[Thing]]) -> Relation:
    """The relation read from right to left."""
    found = _relation()
    for thing, others in relation.items():
        for other in others:
            found[other].add(thing)
    return found
