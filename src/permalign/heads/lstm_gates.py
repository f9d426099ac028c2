"""What the gates of an LSTM do, given the sums behind them."""

from torch import Tensor

from permalign.shapes import Float


def activate(gates: Float[Tensor, "rows gates"]) -> tuple[Tensor, ...]:
    """Apply the nonlinearities in place; return the gates ``i``, ``f``, ``g`` and ``o``, in torch's order."""
    size = gates.shape[-1] // 4
    gates[:, : 2 * size].sigmoid_()
    gates[:, 2 * size : 3 * size].tanh_()
    gates[:, 3 * size :].sigmoid_()
    return gates.chunk(4, dim=-1)


def lstm_state(
    gates: Float[Tensor, "rows gates"], memory: Float[Tensor, "rows size"]
) -> tuple[Float[Tensor, "rows size"], Float[Tensor, "rows size"]]:
    """Return the hidden state and the memory after a step; the gates are overwritten.

        memory = f memory + i g          hidden = o tanh(memory)

    Args:
        gates: the sums behind the gates.
        memory: the memory before the step.
    """
    enter, forget, new, leave = activate(gates)
    memory = (forget * memory).addcmul_(enter, new)
    return leave * memory.tanh(), memory
