"""Transducer: a reorderer times a head, from sentences to answers with their reasons."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import log
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub import ModelHubMixin
from torch import Tensor, nn

from permalign.building import build_embeddings, build_encoder, build_head, build_reorderer
from permalign.checks import require_at_least_one
from permalign.decoding.beam import Hypothesis, beam_search
from permalign.decoding.constraint import AllowedWords, Constraint, constraint_of
from permalign.decoding.orders import Rank, Search, search_over_orders
from permalign.decoding.ranking import LogLikelihood, of_mixture, pooled, ranked_by_both_ways
from permalign.decoding.reasons import Reasons, reasons_of
from permalign.encoders.huggingface import ContextualEmbeddings, HuggingFaceEncoder
from permalign.heads.base import encoded_size
from permalign.options.model import ModelOptions
from permalign.prediction import Explanation, Prediction, require_words, tokenised
from permalign.reorderers.base import Reordering
from permalign.saving import (
    MODEL_CARD,
    load_model,
    load_pretrained,
    require_same_parameters,
    save_model,
    save_pretrained,
)
from permalign.tasks.grammar import Grammar
from permalign.text.batching import Batch, pad
from permalign.text.codec import Codec


class Reading(NamedTuple):
    """What a model reads of the source words, in their own order, and the new order of them."""

    states: Tensor
    reordering: Reordering


class Loss(NamedTuple):
    """What training minimises, and the parts it is the sum of; all are means over sentences."""

    total: Tensor
    parts: dict[str, Tensor]


class Transducer(
    nn.Module,
    ModelHubMixin,
    library_name="permalign",
    tags=["sequence-transduction", "reordering"],
    model_card_template=MODEL_CARD,
):
    """Reads a sentence, puts its words into a new order, and writes an output.

    >>> from permalign.text.vocabulary import Vocabulary
    >>> source, target = Vocabulary(["how", "many", "states"]), Vocabulary(["count", "state"])
    >>> options = {"reorderer": {"kind": "separable"}, "head": {"kind": "ssnt"}}
    >>> model = Transducer(options, source, target)
    >>> prediction = model.predict(["how many states"])[0]
    >>> prediction.score <= 0
    True

    Args:
        options: of the model, whole or only what differs from the defaults; see `permalign.options.model`.
        source: turns source words into numbers.
        target: turns output words into numbers and back.
        pretrained: Hugging Face models that are at hand already, for the ``reorderer`` and the ``head`` whose options
            name one; others are loaded by name.
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
        self.source, self.target = source, target
        words = build_embeddings(self.options, source, pretrained)
        self.embeddings = words["head"]
        self.pretrained = {
            part: one.encoder for part, one in words.items() if isinstance(one, ContextualEmbeddings)
        }
        self.dropout = nn.Dropout(self.options.head.embedding_dropout)
        self.reorderer = build_reorderer(self.options.reorderer, len(source), words)
        width = self.embeddings.embedding_dim
        encoder = build_encoder(self.options.head.encoder, width)
        # a head that sums over orders reads words that have their context before they are put into any
        self.encoder = encoder if self.reorderer.sums_over_orders else None
        width = encoded_size(self.encoder, width)
        self.head = build_head(self.options.head, len(target), width, None if self.encoder else encoder)
        back = self.options.inverse
        self.back = None
        if back is not None:  # from outputs to sentences
            self.back = Transducer(ModelOptions(reorderer=back.reorderer, head=back.head), target, source)
        alone = self.options.model_copy(update={"ensemble_size": 1})
        self.others = nn.ModuleList(
            Transducer(alone, source, target) for _ in range(self.options.ensemble_size - 1)
        )

    @property
    def members(self) -> "list[Transducer]":
        """The models that answer together, of which this is the first, or the only one."""
        return [self, *(one for one in self.others if isinstance(one, Transducer))]

    @property
    def device(self) -> torch.device:
        """Where its parameters are."""
        return next(self.parameters()).device

    # --- Training ---------------------------------------------------------------------------------------------

    def forward(self, batch: Batch) -> Loss:
        """`loss`, under the name that wrappers of modules call."""
        return self.loss(batch)

    def loss(self, batch: Batch) -> Loss:
        """The loss of a batch, a mean over its sentences, and its parts.

        The likelihood's part is the reorderer's objective: exact, a bound by samples, or a surrogate.
        """
        likelihood, reordering = self._log_likelihood(batch, self.options.head.label_smoothing)
        parts = {"negative_log_likelihood": -likelihood.mean(), **reordering.penalties}
        if self.back is not None:
            parts["reading_back"] = self._loss_of_way_back(self.back, batch)
        if self.others:
            parts["others"] = torch.stack([other.loss(batch).total for other in self.members[1:]]).sum()
        return Loss(torch.stack(list(parts.values())).sum(), parts)

    def forget_head_gradients(self) -> None:
        """Drop the gradients of all but the reorderer, so that an optimiser's step leaves the rest untouched.

        The paper's training strategy does so with some probability in the first steps. A way back keeps its own.
        """
        for member in self.members:
            own = {id(parameter) for parameter in member.reorderer.parameters()}
            for parameter in member.parameters_apart()[0]:
                if id(parameter) not in own:
                    parameter.grad = None

    def parameters_apart(self) -> list[list[nn.Parameter]]:
        """Those of each part that learns by itself: the way there first, then the way back, then other models'."""
        others = [
            some
            for part in (self.back, *self.members[1:])
            if part is not None
            for some in part.parameters_apart()
        ]
        known = {id(parameter) for some in others for parameter in some}
        return [[parameter for parameter in self.parameters() if id(parameter) not in known], *others]

    def _loss_of_way_back(self, back: "Transducer", batch: Batch) -> Tensor:
        """That of the sentences given their outputs, a mean over all; those that cannot be read back add nothing."""
        readable = back.head.supports_lengths(batch.target_lengths, batch.source_lengths)
        if not bool(readable.any()):
            return batch.source_lengths.new_zeros((), dtype=torch.float32)
        return back.loss(batch.swap_sides(readable)).total * readable.float().mean()

    def _read(self, batch: Batch) -> Reading:
        """What the head reads of each source word, before any reordering; and the reordering."""
        states: Tensor = self.dropout(self.embeddings(batch.source))
        if self.encoder is not None:
            states = self.encoder(states, batch.source_lengths)
        return Reading(states, self.reorderer(batch.source, batch.source_lengths, states))

    def _log_likelihood(self, batch: Batch, smoothing: float) -> tuple[Tensor, Reordering]:
        """``(batch,)``, by the objective in training and by the decoding at test time."""
        states, reordering = self._read(batch)
        if self.reorderer.sums_over_orders:
            pair = (states, batch.source_lengths, batch.target, batch.target_lengths)
            assert reordering.distribution is not None
            return self.head.log_likelihood_over_orders(reordering.distribution, *pair, smoothing), reordering
        copies = reordering.copies
        likelihood = self.head.log_likelihood(
            reordering.states,
            batch.source_lengths.repeat(copies),
            batch.target.repeat(copies, 1),
            batch.target_lengths.repeat(copies),
            smoothing,
        )
        return likelihood.view(copies, -1).logsumexp(0) - log(copies), reordering

    def _anew(self) -> LogLikelihood:
        """Its likelihood at test time, by reading the sentences of all pairs."""
        return lambda _, pairs: self._log_likelihood(pairs, 0.0)[0]

    def _by(self, reading: Reading, lengths: Tensor) -> LogLikelihood:
        """The same by a reading that is there."""

        def log_likelihood(rows: Tensor, pairs: Batch) -> Tensor:
            states, reordering = reading
            outputs = lengths[rows], pairs.target, pairs.target_lengths
            if not self.reorderer.sums_over_orders:
                return self.head.log_likelihood(reordering.states[rows], *outputs)
            assert reordering.distribution is not None
            orders = reordering.distribution.select(rows)
            return self.head.log_likelihood_over_orders(orders, states[rows], *outputs)

        return log_likelihood

    # --- Answers ----------------------------------------------------------------------------------------------

    def predict(
        self,
        sentences: Sequence[str | Sequence[str]],
        beam: int = 1,
        n_best: int = 1,
        explain: bool = False,
        constraint: Grammar | AllowedWords | None = None,
        longest: int | None = None,
        batch_size: int = 64,
    ) -> list[Prediction]:
        """The most probable outputs, in the order of the sentences.

        Args:
            sentences: text, cut at white space, or lists of words.
            beam: how many prefixes to keep; 1 is greedy search. A model that reads answers back ranks all that a beam
                finds by both ways; scores are of the way there alone.
            n_best: how many outputs to find for each sentence; the second and on are `Prediction.alternatives`.
            explain: whether to give reasons: derivation, reordered sentence, segments. Without a discrete order
                (decoding ``marginal``, say) there are no segments, for nothing leads back to source words.
            constraint: a task's grammar, or a function from the words so far to those that may follow. Where it
                allows no output at all (a tagging head, and no program of just so many words), the output is empty
                and its score -inf.
            longest: the most words of an output; None means 10 more than twice the source.
            batch_size: how many sentences to work on at once.
        """
        require_at_least_one(
            batch_size=batch_size, beam=beam, n_best=n_best, longest=1 if longest is None else longest
        )
        words = tokenised(sentences)
        require_words(words)
        by_length = sorted(range(len(words)), key=lambda place: len(words[place]))
        answers: dict[int, Prediction] = {}
        keeper = constraint_of(constraint, self.target)
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                for start in range(0, len(by_length), batch_size):
                    places = by_length[start : start + batch_size]
                    some = [words[place] for place in places]
                    predictions = self._predict_batch(some, beam, n_best, explain, keeper, longest)
                    answers |= zip(places, predictions, strict=True)
        finally:
            self.train(training)
        return [answers[place] for place in range(len(words))]

    def score(
        self,
        sentences: Sequence[str | Sequence[str]],
        outputs: Sequence[str | Sequence[str]],
        batch_size: int = 64,
    ) -> list[float]:
        """The exact log-likelihood of each output given its sentence, with the reordering of test time.

        With the exact objective it is summed over all reorderings. Of several models together it is the logarithm of
        their mean probability.
        """
        require_at_least_one(batch_size=batch_size)
        sources, targets = tokenised(sentences), tokenised(outputs, "output")
        if len(sources) != len(targets):
            raise ValueError(
                f"there are {len(sources)} sentences but {len(targets)} outputs; give one for each."
            )
        require_words(sources)
        training = self.training
        self.eval()
        try:
            with torch.no_grad():
                scores: list[float] = []
                for start in range(0, len(sources), batch_size):
                    part = slice(start, start + batch_size)
                    batch = self._batch(sources[part], [self.target.encode(words) for words in targets[part]])
                    likelihood = of_mixture([member._anew() for member in self.members])
                    scores += likelihood(torch.arange(len(batch.source)), batch).tolist()
                return scores
        finally:
            self.train(training)

    def _batch(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[int]]) -> Batch:
        numbers = [self.source.encode(words) for words in sources]
        require_words(numbers)  # there may be no pieces of words, of a lone space for one
        source, source_lengths = pad(numbers)
        target, target_lengths = pad(targets)
        return Batch(source, source_lengths, target, target_lengths, (), ()).to(self.device)

    def _predict_batch(
        self,
        sentences: Sequence[Sequence[str]],
        beam: int,
        n_best: int,
        explain: bool,
        constraint: Constraint | None,
        longest: int | None,
    ) -> list[Prediction]:
        batch = self._batch(sentences, [[]] * len(sentences))
        limits = [self.head.search_limit(length, longest) for length in batch.source_lengths.tolist()]
        search = partial(
            beam_search, beam=beam, constraint=constraint, same_length=self.head.preserves_length
        )
        readings = [member._read(batch) for member in self.members]
        rank = self._rank(batch, readings, search, limits, beam)
        found, reordering = self._find(readings[0], batch, search, limits, beam, n_best, rank)
        found = [hypotheses or [Hypothesis((), -torch.inf)] for hypotheses in found]
        reasons: Sequence[Reasons | None] = [None] * len(found)
        if explain:
            outputs, summed = [best for best, *_ in found], self.reorderer.sums_over_orders
            states, lengths = readings[0].states, batch.source_lengths
            reasons = reasons_of(outputs, self.head, states, reordering, lengths, summed)
        predictions = []
        for words, hypotheses, why in zip(sentences, found, reasons, strict=True):
            best, *others = (Prediction(self.target.decode(one.words), one.score) for one in hypotheses)
            explanation = why and Explanation(
                tuple(self.source.tokenize(words)),
                tuple(self.target.convert_ids_to_tokens(hypotheses[0].words)),
                *why,
            )
            predictions.append(Prediction(best.tokens, best.score, tuple(others), explanation))
        return predictions

    def _find(
        self,
        reading: Reading,
        batch: Batch,
        search: Search,
        limits: list[int],
        beam: int,
        n_best: int | None,
        rank: Rank | None,
    ) -> tuple[list[list[Hypothesis]], Reordering]:
        """The best of what this member finds, or all; and the order it chose."""
        states, reordering = reading
        if self.reorderer.sums_over_orders:
            return search_over_orders(
                self.head, reordering, states, batch.source_lengths, search, limits, beam, n_best, rank
            )
        decoder = self.head.decoder(reordering.states, batch.source_lengths)
        wanted = beam if n_best is None else max(beam, n_best) if rank else n_best
        found = search(decoder, limits, n_best=wanted)
        return [hypotheses[:n_best] for hypotheses in (rank(found) if rank else found)], reordering

    def _rank(
        self, batch: Batch, readings: list[Reading], search: Search, limits: list[int], beam: int
    ) -> Rank | None:
        """How what was found is ranked, together with what other members find, and by both ways; None for as it is."""
        pools = self.reorderer.sums_over_orders or len(readings) > 1
        if not pools and self.back is None:
            return None
        members = list(zip(self.members, readings, strict=True))

        def rank(found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
            if pools:
                more = [
                    one._find(reading, batch, search, limits, beam, None, None)[0]
                    for one, reading in members[1:]
                ]
                likelihood = of_mixture([one._by(reading, batch.source_lengths) for one, reading in members])
                found = pooled([found, *more], batch, likelihood)
            if self.back is None or self.options.inverse is None:
                return found
            backs = of_mixture([one.back._anew() for one in self.members if one.back is not None])
            return ranked_by_both_ways(found, batch, self.back.head, backs, self.options.inverse.weight)

        return rank

    # --- Files ------------------------------------------------------------------------------------------------

    def _save_pretrained(self, save_directory: Path) -> None:
        save_model(save_directory, self.options, self.state_dict(), self.source, self.target)
        save_pretrained(save_directory, self.pretrained)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **hub: Any) -> "Transducer":
        """The model that a folder holds (one that `save_pretrained` or a training run wrote), or the hub.

        Args:
            pretrained_model_name_or_path: a folder, or a model's name on the Hugging Face hub.
            hub: ``revision``, ``token``, ``cache_dir``, ``force_download``, ``local_files_only``.

        Raises:
            PermalignError: there is no such model, or its files are not what they should be.
        """
        name = str(pretrained_model_name_or_path)
        options, state, source, target = load_model(name, hub)
        model = cls(options, source, target, load_pretrained(name, options, hub))
        require_same_parameters(name, model.state_dict(), state)
        model.load_state_dict(state)
        return model.eval()
