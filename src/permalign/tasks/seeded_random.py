"""Random choices that depend on the seed alone, on every machine and under every version of Python.

Python guarantees this for the bits of its generator, but not for `random.shuffle` and similar functions.
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


def below(limit: int, generator: Random) -> int:
    """A uniform integer from 0 to ``limit - 1``, by rejection sampling of bits."""
    bits = limit.bit_length()
    number = generator.getrandbits(bits)
    while number >= limit:
        number = generator.getrandbits(bits)
    return number


def pick(items: Sequence[Item], generator: Random) -> Item:
    """One of the items, chosen uniformly."""
    return items[below(len(items), generator)]


def shuffled(items: Sequence[Item], generator: Random) -> list[Item]:
    """The items in random order (Fisher-Yates shuffle, from the end).

    >>> shuffled("permalign", Random(0))
    ['g', 'l', 'e', 'm', 'a', 'r', 'p', 'n', 'i']
    """
    order = list(items)
    for last in reversed(range(1, len(order))):
        other = below(last + 1, generator)
        order[last], order[other] = order[other], order[last]
    return order
