"""Every option of a model: its type, default, range and meaning.

A config is a nested mapping (YAML, JSON or Python) that holds only what differs from the defaults:

>>> options = ModelOptions.parse({"reorderer": {"kind": "separable"}, "head": {"kind": "ssnt", "context": 1}})
>>> options.reorderer.objective, options.head.embedding_dim
('soft', 128)
>>> ModelOptions.parse({"head": {"contxt": 1}})
Traceback (most recent call last):
permalign.errors.ConfigError: unknown option head.contxt; did you mean head.context?
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializeAsAny

from permalign.errors import ConfigError
from permalign.options.base import Count, Fraction, Options, PartName, PartOptions, PositiveInt
from permalign.plugins import ENCODERS, HEADS, REORDERERS

Pretrained = Annotated[
    str | None,
    Field(
        min_length=1,
        description="name or folder of a Hugging Face model whose contextual embeddings replace the learned ones, or "
        "package:NAME/FOLDER for a model in an installed Python package; needs the extra hf and a source vocabulary of "
        "words",
    ),
]


class EncoderOptions(PartOptions):
    """The encoder, which turns word embeddings into contextual states."""

    registry = ENCODERS
    kind: Annotated[str, PartName(ENCODERS)] = Field(
        "bilstm",
        description="bilstm is the encoder of the ReMoto paper; prefix_sum counts words, and generalises to any depth; "
        "window sees only neighbouring words; none passes the embeddings through",
    )
    hidden_size: PositiveInt = Field(
        256,
        description="size of the encoder's states; must be even, because they have two halves: one for each direction "
        "of a BiLSTM, or one for the word and one for its neighbours in a window",
    )
    num_layers: Count = Field(1, description="number of layers (bilstm, transformer)")
    dropout: Fraction = Field(0.1, description="dropout on the encoder's input and between its layers")
    output_dropout: Fraction = Field(0.0, description="dropout on the encoder's states (bilstm)")
    num_heads: PositiveInt = Field(4, description="number of attention heads (transformer)")
    num_sums: PositiveInt = Field(4, description="number of running sums from each side (prefix_sum)")
    window_radius: PositiveInt = Field(1, description="number of neighbours on each side (window)")


class ReordererOptions(PartOptions):
    """The reorderer, which permutes the source words before the head reads them."""

    registry = REORDERERS
    kind: Annotated[str, PartName(REORDERERS)] = Field(
        "none",
        description="separable is the reorderer of the ReMoto paper; labelled adds latent labels to its trees; "
        "sinkhorn relaxes one-to-one matchings; local mixes neighbouring words; none keeps the source order",
    )
    embedding_dim: PositiveInt = Field(
        128, description="size of the reorderer's word embeddings; ignored with a pretrained model"
    )
    pretrained: Pretrained = None
    shared_embeddings: bool = Field(False, description="whether to use the head's word embeddings")
    encoder: SerializeAsAny[EncoderOptions] = Field(
        EncoderOptions(),
        description="the reorderer's encoder; kind none needs the contextual embeddings of a pretrained model",
    )
    scorer_hidden_size: PositiveInt = Field(
        512, description="number of hidden units of the split scorer (separable; labelled with split_scores)"
    )
    dropout: Fraction = Field(
        0.1,
        description="dropout on the hidden units of the split scorer, independent for every split (separable; labelled "
        "with split_scores)",
    )
    objective: Literal["soft", "hard", "samples", "exact"] = Field(
        "soft",
        description="how to train a separable or labelled reorderer: by the expected permutation (soft), one "
        "straight-through sample (hard), a bound from several samples (samples), or the exact likelihood, summed over "
        "all orders (exact; needs a tagging or segments head)",
    )
    score_straight_rules: bool = Field(
        True,
        description="whether straight rules have scores of their own; if false, only inverted rules are scored "
        "(separable)",
    )
    temperature: float = Field(
        1.0, gt=0.0, description="temperature of Gumbel samples (objectives hard and samples) or of sinkhorn"
    )
    num_samples: PositiveInt = Field(4, description="number of samples per sentence (objective samples)")
    decoding: Literal["greedy", "viterbi", "permutation", "marginal"] = Field(
        "viterbi",
        description="how to choose an order at test time (separable, labelled): the best rule for each span from the "
        "root down, as in the ReMoto paper (greedy); the most probable derivation (viterbi); the most probable "
        "permutation, summed over its derivations (permutation); the expected permutation matrix instead of a single "
        "order (marginal)",
    )
    normal_form: bool = Field(
        False, description="whether to allow exactly one derivation per permutation (separable)"
    )
    initial_inversion_rate: float = Field(
        0.5,
        gt=0.0,
        lt=1.0,
        description="about how often a rule is inverted before training (separable); with a low rate, training begins "
        "close to the source order",
    )
    inversion_rate: float | None = Field(
        None,
        gt=0.0,
        lt=1.0,
        description="prior on the share of inverted rules (separable, labelled); null for no prior",
    )
    inversion_weight: float = Field(0.0, ge=0.0, description="weight of the inversion prior in the loss")
    num_labels: PositiveInt = Field(8, description="number of latent labels (labelled)")
    factorised_rules: bool = Field(
        False,
        description="whether the labels of a node's two children are independent given the node's label and rule, so "
        "that the time of a step grows more slowly with the number of labels (labelled)",
    )
    features: Literal["token", "encoding"] = Field(
        "token",
        description="what the label weights of a word are computed from: the word alone (token), or the state of the "
        "encoder (encoding) (labelled)",
    )
    split_scores: bool = Field(
        False,
        description="whether to add scores of splits, which are computed from the encoder's states (labelled)",
    )
    label_init_std: float = Field(
        0.5, gt=0.0, description="standard deviation of the initial label weights (labelled)"
    )
    num_iterations: Count = Field(32, description="number of row and column normalisations (sinkhorn)")
    hungarian: bool = Field(
        False,
        description="whether to use the best one-to-one matching at test time instead of the relaxed one (sinkhorn)",
    )
    window_radius: PositiveInt = Field(3, description="number of neighbours on each side (local)")

    @property
    def uses_encoder(self) -> bool:
        """Whether the reorderer reads source words in their context."""
        if self.kind == "labelled":
            return self.features == "encoding" or self.split_scores
        return self.kind in ("separable", "sinkhorn")

    @property
    def has_embeddings(self) -> bool:
        """Whether the reorderer embeds words itself; else it only sees the head's embeddings."""
        return self.kind not in ("none", "local")

    @property
    def sums_over_orders(self) -> bool:
        """Whether the likelihood is summed over all orders (the exact objective)."""
        return self.kind in ("separable", "labelled") and self.objective == "exact"


