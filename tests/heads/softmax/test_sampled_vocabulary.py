"""Sampled softmax: its normaliser is estimated without bias, and only in training."""

import pytest
import torch

from permalign.heads import (
    AttentionHead,
    SegmentsHead,
    SsntHead,
    SwanHead,
    SyntacticAttentionHead,
    TaggingHead,
)
from permalign.heads.base import Head
from permalign.heads.softmax.aligned import AlignedSoftmax
from permalign.heads.softmax.output import OutputSoftmax
from permalign.heads.softmax.sampled_vocabulary import SampledVocabulary
from permalign.text.codec import SPECIALS

VOCAB_SIZE = 30
SIZES = {"input_size": 6, "vocab_size": VOCAB_SIZE}
DECODER_SIZES = {**SIZES, "embedding_dim": 4, "hidden_size": 6}
HEADS = {
    "tagging": lambda **options: TaggingHead(**SIZES, **options),
    "attention": lambda **options: AttentionHead(**DECODER_SIZES, **options),
    "syntactic_attention": lambda **options: SyntacticAttentionHead(**SIZES, hidden_size=6, **options),
    "ssnt": lambda **options: SsntHead(**DECODER_SIZES, **options),
    "swan": lambda **options: SwanHead(**DECODER_SIZES, max_segment_length=2, **options),
    "segments": lambda **options: SegmentsHead(**DECODER_SIZES, max_segment_length=2, **options),
}


def pairs() -> tuple[torch.Tensor, ...]:
    states = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1))
    target = torch.tensor([[7, 9, 7], [12, 8, 0]])
    lengths = torch.tensor([3, 2])
    return states, lengths, target, lengths


def build(kind: str, num_negatives: int | None) -> Head:
    torch.manual_seed(0)
    return HEADS[kind](num_negatives=num_negatives)


def test_a_sample_holds_the_targets_the_special_tokens_and_so_many_others() -> None:
    sample = SampledVocabulary.draw(torch.tensor([[7, 9], [9, 12]]), VOCAB_SIZE, 5)
    assert sample is not None
    assert sample.tokens.unique().tolist() == sample.tokens.tolist()
    assert set(range(len(SPECIALS))) | {7, 9, 12} <= set(sample.tokens.tolist())
    assert len(sample.tokens) == len(SPECIALS) + 3 + 5
    assert sample.tokens[sample.columns[sample.tokens]].equal(sample.tokens)
    assert int((sample.columns == -1).sum()) == VOCAB_SIZE - len(sample.tokens)


def test_half_of_the_others_are_the_most_frequent_and_the_rest_is_drawn() -> None:
    seen = set()
    for seed in range(100):
        torch.manual_seed(seed)
        sample = SampledVocabulary.draw(torch.tensor([4, 9]), VOCAB_SIZE, 5)
        assert sample is not None
        tokens = sample.tokens.tolist()
        assert {5, 6} <= set(tokens)  # the first that are neither special nor targets
        weights = dict(zip(tokens, sample.log_weights.exp().tolist(), strict=True))
        drawn = {token for token, weight in weights.items() if weight > 1}
        assert len(drawn) == 3
        assert all(weights[token] == pytest.approx(22 / 3) for token in drawn)
        seen |= drawn
    assert seen == set(range(7, VOCAB_SIZE)) - {9}


def test_the_whole_vocabulary_is_no_sample() -> None:
    others = VOCAB_SIZE - len(SPECIALS) - 1
    assert SampledVocabulary.draw(torch.tensor([7]), VOCAB_SIZE, others) is None
    assert SampledVocabulary.draw(torch.tensor([7]), VOCAB_SIZE, others - 1) is not None


def test_the_estimate_of_the_normaliser_is_unbiased() -> None:
    logits, targets = torch.linspace(-1.0, 1.0, VOCAB_SIZE, dtype=torch.float64), torch.tensor([7, 9])
    torch.manual_seed(0)
    estimates = []
    for _ in range(4000):
        sample = SampledVocabulary.draw(targets, VOCAB_SIZE, 4)
        assert sample is not None
        estimates.append((logits[sample.tokens] + sample.log_weights).exp().sum())
    estimate, exact = torch.stack(estimates), logits.exp().sum()
    standard_error = estimate.std() / len(estimates) ** 0.5
    assert abs(estimate.mean() - exact) < 4 * standard_error
    assert estimate.log().mean() < exact.log()  # Jensen's inequality


def test_a_sampled_softmax_normalises_over_its_sample() -> None:
    torch.manual_seed(0)
    softmax = OutputSoftmax(3, VOCAB_SIZE, with_end=True, num_negatives=5).train()
    features, tokens = torch.randn(2, 3), torch.tensor([[7], [9]])
    torch.manual_seed(1)
    log_probs = softmax.log_probs(features, tokens)
    torch.manual_seed(1)
    sample = SampledVocabulary.draw(tokens, VOCAB_SIZE, 5)
    assert sample is not None
    logits = softmax.logits(features)
    normaliser = (logits[:, sample.tokens] + sample.log_weights).logsumexp(-1, keepdim=True)
    torch.testing.assert_close(log_probs, logits.gather(1, tokens) - normaliser)


def test_an_aligned_softmax_normalises_over_its_sample() -> None:
    torch.manual_seed(0)
    softmax = AlignedSoftmax(3, 4, VOCAB_SIZE, num_negatives=5).train()
    cells, steps, tokens = torch.randn(1, 2, 3), torch.randn(1, 2, 4), torch.tensor([[7, 9]])
    torch.manual_seed(1)
    estimate = softmax.log_normaliser(cells, steps, tokens)
    torch.manual_seed(1)
    sample = SampledVocabulary.draw(tokens, VOCAB_SIZE, 5)
    assert sample is not None
    logits = softmax.cell_logits(cells)[:, :, None] + softmax.step_logits(steps)[:, None]
    torch.testing.assert_close(
        estimate, (logits[..., sample.tokens] + sample.log_weights).logsumexp(-1), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
class TestHeads:
    def test_only_training_samples(self, kind: str, smoothing: float) -> None:
        exact, sampled = build(kind, None), build(kind, 5)
        expected = exact.eval().log_likelihood(*pairs(), smoothing)
        torch.testing.assert_close(sampled.eval().log_likelihood(*pairs(), smoothing), expected)
        torch.manual_seed(0)
        in_training = sampled.train().log_likelihood(*pairs(), smoothing)
        assert not torch.allclose(in_training, expected, rtol=1e-4)

    def test_a_sample_of_everything_is_exact(self, kind: str, smoothing: float) -> None:
        exact, sampled = build(kind, None).train(), build(kind, VOCAB_SIZE).train()
        torch.testing.assert_close(
            sampled.log_likelihood(*pairs(), smoothing), exact.log_likelihood(*pairs(), smoothing)
        )

    def test_seeds_give_the_same_sample_and_gradients_are_finite(self, kind: str, smoothing: float) -> None:
        head = build(kind, 5).train()
        losses = []
        for _ in range(2):
            torch.manual_seed(3)
            losses.append(head.log_likelihood(*pairs(), smoothing).sum())
        assert losses[0] == losses[1]
        losses[0].backward()
        gradients = [parameter.grad for parameter in head.parameters() if parameter.grad is not None]
        assert gradients
        assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_the_number_of_negatives_is_checked() -> None:
    with pytest.raises(ValueError, match="num_negatives is 0, but must be at least 1"):
        build("ssnt", 0)
