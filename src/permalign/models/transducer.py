"""Transducer: one model, a reorderer times a head."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import log, nan
from typing import Any, Self

from torch import Tensor, nn, tensor

from permalign.decoding.beam import SearchSettings, beam_search
from permalign.decoding.candidates import Candidate, Candidates, beam_candidates
from permalign.decoding.exact_search import search_exactly
from permalign.decoding.output_evidence import Evidence, find_evidence
from permalign.decoding.search_over_orders import search_over_orders
from permalign.encoders.huggingface import ContextualEmbeddings, HuggingFaceEncoder
from permalign.errors import ConfigError
from permalign.heads.base import Decoder, encoded_size
from permalign.heads.copying import CopySource, in_vocabulary
from permalign.models.base import Loss, Model, Reading, TrainingProblem
from permalign.models.build_parts import build_embeddings, build_encoder, build_head, build_reorderer
from permalign.options.model import ModelOptions
from permalign.precision import limit_autocast
from permalign.reorderers.base import Reordering
from permalign.reorderers.tree import TreeReorderer
from permalign.structures import OrderDistribution, PrunedLikelihood
from permalign.tasks.base import Example
from permalign.text.batching import Batch, hide_words
from permalign.text.codec import Codec
from permalign.text.sentence_vocabulary import CopyCodec, hide_copied_words


class Transducer(Model):
    """Reads a sentence, puts its words into a new order, and writes an output.

    >>> from permalign.text.vocabulary import Vocabulary
    >>> source, target = Vocabulary(["how", "many", "states"]), Vocabulary(["count", "state"])
    >>> options = {"reorderer": {"kind": "separable"}, "head": {"kind": "ssnt"}}
    >>> model = Transducer(options, source, target)
    >>> prediction = model.predict(["how many states"])[0]
    >>> prediction.score <= 0
    True

    Args:
        options: the model's options, or only those that differ from the defaults; see `permalign.options.model`.
        source: the vocabulary of sentences.
        target: the vocabulary of outputs.
        pretrained: Hugging Face models that are already loaded, for the ``reorderer`` or the ``head`` whose options
            name one; others are loaded by name.

    Raises:
        ConfigError: the options do not fit each other, or describe an ensemble or an inverse model
            (`permalign.build_model` builds these).
    """

    def __init__(
        self,
        options: ModelOptions | Mapping[str, Any],
        source: Codec,
        target: Codec,
        pretrained: Mapping[str, HuggingFaceEncoder] | None = None,
    ) -> None:
        super().__init__()
        self.options = options if isinstance(options, ModelOptions) else ModelOptions.parse(options)
        self.options.require_fit()
        if self.options.ensemble_size > 1 or self.options.inverse is not None:
            raise ConfigError(
                "a Transducer is a single model, but its options have an inverse model or an ensemble_size above 1. "
                "Use permalign.build_model(options, source, target)."
            )
        self.source, self.target = source, target
        words = build_embeddings(self.options, source, pretrained)
        self.embeddings = words["head"]
        self._pretrained = {
            part: module.encoder for part, module in words.items() if isinstance(module, ContextualEmbeddings)
        }
        self.dropout = nn.Dropout(self.options.head.embedding_dropout)
        self.reorderer = build_reorderer(self.options.reorderer, len(source), words)
        width = self.embeddings.embedding_dim
        encoder = build_encoder(self.options.head.encoder, width)
        # a head that sums over orders reads words in their context before they are reordered
        self.encoder = encoder if self.reorderer.sums_over_orders else None
        width = encoded_size(self.encoder, width)
        self.head = build_head(self.options.head, len(target), width, None if self.encoder else encoder)
        self._copy_codec = None
        if self.options.head.copy_mechanism:
            if not self.head.copy_mechanism:
                raise ConfigError(
                    f"head.copy_mechanism is true, but a head of the kind {self.options.head.kind} cannot copy words. "
                    "Use head.kind: ssnt, swan, segments, attention or tagging, or leave copy_mechanism out."
                )
            self._copy_codec = CopyCodec(source, target)

    # --- Training ---------------------------------------------------------------------------------------------

    @limit_autocast
    def loss(self, batch: Batch) -> Loss:
        """The training loss of a batch: the negative log-likelihood, and the reorderer's penalties.

        The likelihood is that of the reorderer's objective: exact, a bound by samples, or a surrogate.
        """
        batch = self._with_copies(batch)
        if batch.copies is not None and self.training:
            batch = hide_copied_words(batch, self.options.head.copy_dropout, len(self.target))
        if self.training and self.options.head.word_dropout:
            batch = hide_words(batch, self.options.head.word_dropout)
        smoothing = self.options.head.label_smoothing
        likelihood, penalties = self._log_likelihood(batch, smoothing)
        if batch.copies is not None:
            likelihood = self._without_impossible_copies(batch, likelihood, smoothing)
        parts = {"negative_log_likelihood": -likelihood.log_likelihood.mean(), **penalties}
        return Loss.sum_of(parts, likelihood.lost.mean())

    def target_vocabulary(self, sentence: Sequence[str]) -> Codec:
        """The vocabulary of the outputs for a sentence: with a copy mechanism, also its own unknown words."""
        return self.target if self._copy_codec is None else self._copy_codec.of(sentence)

    def _with_copies(self, batch: Batch) -> Batch:
        return batch if self._copy_codec is None else self._copy_codec.add_copies(batch)

    def use_objective(self, objective: Any) -> None:
        """Train the reorderer by another objective from now on, if it has a choice."""
        if isinstance(self.reorderer, TreeReorderer):
            self.reorderer.use_objective(objective)

    def find_training_problem(self, example: Example, section: str = "model") -> TrainingProblem | None:
        """Why the head cannot write the target of an example; ``section`` is where its options stand in a config."""
        source_length = len(self.source.encode(example.source))
        target_length = len(self.target.encode(example.target))
        if bool(self.head.supports_lengths(tensor([source_length]), tensor([target_length]))):
            return None
        kind = self.options.head.kind
        advice = f"use {section}.head.kind: ssnt"
        if kind in ("swan", "segments"):
            advice = f"raise {section}.head.max_segment_length, or {advice}"
        if not source_length:
            return TrainingProblem(f"example {example.id} of the training data has an empty source.", advice)
        limit = self.head.max_output_length(source_length)
        can = f"exactly {limit}" if self.head.preserves_length else f"at most {limit}"
        return TrainingProblem(
            f"{section}.head.kind {kind} writes {can} words for a source of {source_length}, but example "
            f"{example.id} of the training data has {target_length} ({' '.join(example.source[:8])} ...).",
            advice,
        )

    def independent_parameters(self) -> list[list[nn.Parameter]]:
        """All its parameters, as one group."""
        return [list(self.parameters())]

    def keep_only_reorderer_gradients(self) -> None:
        """Drop the gradients of everything but the reorderer."""
        of_reorderer = {id(parameter) for parameter in self.reorderer.parameters()}
        for parameter in self.parameters():
            if id(parameter) not in of_reorderer:
                parameter.grad = None

    # --- Likelihood -------------------------------------------------------------------------------------------

    @limit_autocast
    def log_likelihood(self, batch: Batch) -> Tensor:
        """``(batch,)``: by the objective in training mode, by the decoding in evaluation mode."""
        return self._log_likelihood(batch, smoothing=0.0)[0].log_likelihood

    def likelihood_cost(self, source_length: int, target_length: int) -> int:
        """That of the sum over orders, if there is one."""
        if not self.reorderer.sums_over_orders:
            return 0
        return self.head.cost_over_orders(source_length, target_length, self.reorderer.num_labels)

    def _log_likelihood(self, batch: Batch, smoothing: float) -> tuple[PrunedLikelihood, dict[str, Tensor]]:
        """The log-likelihood, in training mode pruned if the head prunes, and the reorderer's penalties."""
        batch = self._with_copies(batch)
        states = self._encode(batch)
        if self.reorderer.sums_over_orders:
            distribution, penalties = self._distribution(batch, states)
            pair = (states, batch.source_lengths, batch.target, batch.target_lengths)
            head = self.head.with_copies(copy_source(batch))
            if self.training:
                return head.training_likelihood_over_orders(distribution, *pair, smoothing), penalties
            return PrunedLikelihood.exact(
                head.log_likelihood_over_orders(distribution, *pair, smoothing)
            ), penalties
        reordering = self.reorderer(batch.source, batch.source_lengths, states)
        num_samples = reordering.copies
        head = self.head.with_copies(copy_source(batch, reordering))
        likelihood = head.log_likelihood(
            reordering.states,
            batch.source_lengths.repeat(num_samples),
            batch.target.repeat(num_samples, 1),
            batch.target_lengths.repeat(num_samples),
            smoothing,
        )
        log_likelihood = likelihood.view(num_samples, -1).logsumexp(0) - log(num_samples)
        return PrunedLikelihood.exact(log_likelihood), reordering.penalties

    def _without_impossible_copies(
        self, batch: Batch, likelihood: PrunedLikelihood, smoothing: float
    ) -> PrunedLikelihood:
        """Replace likelihoods of zero: words that no source word can copy where they stand become unknown words."""
        (rows,) = likelihood.log_likelihood.isneginf().nonzero(as_tuple=True)
        if not len(rows):
            return likelihood
        some = batch.select(rows)
        some = replace(some, target=in_vocabulary(some.target, len(self.target)))
        again = self._log_likelihood(some, smoothing)[0]
        pairs = zip(likelihood, again, strict=True)
        return PrunedLikelihood(*(before.index_put((rows,), after) for before, after in pairs))

    def _encode(self, batch: Batch) -> Tensor:
        """``(batch, n, width)``, what the head reads of each source word, in the original order."""
        states: Tensor = self.dropout(self.embeddings(batch.source))
        return states if self.encoder is None else self.encoder(states, batch.source_lengths)

    def _distribution(self, batch: Batch, states: Tensor) -> tuple[OrderDistribution, dict[str, Tensor]]:
        """The distribution over orders, and in training its penalties; no order is searched."""
        assert isinstance(self.reorderer, TreeReorderer)
        if not self.training:
            return self.reorderer.distribution(batch.source, batch.source_lengths), {}
        reordering = self.reorderer(batch.source, batch.source_lengths, states)
        assert reordering.distribution is not None
        return reordering.distribution, reordering.penalties

    # --- Outputs ----------------------------------------------------------------------------------------------

    def read(self, batch: Batch) -> "TransducerReading":
        """Encode the sentences of a batch and reorder them, in evaluation mode by the reorderer's decoding."""
        batch = self._with_copies(batch)
        states = self._encode(batch)
        return TransducerReading(
            self, batch, states, self.reorderer(batch.source, batch.source_lengths, states)
        )

    @property
    def primary(self) -> "Transducer":
        """The transducer itself."""
        return self

    def use_decoding(self, decoding: Any) -> None:
        """Choose orders by another decoding from now on; a `ConfigError` if the reorderer has no choice."""
        if not isinstance(self.reorderer, TreeReorderer):
            raise ConfigError(
                f"decoding {decoding} was asked for, but reorderer.kind {self.options.reorderer.kind} has only one "
                "way to choose an order. Leave the decoding out."
            )
        self.reorderer.decoding = decoding

    # --- Files ------------------------------------------------------------------------------------------------

    @property
    def pretrained(self) -> dict[str, HuggingFaceEncoder]:
        """The pretrained encoders of its parts, by part (``reorderer``, ``head``)."""
        return self._pretrained

    def describe(self) -> dict[str, Any]:
        """Its options, as JSON.

        Raises:
            ConfigError: a part was replaced by one that the options do not describe, so that the model could be saved
                but not loaded.
        """
        for name, options in (("reorderer", self.options.reorderer), ("head", self.options.head)):
            part, described = getattr(self, name), options.registry.load(options.kind)
            if isinstance(described, type) and not isinstance(part, described):
                raise ConfigError(
                    f"the {name} of the model is a {type(part).__name__}, but its options describe a "
                    f"{described.__name__} ({name}.kind: {options.kind}). Register the class with "
                    f"permalign.plugins.register_{name}, and build the model with that kind."
                )
        return {"options": self.options.model_dump(mode="json")}

    @classmethod
    def build(
        cls,
        options: Sequence[ModelOptions],
        source: Codec,
        target: Codec,
        pretrained: Mapping[str, HuggingFaceEncoder] | None = None,
    ) -> Self:
        """Build a new transducer from its options."""
        (own,) = options
        return cls(own, source, target, pretrained)


