"""The recurrences in plain torch with hand-written backward passes: on any device, in little memory.

Each recurrence is one node of the autograd graph. Nothing but its chart is kept for the backward pass, and torch does
not record the operations inside. (`permalign.kernels.portable` is plain torch, too, but records every operation: it
can be differentiated twice, and it is what tests compare this package with.)

Operations are vectorised over all spans of one width, so that a sentence of ``n`` tokens takes O(n) of them, and no
value is ever read back from the device. A chart is a square ``[start, width]`` over fenceposts. All left children of
all spans of one width are a slice of it. All right children are a view of it with other strides, `right_children`, so
that neither copies nor index tensors are needed. Charts with output positions, ``[start, width, position]``, have the
four views of `PositionedChildren`.
"""

from permalign.kernels.vectorized import labelled, scoring, separable, synchronous

__all__ = ["labelled", "scoring", "separable", "synchronous"]
