"""Every option of a model: its type, default, range and meaning.

A config is a nested mapping (YAML, JSON or Python) that holds only what differs from the defaults:

>>> options = ModelOptions.parse({"reorderer": {"kind": "separable"}, "head": {"kind": "ssnt", "context": 1}})
>>> options.reorderer.objective, options.head.embedding
('soft', 128)
>>> ModelOptions.parse({"head": {"contxt": 1}})
Traceback (most recent call last):
permalign.errors.ConfigError: head.contxt is no option; did you mean head.context?
"""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from permalign.errors import ConfigError

Width = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
Pretrained = Annotated[
    str | None,
    Field(
        min_length=1,
        description="name or folder of a Hugging Face model whose words in context replace its own word embeddings; "
        "needs the extra hf and a word vocabulary",
    ),
]


class Options(BaseModel):
    """Options that know their names, and take no others."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Check values against the options; a `ConfigError` names the first wrong one, and the nearest right one."""
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(_first_fault(cls, error)) from None


class EncoderOptions(Options):
    """States of words in context."""

    kind: Literal["none", "bilstm", "transformer", "sums", "window"] = Field(
        "bilstm",
        description="none passes states through; bilstm is the paper's; sums counts words; window sees neighbours",
    )
    width: Width = Field(
        256,
        description="of its states; even, for a bilstm half for each direction, for a window half for the word",
    )
    layers: Width = 1
    dropout: Rate = Field(0.1, description="on its input and between layers")
    attention_heads: Width = Field(4, description="of a transformer")
    sums: Width = Field(4, description="of an encoder that sums: how many, from either side")
    reach: Width = Field(1, description="of a window, to either side")


class ReordererOptions(Options):
    """What puts source words into a new order before the head reads them."""

    kind: Literal["none", "separable", "labelled", "sinkhorn", "local"] = "none"
    embedding: Width = Field(
        128, description="of its own word embeddings; a pretrained model brings its width"
    )
    pretrained: Pretrained = None
    shared_embeddings: bool = Field(False, description="read the head's word embeddings instead of its own")
    encoder: Literal["none", "bilstm", "transformer", "sums"] = Field(
        "bilstm",
        description="bilstm is the paper's; sums counts words, at any depth; none takes the words of a pretrained "
        "model as they are",
    )
    width: Width = Field(
        256,
        description="of its encoder's states; even, half for each direction; with none, the pretrained model's",
    )
    layers: Width = Field(1, description="of its encoder")
    attention_heads: Width = Field(4, description="of a transformer")
    sums: Width = Field(4, description="of an encoder that sums: how many, from either side")
    hidden: Width = Field(512, description="units of the split scorer (separable; labelled: split_scores)")
    dropout: Rate = Field(
        0.1, description="on the encoder's input, and on the split scorer's units for every split"
    )
    objective: Literal["soft", "hard", "samples", "exact"] = Field(
        "soft",
        description="separable, labelled: expected permutation; one straight-through sample; a bound by several "
        "samples; the true likelihood (with a head of tagging or segments)",
    )
    straight: Literal["scored", "free"] = Field(
        "scored",
        description="separable: whether straight rules have scores of their own, or only inverted ones cost or gain",
    )
    temperature: float = Field(
        1.0, gt=0.0, description="of Gumbel samples (objectives hard, samples) or of sinkhorn"
    )
    samples: Width = Field(4, description="how many (objective samples)")
    decoding: Literal["greedy", "viterbi", "permutation", "marginal"] = Field(
        "viterbi",
        description="separable, labelled, at test time: locally best rules as in the paper; best derivation; best "
        "permutation; the expected permutation as it is",
    )
    normal_form: bool = Field(False, description="separable: one derivation for each permutation")
    inversion_rate: float | None = Field(
        None, gt=0.0, lt=1.0, description="separable, labelled: prior rate of inverted rules"
    )
    inversion_weight: float = Field(0.0, ge=0.0, description="of the inversion prior in the loss")
    labels: Width = Field(8, description="labelled: how many latent labels")
    features: Literal["token", "encoding"] = Field(
        "token",
        description="labelled: what a word's label weights come from, itself (no encoder at all) or its encoding",
    )
    split_scores: bool = Field(False, description="labelled: add scores of splits, read from the encoding")
    label_scale: float = Field(0.5, gt=0.0, description="labelled: standard deviation of the initial weights")
    iterations: Width = Field(32, description="sinkhorn: row and column normalisations")
    hungarian: bool = Field(
        False, description="sinkhorn, at test time: the best matching instead of the relaxed one"
    )
    reach: Width = Field(3, description="local: neighbours on each side")

    @property
    def encodes(self) -> bool:
        """Whether it reads source words in their context."""
        if self.kind == "labelled":
            return self.features == "encoding" or self.split_scores
        return self.kind in ("separable", "sinkhorn")


