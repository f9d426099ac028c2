"""The entities of Geobase by the names that questions use for them.

Links do not depend on the question: a name shared by a city and a state has the kind ``cityid/stateid`` everywhere,
and the model has to disambiguate it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from permalign.tasks.geoquery.signatures import FUNCTION_WORDS
from permalign.tasks.geoquery.world import Thing, World

COUNTRY = ("america", "united states", "us")
"""Names that questions use for the country, besides Geobase's ``usa``."""


def entities_of(world: World) -> Mapping[str, str]:
    """Every name, with the FunQL functions of the entities it may refer to, separated by slashes.

    A city may be named with its state (``austin texas``), and a river with the word (``ohio river``). The city of High
    Point is left out, because its name consists of words that FunQL's functions are named after.

    >>> world = World()
    >>> entities_of(world) if world.add(Thing("river", "ohio")) and world.add(Thing("state", "ohio")) else None
    {'ohio': 'riverid/stateid', 'ohio river': 'riverid'}
    """
    kinds = defaultdict(set)
    for (kind, name), things in world.named.items():
        for thing in things:
            function = thing.funql.partition("(")[0]
            for written in (name, *_other_names(world, kind, name, thing)):
                kinds[written].add(function)
    return {
        name: "/".join(sorted(functions))
        for name, functions in sorted(kinds.items())
        if not FUNCTION_WORDS.issuperset(name.split())
    }


def _other_names(world: World, kind: str, name: str, thing: Thing) -> Iterator[str]:
    """Other names of a thing."""
    if kind == "river":
        yield f"{name} river"
    elif kind == "country":
        yield from COUNTRY
    elif kind == "city":
        yield from (f"{name} {place.name}" for place in world.within[thing] if place.kind == "state")
