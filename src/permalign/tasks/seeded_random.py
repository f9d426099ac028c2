"""Choices that follow from a seed alone, the same on every machine and under every version of Python.

Python promises this for the Mersenne Twister's bits, not for what `random.shuffle` and its kin make of them.
"""

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


def below(limit: int, generator: Random) -> int:
    """A uniform number from 0 to ``limit - 1``: as many bits as it needs, drawn again while too large."""
    bits = limit.bit_length()
    number = generator.getrandbits(bits)
    while number >= limit:
        number = generator.getrandbits(bits)
    return number


def pick(items: Sequence[Item], generator: Random) -> Item:
    """One of the items, each as likely as the other."""
    return items[below(len(items), generator)]


def shuffled(items: Sequence[Item], generator: Random) -> list[Item]:
    """The items in a random order (Fisher and Yates, from the end).

    >>> shuffled("permalign", Random(0))
    ['g', 'l', 'e', 'm', 'a', 'r', 'p', 'n', 'i']
    """
    order = list(items)
    for last in reversed(range(1, len(order))):
        other = below(last + 1, generator)
        order[last], order[other] = order[other], order[last]
    return order
