"""The copy mechanism: instead of a word of the vocabulary, a source cell may write the source word it holds."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad

from permalign.masks import padding_mask
from permalign.shapes import Float, Int
from permalign.structures.log_space import LOG_ZERO
from permalign.text.codec import PADDING_ID, UNKNOWN_ID


@dataclass(frozen=True)
class CopySource:
    """What every source cell writes if it copies.

    A cell holds one source token or, after a soft reordering, a mixture of them. Copying it writes a token w with
    probability ``c_i(w) = sum_t M[i,t] [id_t = w]``. Words that are in no vocabulary have ids beyond the vocabulary,
    which are different for every sentence; see `permalign.text.sentence_vocabulary.SentenceVocabulary`.

    Attributes:
        ids: the target id of each source token; `PADDING_ID` for one that cannot be copied.
        matrix: M, the share of each token in each cell; None if cell i holds token i.
        log_weights: what is added to the log-probability of copying each output token. It is 0, but the gradient of a
            log-likelihood with respect to it is the posterior probability that the token was copied.

    >>> copies = CopySource(torch.tensor([[7, 9, 7]]))
    >>> copies.log_probs(torch.tensor([[7]]), num_cells=3).exp().squeeze(-1)
    tensor([[1., 0., 1.]])
    """

    ids: Int[Tensor, "batch tokens"]
    matrix: Float[Tensor, "batch cells tokens"] | None = None
    log_weights: Float[Tensor, "batch m"] | None = None

    @classmethod
    def of(
        cls,
        ids: Int[Tensor, "batch tokens"],
        lengths: Int[Tensor, " batch"],
        matrix: Float[Tensor, "batch cells tokens"] | None = None,
    ) -> "CopySource":
        """Return the words of a padded batch; cells and tokens at padding hold nothing.

        Args:
            ids: the target id of each source token.
            lengths: the lengths of the sentences.
            matrix: the share of each token in each cell; None if cell i holds token i.
        """
        ids = ids.masked_fill(padding_mask(lengths, ids.shape[1]), PADDING_ID)
        if matrix is not None:
            matrix = matrix.masked_fill(padding_mask(lengths, matrix.shape[1])[..., None], 0.0)
        return cls(ids, matrix)

    @property
    def num_ids(self) -> int:
        """One more than the largest id."""
        return int(self.ids.max()) + 1 if self.ids.numel() else 0

    def select(self, rows: Int[Tensor, " rows"]) -> "CopySource":
        """Select sentences; a sentence may occur several times."""
        return CopySource(
            self.ids[rows],
            None if self.matrix is None else self.matrix[rows],
            None if self.log_weights is None else self.log_weights[rows],
        )

    def in_order(self, order: Int[Tensor, "batch cells"]) -> "CopySource":
        """Put tokens into an order: cell i holds token ``order[i]``."""
        return CopySource(self.ids.gather(1, order))

    def with_matrix(self, matrix: Float[Tensor, "batch cells tokens"] | None) -> "CopySource":
        """Let cells hold other mixtures of the same tokens."""
        return replace(self, matrix=matrix)

    def weights(self, num_cells: int, dtype: torch.dtype) -> Float[Tensor, "batch cells tokens"]:
        """Return the share of each token in each cell, without tokens that cannot be copied.

        Cells beyond those that hold tokens (the end of the sentence, say) copy nothing.
        """
        matrix = self.matrix
        if matrix is None:
            tokens = self.ids.shape[1]
            matrix = torch.eye(tokens, device=self.ids.device, dtype=dtype).expand(len(self.ids), -1, -1)
        matrix = pad(matrix.to(dtype), (0, 0, 0, num_cells - matrix.shape[1]))
        return matrix.masked_fill((self.ids == PADDING_ID)[:, None], 0.0)

    def shares(self, cells: Float[Tensor, "batch cells cell_size"]) -> Float[Tensor, "batch cells"]:
        """Return the share of each cell that can be copied."""
        return self.weights(cells.shape[1], cells.dtype).sum(2)

    def log_probs(
        self, tokens: Int[Tensor, "batch m"], num_cells: int, dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "batch cells m"]:
        """Return ``log c_i(w)`` for given tokens w; `LOG_ZERO` for those that a cell cannot copy."""
        same = (self.ids[:, :, None] == tokens[:, None]).to(dtype)  # (batch, tokens, m)
        log_probs = log_or_zero(self.weights(num_cells, dtype) @ same)
        if self.log_weights is None:
            return log_probs
        missing = tokens.shape[1] - self.log_weights.shape[1]  # END may have been appended, padding removed
        return log_probs + pad(self.log_weights, (0, missing))[:, None]

    def over_vocabulary(
        self, num_cells: int, size: int, dtype: torch.dtype
    ) -> Float[Tensor, "batch cells vocab"]:
        """Return ``log c_i(w)`` for all tokens w below a size."""
        weights = self.weights(num_cells, dtype)
        index = self.ids[:, None].expand_as(weights)
        probs = weights.new_zeros(*weights.shape[:2], size).scatter_add(2, index, weights)
        return log_or_zero(probs)

    def add_to(
        self, scores: Float[Tensor, "batch rows vocab"], weights: Float[Tensor, "batch rows cells"]
    ) -> Float[Tensor, "batch rows extended"]:
        """Add ``sum_i exp(weight_i) c_i(w)`` to the probabilities of all tokens, those beyond the vocabulary included.

        Args:
            scores: the log-probabilities without copying.
            weights: the log-probability that each cell copies.
        """
        rows = scores.shape[1]
        shares = log_or_zero(self.weights(weights.shape[2], weights.dtype))  # (batch, cells, tokens)
        of_tokens = (weights[..., None] + shares[:, None]).logsumexp(2)  # (batch, rows, tokens)
        # tokens with the same id write the same word, so that each gets the sum over all of them
        same = torch.where(self.ids[:, :, None] == self.ids[:, None], 0.0, LOG_ZERO).to(weights.dtype)
        of_ids = (of_tokens[:, :, None] + same[:, None]).logsumexp(3).clamp(min=LOG_ZERO)
        extended = pad(scores, (0, max(0, self.num_ids - scores.shape[2])), value=LOG_ZERO)
        index = self.ids[:, None].expand(-1, rows, -1)
        return extended.scatter(2, index, torch.logaddexp(extended.gather(2, index), of_ids))

    def add_token(
        self,
        scores: Float[Tensor, "rows cells"],
        weights: Float[Tensor, "rows cells"],
        sentences: Int[Tensor, " rows"],
        tokens: Int[Tensor, " rows"],
        vocab_size: int,
    ) -> Float[Tensor, "rows cells"]:
        """Add the probability of copying one token in each row, cell by cell.

        Args:
            scores: the log-probability of writing the token from the vocabulary, at each cell.
            weights: the log-probability that each cell copies.
            sentences: the sentence of each row.
            tokens: the token of each row.
            vocab_size: the size of the vocabulary; scores of tokens beyond it are not read.
        """
        copied = self.select(sentences).log_probs(tokens[:, None], scores.shape[1], scores.dtype).squeeze(2)
        scores = scores.masked_fill((tokens >= vocab_size)[:, None], LOG_ZERO)
        return torch.logaddexp(scores, weights + copied)


class CopyGate(nn.Module):
    """Decides between writing a word of the vocabulary and copying the source word of a cell.

        p(w | i, j) = (1 - k s_i) p_vocabulary(w | i, j) + k c_i(w)        k = sigmoid(-(u . h_i + v . s_j + b))

    ``s_i`` is 1, or smaller if (a part of) what the cell holds cannot be copied, so that probabilities sum to one.

    Args:
        cell_size: the size of the cells ``h_i``.
        step_size: the size of the steps ``s_j``; None if the gate depends on the cell alone.
    """

    def __init__(self, cell_size: int, step_size: int | None = None) -> None:
        super().__init__()
        self.of_cells = nn.Linear(cell_size, 1)  # u and b
        self.of_steps = None if step_size is None else nn.Linear(step_size, 1, bias=False)  # v

    def forward(
        self,
        cells: Float[Tensor, "batch *cells cell_size"],
        shares: Float[Tensor, "batch *#cells"],
        steps: Float[Tensor, "batch steps step_size"] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities of writing from the vocabulary, and of copying if everything can be copied.

        Args:
            cells: ``h_i``.
            shares: ``s_i``, the share of each cell that can be copied.
            steps: ``s_j``; with steps, the results are ``(batch, cells, steps)``.
        """
        odds = self.of_cells(cells).squeeze(-1)
        if self.of_steps is not None and steps is not None:
            odds = odds[..., None] + self.of_steps(steps).squeeze(-1)[:, None]
            shares = shares[..., None]
        rest = log_or_zero(1 - shares)
        copy = logsigmoid(-odds)
        return torch.logaddexp(logsigmoid(odds), copy + rest), copy


