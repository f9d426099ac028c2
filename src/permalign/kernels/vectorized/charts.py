"""Views of charts: the children of all spans of one width, without copies.

Charts must be contiguous tensors of their own, not parts of others, because strides are counted from the first number.
"""

from math import prod
from typing import NamedTuple

from torch import Tensor


def left_children(chart: Tensor, width: int) -> Tensor:
    """The left children ``(batch, starts, width - 1)`` of all spans of a width: ``[i, u - 1]`` is the span (i, i + u).

    Args:
        chart: ``(batch, n + 1, n + 1)``, indexed by start and width; further axes (labels) are kept.
        width: the width of the parents.
    """
    return chart[:, : chart.shape[1] - width, 1:width]


def right_children(chart: Tensor, width: int) -> Tensor:
    """The right children ``(batch, starts, width - 1)``: ``[i, u - 1]`` is the span (i + u, i + width).

    From one split point to the next, a right child starts one fencepost later and is one token narrower: in a row of
    ``n + 1`` numbers, that is ``n`` numbers further on. No two of the children are the same span, so the view can be
    written to.
    """
    batch, fenceposts, _, *rest = chart.shape
    entry = prod(rest)  # the numbers of one span
    shape = (batch, fenceposts - width, width - 1, *rest)
    strides = (chart.stride(0), entry * fenceposts, entry * (fenceposts - 1), *chart.stride()[3:])
    return chart.as_strided(shape, strides, entry * (fenceposts + width - 1))


class PositionedChildren(NamedTuple):
    """The children of all spans of one width in a chart with output positions, each ``(batch, starts, splits, p)``.

    For a parent (i, k) whose output starts at position p, and the split point i + u:

    - under a straight rule, the left child starts at p as well, and the right child at p + u;
    - under an inverted rule, the right child starts at p, and the left child at p + width - u.
    """

    straight_left: Tensor
    straight_right: Tensor
    inverted_left: Tensor
    inverted_right: Tensor

    @classmethod
    def of(cls, chart: Tensor, width: int) -> "PositionedChildren":
        """The views of a chart ``(batch, n + 1, n + 1, n + 1)``, indexed by start, width and position.

        Further axes (labels) are kept.
        """
        batch, fenceposts, _, _, *rest = chart.shape
        starts, square, entry = fenceposts - width, fenceposts**2, prod(rest)

        def view(first: int, per_split: int) -> Tensor:
            """The children of which ``first`` is the one of the parent (0, width) at position 0 with u = 1."""
            return chart.as_strided(
                (batch, starts, width - 1, starts, *rest),
                (chart.stride(0), entry * square, entry * per_split, entry, *chart.stride()[4:]),
                entry * first,
            )

        right = square + (width - 1) * fenceposts
        return cls(
            straight_left=view(fenceposts, fenceposts),
            straight_right=view(right + 1, square - fenceposts + 1),
            inverted_left=view(fenceposts + width - 1, fenceposts - 1),
            inverted_right=view(right, square - fenceposts),
        )
