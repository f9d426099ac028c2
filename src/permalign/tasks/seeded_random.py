"""Random choices that are the same for a seed on every machine and with every version of Python.

Python guarantees this for the random bits of its generator, but not for `random.shuffle` and similar functions.
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


def random_below(limit: int, generator: Random) -> int:
    """Draw an integer from 0 to ``limit - 1`` uniformly, by rejection sampling."""
    bits = limit.bit_length()
    number = generator.getrandbits(bits)
    while number >= limit:
        number = generator.getrandbits(bits)
    return number


def pick(items: Sequence[Item], generator: Random) -> Item:
    """Draw one of the items uniformly."""
    return items[random_below(len(items), generator)]


def shuffled(items: Sequence[Item], generator: Random) -> list[Item]:
    """Return the items in random order (a Fisher-Yates shuffle).

    >>> shuffled("permalign", Random(0))
    ['g', 'l', 'e', 'm', 'a', 'r', 'p', 'n', 'i']
    """
    order = list(items)
    for last in reversed(range(1, len(order))):
        other = random_below(last + 1, generator)
        order[last], order[other] = order[other], order[last]
    return order
