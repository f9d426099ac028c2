"""What every model shares: predicting, scoring, explaining, and files."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

import torch
from huggingface_hub import ModelHubMixin
from torch import Tensor, nn

from permalign.checks import require_at_least_one
from permalign.decoding.beam import SearchMethod, SearchSettings
from permalign.decoding.candidates import Candidate, Candidates, rerank, rescore
from permalign.decoding.glossary import Glossary
from permalign.decoding.output_constraint import AllowedWords, make_constraints
from permalign.decoding.output_evidence import Evidence
from permalign.decoding.search_cost import require_affordable
from permalign.encoders.huggingface import HuggingFaceEncoder
from permalign.errors import DataError, excerpt
from permalign.models.bundled import find_model_folder
from permalign.models.glossary_search import predict_with_glossary
from permalign.models.prediction import (
    Explanation,
    Prediction,
    require_not_empty,
    split_pairs,
    split_words,
)
from permalign.models.saving import (
    CONFIG,
    MODEL_CARD,
    SavedModel,
    load_pretrained,
    read_model,
    require_same_parameters,
    save_model,
)
from permalign.options.model import ModelOptions
from permalign.precision import limit_autocast
from permalign.tasks.base import Example
from permalign.tasks.grammar import Grammar
from permalign.text.batching import Batch, pad
from permalign.text.codec import Codec, unknown_tokens
from permalign.text.sentence_vocabulary import SentenceVocabulary

if TYPE_CHECKING:
    from permalign.models.transducer import Transducer


class Loss(NamedTuple):
    """What training minimises.

    Attributes:
        total: the sum of the parts.
        parts: the terms of the loss by name, each a mean over sentences.
        pruning_bound: by how much the total may be higher than that of exact sums, at most; a mean over sentences.
    """

    total: Tensor
    parts: dict[str, Tensor]
    pruning_bound: Tensor

    @classmethod
    def sum_of(cls, parts: dict[str, Tensor], pruning_bound: Tensor | None = None) -> "Loss":
        """The loss that has these parts; without a bound, nothing was pruned."""
        total = torch.stack(list(parts.values())).sum()
        return cls(total, parts, torch.zeros_like(total) if pruning_bound is None else pruning_bound)


class TrainingProblem(NamedTuple):
    """Why a model cannot learn from an example.

    Attributes:
        reason: what is wrong with the example, a whole sentence.
        advice: which option would help, an imperative without a full stop.
        only_inverse: whether the inverse model alone cannot learn from it; else the example cannot be used at all.
    """

    reason: str
    advice: str
    only_inverse: bool = False


class Reading(ABC):
    """A batch of sentences as a model has read it: everything that is computed once and used for all outputs."""

    @property
    @abstractmethod
    def beam_scores_are_exact(self) -> bool:
        """Whether candidates come with their log-likelihood; else they have to be rescored."""

    @abstractmethod
    def find_candidates(self, settings: SearchSettings, count: int) -> Candidates:
        """Search outputs for every sentence; ``count`` is how many a single beam search has to return."""

    @abstractmethod
    def log_likelihood(self, rows: Tensor, pairs: Batch) -> Tensor:
        """``(pairs,)``, the log-likelihood of each pair's target, given the sentence in a row of this batch."""

    def rank(
        self, candidates: Candidates, batch: Batch, count: int | None, length_penalty: float
    ) -> Candidates:
        """The candidates of every sentence with their log-likelihoods, best first.

        Args:
            candidates: what `find_candidates` found.
            batch: the sentences.
            count: how many are needed of each sentence; others may be left out. None for all.
            length_penalty: the exponent of the length by which log-likelihoods are divided when they are compared.
        """
        return rescore(candidates, batch, self.log_likelihood, length_penalty)

    @abstractmethod
    def find_evidence(self, outputs: Sequence[Candidate]) -> Sequence[Evidence]:
        """What leads from each sentence to its output."""


