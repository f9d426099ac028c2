"""Sampled softmax: in training, a random part of the vocabulary stands for the whole of it."""

from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from permalign.checks import require_at_least_one
from permalign.shapes import Float, Int
from permalign.text.codec import SPECIALS


@dataclass(frozen=True)
class SampledVocabulary:
    """A part of the vocabulary whose weighted exponentials estimate the normaliser of a softmax.

    With ``w`` in the sample and ``log_weight(w)`` added to its logit, ``Z' = sum_w exp(logit(w) + log_weight(w))`` is
    an unbiased estimate of the full sum ``Z``. Its logarithm is too small on average, by about half the relative
    variance of ``Z'`` (Jensen's inequality), so likelihoods in training are slightly too large. Outside of training
    nothing is sampled, and all probabilities are exact.

    Half of the sample is not drawn at all: the tokens with the lowest ids, which are the most frequent ones in every
    vocabulary that is learned from data. They have most of the probability, so that what is left to the draw varies
    little.

    Attributes:
        tokens: the distinct token ids of the sample, in increasing order.
        log_weights: what is added to the logits of these tokens: 0 for a token that is always in the sample, and
            ``log(number of tokens to draw from / number drawn)`` for one that was drawn.
        columns: the index in ``tokens`` of every token id of the vocabulary; -1 for those that are not in the sample.
    """

    tokens: Int[Tensor, " sampled"]
    log_weights: Float[Tensor, " sampled"]
    columns: Int[Tensor, " vocab"]

    @classmethod
    def draw(
        cls, targets: Int[Tensor, "*any"], vocab_size: int, num_negatives: int
    ) -> "SampledVocabulary | None":
        """Take the targets, the special tokens and the first of all others, and draw from the rest without replacement.

        Args:
            targets: the token ids whose probabilities are asked for.
            vocab_size: the size of the vocabulary.
            num_negatives: how many other tokens to take. The first half are those with the lowest ids; the others are
                drawn uniformly from the rest, with torch's global generator.

        Returns:
            The sample; None if it would be the whole vocabulary.

        >>> sample = SampledVocabulary.draw(torch.tensor([[7, 9]]), vocab_size=20, num_negatives=2)
        >>> len(sample.tokens)  # four special tokens, two targets, two of fourteen others
        8
        >>> sample.log_weights[sample.columns[torch.tensor([7, 9])]]
        tensor([0., 0.])
        """
        always = torch.zeros(vocab_size, dtype=torch.bool, device=targets.device)
        always[: len(SPECIALS)] = True
        always[targets.flatten()] = True
        others = (~always).nonzero().squeeze(1)
        if len(others) <= num_negatives:
            return None
        num_frequent = num_negatives // 2
        always[others[:num_frequent]] = True
        rest, num_drawn = others[num_frequent:], num_negatives - num_frequent
        drawn = rest[torch.randperm(len(rest), device=rest.device)[:num_drawn]]
        log_weights = torch.full((vocab_size,), log(len(rest) / num_drawn), device=targets.device)
        log_weights[always] = 0.0
        always[drawn] = True
        tokens = always.nonzero().squeeze(1)
        columns = torch.full((vocab_size,), -1, device=targets.device)
        columns[tokens] = torch.arange(len(tokens), device=targets.device)
        return cls(tokens, log_weights[tokens], columns)


def require_num_negatives(num_negatives: int | None) -> None:
    """Require at least one sampled token, or None for the whole vocabulary."""
    if num_negatives is not None:
        require_at_least_one(num_negatives=num_negatives)