class HeadOptions(Options):
    """What writes the output."""

    kind: Literal["tagging", "attention", "syntactic_attention", "ssnt", "swan", "segments"] = "ssnt"
    embedding: Width = Field(
        128,
        description="of the source words it reads (a pretrained model brings its width), and of those it has written",
    )
    pretrained: Pretrained = None
    embedding_dropout: Rate = 0.1
    encoder: EncoderOptions = Field(
        EncoderOptions(),
        description="reads the reordered sentence; with segments summed over all orders (exact), the original one",
    )
    hidden: Width = Field(256, description="of its decoder")
    layers: Width = Field(1, description="of its decoder")
    dropout: Rate = Field(0.1, description="of its decoder")
    label_smoothing: Rate = 0.0
    context: Literal["full"] | Width = Field(
        "full",
        description="what it remembers of its own output, all of it or the last words; segments: see history",
    )
    longest_segment: Width = Field(4, description="swan, segments: how many words one source word may write")
    history: Literal["segment", "output"] = Field(
        "segment",
        description="segments: whose words the context is of, the segment's own or the whole output's",
    )
    longest_phrase: Width = Field(
        1,
        description="segments summed over all orders: how many source words may write one segment together",
    )


class BackOptions(Options):
    """A model of the way back: from an output to the sentence it came from."""

    weight: float = Field(
        1.0,
        ge=0.0,
        description="of the sentence's log-likelihood given an output, when several outputs were found and are ranked",
    )
    reorderer: ReordererOptions = ReordererOptions()
    head: HeadOptions = HeadOptions()


