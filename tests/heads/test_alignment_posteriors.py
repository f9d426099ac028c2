"""Posteriors over the cell that wrote each token: they sum to one, ignore padding, and agree with samples."""

import pytest
import torch

from permalign.heads import SsntHead, SwanHead, TaggingHead

VOCAB_SIZE, INPUT_SIZE = 9, 4
LENGTHS, TARGET_LENGTHS = torch.tensor([3, 2]), torch.tensor([2, 2])
TARGET = torch.tensor([[5, 7, 4], [6, 4, 4]])  # one column more than the longest output


def head_of(kind):
    torch.manual_seed(0)
    options = {"input_size": INPUT_SIZE, "vocab_size": VOCAB_SIZE}
    if kind != "tagging":
        options |= {"embedding_dim": 3, "hidden_size": 5}
    if kind == "swan":
        options["max_segment_length"] = 2
    head = {"ssnt": SsntHead, "swan": SwanHead, "tagging": TaggingHead}[kind](**options)
    return head.double().eval()


@pytest.fixture
def states():
    return torch.randn(2, 3, INPUT_SIZE, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("kind", ["ssnt", "swan"])
def test_posteriors_of_every_token_sum_to_one(kind, states):
    posteriors = head_of(kind).alignment_posteriors(states, LENGTHS, TARGET, TARGET_LENGTHS)
    cells = 4 if kind == "ssnt" else 3  # one more for the end
    assert posteriors.shape == (2, cells, 3)
    torch.testing.assert_close(posteriors.sum(1), torch.tensor([[1.0, 1.0, 0.0]] * 2, dtype=torch.float64))
    assert posteriors[1, LENGTHS[1] + (kind == "ssnt") :].abs().sum() == 0


@pytest.mark.parametrize("kind", ["ssnt", "swan"])
def test_a_batch_equals_single_sentences(kind, states):
    head = head_of(kind)
    batched = head.alignment_posteriors(states, LENGTHS, TARGET, TARGET_LENGTHS)
    single = head.alignment_posteriors(states[1:, :2], LENGTHS[1:], TARGET[1:, :2], TARGET_LENGTHS[1:])
    torch.testing.assert_close(batched[1:, : single.shape[1], :2], single)


@pytest.mark.parametrize("kind", ["ssnt", "swan"])
def test_posteriors_agree_with_samples(kind, states):
    head = head_of(kind)
    pair = states[:1], LENGTHS[:1], TARGET[:1, :2], TARGET_LENGTHS[:1]
    drawn = head._alignment(*pair).sample((20_000,), torch.Generator().manual_seed(2))[:, 0]
    posteriors = head.alignment_posteriors(*pair)[0]
    for token in range(2):
        shares = torch.bincount(drawn[:, token], minlength=posteriors.shape[0]) / 20_000
        torch.testing.assert_close(shares.double(), posteriors[:, token], atol=0.015, rtol=0)


def test_every_tag_is_written_at_its_own_position(states):
    lengths = torch.tensor([3, 2])
    posteriors = head_of("tagging").alignment_posteriors(states, lengths, TARGET, lengths)
    assert torch.equal(posteriors[0], torch.eye(3, dtype=torch.float64))
    assert torch.equal(posteriors[1], torch.diag(torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)))
