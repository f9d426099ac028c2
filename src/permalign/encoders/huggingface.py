"""Words in the context of a pretrained model from Hugging Face, its sub-words pooled to words."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from permalign.checks import shape_of
from permalign.errors import PermalignError
from permalign.shapes import Float, Int
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, SPECIALS, UNKNOWN_ID

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Pooling = Literal["mean", "first"]


class HuggingFaceEncoder(nn.Module):
    """A pretrained model that reads words as strings and gives one state for each.

    The tokenizer cuts words into pieces; a word's state is the mean of its pieces' states, or that of its first piece.
    A word the tokenizer has nothing for (a lone control character, say) is read as its unknown token. The tokens
    that the model puts around a sentence give context, but no state.

    Args:
        model: whose output has a ``last_hidden_state``.
        tokenizer: the model's, of the fast kind, which remembers the word of each piece.
        pooling: ``mean`` or ``first``.
    """

    def __init__(
        self, model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", pooling: Pooling = "mean"
    ) -> None:
        super().__init__()
        if pooling not in get_args(Pooling):
            raise ValueError(f"pooling is {pooling!r}, but must be one of {', '.join(get_args(Pooling))}.")
        if not tokenizer.is_fast:
            raise ValueError(
                f"{type(tokenizer).__name__} does not tell which word a piece belongs to. "
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

        A decoder or a pooler stays behind: nothing here reads them.

        Raises:
            PermalignError: transformers is not installed, or there is no such model.
        """
        try:
            from transformers import AutoModel, AutoTokenizer
        except ImportError:
            raise PermalignError(
                'A pretrained encoder needs transformers: pip install "permalign[hf]".'
            ) from None
        try:
            model = AutoModel.from_pretrained(name)
            # Byte-level tokenizers take words one by one only with a space before each; others ignore this.
            tokenizer = AutoTokenizer.from_pretrained(name, add_prefix_space=True)
        except (OSError, ValueError) as error:
            raise PermalignError(
                f"{name} cannot be loaded as a pretrained encoder: {error} "
                "Give the folder of a saved model, or its name on the hub."
            ) from error
        if model.config.is_encoder_decoder:
            model = model.get_encoder()
        if isinstance(getattr(model, "pooler", None), nn.Module):
            model.pooler = None
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        return cls(model, tokenizer, pooling)

    def forward(
        self, sentences: Sequence[Sequence[str]], surround: bool = True
    ) -> Float[Tensor, "batch n hidden_size"]:
        """One state for each word, zero at padding.

        Args:
            sentences: words; at least one for each sentence.
            surround: let the tokenizer put the model's special tokens around each sentence; without, they are only
                where a sentence itself has them among its words.
        """
        if not sentences or not all(sentences):
            raise ValueError("sentences must be a batch of at least one, each of at least one word.")
        encoded, places = self._pieces(sentences, surround)
        device = next(self.model.parameters()).device
        inputs = {name: tensor.to(device) for name, tensor in encoded.items()}
        states = self.model(**inputs).last_hidden_state  # (batch, piece, width)
        return self._pool(states, places.to(device), max(map(len, sentences)))

    def _pieces(self, sentences: Sequence[Sequence[str]], surround: bool) -> tuple[Any, Tensor]:
        """What the model reads, and the word of each piece ``(batch, piece)``, -1 where there is none."""
        encoded = self._cut(sentences, surround)
        found = [set(encoded.word_ids(row)) for row in range(len(sentences))]
        if any(len(words - {None}) < len(sentence) for words, sentence in zip(found, sentences, strict=True)):
            known = [
                [word if place in words else self.tokenizer.unk_token for place, word in enumerate(sentence)]
                for words, sentence in zip(found, sentences, strict=True)
            ]
            encoded = self._cut(known, surround)
        self._require_room(encoded)
        rows = [encoded.word_ids(row) for row in range(len(sentences))]
        return encoded, torch.tensor([[-1 if word is None else word for word in row] for row in rows])

    def _cut(self, sentences: Sequence[Sequence[str]], surround: bool) -> Any:
        return self.tokenizer(
            [list(sentence) for sentence in sentences],
            is_split_into_words=True,
            add_special_tokens=surround,
            padding=True,
            padding_side="right",
            return_tensors="pt",
        )

    def _require_room(self, encoded: Any) -> None:
        longest = int(encoded["attention_mask"].sum(1).max())
        room = min(
            getattr(self.model.config, "max_position_embeddings", None) or longest,
            self.tokenizer.model_max_length,
        )
        if longest > room:
            raise ValueError(
                f"a sentence has {longest} pieces, but the model reads at most {room}. Leave out longer sentences, "
                "or use a model with more room."
            )

    def _pool(self, states: Tensor, places: Tensor, room: int) -> Tensor:
        """Mix the pieces of every word: weights ``(batch, word, piece)`` times states."""
        belongs = places[:, None] == torch.arange(room, device=places.device)[:, None]
        if self.pooling == "first":
            belongs = belongs & (belongs.cumsum(2) == 1)
        weights = belongs.to(states) / belongs.sum(2, keepdim=True).clamp(min=1)
        return weights @ states


class ContextualEmbeddings(nn.Module):
    """A `HuggingFaceEncoder` in the place of an `torch.nn.Embedding`: from word numbers to vectors in context.

    Reorderers and heads know words by their numbers alone. This looks the words up again and has them read, so it can
    be passed wherever embeddings can: as a separable reorderer's ``embeddings``, say, with ``encoder="none"``. A word
    that is unknown to the vocabulary cannot be found again, whatever the pretrained model knows: it is read as the
    tokenizer's unknown token. BEGIN and END are read as the tokenizer's own tokens for them; where a sentence brings
    its BEGIN, the model puts nothing around it. The text is cut anew in every call.

    Args:
        encoder: reads the words.
        tokens: the vocabulary's words in the order of their numbers, `Vocabulary.tokens`.
    """

    def __init__(self, encoder: HuggingFaceEncoder, tokens: Sequence[str]) -> None:
        super().__init__()
        if tuple(tokens[: len(SPECIALS)]) != SPECIALS:
            raise ValueError(f"tokens must begin with {SPECIALS}, as those of a vocabulary do.")
        self.encoder = encoder
        self.num_embeddings, self.embedding_dim = len(tokens), encoder.hidden_size
        tokenizer = encoder.tokenizer
        unknown = str(tokenizer.unk_token)
        self._words = list(tokens)
        self._words[UNKNOWN_ID] = unknown
        self._words[BEGIN_ID] = str(tokenizer.cls_token or tokenizer.bos_token or unknown)
        self._words[END_ID] = str(tokenizer.sep_token or tokenizer.eos_token or unknown)

    def forward(self, source: Int[Tensor, "batch n"]) -> Float[Tensor, "batch n hidden_size"]:
        """One vector for each word, zero at padding, which comes last and has the number of PADDING."""
        rows = source.tolist()
        sentences = [[self._words[number] for number in row if number != PADDING_ID] for row in rows]
        if any(PADDING_ID in row[: len(words)] for row, words in zip(rows, sentences, strict=True)):
            raise ValueError(f"source {shape_of(source)} has padding before a word. Pad at the end.")
        begun = all(row[0] == BEGIN_ID for row in rows)
        states = self.encoder(sentences, surround=not begun)
        return nn.functional.pad(states, (0, 0, 0, source.shape[1] - states.shape[1]))
