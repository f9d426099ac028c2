"""The fused recurrence of attention, against the same decoder run step by step."""

import pytest
import torch
from tests.heads.contract import INPUT_SIZE, VOCAB_SIZE, random_sentences

from permalign.heads.attention_recurrence import attention_recurrence
from permalign.heads.input_feeding import InputFeedingContext
from permalign.heads.source_attention import AttendedSource


def one_layer(dtype=torch.float64):
    torch.manual_seed(1)
    sizes = {"source_size": INPUT_SIZE, "vocab_size": VOCAB_SIZE, "embedding_dim": 3, "hidden_size": 5}
    return InputFeedingContext(**sizes).to(dtype).eval()


@pytest.mark.parametrize("lengths", [[3, 1, 5], [1]])
@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_equal_those_of_single_steps(lengths, steps, dtype):
    context = one_layer(dtype)
    states, lengths = random_sentences(lengths)
    embedded = torch.randn(len(lengths), steps, 3, dtype=dtype)
    factors = torch.randn(len(lengths), steps, 5, dtype=dtype)
    answers = []
    for run in (lambda *inputs: context.run_steps(*inputs)[0], context.run_fused):
        leaves = [states.to(dtype).requires_grad_(), embedded.clone().requires_grad_()]
        attended = run(context.project(leaves[0], lengths), leaves[1])
        used = [parameter for name, parameter in context.named_parameters() if "embeddings" not in name]
        gradients = torch.autograd.grad((attended * factors).sum(), leaves + used)
        answers.append([attended, *gradients])
    for single, fused in zip(*answers, strict=True):
        torch.testing.assert_close(fused, single)


def test_gradients_are_those_of_finite_differences():
    torch.manual_seed(0)
    steps, batch, n, size = 3, 2, 4, 2
    shapes = [(steps, batch, 4 * size), (4 * size, 2 * size), (batch, n, size), (batch, n, size)]
    shapes += [(size, size), (size,), (batch, size), (batch, size)]
    arguments = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    bias = torch.zeros(batch, n, dtype=torch.float64)
    bias[1, 2:] = -torch.inf

    def run(inputs, weight, keys, values, *others):
        return attention_recurrence(inputs, weight, AttendedSource(keys, values, bias), *others)

    assert torch.autograd.gradcheck(run, arguments)
