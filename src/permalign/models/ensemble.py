"""Ensemble: several models that answer by the mean of their probabilities."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from permalign.decoding.beam import SearchSettings
from permalign.decoding.candidates import (
    Candidate,
    Candidates,
    Floats,
    beam_candidates,
    log_mean_exp,
    may_be_best,
    merge,
    rank,
    score_candidates,
)
from permalign.decoding.mixture import MixtureDecoder
from permalign.decoding.output_evidence import Evidence
from permalign.encoders.huggingface import HuggingFaceEncoder
from permalign.models.base import Loss, Model, Reading, TrainingProblem
from permalign.models.inverse import InverseModel
from permalign.models.transducer import Transducer, TransducerReading
from permalign.options.model import ModelOptions
from permalign.structures.log_space import LOG_ZERO
from permalign.tasks.base import Example
from permalign.text.batching import Batch
from permalign.text.codec import Codec


class Ensemble(Model):
    """Several models that answer by the mean of their probabilities.

    One beam search finds the outputs of the mixture of all members. If a member sums over orders, which a beam cannot,
    every member searches candidates instead, and the mixture ranks them. If members have inverse models, the mixture of
    these reranks the candidates. Explanations are those of the first member.

    The members may be of different kinds, but must have the same vocabularies:

    >>> from permalign.text.vocabulary import Vocabulary
    >>> source, target = Vocabulary(["how", "many", "states"]), Vocabulary(["count", "state"])
    >>> members = [Transducer({"head": {"kind": kind}}, source, target) for kind in ("ssnt", "attention")]
    >>> Ensemble(members).predict(["how many states"])[0].score <= 0
    True

    Args:
        members: transducers, or inverse models with one common weight.

    Raises:
        ValueError: there are no members, or they do not fit together.
    """

    def __init__(self, members: Sequence[Transducer | InverseModel]) -> None:
        super().__init__()
        _require_fit(members)
        self.members = nn.ModuleList(members)
        self.source, self.target = members[0].source, members[0].target
        weights = [member.inverse_weight for member in members if member.inverse_weight is not None]
        self.inverse_weight = weights[0] if weights else None

    def _models(self) -> list[Transducer | InverseModel]:
        """The members, typed."""
        return cast(list[Transducer | InverseModel], list(self.members))

    # --- Training ---------------------------------------------------------------------------------------------

    def loss(self, batch: Batch) -> Loss:
        """The sum of the members' losses; its parts are those of the first member and the total of the others."""
        first, *others = losses = [member.loss(batch) for member in self._models()]
        parts = dict(first.parts)
        if others:
            parts["other_members"] = torch.stack([loss.total for loss in others]).sum()
        return Loss.sum_of(parts, torch.stack([loss.pruning_bound for loss in losses]).sum())

    def use_objective(self, objective: str) -> None:
        """Train all members by another objective from now on."""
        for member in self._models():
            member.use_objective(objective)

    def find_training_problem(self, example: Example) -> TrainingProblem | None:
        """Why some member cannot learn from an example; None if all can."""
        problems = [member.find_training_problem(example) for member in self._models()]
        # a problem that keeps an example from being used at all comes before one of an inverse model
        return min(
            (problem for problem in problems if problem is not None),
            key=lambda problem: problem.only_inverse,
            default=None,
        )

    def independent_parameters(self) -> list[list[nn.Parameter]]:
        """The groups of all members, one member after the other."""
        return [group for member in self._models() for group in member.independent_parameters()]

    def keep_only_reorderer_gradients(self) -> None:
        """Drop the gradients of everything but the members' reorderers."""
        for member in self._models():
            member.keep_only_reorderer_gradients()

    # --- Outputs ----------------------------------------------------------------------------------------------

    def read(self, batch: Batch) -> "EnsembleReading":
        """Let every member read the sentences of a batch."""
        members = self._models()
        return EnsembleReading(members, [member.read(batch) for member in members])

    def log_likelihood(self, batch: Batch) -> Tensor:
        """``(batch,)``, the logarithm of the mean of the members' probabilities."""
        return log_mean_exp(
            [_where_writable(member, batch, member.log_likelihood) for member in self._models()]
        )

    def likelihood_cost(self, source_length: int, target_length: int) -> int:
        """The sum of the members'."""
        return sum(member.likelihood_cost(source_length, target_length) for member in self._models())

    def inverse_log_likelihood(self, batch: Batch) -> Tensor:
        """``(batch,)``, the logarithm of the mean of the inverse models' probabilities."""
        inverted = [member for member in self._models() if member.inverse_weight is not None]
        return log_mean_exp([member.inverse_log_likelihood(batch) for member in inverted])

    @property
    def primary(self) -> Transducer:
        """The transducer of the first member."""
        return self._models()[0].primary

    @property
    def explanation_notes(self) -> tuple[str, ...]:
        """Says which parts of an explanation come from the first member alone."""
        return (
            f"This is an ensemble of {len(self.members)} models: the output and its probability are those of all "
            "members, everything else is that of the first.",
        )

    def use_decoding(self, decoding: str) -> None:
        """Choose orders by another decoding from now on, in all members."""
        for member in self._models():
            member.use_decoding(decoding)

    # --- Files ------------------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """The options of all members, as JSON."""
        return {"members": [member.options.model_dump(mode="json") for member in self._models()]}

    @classmethod
    def build(
        cls,
        options: Sequence[ModelOptions],
        source: Codec,
        target: Codec,
        pretrained: Mapping[str, HuggingFaceEncoder] | None = None,
    ) -> Self:
        """Build a new ensemble from the options of its members."""
        return cls(
            [
                (Transducer if own.inverse is None else InverseModel).build([own], source, target)
                for own in options
            ]
        )


