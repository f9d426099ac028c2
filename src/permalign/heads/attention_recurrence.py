"""The recurrence of an LSTM decoder with attention and input feeding, as one operation with its own gradient."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from permalign.heads.lstm_gates import activate
from permalign.heads.source_attention import AttendedSource
from permalign.products import linear, weight_gradient
from permalign.shapes import Float


def attention_recurrence(
    inputs: Float[Tensor, "steps batch gates"],
    weight: Float[Tensor, "gates both"],
    source: AttendedSource,
    combine_weight: Float[Tensor, "hidden_size hidden_size"],
    combine_bias: Float[Tensor, " hidden_size"],
    hidden: Float[Tensor, "batch hidden_size"],
    memory: Float[Tensor, "batch hidden_size"],
) -> Float[Tensor, "steps batch hidden_size"]:
    """Run all steps of a decoder with one layer; return ``a_j`` of every step.

    From ``a_0 = 0``, with ``c`` the memory of the LSTM:

        i, f, g, o = inputs_j + weight [a_{j-1} ; s_{j-1}]
        c_j        = sigmoid(f) c_{j-1} + sigmoid(i) tanh(g)
        s_j        = sigmoid(o) tanh(c_j)
        a_j        = tanh(W_c sum_i softmax_i(s_j . W_a h_i) h_i + combine_weight s_j + combine_bias)

    The steps have few and small tensors, so that recording them for automatic differentiation costs as much as
    computing them. Here nothing is recorded, and the gradient of each weight is one matrix product over all steps.
    O(steps (hidden_size^2 + n hidden_size)) for each sentence.

    Args:
        inputs: the part of the LSTM's gates that depends on the previous tokens, with all biases.
        weight: the weights of the gates for ``a_{j-1}`` and ``s_{j-1}``, one beside the other.
        source: the source as attention reads it.
        combine_weight: ``W_s``.
        combine_bias: ``b``.
        hidden: ``s_0``.
        memory: ``c_0``.
    """
    attended: Tensor = _Recurrence.apply(  # type: ignore[no-untyped-call]
        inputs, weight, source.keys, source.values, source.bias, combine_weight, combine_bias, hidden, memory
    )
    return attended


class _Recurrence(torch.autograd.Function):
    """Forward keeps the gates, states and attention weights of all steps; backward goes through them in reverse."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight: Tensor,
        keys: Tensor,
        values: Tensor,
        bias: Tensor,
        combine_weight: Tensor,
        combine_bias: Tensor,
        hidden: Tensor,
        memory: Tensor,
    ) -> Tensor:
        steps, batch, size = len(inputs), *hidden.shape
        both = hidden.new_zeros(steps + 1, batch, 2 * size)  # [a_j ; s_j]
        memories = hidden.new_empty(steps + 1, batch, size)
        both[0, :, size:], memories[0] = hidden, memory
        gates = torch.empty_like(inputs)
        weights = hidden.new_empty(steps, batch, keys.shape[1])
        for j in range(steps):
            torch.add(inputs[j], linear(both[j], weight), out=gates[j])
            enter, forget, new, leave = activate(gates[j])
            torch.mul(forget, memories[j], out=memories[j + 1]).addcmul_(enter, new)
            state = torch.mul(leave, memories[j + 1].tanh(), out=both[j + 1, :, size:])
            weights[j] = torch.baddbmm(bias[..., None], keys, state[..., None]).squeeze(-1).softmax(-1)
            context = torch.bmm(weights[j][:, None], values).squeeze(1)
            both[j + 1, :, :size] = context.add_(linear(state, combine_weight, combine_bias)).tanh_()
        ctx.save_for_backward(weight, keys, values, combine_weight, both, memories, gates, weights)
        return both[1:, :, :size].contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, keys, values, combine_weight, both, memories, gates, weights = ctx.saved_tensors
        steps, batch, size = gradient.shape
        attended, states = both[1:, :, :size], both[1:, :, size:]
        gates_bar, sums_bar = torch.empty_like(gates), torch.empty_like(attended)
        scores_bar = torch.empty_like(weights)
        both_bar = gradient.new_zeros(batch, 2 * size)  # of [a_j ; s_j], from step j + 1
        memory_bar = gradient.new_zeros(batch, size)
        for j in reversed(range(steps)):
            enter, forget, new, leave = gates[j].chunk(4, dim=-1)
            sum_bar = (gradient[j] + both_bar[:, :size]).mul_(1 - attended[j].square())
            weights_bar = torch.bmm(values, sum_bar[..., None]).squeeze(-1)
            score_bar = weights[j] * (weights_bar - (weights[j] * weights_bar).sum(-1, keepdim=True))
            state_bar = both_bar[:, size:] + linear(sum_bar, combine_weight.T)
            state_bar += torch.bmm(score_bar[:, None], keys).squeeze(1)
            squashed = memories[j + 1].tanh()
            memory_bar.addcmul_(state_bar * leave, 1 - squashed.square())
            enter_bar, forget_bar, new_bar, leave_bar = gates_bar[j].chunk(4, dim=-1)
            torch.mul(memory_bar * new, enter * (1 - enter), out=enter_bar)
            torch.mul(memory_bar * memories[j], forget * (1 - forget), out=forget_bar)
            torch.mul(memory_bar * enter, 1 - new.square(), out=new_bar)
            torch.mul(state_bar * squashed, leave * (1 - leave), out=leave_bar)
            memory_bar *= forget
            both_bar = linear(gates_bar[j], weight.T)
            sums_bar[j], scores_bar[j] = sum_bar, score_bar
        return (
            gates_bar,
            weight_gradient(gates_bar.flatten(0, 1), both[:-1].flatten(0, 1)),
            scores_bar.permute(1, 2, 0) @ states.transpose(0, 1),
            weights.permute(1, 2, 0) @ sums_bar.transpose(0, 1),
            None,  # the mask of padding
            weight_gradient(sums_bar.flatten(0, 1), states.flatten(0, 1)),
            sums_bar.sum((0, 1)),
            both_bar[:, size:],
            memory_bar,
        )
