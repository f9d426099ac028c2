"""The names of things in Geobase, as questions write them, and the kinds of what they may name.

A question is not asked what it means: a name that a city and a state share has one kind, ``cityid/stateid``, wherever
it stands. What a program says of it is left to the model.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from permalign.tasks.geoquery.signatures import FUNCTION_WORDS
from permalign.tasks.geoquery.world import Thing, World

COUNTRY = ("america", "united states", "us")
"""How questions call the country of the facts, beside Geobase's ``usa``."""


def entities_of(world: World) -> Mapping[str, str]:
    """Every name, and the FunQL functions of what it may name, separated by slashes.

    A city may be named with its state (``austin texas``), and a river as such (``ohio river``). The city of High Point
    is left out: its words are words of the language, that FunQL's functions are named by.

    >>> world = World()
    >>> entities_of(world) if world.add(Thing("river", "ohio")) and world.add(Thing("state", "ohio")) else None
    {'ohio': 'riverid/stateid', 'ohio river': 'riverid'}
    """
    kinds = defaultdict(set)
    for (kind, name), things in world.named.items():
        for thing in things:
            function = thing.funql.partition("(")[0]
            for written in (name, *_longer(world, kind, name, thing)):
                kinds[written].add(function)
    return {
        name: "/".join(sorted(functions))
        for name, functions in sorted(kinds.items())
        if not FUNCTION_WORDS.issuperset(name.split())
    }


def _longer(world: World, kind: str, name: str, thing: Thing) -> Iterator[str]:
    """What else a thing is called."""
    if kind == "river":
        yield f"{name} river"
    elif kind == "country":
        yield from COUNTRY
    elif kind == "city":
        yield from (f"{name} {place.name}" for place in world.within[thing] if place.kind == "state")