@dataclass(frozen=True)
class EnsembleReading(Reading):
    """A batch of sentences as each member has read it.

    Attributes:
        members: the members.
        readings: what each of them has read.
    """

    members: Sequence[Model]
    readings: Sequence[TransducerReading]

    @property
    def beam_scores_are_exact(self) -> bool:
        """Whether those of all members are: then one beam can search the mixture."""
        return all(reading.beam_scores_are_exact for reading in self.readings)

    def find_candidates(self, settings: SearchSettings, count: int) -> Candidates:
        """What a beam over the mixture finds or, if a member sums over orders, what any member finds.

        Only the first member's derivations are kept, for it alone explains outputs.
        """
        if self.beam_scores_are_exact:
            limits = (reading.max_lengths(settings) for reading in self.readings)
            return beam_candidates(
                MixtureDecoder([reading.decoder() for reading in self.readings]),
                [max(of_members) for of_members in zip(*limits, strict=True)],
                settings,
                count,
                same_length=all(member.primary.head.preserves_length for member in self.members),
            )
        first, *others = (reading.find_candidates(settings, count) for reading in self.readings)
        without_derivations = [
            [[replace(candidate, derivation=None) for candidate in of_sentence] for of_sentence in candidates]
            for candidates in others
        ]
        return merge([first, *without_derivations])

    def rank(
        self, candidates: Candidates, batch: Batch, count: int | None, length_penalty: float
    ) -> Candidates:
        """The candidates with the logarithms of their mean probabilities, best first.

        First every member scores what it found itself. The probabilities of all outputs sum to one, so that an output
        which a member has not scored has at most the probability that is left beside those it has. Candidates that are
        not among the ``count`` best of a sentence even with all of that are left out before members score what others
        found.
        """
        known = [self._scores_of_searches(of_sentence) for of_sentence in candidates]
        found = [~np.isneginf(scores) for scores in known]
        known = [np.where(mine, scores, np.nan) for scores, mine in zip(known, found, strict=True)]
        self._complete(candidates, known, found, batch)
        needed = [np.ones(len(of_sentence), np.bool_) for of_sentence in candidates]
        if count is not None:
            needed = [
                may_be_best(scores, [len(one.tokens) for one in of_sentence], count, length_penalty)
                for scores, of_sentence in zip(known, candidates, strict=True)
            ]
        everyone = [np.repeat(rows[:, None], len(self.members), axis=1) for rows in needed]
        self._complete(candidates, known, everyone, batch)
        return [
            sorted(
                (
                    replace(candidate, score=score)
                    for candidate, score, is_needed in zip(of_sentence, _log_mean(scores), rows, strict=True)
                    if is_needed
                ),
                key=lambda candidate: -rank(candidate, length_penalty),
            )
            for of_sentence, scores, rows in zip(candidates, known, needed, strict=True)
        ]

    def _scores_of_searches(self, candidates: Sequence[Candidate]) -> Floats:
        """``(candidates, members)``, the scores of a sentence's candidates by the members that found them.

        NaN where a member found a candidate but its search does not score it, -inf where it did not find it.
        """
        scores = np.full((len(candidates), len(self.members)), -np.inf)
        for row, candidate in enumerate(candidates):
            for member, score in candidate.found_by:
                exact = self.readings[member].beam_scores_are_exact
                scores[row, member] = score if exact else np.nan
        return scores

    def _complete(
        self,
        candidates: Candidates,
        known: Sequence[Floats],
        wanted: Sequence[NDArray[np.bool_]],
        batch: Batch,
    ) -> None:
        """Compute the log-likelihoods that are wanted and still unknown (NaN), and write them into ``known``."""
        for number, (member, reading) in enumerate(zip(self.members, self.readings, strict=True)):
            missing = [
                (np.isnan(scores[:, number]) & chosen[:, number]).nonzero()[0]
                for scores, chosen in zip(known, wanted, strict=True)
            ]
            some = [
                [of_sentence[row] for row in rows]
                for of_sentence, rows in zip(candidates, missing, strict=True)
            ]

            def log_likelihood(
                rows: Tensor, pairs: Batch, member: Model = member, reading: Reading = reading
            ) -> Tensor:
                return _where_writable(member, pairs, reading.log_likelihood, rows)

            computed = iter(score_candidates(some, batch, log_likelihood))
            for scores, rows in zip(known, missing, strict=True):
                scores[rows, number] = [next(computed) for _ in rows]

    def log_likelihood(self, rows: Tensor, pairs: Batch) -> Tensor:
        """``(pairs,)``, the logarithm of the mean of the members' probabilities."""
        return log_mean_exp(
            [
                _where_writable(member, pairs, reading.log_likelihood, rows)
                for member, reading in zip(self.members, self.readings, strict=True)
            ]
        )

    def find_evidence(self, outputs: Sequence[Candidate]) -> Sequence[Evidence]:
        """What leads to the outputs by the first member's reading."""
        return self.readings[0].find_evidence(outputs)