def mix(
    keep: Tensor,
    from_vocabulary: Tensor,
    copy: Tensor,
    copied: Tensor,
    beyond_vocabulary: Tensor | None = None,
) -> Tensor:
    """Compute ``log(exp(keep + from_vocabulary) + exp(copy + copied))``, all broadcast together.

    Args:
        keep: the log-probability of writing from the vocabulary.
        from_vocabulary: the log-probability of the token there.
        copy: the log-probability of copying.
        copied: the log-probability that copying writes the token.
        beyond_vocabulary: true for tokens that are not in the vocabulary, whose log-probability there is not read.
    """
    if beyond_vocabulary is not None:
        from_vocabulary = from_vocabulary.masked_fill(beyond_vocabulary, LOG_ZERO)
    return torch.logaddexp(keep + from_vocabulary, copy + copied)


def in_vocabulary(tokens: Int[Tensor, "*any"], vocab_size: int) -> Int[Tensor, "*any"]:
    """Replace ids beyond the vocabulary by that of the unknown token.

    >>> in_vocabulary(torch.tensor([5, 9, 12]), vocab_size=9)
    tensor([5, 1, 1])
    """
    return tokens.masked_fill(tokens >= vocab_size, UNKNOWN_ID)


def log_or_zero(probs: Float[Tensor, "*any"]) -> Float[Tensor, "*any"]:
    """Return logarithms, and `LOG_ZERO` without a gradient for a probability of zero."""
    positive = probs > 0
    return torch.where(positive, torch.where(positive, probs, 1.0).log(), LOG_ZERO)
