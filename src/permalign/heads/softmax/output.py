"""A softmax over the output vocabulary."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from permalign.heads.softmax.sampled_vocabulary import SampledVocabulary, require_num_negatives
from permalign.masks import length_mask
from permalign.precision import in_low_precision
from permalign.products import Linear, linear
from permalign.shapes import Float, Int
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, SPECIALS


class OutputSoftmax(nn.Module):
    """Log-probabilities of output tokens, from features.

    Padding and BEGIN are never written, and neither is END by a head that knows the length of its output: a bias of
    -inf removes them from the softmax. The unknown token is a token like any other, since outputs may contain it.

    Args:
        input_size: the size of the features.
        vocab_size: the size of the vocabulary, special tokens included.
        with_end: whether END is one of the tokens that can be written.
        num_negatives: in training, how many tokens are drawn for each call to stand for those that are not asked for;
            None for the whole vocabulary. See `SampledVocabulary`.

    >>> softmax = OutputSoftmax(input_size=3, vocab_size=6, with_end=True)
    >>> log_probs = softmax(torch.zeros(1, 3))
    >>> [SPECIALS[token] for token in log_probs[0].isinf().nonzero().flatten()]
    ['<pad>', '<s>']
    """

    forbidden: Tensor
    allowed: Tensor

    def __init__(
        self, input_size: int, vocab_size: int, with_end: bool, num_negatives: int | None = None
    ) -> None:
        super().__init__()
        require_vocab_size(vocab_size)
        require_num_negatives(num_negatives)
        self.num_negatives = num_negatives
        self.linear = Linear(input_size, vocab_size)
        never_written = [PADDING_ID, BEGIN_ID] if with_end else [PADDING_ID, BEGIN_ID, END_ID]
        forbidden = forbidding_bias(vocab_size, never_written)
        self.register_buffer("forbidden", forbidden, persistent=False)
        self.register_buffer("allowed", forbidden.isfinite().to(forbidden), persistent=False)

    def logits(self, features: Float[Tensor, "*rows input_size"]) -> Float[Tensor, "*rows vocab"]:
        """Return the logits of all tokens, -inf for those that are never written."""
        return self._project(features, self.linear.weight, self.linear.bias + self.forbidden)

    def _project(self, features: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        logits: Tensor = in_low_precision(linear, features, weight, bias)
        return logits

    def forward(self, features: Float[Tensor, "*rows input_size"]) -> Float[Tensor, "*rows vocab"]:
        """Return the log-probabilities of all tokens."""
        return self.logits(features).log_softmax(-1)

    def mean_logit(self, features: Float[Tensor, "*rows input_size"]) -> Float[Tensor, "*rows"]:
        """Return the mean logit of the tokens that can be written, by one product with their mean weights."""
        share = self.allowed / self.allowed.sum()
        return features @ (share @ self.linear.weight) + share @ self.linear.bias

    def log_prob(
        self,
        features: Float[Tensor, "*rows input_size"],
        tokens: Int[Tensor, "*rows"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "*rows"]:
        """Return the log-probability of one token per row, smoothed like those of `log_probs`."""
        return self.log_probs(features, tokens[..., None], smoothing).squeeze(-1)

    def log_probs(
        self,
        features: Float[Tensor, "*rows input_size"],
        tokens: Int[Tensor, "*rows count"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "*rows count"]:
        """Return ``(1 - smoothing) log p(token) + smoothing mean_v log p(v)`` for several tokens per row.

        Both terms have the same normaliser, so smoothing adds ``smoothing (mean_v logit(v) - logit(token))``.
        """
        logits, columns = self._logits_in_training(features, tokens.long())
        log_probs = logits.log_softmax(-1).gather(-1, columns)
        if not smoothing:
            return log_probs
        return log_probs + smoothing * (self.mean_logit(features)[..., None] - logits.gather(-1, columns))

    def _logits_in_training(self, features: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of all tokens or, if training samples them, of some; and the columns of given tokens."""
        sample = None
        if self.training and self.num_negatives is not None:
            sample = SampledVocabulary.draw(tokens, len(self.forbidden), self.num_negatives)
        if sample is None:
            return self.logits(features), tokens
        bias = (self.linear.bias + self.forbidden)[sample.tokens] + sample.log_weights
        logits = self._project(features, self.linear.weight[sample.tokens], bias)
        return logits, sample.columns[tokens]

    def sentence_log_prob(
        self,
        features: Float[Tensor, "batch steps input_size"],
        tokens: Int[Tensor, "batch steps"],
        lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """Sum over the first ``lengths`` tokens of every sentence, without computing a softmax at padding."""
        sentence, step = length_mask(lengths, features.shape[1]).nonzero(as_tuple=True)
        log_probs = self.log_prob(features[sentence, step], tokens[sentence, step], smoothing)
        return log_probs.new_zeros(features.shape[0]).index_add(0, sentence, log_probs)


def with_end(target: Int[Tensor, "batch m"], lengths: Int[Tensor, " batch"]) -> Int[Tensor, "batch m+1"]:
    """Return outputs with END after their last token.

    >>> with_end(torch.tensor([[7, 8], [9, 0]]), torch.tensor([2, 1]))
    tensor([[7, 8, 3],
            [9, 3, 0]])
    """
    return functional.pad(target, (0, 1)).scatter(1, lengths.long()[:, None], END_ID)


def forbidding_bias(vocab_size: int, tokens: Sequence[int]) -> Float[Tensor, " vocab"]:
    """Return a bias over the vocabulary: -inf for the given tokens, 0 for all others."""
    bias = torch.zeros(vocab_size)
    bias[list(tokens)] = -torch.inf
    return bias


def require_vocab_size(vocab_size: int) -> None:
    """Require a vocabulary with at least one token that is not special."""
    if vocab_size <= len(SPECIALS):
        raise ValueError(
            f"vocab_size is {vocab_size}, but must be at least {len(SPECIALS) + 1}: it counts the special tokens "
            f"{' '.join(SPECIALS)} too."
        )
