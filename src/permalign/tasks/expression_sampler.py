"""Random arithmetic expressions of a given depth, from a probabilistic grammar."""

from collections.abc import Sequence
from random import Random

from permalign.tasks.expressions import DEPTH_OF_A_DIGIT, DIGITS, OPERATORS, Expression
from permalign.tasks.program import MAX_DEPTH
from permalign.tasks.seeded_random import pick, random_below

_DIGIT_WEIGHT, _OPERATOR_WEIGHT = 3, 2  # E -> digit with probability 3/5, E -> ( E op E ) with 2/5


class DepthSampler:
    """Draws random expressions of a given derivation depth and bounded length.

    The distribution is a probabilistic grammar, conditioned on the depth and on the largest length: ``E -> digit`` has
    probability 3/5 and ``E -> ( E op E )`` 2/5 (below one half, so that expressions are finite). Samples are drawn from
    the conditional distribution directly, without rejection, by counting shapes. Let ``W[k][m]`` be the number of
    shapes with m operators whose parentheses are nested exactly k levels deep, and ``V[k][m]`` the number of those
    nested at most k levels deep. Then

        W[k][m] = sum over l of  W[k-1][l] V[k-1][m-1-l]  +  V[k-2][l] W[k-1][m-1-l],

    where the first term counts the shapes whose left operand has the full depth, and the second term those of which
    only the right operand has it. All shapes with m operators are equally likely, with probability (2/5)^m (3/5)^(m+1).
    The counts are integers, so a seed gives the same expressions on all machines. Cost: O(k m²) once, and O(m²) per
    sample.

    Args:
        depth: the derivation depth of all expressions.
        max_length: the largest number of tokens; an expression with m operators has 4 m + 1 tokens.
    """

    def __init__(self, depth: int, max_length: int) -> None:
        if depth < DEPTH_OF_A_DIGIT:
            raise ValueError(
                f"depth is {depth}, but must be at least {DEPTH_OF_A_DIGIT}, the depth of a single digit."
            )
        self._nesting = depth - DEPTH_OF_A_DIGIT
        if self._nesting > MAX_DEPTH:
            raise ValueError(f"depth is {depth}, but must be at most {MAX_DEPTH + DEPTH_OF_A_DIGIT}.")
        needed = 4 * self._nesting + 1
        if max_length < needed:
            raise ValueError(f"max_length is {max_length}, but depth {depth} takes at least {needed} tokens.")
        self._exact, self._bounded = _shape_counts(self._nesting, (max_length - 1) // 4)

    @property
    def count(self) -> int:
        """The number of different expressions that can be drawn.

        >>> DepthSampler(depth=4, max_length=200).count
        400
        """
        sizes = enumerate(self._exact[self._nesting])
        return sum(n * len(OPERATORS) ** size * len(DIGITS) ** (size + 1) for size, n in sizes)

    def draw(self, generator: Random) -> Expression:
        """Draw one expression."""
        # Every further operator multiplies the probability by (2/5)(3/5) = 6/25; integer weights keep this exact.
        numerator = _DIGIT_WEIGHT * _OPERATOR_WEIGHT
        denominator = (_DIGIT_WEIGHT + _OPERATOR_WEIGHT) ** 2
        counts = self._exact[self._nesting]
        largest = len(counts) - 1
        weights = [n * numerator**size * denominator ** (largest - size) for size, n in enumerate(counts)]
        return self._exactly(self._nesting, _weighted(weights, generator), generator)

    def _exactly(self, nesting: int, size: int, generator: Random) -> Expression:
        """Draw an expression with ``size`` operators that is nested exactly ``nesting`` levels deep."""
        if nesting == 0:
            return Expression(pick(DIGITS, generator))
        exact, bounded = self._exact[nesting - 1], self._bounded[nesting - 1]
        shallow = self._bounded[nesting - 2] if nesting > 1 else [0] * len(exact)
        left_deep = [exact[left] * bounded[size - 1 - left] for left in range(size)]
        right_deep = [shallow[left] * exact[size - 1 - left] for left in range(size)]
        choice = _weighted(left_deep + right_deep, generator)
        left_size, right_size = choice % size, size - 1 - choice % size
        operator = pick(OPERATORS, generator)
        if choice < size:
            left = self._exactly(nesting - 1, left_size, generator)
            return Expression(operator, left, self._at_most(nesting - 1, right_size, generator))
        left = self._at_most(nesting - 2, left_size, generator)
        return Expression(operator, left, self._exactly(nesting - 1, right_size, generator))

    def _at_most(self, nesting: int, size: int, generator: Random) -> Expression:
        """Draw an expression with ``size`` operators that is nested at most ``nesting`` levels deep."""
        counts = [self._exact[k][size] for k in range(nesting + 1)]
        return self._exactly(_weighted(counts, generator), size, generator)


def _shape_counts(nesting: int, size: int) -> tuple[list[list[int]], list[list[int]]]:
    """The counts W and V of `DepthSampler`, for up to ``nesting`` levels and up to ``size`` operators."""
    exact = [[1] + [0] * size]
    bounded = [exact[0]]
    for _ in range(nesting):
        shallow = bounded[-2] if len(bounded) > 1 else [0] * (size + 1)
        row = [0] * (size + 1)
        for total in range(1, size + 1):
            row[total] = sum(
                exact[-1][left] * bounded[-1][total - 1 - left] + shallow[left] * exact[-1][total - 1 - left]
                for left in range(total)
            )
        exact.append(row)
        bounded.append([shallower + exactly for shallower, exactly in zip(bounded[-1], row, strict=True)])
    return exact, bounded


def _weighted(weights: Sequence[int], generator: Random) -> int:
    """Draw an index with probability proportional to its weight."""
    number = random_below(sum(weights), generator)
    for index, weight in enumerate(weights):
        number -= weight
        if number < 0:
            return index
    raise AssertionError("a number below the sum of the weights belongs to one of them")