def _log_mean(log_probs: Floats) -> list[float]:
    """The logarithms of the means of probabilities, ``(candidates, members)``; those of zero are -inf."""
    top = np.maximum(log_probs.max(1, initial=-np.inf), LOG_ZERO)
    with np.errstate(divide="ignore"):  # log 0
        means: list[float] = (top + np.log(np.exp(log_probs - top[:, None]).mean(1))).tolist()
    return means


def _where_writable(
    member: Model, pairs: Batch, log_likelihood: Callable[..., Tensor], rows: Tensor | None = None
) -> Tensor:
    """``(pairs,)``, the log-likelihoods by a member; -inf where its head cannot write an output of that length.

    Members of one kind can write the same outputs, but those of another kind may have found longer ones.
    """
    writable = member.primary.head.supports_lengths(pairs.source_lengths, pairs.target_lengths)
    if bool(writable.all()):
        return log_likelihood(pairs) if rows is None else log_likelihood(rows, pairs)
    if not bool(writable.any()):
        return torch.full(writable.shape, -torch.inf, device=writable.device)
    selected = pairs.select(writable)
    values = log_likelihood(selected) if rows is None else log_likelihood(rows[writable], selected)
    return values.new_full(writable.shape, -torch.inf).masked_scatter(writable, values)


def _require_fit(members: Sequence[Model]) -> None:
    """Require at least one member, known kinds, and the same vocabularies and weights."""
    if isinstance(members, Model) or not members:
        raise ValueError("an ensemble needs a list of at least one model.")
    for index, member in enumerate(members):
        if not isinstance(member, (Transducer, InverseModel)):
            raise ValueError(
                f"member {index} is of the type {type(member).__name__}, but members of an ensemble are of the types "
                "Transducer and InverseModel. Pass the members of an ensemble one by one."
            )
        if member.pretrained:
            raise ValueError(
                f"member {index} has a pretrained part, and such models cannot be part of an ensemble."
            )
        if member.primary.head.copy_mechanism != members[0].primary.head.copy_mechanism:
            raise ValueError(
                f"only one of member 0 and member {index} has a copy mechanism, so they do not write the same words. "
                "Combine models that all copy, or none."
            )
        for side in ("source", "target"):
            if getattr(member, side) != getattr(members[0], side):
                raise ValueError(
                    f"the {side} vocabulary of member {index} differs from that of member 0, so their probabilities "
                    "cannot be averaged. Train all members with the same vocabularies."
                )
    weights = {member.inverse_weight for member in members if member.inverse_weight is not None}
    if len(weights) > 1:
        raise ValueError(
            f"members rerank with the weights {sorted(weights)}, but an ensemble has one weight. Set inverse_weight to "
            "the same value in all members."
        )