class HeadOptions(PartOptions):
    """The head, which generates the output."""

    registry = HEADS
    kind: Annotated[str, PartName(HEADS)] = Field(
        "ssnt",
        description="tagging generates one word for each source word; attention is a sequence-to-sequence decoder with "
        "attention; ssnt and swan have latent monotone alignments; segments generates a segment for each source word, "
        "and its likelihood is summed over all orders and segmentations with objective exact",
    )
    embedding_dim: PositiveInt = Field(
        128,
        description="size of the embeddings of output words and of source words (with a pretrained model, only of "
        "output words)",
    )
    pretrained: Pretrained = None
    embedding_dropout: Fraction = Field(0.1, description="dropout on the embeddings of source words")
    word_dropout: Fraction = Field(
        0.0,
        description="in training, probability that a source word is read as unknown, by the reorderer and the head, so "
        "that the model learns to read sentences with words it has never seen",
    )
    encoder: SerializeAsAny[EncoderOptions] = Field(
        EncoderOptions(),
        description="the head's encoder, which reads the reordered sentence, or the original one if the likelihood is "
        "summed over all orders",
    )
    hidden_size: PositiveInt = Field(256, description="number of hidden units of the decoder")
    num_layers: Count = Field(1, description="number of layers of the decoder")
    dropout: Fraction = Field(0.1, description="dropout in the decoder")
    label_smoothing: Fraction = Field(0.0, description="label smoothing of the training loss")
    num_negatives: PositiveInt | None = Field(
        None,
        description="sampled softmax: in training, number of words that stand for all words of the vocabulary that are "
        "not in the batch, half of them the most frequent ones and half drawn at random; faster with large "
        "vocabularies, slightly biased; null for the whole vocabulary",
    )
    copy_mechanism: bool = Field(
        False,
        description="whether the head may copy source words into the output, also words that are in no vocabulary: the "
        "word it is aligned with, or those it attends to (attention); not with syntactic_attention",
    )
    copy_dropout: Fraction = Field(
        0.2,
        description="in training, probability that a source word which occurs in the output is read as unknown, so "
        "that the model learns to copy words it has never seen (with copy_mechanism)",
    )
    context: Literal["full"] | PositiveInt = Field(
        "full",
        description="how many of the previous output words the decoder sees: all of them (full) or the last few (a "
        "number); see also history (segments)",
    )
    attention: bool = Field(
        False,
        description="whether the states of the output attend to the source (ssnt, segments); the SSNT of the ReMoto "
        "paper has states that depend on the output alone",
    )
    scaled_attention: bool = Field(
        False,
        description="whether the scores of attention are divided by the square root of hidden_size; in "
        "translation, attention otherwise soon becomes certain of one word (attention, ssnt, segments)",
    )
    input_feeding: bool = Field(
        False,
        description="whether the network over the output reads at every step what it attended to before, as the "
        "decoder of the kind attention always does (ssnt, segments); needs attention: true, context: full and, for "
        "segments, history: output",
    )
    words_at_end_cell: bool = Field(
        True,
        description="whether words may be written at the end cell, which follows the last source word and whose state "
        "has seen the whole sentence; if false, the end cell only ends the output, and every word is aligned to a "
        "source word (ssnt)",
    )
    max_segment_length: Count = Field(
        4, description="maximum number of output words that one source word may generate (swan, segments)"
    )
    history: Literal["segment", "output"] = Field(
        "segment",
        description="whether the context consists of the words of the current segment or of the whole output "
        "(segments)",
    )
    max_phrase_length: Count = Field(
        1,
        description="maximum number of source words that may generate a segment jointly (segments, objective exact)",
    )

    pruning_threshold: Fraction = Field(
        0.0,
        description="in training, bound of the posterior below which cells are left out of the sum over orders and "
        "segmentations, so that long sentences take less time; 1e-7, for example; 0 for the "
        "exact sum (segments, objective exact)",
    )
    pruning_tolerance: float | None = Field(
        None,
        ge=0.0,
        description="maximum number of nats that pruning may change the log-likelihood of a training pair by; pairs "
        "for which more is possible are summed exactly; null for no such guarantee (with pruning_threshold)",
    )

    @property
    def can_sum_over_orders(self) -> bool:
        """Whether each output word depends on one source word, as the exact sum over orders requires."""
        return self.kind in ("tagging", "segments")


