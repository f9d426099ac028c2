"""A softmax over tokens at every pair of a source cell and an output step."""

from collections.abc import Sequence

from torch import Tensor, nn

from permalign.heads.softmax.output import forbidding_bias, require_vocab_size
from permalign.heads.softmax.projected import projected_log_normaliser
from permalign.heads.softmax.sampled_vocabulary import SampledVocabulary, require_num_negatives
from permalign.products import Linear, linear
from permalign.shapes import Bool, Float, Int


class CellStepSoftmax(nn.Module):
    """``p(w | i, j) = softmax_w(A_i + B_j)``, where A projects source cells and B projects output steps.

    Both projections are computed once, and only the normaliser combines all pairs. Subclasses decide what a step is,
    and where END may be written.
    """

    forbidden: Tensor
    of_cells: Linear
    of_steps: Linear

    def _add_projections(
        self,
        cell_size: int,
        step_size: int,
        vocab_size: int,
        never_written: Sequence[int],
        num_negatives: int | None,
    ) -> None:
        """Create the parameters; called by the constructors of subclasses."""
        require_vocab_size(vocab_size)
        require_num_negatives(num_negatives)
        self.num_negatives = num_negatives
        self.of_cells = Linear(cell_size, vocab_size)  # A
        self.of_steps = Linear(step_size, vocab_size, bias=False)  # B
        self.register_buffer("forbidden", forbidding_bias(vocab_size, never_written), persistent=False)

    @property
    def allowed(self) -> Bool[Tensor, " vocab"]:
        """The tokens whose logits are finite."""
        return self.forbidden.isfinite()

    def cell_logits(
        self, cells: Float[Tensor, "batch cells cell_size"]
    ) -> Float[Tensor, "batch cells vocab"]:
        """Return A, bias included; -inf for tokens that are not allowed."""
        return linear(cells, self.of_cells.weight, self.of_cells.bias + self.forbidden)

    def step_logits(self, steps: Float[Tensor, "*rows step_size"]) -> Float[Tensor, "*rows vocab"]:
        """Return B."""
        logits: Tensor = self.of_steps(steps)
        return logits

    def log_normaliser(
        self,
        cells: Float[Tensor, "batch cells cell_size"],
        steps: Float[Tensor, "batch steps step_size"],
        targets: Int[Tensor, "*any"],
    ) -> Float[Tensor, "batch cells steps"]:
        """Return ``logsumexp_w (A_iw + B_jw)`` over the allowed tokens; in training, its estimate if they are sampled.

        Args:
            cells: what A projects.
            steps: what B projects.
            targets: the tokens whose probabilities will be normalised, which every sample contains.
        """
        bias = self.of_cells.bias + self.forbidden
        cell_weight, step_weight = self.of_cells.weight, self.of_steps.weight
        if self.training and self.num_negatives is not None:
            sample = SampledVocabulary.draw(targets, len(bias), self.num_negatives)
            if sample is not None:
                bias = bias[sample.tokens] + sample.log_weights
                cell_weight, step_weight = cell_weight[sample.tokens], step_weight[sample.tokens]
        return projected_log_normaliser(cells, steps, cell_weight, step_weight, bias)

    def mean_logits(
        self, cells: Float[Tensor, "batch cells cell_size"], steps: Float[Tensor, "batch steps step_size"]
    ) -> Float[Tensor, "batch cells steps"]:
        """Return the mean of the logits of the allowed tokens, by products with their mean weights."""
        allowed = self.allowed.to(cells)
        share = allowed / allowed.sum()
        of_cells = cells @ (share @ self.of_cells.weight) + share @ self.of_cells.bias
        of_steps = steps @ (share @ self.of_steps.weight)
        return of_cells[:, :, None] + of_steps[:, None]