class ModelOptions(Options):
    """A reorderer times a head; if answers are to be read back, another of each; and how many of all that."""

    reorderer: ReordererOptions = ReordererOptions()
    head: HeadOptions = HeadOptions()
    back: BackOptions | None = Field(
        None,
        description="reads outputs back to the sentence to rank them; learned beside the rest",
    )
    together: Width = Field(
        1,
        description="how many such models answer together, by the mean of their probabilities; learned side by side, "
        "and the loss is the sum of theirs",
    )

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Check values, and that this reorderer and this head can work together."""
        options = super().parse(values)
        options.require_fit()
        return options

    @property
    def sums_over_orders(self) -> bool:
        """Whether the likelihood is summed over all orders (the exact objective)."""
        return self.reorderer.kind in ("separable", "labelled") and self.reorderer.objective == "exact"

    def require_fit(self) -> None:
        """A `ConfigError` for a pair that does not make sense, with the reason and the nearest one that does."""
        reorderer, head = self.reorderer, self.head
        exact = self.sums_over_orders
        if exact and head.kind not in ("tagging", "segments"):
            raise ConfigError(
                f"reorderer.objective is exact, but head.kind is {head.kind}: the exact sum over orders needs words "
                "that depend on one source word each, and this head reads the whole reordered sentence. Use "
                "reorderer.objective: samples (a bound on the same likelihood), or head.kind: tagging or "
                "segments."
            )
        if head.longest_phrase > 1 and not (exact and head.kind == "segments"):
            raise ConfigError(
                f"head.longest_phrase is {head.longest_phrase}, but phrases are leaves of the trees that segments are "
                "summed over. Use head.kind: segments with reorderer.objective: exact, or leave longest_phrase out."
            )
        if head.longest_phrase > 1 and reorderer.kind == "labelled":
            raise ConfigError(
                f"head.longest_phrase is {head.longest_phrase}, but reorderer.kind is labelled, whose labels belong to "
                "single words. Use reorderer.kind: separable, or leave longest_phrase out."
            )
        if exact and head.kind == "tagging" and head.encoder.kind != "none":
            raise ConfigError(
                f"reorderer.objective is exact, but head.encoder.kind is {head.encoder.kind}, which mixes the words of "
                "the reordered sentence. Use head.encoder: {kind: none}, or reorderer.objective: soft."
            )
        if reorderer.kind == "labelled" and reorderer.normal_form:
            raise ConfigError(
                "reorderer.normal_form is true, but reorderer.kind is labelled: forbidding rules by orientation would "
                "take from labels what they are for. Leave normal_form out, or choose reorderer.kind: separable."
            )
        self._require_words()
        self._require_widths()
        self._require_way_back()
        if self.together > 1 and (reorderer.pretrained or head.pretrained):
            raise ConfigError(
                f"model.together is {self.together}, but a part is pretrained, and would be learned as often. Leave "
                "one of them out."
            )
        if (reorderer.inversion_weight > 0) != (reorderer.inversion_rate is not None):
            raise ConfigError(
                "reorderer.inversion_rate and reorderer.inversion_weight go together; set both, or neither."
            )

    def _require_way_back(self) -> None:
        """What reads outputs back is a model of its own."""
        if self.back is None:
            return
        if self.back.reorderer.pretrained or self.back.head.pretrained:
            raise ConfigError(
                "model.back has a pretrained part, but only the way there can have one. Leave pretrained out there."
            )
        try:
            ModelOptions(reorderer=self.back.reorderer, head=self.back.head).require_fit()
        except ConfigError as error:
            raise ConfigError(f"in model.back: {error}") from None

    def _require_widths(self) -> None:
        """Two directions of a BiLSTM, and the heads of a Transformer, share a width equally."""
        parts: dict[str, EncoderOptions | ReordererOptions] = {"head.encoder": self.head.encoder}
        if self.reorderer.encodes:
            parts["reorderer"] = self.reorderer
        for name, part in parts.items():
            kind = part.encoder if isinstance(part, ReordererOptions) else part.kind
            if kind != "none" and part.width % 2:
                raise ConfigError(
                    f"{name}.width is {part.width}, but must be even: a half for each direction."
                )
            if kind == "sums" and part.sums >= part.width // 2:
                raise ConfigError(
                    f"{name}.sums is {part.sums}, but {name}.width {part.width} has room for fewer than "
                    f"{part.width // 2}. Raise the width, or sum less."
                )
            if kind == "transformer" and part.width % part.attention_heads:
                raise ConfigError(
                    f"{name}.width is {part.width}, but must be a multiple of {name}.attention_heads, "
                    f"{part.attention_heads}."
                )

    def _require_words(self) -> None:
        """The reorderer's words come from one place, and have their context where nothing else gives it."""
        reorderer, head = self.reorderer, self.head
        reads = reorderer.kind in ("separable", "labelled", "sinkhorn")
        shared = reads and reorderer.shared_embeddings
        if reorderer.pretrained and not reads:
            raise ConfigError(
                f"reorderer.pretrained is {reorderer.pretrained}, but reorderer.kind {reorderer.kind} reads no words "
                "of its own. Set head.pretrained, or choose reorderer.kind: separable, labelled or sinkhorn."
            )
        if reorderer.pretrained and shared:
            raise ConfigError(
                "reorderer.pretrained and reorderer.shared_embeddings both say where its words come from. "
                "Set one of them; to share a pretrained model, set head.pretrained and reorderer.shared_embeddings."
            )
        if (
            reorderer.encodes
            and reorderer.encoder == "none"
            and not (reorderer.pretrained or (shared and head.pretrained))
        ):
            raise ConfigError(
                "reorderer.encoder is none, but its word embeddings know no context. "
                "Set reorderer.pretrained, or choose reorderer.encoder: bilstm or transformer."
            )
        if shared and not head.pretrained and reorderer.embedding != head.embedding:
            raise ConfigError(
                f"reorderer.shared_embeddings needs one width, but reorderer.embedding is {reorderer.embedding} and "
                f"head.embedding {head.embedding}. Set reorderer.embedding: {head.embedding}."
            )


def _first_fault(cls: type[Options], error: ValidationError) -> str:
    """What is wrong first, in plain words."""
    faults = error.errors()
    typos = [fault for fault in faults if fault["type"] == "extra_forbidden"]
    fault = (typos or faults)[0]  # what a typo meant is missing, too
    place = [str(part) for part in fault["loc"] if not str(part).startswith(("literal", "constrained"))]
    if fault["type"] == "missing":
        return f"{'.'.join(place)} is missing."
    if fault["type"] in ("model_type", "model_attributes_type"):
        return (
            f"{'.'.join(place)} is {fault['input']!r}: expected options with their values, or leave it out."
        )
    if fault["type"] != "extra_forbidden":
        return f"{'.'.join(place)} is {fault['input']!r}: {fault['msg'].lower()}."
    *parents, name = place
    owner = cls
    for parent in parents:
        if not parent.isdigit():  # the place in a list
            owner = _options_in(owner.model_fields[parent].annotation)
    near = get_close_matches(name, owner.model_fields, n=1)
    prefix = "".join(f"{parent}." for parent in parents)
    known = ", ".join(owner.model_fields)
    hint = f"did you mean {prefix}{near[0]}?" if near else f"choose from {known}."
    return f"{prefix}{name} is no option; {hint}"


def _options_in(annotation: Any) -> type[Options]:
    """The class of the options that a field holds, itself or in a list."""
    inner: type[Options] = next(iter(get_args(annotation)), annotation)
    return inner
