"""A pretrained model from Hugging Face as an encoder of words."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from permalign.checks import shape_of
from permalign.errors import PermalignError, excerpt
from permalign.hub import hub_has_address
from permalign.precision import in_low_precision
from permalign.shapes import Float, Int
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, SPECIALS, UNKNOWN_ID

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Pooling = Literal["mean", "first"]

IN_PACKAGE = "package:"
"""What the name of a pretrained model begins with that is part of an installed Python package."""


class HuggingFaceEncoder(nn.Module):
    """A pretrained model that computes one state for each word.

    The tokenizer splits words into subwords; a word's state is the mean of its subwords' states, or that of its first
    subword. A word for which the tokenizer has no subword (a lone control character, say) is read as its unknown
    token. The special tokens that the model puts around a sentence provide context, but have no states.

    Args:
        model: a model whose output has a ``last_hidden_state``.
        tokenizer: the fast tokenizer of the model, which knows the word of each subword.
        pooling: how the states of a word's subwords become one state: ``mean`` or ``first``.
    """

    def __init__(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", pooling: Pooling = "mean"
    ) -> None:
        super().__init__()
        if pooling not in get_args(Pooling):
            raise ValueError(f"pooling is {pooling!r}, but must be one of {', '.join(get_args(Pooling))}.")
        if not tokenizer.is_fast:
            raise ValueError(
                f"{type(tokenizer).__name__} does not know which word a subword belongs to. "
                "Load the fast tokenizer of this model."
            )
        if tokenizer.pad_token is None or tokenizer.unk_token is None:
            raise ValueError(
                "the tokenizer must have a padding and an unknown token. Set tokenizer.pad_token and "
                "tokenizer.unk_token (the end-of-text token will do for both)."
            )
        self.model, self.tokenizer, self.pooling = model, tokenizer, pooling
        self.hidden_size = int(model.config.hidden_size)

    @classmethod
    def from_pretrained(cls, name: str | Path, pooling: Pooling = "mean") -> "HuggingFaceEncoder":
        """Load a model and its tokenizer from a folder or from the hub.

        A decoder or a pooler is left out, because nothing uses it.

        Args:
            name: a folder, a model's name on the hub, or ``package:NAME/FOLDER`` for a folder of an installed package.
            pooling: how the states of a word's subwords become one state.

        Raises:
            PermalignError: transformers is not installed, or there is no such model.
        """
        model, tokenizer = _load("AutoModel", name), load_tokenizer(name)
        if model.config.is_encoder_decoder:
            model = model.get_encoder()
        if isinstance(getattr(model, "pooler", None), nn.Module):
            model.pooler = None
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        return cls(model, tokenizer, pooling)

    def forward(
        self, sentences: Sequence[Sequence[str]], add_special_tokens: bool = True
    ) -> Float[Tensor, "batch n hidden_size"]:
        """Compute one state for each word, zero at padding.

        Args:
            sentences: the words of the sentences; each has at least one.
            add_special_tokens: whether the tokenizer adds the model's special tokens around each sentence.
        """
        if not sentences or not all(sentences):
            raise ValueError(
                "sentences must hold at least one sentence, and each sentence at least one word."
            )
        encoded, word_indices = self._tokenize(sentences, add_special_tokens)
        device = next(self.model.parameters()).device
        inputs = {name: tensor.to(device) for name, tensor in encoded.items()}
        states = in_low_precision(self._run, inputs.pop("input_ids"), inputs)  # (batch, subword, hidden_size)
        return self._pool(states, word_indices.to(device), max(map(len, sentences)))

    def _run(self, input_ids: Tensor, others: dict[str, Tensor]) -> Tensor:
        states: Tensor = self.model(input_ids=input_ids, **others).last_hidden_state
        return states

    def _tokenize(self, sentences: Sequence[Sequence[str]], add_special_tokens: bool) -> tuple[Any, Tensor]:
        """The model's input, and the index of each subword's word ``(batch, subword)``, -1 for special tokens."""
        encoded = self._split_words(sentences, add_special_tokens)
        covered = [set(encoded.word_ids(row)) - {None} for row in range(len(sentences))]
        if any(len(indices) < len(sentence) for indices, sentence in zip(covered, sentences, strict=True)):
            # Words without any subword would have no state.
            sentences = [
                [
                    word if index in indices else self.tokenizer.unk_token
                    for index, word in enumerate(sentence)
                ]
                for indices, sentence in zip(covered, sentences, strict=True)
            ]
            encoded = self._split_words(sentences, add_special_tokens)
        self._require_length(encoded)
        rows = [encoded.word_ids(row) for row in range(len(sentences))]
        return encoded, torch.tensor([[-1 if word is None else word for word in row] for row in rows])

    def _split_words(self, sentences: Sequence[Sequence[str]], add_special_tokens: bool) -> Any:
        return self.tokenizer(
            [list(sentence) for sentence in sentences],
            is_split_into_words=True,
            add_special_tokens=add_special_tokens,
            padding=True,
            padding_side="right",
            return_tensors="pt",
        )

    def _require_length(self, encoded: Any) -> None:
        length = int(encoded["attention_mask"].sum(1).max())
        max_length = min(
            getattr(self.model.config, "max_position_embeddings", None) or length,
            self.tokenizer.model_max_length,
        )
        if length > max_length:
            raise ValueError(
                f"a sentence has {length} subwords, but the model reads at most {max_length}. Leave out longer "
                "sentences, or use a model for longer ones."
            )

    def _pool(self, states: Tensor, word_indices: Tensor, words: int) -> Tensor:
        """Pool the states of every word's subwords, by weights ``(batch, word, subword)``."""
        belongs = word_indices[:, None] == torch.arange(words, device=word_indices.device)[:, None]
        if self.pooling == "first":
            belongs = belongs & (belongs.cumsum(2) == 1)
        weights = belongs.to(states) / belongs.sum(2, keepdim=True).clamp(min=1)
        return weights @ states