@dataclass(frozen=True)
class TransducerReading(Reading):
    """A batch of sentences as a transducer has read it.

    Attributes:
        model: the transducer.
        batch: the sentences.
        states: ``(batch, n, width)``, what the head reads, in the original order.
        reordering: the reorderer's choice.
    """

    model: Transducer
    batch: Batch
    states: Tensor
    reordering: Reordering

    @property
    def beam_scores_are_exact(self) -> bool:
        """Not if the likelihood is summed over orders: a beam knows only one of them."""
        return not self.model.reorderer.sums_over_orders

    def find_candidates(self, settings: SearchSettings, count: int) -> Candidates:
        """Outputs by beam search, in the reorderer's order or, where orders are summed over, in several."""
        head, max_lengths = self.model.head, self.max_lengths(settings)
        if self.model.reorderer.sums_over_orders:
            search = partial(
                beam_search,
                beam=settings.beam,
                same_length=head.preserves_length,
                length_penalty=settings.length_penalty,
            )
            search_by_beam = partial(
                search_over_orders,
                head,
                self.reordering,
                self.states,
                self.batch.source_lengths,
                search,
                max_lengths,
                settings.beam,
                settings.constraints,
                copy_source(self.batch),
            )
            return (
                self._search_exactly(settings, search_by_beam)
                if settings.search == "exact"
                else search_by_beam()
            )
        return beam_candidates(self.decoder(), max_lengths, settings, count, head.preserves_length)

    def max_lengths(self, settings: SearchSettings) -> list[int]:
        """The length at which a search gives up an output, for every sentence."""
        lengths: list[int] = self.batch.source_lengths.tolist()
        return [self.model.head.search_limit(length, settings.max_length) for length in lengths]

    def decoder(self) -> Decoder:
        """The head's prefixes in the reorderer's order, one for every sentence, before the first token."""
        head = self.model.head.with_copies(copy_source(self.batch, self.reordering))
        return head.decoder(self.reordering.states, self.batch.source_lengths)

    def _search_exactly(
        self, settings: SearchSettings, search_by_beam: Callable[[], Candidates]
    ) -> Candidates:
        """The outputs with the best derivations; by a beam for sentences where it would take too long to find them."""
        assert self.reordering.distribution is not None
        lengths = self.batch.source_lengths
        found = search_exactly(
            self.reordering.distribution,
            self.model.head.word_log_probs(self.states, lengths),
            settings.beam,
            settings.constraints,
            settings.max_length,
        )
        others = search_by_beam() if None in found else [[]] * len(found)
        return [
            other if exact is None else [Candidate(output.tokens, nan) for output in exact]
            for exact, other in zip(found, others, strict=True)
        ]

    def log_likelihood(self, rows: Tensor, pairs: Batch) -> Tensor:
        """``(pairs,)``, the exact log-likelihood of each target given the sentence of its row."""
        outputs = self.batch.source_lengths[rows], pairs.target, pairs.target_lengths
        if not self.model.reorderer.sums_over_orders:
            copies = copy_source(self.batch, self.reordering)
            head = self.model.head.with_copies(copies and copies.select(rows))
            return head.log_likelihood(self.reordering.states[rows], *outputs)
        assert self.reordering.distribution is not None
        orders, copies = self.reordering.distribution.select(rows), copy_source(self.batch)
        head = self.model.head.with_copies(copies and copies.select(rows))
        return head.log_likelihood_over_orders(orders, self.states[rows], *outputs)

    def find_evidence(self, outputs: Sequence[Candidate]) -> Sequence[Evidence]:
        """By the order each output was found in, or by its most probable derivation."""
        model = self.model
        return find_evidence(
            outputs,
            model.head,
            self.states,
            self.reordering,
            self.batch.source_lengths,
            model.reorderer.sums_over_orders,
            copy_source(self.batch),
        )


def copy_source(batch: Batch, reordering: Reordering | None = None) -> CopySource | None:
    """What the cells of a batch copy, in the original order or reordered; None for a model that does not copy."""
    if batch.copies is None:
        return None
    source = CopySource.of(batch.copies, batch.source_lengths)
    if reordering is None:
        return source
    if reordering.order is not None:
        return source.in_order(reordering.order)
    repeated = batch.copies.repeat(reordering.copies, 1), batch.source_lengths.repeat(reordering.copies)
    return CopySource.of(*repeated, reordering.matrix)
