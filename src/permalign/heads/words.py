"""A softmax over output words, and the checks of what a head is given."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from permalign.checks import require_lengths, require_range, shape_of
from permalign.shapes import Float, Int
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, SPECIALS


class WordSoftmax(nn.Module):
    """Log-probabilities of output words, from features of what to write.

    Padding and begin are never written, and neither is the end by a head that knows the length beforehand: a bias
    of -inf takes them out of the sum. The unknown word is a word like others, since outputs may hold it.

    Args:
        width: of the features.
        words: size of the vocabulary, with its special words.
        with_end: whether the end of the output is one of the words.

    >>> softmax = WordSoftmax(width=3, words=6, with_end=True)
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
        sentence, step = inside(lengths, features.shape[1]).nonzero(as_tuple=True)
        each = self.log_prob(features[sentence, step], words[sentence, step], smoothing)
        return each.new_zeros(features.shape[0]).index_add(0, sentence, each)


def inside(lengths: Tensor, most: int) -> Tensor:
    """True where a sentence has a word, ``(batch, most)``.

    >>> inside(torch.tensor([1, 3]), 3)
    tensor([[ True, False, False],
            [ True,  True,  True]])
    """
    return torch.arange(most, device=lengths.device) < lengths[:, None]


def with_end(target: Int[Tensor, "batch m"], lengths: Int[Tensor, " batch"]) -> Int[Tensor, "batch m+1"]:
    """Outputs with the end after their last word.

    >>> with_end(torch.tensor([[7, 8], [9, 0]]), torch.tensor([2, 1]))
    tensor([[7, 8, 3],
            [9, 3, 0]])
    """
    return functional.pad(target, (0, 1)).scatter(1, lengths.long()[:, None], END_ID)


def width_after(encoder: nn.Module | None, width: int) -> int:
    """The width of a head's input states once its encoder, if any, has read them."""
    if encoder is None:
        return width
    found = getattr(encoder, "width", None)
    if not isinstance(found, int):
        raise ValueError(
            f"encoder {type(encoder).__name__} must say the width of its states in an attribute `width`, an int; "
            f"found {found!r}."
        )
    return found


def require_room(lengths: Tensor, target_lengths: Tensor, longest: int) -> None:
    """Every output fits into one segment of at most so many words for each source word."""
    too_long = target_lengths > lengths * longest
    if bool(too_long.any()):
        row = int(too_long.nonzero()[0])
        words, cells = int(target_lengths[row]), int(lengths[row])
        raise ValueError(
            f"target_lengths[{row}] is {words} words, but {cells} source words with segments of at most L = "
            f"{longest} write {cells * longest} at most. Build the head with "
            f"longest_segment={-(-words // cells)} or more, or leave the pair out."
        )


def require_states(states: Tensor, lengths: Tensor, width: int) -> None:
    """States ``(batch, n, width)`` of sentences that have at least one word."""
    if states.dim() != 3 or states.shape[2] != width:
        raise ValueError(
            f"states has shape {shape_of(states)}, but must be (batch, n, {width}), as the head was built for."
        )
    require_lengths("lengths", lengths, "states", states, states.shape[1])
    require_range("lengths", lengths, "states", states, states.shape[1])


def require_target(
    target: Tensor, target_lengths: Tensor, batch: int, words: int, smoothing: float = 0.0
) -> None:
    """Outputs ``(batch, m)`` of words that can be written, without begin and end; a smoothing below one."""
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing is {smoothing}, but must lie in 0 <= smoothing < 1; 0 is none.")
    if target.dim() != 2 or target.shape[0] != batch or target.is_floating_point():
        raise ValueError(
            f"target has shape {shape_of(target)} and dtype {target.dtype}, but must be ({batch}, m) word numbers: "
            "one output for every sentence in states."
        )
    require_lengths("target_lengths", target_lengths, "target", target, target.shape[1])
    require_range("target_lengths", target_lengths, "target", target, target.shape[1], minimum=0)
    within = inside(target_lengths, target.shape[1])
    special = (target == PADDING_ID) | (target == BEGIN_ID) | (target == END_ID)
    wrong = within & (special | (target < 0) | (target >= words))
    if bool(wrong.any()):
        row, step = (int(index) for index in wrong.nonzero()[0])
        raise ValueError(
            f"target[{row}, {step}] is {int(target[row, step])}, but outputs hold word numbers below {words} and none "
            f"of {PADDING_ID} (padding), {BEGIN_ID} (begin), {END_ID} (end). Leave begin and end to the head, and "
            "count padding out in target_lengths."
        )