class InverseOptions(Options):
    """The inverse model, from outputs to sentences, with which outputs are reranked (a noisy-channel model)."""

    weight: float = Field(
        1.0,
        ge=0.0,
        description="weight of the inverse model in reranking: an output is scored by its own log-likelihood plus this "
        "weight times the log-likelihood of the sentence given the output",
    )
    reorderer: SerializeAsAny[ReordererOptions] = ReordererOptions()
    head: SerializeAsAny[HeadOptions] = HeadOptions()


class ModelOptions(Options):
    """A reorderer and a head, optionally with an inverse model for reranking, and optionally as an ensemble."""

    reorderer: SerializeAsAny[ReordererOptions] = ReordererOptions()
    head: SerializeAsAny[HeadOptions] = HeadOptions()
    inverse: InverseOptions | None = Field(
        None,
        description="an inverse model that reranks outputs, and is trained at the same time; null for none",
    )
    ensemble_size: Count = Field(
        1,
        description="number of models whose probabilities are averaged; they are trained at the same time, and the "
        "loss is the sum of their losses",
    )

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Validate values, and check that the reorderer and the head work together."""
        options = super().parse(values)
        options.require_fit()
        return options

    @property
    def reads_only_pretrained_embeddings(self) -> bool:
        """Whether pretrained models compute all embeddings of the source."""
        reorderer = self.reorderer
        given = (
            reorderer.shared_embeddings or reorderer.pretrained is not None or not reorderer.has_embeddings
        )
        return self.head.pretrained is not None and given

    @property
    def is_pruned(self) -> bool:
        """Whether a likelihood in training leaves out what is improbable."""
        return any(side.head.pruning_threshold > 0 for side in (self, self.inverse) if side is not None)

    def parts(self) -> Iterator[PartOptions]:
        """The options of all parts."""
        for side in (self, self.inverse):
            if side is not None:
                yield from (side.reorderer, side.reorderer.encoder, side.head, side.head.encoder)

    def plugins(self) -> list[dict[str, str]]:
        """What provides the parts that are not permalign's own; see `Registry.provider`."""
        providers = [part.registry.provider(part.kind) for part in self.parts()]
        return [provider for provider in providers if provider is not None]

    def require_fit(self) -> None:
        """Check that the options do not contradict each other.

        Raises:
            ConfigError: they do; the message gives the reason and the nearest combination that works.
        """
        self._require_orders()
        self._require_embeddings()
        self._require_sizes()
        self._require_inverse()
        reorderer, head = self.reorderer, self.head
        if self.ensemble_size > 1 and (reorderer.pretrained or head.pretrained):
            raise ConfigError(
                f"model.ensemble_size is {self.ensemble_size}, but pretrained models cannot be part of an ensemble. "
                "Set ensemble_size: 1, or leave pretrained out."
            )
        if (reorderer.inversion_weight > 0) != (reorderer.inversion_rate is not None):
            raise ConfigError(
                "reorderer.inversion_rate and reorderer.inversion_weight go together; set both, or neither."
            )

    def _require_orders(self) -> None:
        """Check that the head works with the objective and the trees of the reorderer."""
        reorderer, head = self.reorderer, self.head
        exact = reorderer.sums_over_orders
        if exact and not head.can_sum_over_orders:
            raise ConfigError(
                f"reorderer.objective is exact, but head.kind is {head.kind}: the exact sum over orders needs output "
                "words that depend on one source word each, and this head reads the whole reordered sentence. Use "
                "reorderer.objective: samples (a bound on the same likelihood), or head.kind: tagging or segments."
            )
        if head.max_phrase_length > 1 and not (exact and head.kind == "segments"):
            raise ConfigError(
                f"head.max_phrase_length is {head.max_phrase_length}, but phrases are leaves of the trees that "
                "segments are summed over. Use head.kind: segments with reorderer.objective: exact, or leave "
                "max_phrase_length out."
            )
        if head.pruning_threshold:
            self._require_prunable()
        if head.input_feeding and head.kind in ("ssnt", "segments"):
            needed: dict[str, object] = {"attention": True, "context": "full"}
            if head.kind == "segments":
                needed["history"] = "output"
            wrong = [name for name, value in needed.items() if getattr(head, name) != value]
            if wrong:
                raise ConfigError(
                    f"head.input_feeding is true, but head.{wrong[0]} is {getattr(head, wrong[0])}: what is fed to the "
                    f"next step is what was attended to before, after all preceding words. Set head.{wrong[0]}: "
                    f"{str(needed[wrong[0]]).lower()}, or leave input_feeding out."
                )
        if head.max_phrase_length > 1 and head.attention:
            raise ConfigError(
                f"head.max_phrase_length is {head.max_phrase_length}, but head.attention is true, and attention would "
                "read other cells in every choice of phrases. Leave one of them out."
            )
        if head.max_phrase_length > 1 and reorderer.kind == "labelled":
            raise ConfigError(
                f"head.max_phrase_length is {head.max_phrase_length}, but reorderer.kind is labelled, whose labels "
                "belong to single words. Use reorderer.kind: separable, or leave max_phrase_length out."
            )
        if exact and head.kind == "tagging" and head.encoder.kind != "none":
            raise ConfigError(
                f"reorderer.objective is exact, but head.encoder.kind is {head.encoder.kind}, which mixes the words of "
                "the reordered sentence. Use head.encoder: {kind: none}, or reorderer.objective: soft."
            )
        if reorderer.kind == "labelled" and reorderer.normal_form:
            raise ConfigError(
                "reorderer.normal_form is true, but reorderer.kind is labelled: a normal form forbids rules that "
                "labels need. Leave normal_form out, or choose reorderer.kind: separable."
            )

    def _require_prunable(self) -> None:
        """Check that the likelihood is a sum that can be pruned: one over plain trees whose leaves are words."""
        reorderer, head = self.reorderer, self.head
        needed: dict[str, tuple[object, object]] = {
            "head.kind": (head.kind, "segments"),
            "head.max_phrase_length": (head.max_phrase_length, 1),
            "reorderer.kind": (reorderer.kind, "separable"),
            "reorderer.objective": (reorderer.objective, "exact"),
            "reorderer.normal_form": (reorderer.normal_form, False),
        }
        for name, (value, expected) in needed.items():
            if value != expected:
                raise ConfigError(
                    f"head.pruning_threshold is {head.pruning_threshold:g}, but {name} is {str(value).lower()}, and "
                    f"only sums over plain trees whose leaves are words can be pruned. Set {name}: "
                    f"{str(expected).lower()}, or leave pruning_threshold out."
                )

    def _require_embeddings(self) -> None:
        """Check that the reorderer's embeddings have exactly one source, and are contextual if it has no encoder."""
        reorderer, head = self.reorderer, self.head
        embeds = reorderer.has_embeddings
        shared = embeds and reorderer.shared_embeddings
        if reorderer.pretrained and not embeds:
            raise ConfigError(
                f"reorderer.pretrained is {reorderer.pretrained}, but reorderer.kind {reorderer.kind} has no "
                "embeddings. Set head.pretrained, or choose reorderer.kind: separable, labelled or sinkhorn."
            )
        if reorderer.pretrained and shared:
            raise ConfigError(
                "reorderer.pretrained and reorderer.shared_embeddings both determine the reorderer's embeddings. "
                "Set one of them; to share a pretrained model, set head.pretrained and reorderer.shared_embeddings."
            )
        contextual = reorderer.pretrained or (shared and head.pretrained)
        if reorderer.uses_encoder and reorderer.encoder.kind == "none" and not contextual:
            raise ConfigError(
                "reorderer.encoder.kind is none, but the reorderer's embeddings have no context. Set "
                "reorderer.pretrained, or choose reorderer.encoder.kind: bilstm or transformer."
            )
        if shared and not head.pretrained and reorderer.embedding_dim != head.embedding_dim:
            raise ConfigError(
                f"reorderer.shared_embeddings needs embeddings of one size, but reorderer.embedding_dim is "
                f"{reorderer.embedding_dim} and head.embedding_dim {head.embedding_dim}. Set "
                f"reorderer.embedding_dim: {head.embedding_dim}."
            )

    def _require_sizes(self) -> None:
        """Check that states can be divided into two halves, or into the heads of a Transformer."""
        encoders = {"head.encoder": self.head.encoder}
        if self.reorderer.uses_encoder:
            encoders["reorderer.encoder"] = self.reorderer.encoder
        for name, encoder in encoders.items():
            size = encoder.hidden_size
            if encoder.kind != "none" and encoder.kind in ENCODERS.built_in and size % 2:
                raise ConfigError(f"{name}.hidden_size is {size}, but must be even: states have two halves.")
            if encoder.kind == "prefix_sum" and encoder.num_sums >= size // 2:
                raise ConfigError(
                    f"{name}.num_sums is {encoder.num_sums}, but {name}.hidden_size {size} has room for fewer than "
                    f"{size // 2}. Raise hidden_size, or lower num_sums."
                )
            if encoder.kind == "transformer" and size % encoder.num_heads:
                raise ConfigError(
                    f"{name}.hidden_size is {size}, but must be a multiple of {name}.num_heads, {encoder.num_heads}."
                )

    def _require_inverse(self) -> None:
        """Check that the options of the inverse model are valid by themselves, and that it is not pretrained."""
        if self.inverse is None:
            return
        if self.inverse.head.copy_mechanism:
            raise ConfigError(
                "model.inverse.head.copy_mechanism is true, but an inverse model only scores outputs, and cannot copy. "
                "Set copy_mechanism in model.head alone."
            )
        if self.inverse.reorderer.pretrained or self.inverse.head.pretrained:
            raise ConfigError(
                "model.inverse has a pretrained part, but an inverse model cannot have one. Leave pretrained out."
            )
        try:
            ModelOptions(reorderer=self.inverse.reorderer, head=self.inverse.head).require_fit()
        except ConfigError as error:
            raise ConfigError(f"in model.inverse: {error}") from None
