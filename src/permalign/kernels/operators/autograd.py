"""How the hand-written backward passes of operators are registered with torch."""

from collections.abc import Callable
from typing import Any

from torch import Tensor


def register_backward(
    operator: Any,
    backward: Callable[..., Tensor | tuple[Tensor, ...]],
    arguments: Callable[[tuple[Any, ...], Any], tuple[Any, ...]],
    differentiable_results: int = 1,
) -> None:
    """Register an operator's backward pass, which gives the gradients of its first inputs; the others have none.

    Args:
        operator: the operator. Its results are one tensor, or a tuple of which only the first are differentiable; the
            others are charts for the backward pass.
        backward: called with the gradients of the differentiable results, followed by ``arguments``.
        arguments: maps the operator's inputs and results to what ``backward`` needs: tensors first, then numbers.
        differentiable_results: how many of the results are differentiable.
    """

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        if isinstance(output, tuple):
            ctx.mark_non_differentiable(*output[differentiable_results:])
            # otherwise torch fills a chart of zeros as the gradient of every other result
            ctx.set_materialize_grads(differentiable_results > 1)
        needed = arguments(inputs, output)
        ctx.save_for_backward(*(value for value in needed if isinstance(value, Tensor)))
        ctx.numbers = [value for value in needed if not isinstance(value, Tensor)]
        ctx.input_count = len(inputs)

    def compute_gradients(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        if gradients[0] is None:
            return tuple([None] * ctx.input_count)
        found = backward(*gradients[:differentiable_results], *ctx.saved_tensors, *ctx.numbers)
        of_inputs = found if isinstance(found, tuple) else (found,)
        return (*of_inputs, *[None] * (ctx.input_count - len(of_inputs)))

    operator.register_autograd(compute_gradients, setup_context=setup_context)
