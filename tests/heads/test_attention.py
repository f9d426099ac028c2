"""Luong attention with input feeding, against a reference that runs token by token."""

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
from tests.heads.reference import fed_states, token_log_prob

from permalign.heads.attention import AttentionHead
from permalign.text.codec import END_ID


class TestAttention(HeadContract):
    def head(self, **options):
        return AttentionHead(
            **{
                "input_size": INPUT_SIZE,
                "vocab_size": VOCAB_SIZE,
                "embedding_dim": 3,
                "hidden_size": 5,
                **options,
            }
        )

    def test_sizes_are_named(self):
        for option in ("embedding_dim", "hidden_size", "num_layers"):
            with pytest.raises(ValueError, match=f"{option} is 0, but must be at least 1"):
                self.head(**{option: 0})


class TestDeepAttention(TestAttention):
    def head(self, **options):
        return super().head(**{"num_layers": 2, "encoder": Neighbours(INPUT_SIZE, 6), **options})


class TestScaledAttention(TestAttention):
    def head(self, **options):
        return super().head(**{"scaled_attention": True, **options})


def luong(head, source, output, scale):
    """Return the log-probability of one output, from the states of one sentence."""
    states = fed_states(head.context, output, source, scale)
    return sum(
        token_log_prob(head, state, token) for state, token in zip(states, [*output, END_ID], strict=True)
    )


@pytest.mark.parametrize(
    ("kind", "scale"), [(TestAttention, 1.0), (TestDeepAttention, 1.0), (TestScaledAttention, 5**-0.5)]
)
def test_a_batch_equals_single_sentences(kind, scale):
    head = kind().build()
    states, lengths = random_sentences([3, 1, 5, 2])
    target, target_lengths = random_outputs([2, 3, 0, 6])
    read = states if head.encoder is None else head.encoder(states, lengths)
    expected = [
        luong(head, read[row, :n], target[row, :m].tolist(), scale)
        for row, (n, m) in enumerate(zip(lengths.tolist(), target_lengths.tolist(), strict=True))
    ]
    found = head.log_likelihood(states, lengths, target, target_lengths)
    torch.testing.assert_close(found, torch.stack(expected))
