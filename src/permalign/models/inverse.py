"""InverseModel: a transducer whose outputs are reranked by a second one, from outputs back to sentences."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Self

import torch
from torch import Tensor, nn

from permalign.encoders.huggingface import HuggingFaceEncoder
from permalign.heads.copying import in_vocabulary
from permalign.models.base import Loss, Model, TrainingProblem
from permalign.models.transducer import Transducer, TransducerReading
from permalign.options.model import InverseOptions, ModelOptions
from permalign.tasks.base import Example
from permalign.text.batching import Batch
from permalign.text.codec import Codec


class InverseModel(Model):
    """A transducer and its inverse, which reranks outputs as a noisy channel does.

    The candidates that a beam finds are sorted by ``log p(output | sentence) + weight * log p(sentence | output)``.
    Scores remain ``log p(output | sentence)``. The two transducers share nothing, and learn side by side.

    >>> from permalign.text.vocabulary import Vocabulary
    >>> source, target = Vocabulary(["how", "many", "states"]), Vocabulary(["count", "state"])
    >>> model = InverseModel(Transducer({}, source, target), Transducer({}, target, source), weight=0.5)
    >>> model.predict(["how many states"], beam=5)[0].score <= 0
    True

    Args:
        direct: the transducer from sentences to outputs.
        inverse: the transducer from outputs to sentences, with the same two vocabularies.
        weight: the weight of the inverse transducer; 0 keeps the order of ``direct``.

    Raises:
        ValueError: the vocabularies do not fit, or the weight is negative.
    """

    def __init__(self, direct: Transducer, inverse: Transducer, weight: float = 1.0) -> None:
        super().__init__()
        for name, model in (("direct", direct), ("inverse", inverse)):
            if not isinstance(model, Transducer):
                raise ValueError(
                    f"{name} is of the type {type(model).__name__}, but must be a Transducer. For several models with "
                    "inverses, make an Ensemble of InverseModels."
                )
        if (inverse.source, inverse.target) != (direct.target, direct.source):
            raise ValueError(
                "the inverse model must read the direct model's target vocabulary and write its source vocabulary. "
                "Build it as Transducer(options, direct.target, direct.source)."
            )
        if inverse.pretrained:
            raise ValueError(
                "inverse has a pretrained part, but an inverse model cannot have one. Use other options."
            )
        if not 0 <= weight < inf:
            raise ValueError(f"weight is {weight}, but must be a number that is at least 0.")
        self.direct, self.inverse = direct, inverse
        self.source, self.target = direct.source, direct.target
        self.inverse_weight: float = weight

    # --- Training ---------------------------------------------------------------------------------------------

    def loss(self, batch: Batch) -> Loss:
        """The direct transducer's loss with one more part, ``inverse``: the inverse transducer's loss.

        Both are means over all sentences. Sentences that the inverse transducer cannot write add nothing to its loss.
        """
        direct, inverse = self.direct.loss(batch), self._inverse_loss(batch)
        bound = direct.pruning_bound + inverse.pruning_bound
        return Loss.sum_of({**direct.parts, "inverse": inverse.total}, bound)

    def _inverse_loss(self, batch: Batch) -> Loss:
        writable = self._invertible(batch)
        if not bool(writable.any()):
            return Loss.sum_of({"inverse": batch.source_lengths.new_zeros((), dtype=torch.float32)})
        loss, share = self.inverse.loss(self._swap_sides(batch.select(writable))), writable.float().mean()
        return Loss.sum_of({"inverse": loss.total * share}, loss.pruning_bound * share)

    def _swap_sides(self, batch: Batch) -> Batch:
        """Exchange source and target; words that were copied from no vocabulary are unknown to the inverse model."""
        return replace(batch, target=in_vocabulary(batch.target, len(self.target))).swap_sides()

    def _invertible(self, batch: Batch) -> Tensor:
        """``(batch,)``, whether the inverse transducer can write each source from its target."""
        return self.inverse.head.supports_lengths(batch.target_lengths, batch.source_lengths)

    def use_objective(self, objective: str) -> None:
        """Train the direct transducer by another objective from now on."""
        self.direct.use_objective(objective)

    def find_training_problem(self, example: Example) -> TrainingProblem | None:
        """Why the direct transducer, or else the inverse one, cannot learn from an example."""
        if (problem := self.direct.find_training_problem(example)) is not None:
            return problem
        swapped = replace(example, source=example.target, target=example.source)
        inverse = self.inverse.find_training_problem(swapped, "model.inverse")
        return None if inverse is None else inverse._replace(only_inverse=True)

    def independent_parameters(self) -> list[list[nn.Parameter]]:
        """The direct transducer's parameters, and the inverse one's."""
        return [*self.direct.independent_parameters(), *self.inverse.independent_parameters()]

    def keep_only_reorderer_gradients(self) -> None:
        """Drop the direct transducer's gradients, except for its reorderer."""
        self.direct.keep_only_reorderer_gradients()

    # --- Outputs ----------------------------------------------------------------------------------------------

    def read(self, batch: Batch) -> TransducerReading:
        """Let the direct transducer read the sentences of a batch."""
        return self.direct.read(batch)

    def log_likelihood(self, batch: Batch) -> Tensor:
        """``(batch,)``, that of the direct transducer."""
        return self.direct.log_likelihood(batch)

    def likelihood_cost(self, source_length: int, target_length: int) -> int:
        """That of both transducers."""
        direct = self.direct.likelihood_cost(source_length, target_length)
        return direct + self.inverse.likelihood_cost(target_length, source_length)

    def inverse_log_likelihood(self, batch: Batch) -> Tensor:
        """``(batch,)``, the log-likelihood of every source given its target; -inf where it cannot be written."""
        writable = self._invertible(batch)
        if not bool(writable.any()):
            return torch.full(writable.shape, -torch.inf, device=writable.device)
        log_likelihood = self.inverse.log_likelihood(self._swap_sides(batch.select(writable)))
        everywhere = log_likelihood.new_full(writable.shape, -torch.inf)
        return everywhere.masked_scatter(writable, log_likelihood)

    @property
    def primary(self) -> Transducer:
        """The direct transducer."""
        return self.direct

    def use_decoding(self, decoding: str) -> None:
        """Choose orders of sentences by another decoding from now on."""
        self.direct.use_decoding(decoding)

    # --- Files ------------------------------------------------------------------------------------------------

    @property
    def pretrained(self) -> dict[str, HuggingFaceEncoder]:
        """The pretrained encoders of the direct transducer."""
        return self.direct.pretrained

    @property
    def options(self) -> ModelOptions:
        """The options of both transducers."""
        inverse = self.inverse.options
        return self.direct.options.model_copy(
            update={
                "inverse": InverseOptions(
                    weight=self.inverse_weight, reorderer=inverse.reorderer, head=inverse.head
                )
            }
        )

    def describe(self) -> dict[str, Any]:
        """Its options, as JSON."""
        return {"options": self.options.model_dump(mode="json")}

    @classmethod
    def build(
        cls,
        options: Sequence[ModelOptions],
        source: Codec,
        target: Codec,
        pretrained: Mapping[str, HuggingFaceEncoder] | None = None,
    ) -> Self:
        """Build two new transducers from options with an inverse model: the direct one first."""
        (own,) = options
        assert own.inverse is not None
        direct = Transducer(own.model_copy(update={"inverse": None}), source, target, pretrained)
        reversed_options = ModelOptions(reorderer=own.inverse.reorderer, head=own.inverse.head)
        return cls(direct, Transducer(reversed_options, target, source), own.inverse.weight)
