"""A softmax over output words."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from permalign.masks import length_mask
from permalign.shapes import Float, Int
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, SPECIALS


class OutputSoftmax(nn.Module):
    """Log-probabilities of output words, from features of what to write.

    Padding and begin are never written, and neither is the end by a head that knows the length beforehand: a bias
    of -inf takes them out of the sum. The unknown word is a word like others, since outputs may hold it.

    Args:
        width: of the features.
        words: size of the vocabulary, with its special words.
        with_end: whether the end of the output is one of the words.

    >>> softmax = OutputSoftmax(width=3, words=6, with_end=True)
    >>> log_probs = softmax(torch.zeros(1, 3))
    >>> [SPECIALS[word] for word in log_probs[0].isinf().nonzero().flatten()]
    ['<pad>', '<s>']
    """

    forbidden: Tensor
    allowed: Tensor

    def __init__(self, width: int, words: int, with_end: bool) -> None:
        super().__init__()
        if words <= len(SPECIALS):
            raise ValueError(
                f"words is {words}, but must be at least {len(SPECIALS) + 1}: the vocabulary's size, counting the "
                f"special words {' '.join(SPECIALS)}."
            )
        self.words = words
        self.linear = nn.Linear(width, words)
        forbidden = torch.zeros(words)
        forbidden[[PADDING_ID, BEGIN_ID] if with_end else [PADDING_ID, BEGIN_ID, END_ID]] = -torch.inf
        self.register_buffer("forbidden", forbidden, persistent=False)
        self.register_buffer("allowed", forbidden.isfinite().to(forbidden), persistent=False)

    def logits(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows words"]:
        """Logits of all words, -inf for those that are never written."""
        return functional.linear(features, self.linear.weight, self.linear.bias + self.forbidden)

    def forward(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows words"]:
        """Log-probabilities of all words."""
        return self.logits(features).log_softmax(-1)

    def mean_logit(self, features: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows"]:
        """The mean logit of the words that can be written: a mean of linear maps is one linear map."""
        share = self.allowed / self.allowed.sum()
        return features @ (share @ self.linear.weight) + share @ self.linear.bias

    def log_prob(
        self, features: Float[Tensor, "*rows width"], words: Int[Tensor, "*rows"], smoothing: float = 0.0
    ) -> Float[Tensor, "*rows"]:
        """Log-probabilities of the given words, ``(1 - smoothing) log p(word) + smoothing mean_v log p(v)``."""
        return self.log_probs(features, words[..., None], smoothing).squeeze(-1)

    def log_probs(
        self,
        features: Float[Tensor, "*rows width"],
        words: Int[Tensor, "*rows each"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, "*rows each"]:
        """Log-probabilities of several words in each row, smoothed like those of `log_prob`.

        Both terms have one normaliser, so smoothing adds ``smoothing (mean_v logit(v) - logit(word))``.
        """
        logits, words = self.logits(features), words.long()
        wanted = logits.log_softmax(-1).gather(-1, words)
        if not smoothing:
            return wanted
        return wanted + smoothing * (self.mean_logit(features)[..., None] - logits.gather(-1, words))

    def sentence_log_prob(
        self,
        features: Float[Tensor, "batch steps width"],
        words: Int[Tensor, "batch steps"],
        lengths: Int[Tensor, " batch"],
        smoothing: float = 0.0,
    ) -> Float[Tensor, " batch"]:
        """The sum over the first ``lengths`` words of every sentence; no softmax is spent on padding."""
        sentence, step = length_mask(lengths, features.shape[1]).nonzero(as_tuple=True)
        each = self.log_prob(features[sentence, step], words[sentence, step], smoothing)
        return each.new_zeros(features.shape[0]).index_add(0, sentence, each)


def with_end(target: Int[Tensor, "batch m"], lengths: Int[Tensor, " batch"]) -> Int[Tensor, "batch m+1"]:
    """Outputs with the end after their last word.

    >>> with_end(torch.tensor([[7, 8], [9, 0]]), torch.tensor([2, 1]))
    tensor([[7, 8, 3],
            [9, 3, 0]])
    """
    return functional.pad(target, (0, 1)).scatter(1, lengths.long()[:, None], END_ID)