def load_tokenizer(name: str | Path) -> "PreTrainedTokenizerBase":
    """Load the tokenizer of a pretrained model from a folder or from the hub.

    Raises:
        PermalignError: transformers is not installed, or there is no such model.
    """
    # Byte-level tokenizers accept pre-split words only with a space before each; others ignore this.
    tokenizer: PreTrainedTokenizerBase = _load("AutoTokenizer", name, add_prefix_space=True)
    return tokenizer


def _load(kind: str, name: str | Path, **options: Any) -> Any:
    """Load a part of a pretrained model with a class of transformers."""
    try:
        import transformers
    except ImportError:
        raise PermalignError(
            'A pretrained encoder needs transformers: pip install "permalign[hf]".'
        ) from None
    if str(name).startswith(IN_PACKAGE):
        name = _folder_in_package(str(name))
    is_folder = Path(name).is_dir()
    if not is_folder and not hub_has_address():  # the hub's client would try again for half a minute
        options["local_files_only"] = True
    try:
        with _without_progress_bars() if is_folder else nullcontext():
            return getattr(transformers, kind).from_pretrained(name, **options)
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise PermalignError(
            f"{name} cannot be loaded as a pretrained encoder: {reason} "
            "Pass the folder of a saved model, or its name on the hub."
        ) from error


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    """Load weights silently; only downloads take so long that their progress is worth watching."""
    from transformers.utils import logging

    switches: Any = logging  # its functions have no types
    were_enabled = switches.is_progress_bar_enabled()
    switches.disable_progress_bar()
    try:
        yield
    finally:
        if were_enabled:
            switches.enable_progress_bar()


def _folder_in_package(name: str) -> Path:
    """The folder that a name such as ``package:some_package/model`` stands for; the package is not imported.

    Raises:
        PermalignError: the package is not installed, or has no such folder.
    """
    package, _, folder = name.removeprefix(IN_PACKAGE).partition("/")
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or not spec.submodule_search_locations:
        raise PermalignError(f"{name} cannot be loaded: there is no installed package {excerpt(package)}.")
    path = Path(spec.submodule_search_locations[0], folder)
    if not path.is_dir():
        raise PermalignError(
            f"{name} cannot be loaded: the package {package} has no folder {excerpt(folder)}."
        )
    return path


def whole_words(tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """The words that a tokenizer keeps whole, in alphabetical order.

    Args:
        tokenizer: the fast tokenizer of a pretrained model.
    """
    special = {*tokenizer.all_special_tokens}
    pieces = {str(tokenizer.decode([token_id])).strip() for token_id in range(len(tokenizer))}
    words = sorted(piece for piece in pieces - special if len(piece.split()) == 1)
    encoded = tokenizer([[word] for word in words], is_split_into_words=True, add_special_tokens=False)
    unknown = tokenizer.unk_token_id
    return [
        word
        for word, ids in zip(words, encoded["input_ids"], strict=True)
        if len(ids) == 1 and ids != [unknown]
    ]


class ContextualEmbeddings(nn.Module):
    """A `HuggingFaceEncoder` that takes token ids, so that it can replace a `torch.nn.Embedding`.

    Reorderers and heads know words by their token ids only. This looks up the words of the ids and encodes them; where
    entities are linked, it reads the kind of an entity (``cityid``) as a word. A word outside the vocabulary cannot be
    looked up, whatever the pretrained model knows about it: it is read as the tokenizer's unknown token. BEGIN and END
    are read as the tokenizer's own tokens for them, and sentences that have a BEGIN get no further special tokens.
    Words are split into subwords again in every call.

    Args:
        encoder: the encoder of the words.
        tokens: the words of the vocabulary in the order of their ids: `Vocabulary.tokens` or `EntityVocabulary.tokens`.
    """

    def __init__(self, encoder: HuggingFaceEncoder, tokens: Sequence[str]) -> None:
        super().__init__()
        if tuple(tokens[: len(SPECIALS)]) != SPECIALS:
            raise ValueError(f"tokens must begin with {SPECIALS}. Pass the tokens of a vocabulary.")
        self.encoder = encoder
        self.num_embeddings, self.embedding_dim = len(tokens), encoder.hidden_size
        tokenizer = encoder.tokenizer
        unknown = str(tokenizer.unk_token)
        self._words = list(tokens)
        self._words[UNKNOWN_ID] = unknown
        self._words[BEGIN_ID] = str(tokenizer.cls_token or tokenizer.bos_token or unknown)
        self._words[END_ID] = str(tokenizer.sep_token or tokenizer.eos_token or unknown)

    def forward(self, source: Int[Tensor, "batch n"]) -> Float[Tensor, "batch n hidden_size"]:
        """Compute one vector for each word, zero at padding, which comes last and has the id of PADDING."""
        rows = source.tolist()
        sentences = [[self._words[token_id] for token_id in row if token_id != PADDING_ID] for row in rows]
        if any(PADDING_ID in row[: len(words)] for row, words in zip(rows, sentences, strict=True)):
            raise ValueError(f"source {shape_of(source)} has padding before a word. Pad at the end.")
        has_begin = all(row[0] == BEGIN_ID for row in rows)
        states = self.encoder(sentences, add_special_tokens=not has_begin)
        return nn.functional.pad(states, (0, 0, 0, source.shape[1] - states.shape[1]))