class Model(
    nn.Module,
    ModelHubMixin,
    ABC,
    library_name="permalign",
    tags=["sequence-transduction", "reordering"],
    model_card_template=MODEL_CARD,
):
    """Turns sentences into outputs.

    `predict` and `score` are the same for all models. A kind of model says how it reads sentences and finds candidates
    (`read`), how probable an output is given its sentence (`log_likelihood`), and, if it has an inverse model, how
    probable a sentence is given an output (`inverse_log_likelihood`).

    Attributes:
        source: the vocabulary of sentences.
        target: the vocabulary of outputs.
        inverse_weight: the weight of the inverse model in reranking; None without an inverse model.
    """

    source: Codec
    target: Codec
    inverse_weight: float | None = None

    @property
    def device(self) -> torch.device:
        """The device of its parameters."""
        return next(self.parameters()).device

    # --- What a kind of model has to define -------------------------------------------------------------------

    @abstractmethod
    def loss(self, batch: Batch) -> Loss:
        """The training loss of a batch, a mean over its sentences, with its parts."""

    @abstractmethod
    def read(self, batch: Batch) -> Reading:
        """Read the sentences of a batch, by the reorderer's decoding of test time."""

    @abstractmethod
    def log_likelihood(self, batch: Batch) -> Tensor:
        """``(batch,)``, the exact log-likelihood of every target given its source, without label smoothing."""

    @abstractmethod
    def likelihood_cost(self, source_length: int, target_length: int) -> int:
        """About how many operations it takes to rank one candidate output by exact sums; 0 where there are none."""

    def inverse_log_likelihood(self, batch: Batch) -> Tensor:
        """``(batch,)``, the log-likelihood of every source given its target; -inf where it cannot be written."""
        raise ValueError(f"{type(self).__name__} has no inverse model.")

    @property
    @abstractmethod
    def primary(self) -> "Transducer":
        """The transducer whose reordering and alignment explain an output."""

    @property
    def explanation_notes(self) -> tuple[str, ...]:
        """What a reader of an explanation has to know about this kind of model."""
        return ()

    @abstractmethod
    def use_objective(self, objective: str) -> None:
        """Train reorderers by another objective from now on, where they have a choice; see `ReordererOptions`."""

    @abstractmethod
    def use_decoding(self, decoding: str) -> None:
        """Choose orders by another decoding from now on; see `ReordererOptions`.

        Raises:
            ConfigError: a reorderer has no choice.
        """

    @abstractmethod
    def find_training_problem(self, example: Example) -> TrainingProblem | None:
        """Why the model cannot learn from an example; None if it can."""

    @abstractmethod
    def independent_parameters(self) -> list[list[nn.Parameter]]:
        """The parameters of each part that learns independently of the others; gradients are clipped part by part."""

    @abstractmethod
    def keep_only_reorderer_gradients(self) -> None:
        """Drop the gradients of everything but reorderers, so that an optimizer's step changes nothing else.

        The paper's training strategy does so with some probability in the first steps. Inverse models keep all their
        gradients.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What the config file says about the model: its ``options``, or those of its ``members``."""

    @classmethod
    @abstractmethod
    def build(
        cls,
        options: Sequence[ModelOptions],
        source: Codec,
        target: Codec,
        pretrained: Mapping[str, HuggingFaceEncoder] | None = None,
    ) -> Self:
        """Build a new model from the options of its members, or from the options of the only one."""

    @property
    def pretrained(self) -> dict[str, HuggingFaceEncoder]:
        """The pretrained encoders of its parts, by part (``reorderer``, ``head``)."""
        return {}

    # --- Training ---------------------------------------------------------------------------------------------

    def forward(self, batch: "Batch | str | Sequence[str]", **options: Any) -> Any:
        """`loss` of a batch, under the name that wrappers of modules call; `predict` of a string or of sentences.

        >>> from permalign import Transducer
        >>> from permalign.text.vocabulary import Vocabulary
        >>> model = Transducer({}, Vocabulary(["hi"]), Vocabulary(["HI"]))
        >>> model("hi").text == model.predict("hi").text
        True
        """
        return self.loss(batch) if isinstance(batch, Batch) else self.predict(batch, **options)

    # --- Outputs ----------------------------------------------------------------------------------------------

    @overload
    def predict(  # type: ignore[overload-overlap]  # a string is a sequence of strings, but the first one counts
        self,
        sentences: str,
        beam: int = ...,
        n_best: int = ...,
        explain: bool = ...,
        constraint: Grammar | AllowedWords | None = ...,
        max_length: int | None = ...,
        length_penalty: float = ...,
        batch_size: int = ...,
        max_operations: float | None = ...,
        glossary: Glossary | Mapping[str, str | Sequence[str]] | None = ...,
        search: SearchMethod = ...,
        scores: bool = ...,
    ) -> Prediction: ...

    @overload
    def predict(
        self,
        sentences: Sequence[str | Sequence[str]],
        beam: int = ...,
        n_best: int = ...,
        explain: bool = ...,
        constraint: Grammar | AllowedWords | None = ...,
        max_length: int | None = ...,
        length_penalty: float = ...,
        batch_size: int = ...,
        max_operations: float | None = ...,
        glossary: Glossary | Mapping[str, str | Sequence[str]] | None = ...,
        search: SearchMethod = ...,
        scores: bool = ...,
    ) -> list[Prediction]: ...

    @limit_autocast
    def predict(
        self,
        sentences: str | Sequence[str | Sequence[str]],
        beam: int = 1,
        n_best: int = 1,
        explain: bool = False,
        constraint: Grammar | AllowedWords | None = None,
        max_length: int | None = None,
        length_penalty: float = 0.0,
        batch_size: int = 64,
        max_operations: float | None = None,
        glossary: Glossary | Mapping[str, str | Sequence[str]] | None = None,
        search: SearchMethod = "beam",
        scores: bool = True,
    ) -> Prediction | list[Prediction]:
        """Find the most probable output of every sentence; of a single string, one `Prediction`.

        Args:
            sentences: strings, split at white space, or lists of words; or a single string.
            beam: the beam size; 1 is greedy search. An inverse model reranks all candidates that the beam finds, but
                does not change their scores.
            n_best: how many outputs to return for each sentence; all but the best are `Prediction.alternatives`.
            explain: whether to return explanations: derivation, reordered sentence, segments. There are no segments
                without a discrete order (decoding ``marginal``, for example).
            constraint: a task's grammar, or a function from the words so far to those that may follow. If it allows
                no output at all (a tagging head, and no program of that length), the output is empty and its score
                -inf.
            max_length: the maximum length of an output; None means 10 words more than twice the sentence.
            length_penalty: outputs are compared by their log-probability divided by their length to this power; 0 for
                the log-probability itself. Scores are log-probabilities in any case.
            batch_size: how many sentences to process at once.
            max_operations: how many operations it may take to rank the candidates of one sentence by their exact
                likelihoods (see `likelihood_cost`); None for any number.
            glossary: required outputs of source phrases, or several of which one is required. The beam is widened to
                four more than the number of required words. What cannot be honoured is in `Prediction.unmet`; if no
                output can be found at all, the glossary is ignored for that sentence.
            search: ``"exact"`` finds, instead of a beam, the ``beam`` outputs whose best derivations are most probable
                (see `permalign.decoding.exact_search`). The model must sum over orders without labels, each word must
                write at most one word, and a constraint must be a grammar.
            scores: whether the scores of outputs are needed. If not, the score of a sentence's only candidate is NaN
                where computing it takes a sum over all orders of the words.

        Raises:
            UsageError: the model or the constraint does not allow an exact search.
            TooCostlyError: ranking would take more operations than allowed; it has not begun.
        """
        require_at_least_one(
            batch_size=batch_size,
            beam=beam,
            n_best=n_best,
            max_length=1 if max_length is None else max_length,
        )
        words = split_words([sentences] if isinstance(sentences, str) else sentences)
        require_not_empty(words)
        vocabularies = [self.primary.target_vocabulary(sentence) for sentence in words]
        constraints = make_constraints(constraint, vocabularies)
        settings = SearchSettings(
            beam,
            constraints,
            max_length,
            max_operations=max_operations,
            length_penalty=length_penalty,
            search=search,
            scores=scores,
        )
        if glossary is None:
            predictions = self._search(words, settings, n_best, explain, batch_size)
        else:
            terms = glossary if isinstance(glossary, Glossary) else Glossary(glossary)
            predict_again = partial(self._search, n_best=n_best, explain=explain, batch_size=batch_size)
            predictions = predict_with_glossary(
                words, terms, self.source, vocabularies, settings, predict_again
            )
        return predictions[0] if isinstance(sentences, str) else predictions

    def _search(
        self,
        words: Sequence[Sequence[str]],
        settings: SearchSettings,
        n_best: int,
        explain: bool,
        batch_size: int,
    ) -> list[Prediction]:
        """Search the outputs of sentences, those of similar length at once."""
        by_length = sorted(range(len(words)), key=lambda index: len(words[index]))
        predictions: dict[int, Prediction] = {}
        with self._evaluating():
            for start in range(0, len(by_length), batch_size):
                indices = by_length[start : start + batch_size]
                chosen = settings.select(indices)
                predicted = self._predict_batch([words[i] for i in indices], chosen, n_best, explain)
                predictions |= zip(indices, predicted, strict=True)
        return [predictions[index] for index in range(len(words))]

    @limit_autocast
    def score(
        self,
        sentences: Sequence[str | Sequence[str]],
        outputs: Sequence[str | Sequence[str]],
        batch_size: int = 64,
    ) -> list[float]:
        """Compute the exact log-likelihood of each output given its sentence, with the reordering of test time.

        With the exact objective it is summed over all reorderings; an ensemble averages probabilities.

        Args:
            sentences: strings, split at white space, or lists of words.
            outputs: one output for each sentence, likewise.
            batch_size: how many pairs to process at once.
        """
        require_at_least_one(batch_size=batch_size)
        sources, targets = split_words(sentences), split_words(outputs, "output")
        if len(sources) != len(targets):
            raise ValueError(
                f"there are {len(sources)} sentences but {len(targets)} outputs; give one output for each sentence."
            )
        require_not_empty(sources)
        scores: list[float] = []
        with self._evaluating():
            for start in range(0, len(sources), batch_size):
                chunk = slice(start, start + batch_size)
                batch = self._batch(sources[chunk], targets[chunk])
                scores += self.log_likelihood(batch).tolist()
        return scores

    @limit_autocast
    def derive(
        self, sentences: Sequence[Sequence[str]], outputs: Sequence[Sequence[str]], batch_size: int = 64
    ) -> list[Evidence]:
        """Find what leads from each sentence to a given output: order, derivation and segments, where there are any.

        Args:
            sentences: the words of each sentence.
            outputs: the words of one output for each sentence.
            batch_size: how many pairs to process at once.
        """
        evidence: list[Evidence] = []
        with self._evaluating():
            for start in range(0, len(sentences), batch_size):
                chunk = slice(start, start + batch_size)
                batch = self._batch(sentences[chunk], outputs[chunk])
                pairs = zip(batch.target.tolist(), batch.target_lengths.tolist(), strict=True)
                given = [Candidate(tuple(target[:length]), 0.0) for target, length in pairs]
                evidence += self.read(batch).find_evidence(given)
        return evidence

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Evaluation mode without gradients while the block runs; the mode is only changed if it has to be."""
        training = self.training
        if training:
            self.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            if training:
                self.train()

    @limit_autocast
    def explain(
        self,
        sentence: str | Sequence[str],
        target: str | Sequence[str] | None = None,
        *,
        beam: int = 5,
    ) -> Any:
        """Trace how the model gets from a sentence to its output, or to a given target.

        It calls `permalign.explain.explain`, which describes the arguments and the result. `permalign.explain` is built
        on models, so it is imported only here, when it is called.
        """
        return import_module("permalign.explain").explain(self, sentence, target, beam=beam)

    @limit_autocast
    def align(self, pairs: Iterable[tuple[str | Sequence[str], str | Sequence[str]]]) -> list[Any]:
        """Align the words of each sentence with those of a given output.

        Args:
            pairs: a sentence and an output each: strings, split at white space, or lists of words.

        Returns:
            One `permalign.explain.word_alignment.WordAlignment` for each pair; `permalign.explain.word_alignment.align`
            describes how words are linked.

        Raises:
            TypeError: something is not a pair.
            ValueError: the model has no alignments.
        """
        align = import_module("permalign.explain.word_alignment").align
        return [align(self, source, target) for source, target in split_pairs(pairs)]

    def _batch(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> Batch:
        ids = [self.source.encode(words) for words in sources]
        require_not_empty(ids)  # a subword model may find no pieces in a word, such as a lone space
        vocabularies = [self.primary.target_vocabulary(words) for words in sources]
        outputs = [codec.encode(words) for codec, words in zip(vocabularies, targets, strict=True)]
        copies = [codec.copy_ids for codec in vocabularies if isinstance(codec, SentenceVocabulary)]
        batch = Batch(*pad(ids), *pad(outputs), (), (), pad(copies)[0] if copies else None)
        return batch.to(self.device)

    def _predict_batch(
        self, sentences: Sequence[Sequence[str]], settings: SearchSettings, n_best: int, explain: bool
    ) -> list[Prediction]:
        batch = self._batch(sentences, [()] * len(sentences))
        return self.predict_reading(self.read(batch), batch, sentences, settings, n_best, explain)

    @torch.no_grad()
    def predict_reading(
        self,
        reading: Reading,
        batch: Batch,
        sentences: Sequence[Sequence[str]],
        settings: SearchSettings,
        n_best: int = 1,
        explain: bool = False,
    ) -> list[Prediction]:
        """`predict` for sentences that the model, in evaluation mode, has already read.

        Args:
            reading: what `read` returned for the batch.
            batch: the sentences.
            sentences: their words.
            settings: how to search.
            n_best: see `predict`.
            explain: see `predict`.
        """
        final = reading.beam_scores_are_exact and self.inverse_weight is None
        candidates = reading.find_candidates(settings, n_best if final else max(settings.beam, n_best))
        if not reading.beam_scores_are_exact and (
            settings.scores or any(len(some) > 1 for some in candidates)
        ):
            for length, some in zip(batch.source_lengths.tolist(), candidates, strict=True):
                outputs = [len(candidate.tokens) for candidate in some]
                require_affordable(self.likelihood_cost, length, outputs, settings.max_operations)
            count = n_best if self.inverse_weight is None else None
            candidates = reading.rank(candidates, batch, count, settings.length_penalty)
        if self.inverse_weight is not None:
            candidates = rerank(
                candidates,
                batch,
                lambda _, pairs: self.inverse_log_likelihood(pairs),
                self.inverse_weight,
                settings.length_penalty,
            )
        best = [of_sentence[:n_best] or [Candidate((), -torch.inf)] for of_sentence in candidates]
        evidence: Sequence[Evidence | None] = [None] * len(best)
        if explain:
            evidence = reading.find_evidence([first for first, *_ in best])
        return [
            self._prediction(words, outputs, of_best)
            for words, outputs, of_best in zip(sentences, best, evidence, strict=True)
        ]

    def _prediction(
        self, sentence: Sequence[str], outputs: Sequence[Candidate], evidence: Evidence | None
    ) -> Prediction:
        """The best output with the others as its alternatives."""
        target_codec = self.primary.target_vocabulary(sentence)
        best, *others = (
            Prediction(target_codec.decode(candidate.tokens), candidate.score) for candidate in outputs
        )
        explanation = None
        if evidence is not None:
            source, target = (
                self.source.tokenize(sentence),
                target_codec.convert_ids_to_tokens(outputs[0].tokens),
            )
            explanation = Explanation(tuple(source), tuple(target), *evidence)
        unknown = unknown_tokens(self.source, sentence)
        return Prediction(best.tokens, best.score, tuple(others), explanation, unknown)

    # --- Files ------------------------------------------------------------------------------------------------

    def _save_pretrained(self, save_directory: Path) -> None:
        description = {"kind": type(self).__name__, **self.describe()}
        save_model(save_directory, description, self.state_dict(), self.source, self.target, self.pretrained)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **hub: Any) -> Self:
        """Load a model of this kind; `permalign.load_model` loads a model of any kind.

        Args:
            pretrained_model_name_or_path: a folder that `save_pretrained` or a training run wrote, the name of a model
                that comes with permalign (``dates``), or a model's name on the Hugging Face hub.
            hub: ``revision``, ``token``, ``cache_dir``, ``force_download``, ``local_files_only``.

        Raises:
            PermalignError: there is no such model, it is of another kind, or its files are broken.
        """
        name = str(find_model_folder(pretrained_model_name_or_path))
        saved = read_model(name, hub)
        if saved.kind != cls.__name__:
            raise DataError(
                f"holds a model of the kind {saved.kind}, not {cls.__name__}. Load it with permalign.load_model(...), "
                f"or with permalign.{saved.kind}.from_pretrained(...).",
                name,
            )
        cls._require_fit(name, saved, hub)
        pretrained = load_pretrained(name, saved.options[0], hub)
        model = cls.build(saved.options, saved.source, saved.target, pretrained)
        model.load_state_dict(saved.read_parameters())
        return model.eval()

    @classmethod
    def _require_fit(cls, name: str, saved: SavedModel, hub: Mapping[str, Any]) -> None:
        """Require that a saved model has the parameters that its config describes, before memory is taken for them."""
        members, tensors = len(saved.options), len(saved.shapes)
        if members > tensors:
            raise DataError(
                f"{CONFIG} describes {members} members, but the weights are only {tensors} tensors. Are the two files "
                "from the same model?",
                name,
            )
        try:
            with torch.device("meta"):  # tensors with shapes, but without values
                pretrained = load_pretrained(name, saved.options[0], hub)
                model = cls.build(saved.options, saved.source, saved.target, pretrained)
        except (RuntimeError, TypeError, OverflowError) as error:
            reason = excerpt(str(error), max_length=200)
            raise DataError(f"{CONFIG} describes a model that cannot be built ({reason}).", name) from None
        require_same_parameters(name, model.state_dict(), saved.shapes)
