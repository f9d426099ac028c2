"""Syntactic attention, against a reference that runs token by token."""

import pytest
import torch
from tests.heads.contract import (
    INPUT_SIZE,
    VOCAB_SIZE,
    HeadContract,
    Neighbours,
    random_outputs,
    random_sentences,
)
from tests.heads.reference import first_states, lstm_cell, softmax, token_log_prob

from permalign.heads.syntactic_attention import SyntacticAttentionHead
from permalign.text.codec import END_ID


class TestSyntacticAttention(HeadContract):
    def head(self, **options):
        encoder = Neighbours(INPUT_SIZE, 6)
        return SyntacticAttentionHead(
            **{
                "input_size": INPUT_SIZE,
                "vocab_size": VOCAB_SIZE,
                "hidden_size": 5,
                "encoder": encoder,
                **options,
            }
        )

    def test_sizes_are_named(self):
        for option in ("hidden_size", "num_layers"):
            with pytest.raises(ValueError, match=f"{option} is 0, but must be at least 1"):
                self.head(**{option: 0})


class TestWithoutContext(TestSyntacticAttention):
    def head(self, **options):
        return super().head(**{"encoder": None, "num_layers": 2, **options})


def two_streams(head, states, output):
    """Return the log-probability of one output, from the states of one sentence."""
    source = torch.cat([states, head.end[None]])
    syntax = source if head.encoder is None else head.encoder(source[None], torch.tensor([len(source)]))[0]
    meanings = [head.meanings.weight @ state + head.meanings.bias for state in source]
    states, total = first_states(head.stack, syntax), 0.0
    for written in [*output, END_ID]:
        query = states[-1][0]
        weights = softmax([query @ (head.keys.weight @ state) for state in syntax])
        meaning = sum(weight * each for weight, each in zip(weights, meanings, strict=True))
        total = total + token_log_prob(head, meaning, written)
        inputs = sum(weight * each for weight, each in zip(weights, syntax, strict=True))
        for layer, cell in enumerate(head.stack.cells):
            states[layer] = lstm_cell(cell, inputs, *states[layer])
            inputs = states[layer][0]
    return total


@pytest.mark.parametrize("kind", [TestSyntacticAttention, TestWithoutContext])
def test_a_batch_equals_single_sentences(kind):
    head = kind().build()
    states, lengths = random_sentences([3, 1, 5, 2])
    target, target_lengths = random_outputs([2, 3, 0, 6])
    expected = [
        two_streams(head, states[row, :n], target[row, :m].tolist())
        for row, (n, m) in enumerate(zip(lengths.tolist(), target_lengths.tolist(), strict=True))
    ]
    found = head.log_likelihood(states, lengths, target, target_lengths)
    torch.testing.assert_close(found, torch.stack(expected))


def test_tokens_depend_on_meaning_only():
    head = TestSyntacticAttention().build()
    torch.nn.init.zeros_(head.meanings.weight)  # all tokens mean the same, whatever the attention weights
    states, lengths = random_sentences([4, 4])
    first, second = head.decoder(states, lengths).scores()
    torch.testing.assert_close(first, second)
