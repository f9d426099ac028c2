"""A bound on what exact likelihoods may cost, checked before they are computed."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import ceil

LikelihoodCost = Callable[[int, int], int]
"""About how many operations the likelihood of one pair takes, by the lengths of its source and its output."""


class TooCostlyError(ValueError):
    """The exact likelihoods of a sentence's outputs would take more operations than the caller allows."""


def require_affordable(
    cost: LikelihoodCost, source_length: int, target_lengths: Sequence[int], max_operations: float | None
) -> None:
    """Require that the likelihoods of some outputs of a sentence take no more operations than allowed.

    Args:
        cost: the cost of one likelihood.
        source_length: the length of the sentence.
        target_lengths: the lengths of the outputs whose likelihoods are to be computed.
        max_operations: how many operations all of them may take; None for any number.

    Raises:
        TooCostlyError: they take more. The message says which length of the sentence would be allowed.

    >>> require_affordable(lambda n, m: n**3 * m**3, 8, [8], max_operations=10_000)
    Traceback (most recent call last):
    permalign.decoding.search_cost.TooCostlyError: the sentence is too long for this model: with its 8 words, and 8 \
words of output, an exact answer takes about 2.6e+05 operations, but at most 1.0e+04 are allowed. Sentences of up to 4 \
words can be answered.
    """

    def total(length: int) -> int:
        """The cost of a sentence of another length, whose outputs are longer or shorter in proportion."""
        return sum(cost(length, ceil(target * length / source_length)) for target in target_lengths)

    if max_operations is None or total(source_length) <= max_operations:
        return
    longest = bisect_right(range(1, source_length), max_operations, key=total)
    raise TooCostlyError(
        f"the sentence is too long for this model: with its {source_length} words, and {max(target_lengths)} words of "
        f"output, an exact answer takes about {total(source_length):.1e} operations, but at most {max_operations:.1e} "
        f"are allowed. Sentences of up to {longest} words can be answered."
    )
