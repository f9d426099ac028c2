"""The names of entities that questions may mention, for entity linking.

A name is linked without looking at the rest of the question: a name that a city shares with a state always has the kind
``cityid/stateid``, and the model has to disambiguate it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from permalign.tasks.geoquery.signatures import FUNCTION_WORDS
from permalign.tasks.geoquery.world import Entity, World

COUNTRY = ("america", "united states", "us")
"""The names of the country in questions, in addition to ``usa``, its name in Geobase."""


def entities_of(world: World) -> Mapping[str, str]:
    """Map every name to its kind: the FunQL functions of the entities that it may refer to, separated by slashes.

    The name of a city may be followed by its state (``austin texas``), and that of a river by the word *river* (``ohio
    river``). The city High Point is left out, because FunQL has functions with these words (``high_point_1``).

    >>> world = World()
    >>> river, state = world.add(Entity("river", "ohio")), world.add(Entity("state", "ohio"))
    >>> entities_of(world)
    {'ohio': 'riverid/stateid', 'ohio river': 'riverid'}
    """
    kinds = defaultdict(set)
    for (kind, name), entities in world.named.items():
        for entity in entities:
            function = entity.funql.partition("(")[0]
            for variant in (name, *_other_names(world, kind, name, entity)):
                kinds[variant].add(function)
    return {
        name: "/".join(sorted(functions))
        for name, functions in sorted(kinds.items())
        if not FUNCTION_WORDS.issuperset(name.split())
    }


def _other_names(world: World, kind: str, name: str, entity: Entity) -> Iterator[str]:
    """Yield other names of an entity that questions may use."""
    if kind == "river":
        yield f"{name} river"
    elif kind == "country":
        yield from COUNTRY
    elif kind == "city":
        yield from (f"{name} {place.name}" for place in world.within[entity] if place.kind == "state")
