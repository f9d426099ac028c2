"""Who wrote each word, given the output: sums to one, in a batch as alone, and is the likelihood's own."""

import pytest
import torch

from permalign.heads import SsntHead, SwanHead, TaggingHead

VOCAB_SIZE, INPUT_SIZE = 9, 4
LENGTHS, TARGET_LENGTHS = torch.tensor([3, 2]), torch.tensor([2, 2])
TARGET = torch.tensor([[5, 7, 4], [6, 4, 4]])  # one column more than any output has


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
def test_every_word_was_written_somewhere(kind, states):
    posteriors = head_of(kind).alignment_posteriors(states, LENGTHS, TARGET, TARGET_LENGTHS)
    cells = 4 if kind == "ssnt" else 3  # one more is the end
    assert posteriors.shape == (2, cells, 3)
    torch.testing.assert_close(posteriors.sum(1), torch.tensor([[1.0, 1.0, 0.0]] * 2, dtype=torch.float64))
    assert posteriors[1, LENGTHS[1] + (kind == "ssnt") :].abs().sum() == 0


@pytest.mark.parametrize("kind", ["ssnt", "swan"])
def test_a_sentence_has_the_same_alone(kind, states):
    head = head_of(kind)
    together = head.alignment_posteriors(states, LENGTHS, TARGET, TARGET_LENGTHS)
    alone = head.alignment_posteriors(states[1:, :2], LENGTHS[1:], TARGET[1:, :2], TARGET_LENGTHS[1:])
    torch.testing.assert_close(together[1:, : alone.shape[1], :2], alone)


@pytest.mark.parametrize("kind", ["ssnt", "swan"])
def test_samples_agree(kind, states):
    head = head_of(kind)
    one = states[:1], LENGTHS[:1], TARGET[:1, :2], TARGET_LENGTHS[:1]
    drawn = head._alignment(*one).sample((20_000,), torch.Generator().manual_seed(2))[:, 0]
    posteriors = head.alignment_posteriors(*one)[0]
    for word in range(2):
        shares = torch.bincount(drawn[:, word], minlength=posteriors.shape[0]) / 20_000
        torch.testing.assert_close(shares.double(), posteriors[:, word], atol=0.015, rtol=0)


def test_a_tag_was_written_at_its_own_place(states):
    lengths = torch.tensor([3, 2])
    posteriors = head_of("tagging").alignment_posteriors(states, lengths, TARGET, lengths)
    assert torch.equal(posteriors[0], torch.eye(3, dtype=torch.float64))
    assert torch.equal(posteriors[1], torch.diag(torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)))
