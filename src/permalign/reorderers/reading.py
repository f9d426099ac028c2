"""How a reorderer reads the source: embeddings of its own (or shared ones), and an encoder over them."""

from typing import cast

from torch import Tensor, nn

from permalign.checks import require_at_least_one, require_lengths, require_range
from permalign.encoders import make_encoder
from permalign.encoders.base import padding
from permalign.shapes import Float, Int
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, SPECIALS


class SourceReader(nn.Module):
    """From word numbers to states in context.

    Args:
        words: the size of the vocabulary, with the specials.
        embedding: the width of the words' vectors.
        embeddings: vectors to share with a head, or words in the context of a pretrained model; None makes new ones.
            Anything that maps numbers ``(batch, n)`` to vectors and tells `num_embeddings` and `embedding_dim`.
        encoder: ``bilstm``, ``transformer``, ``sums``, or ``none`` where the vectors have their context already.
        width: of the states.
        layers: of the encoder.
        attention_heads: of a Transformer.
        dropout: of the encoder.
        sums: of an encoder that sums.
    """

    def __init__(
        self,
        words: int,
        embedding: int,
        *,
        embeddings: nn.Module | None = None,
        encoder: str = "bilstm",
        width: int = 256,
        layers: int = 1,
        attention_heads: int = 4,
        dropout: float = 0.0,
        sums: int = 4,
    ) -> None:
        super().__init__()
        require_at_least_one(embedding=embedding)
        if words <= len(SPECIALS):
            raise ValueError(
                f"words is {words}, but a vocabulary holds {len(SPECIALS)} specials and at least one word. "
                "Pass len(vocabulary)."
            )
        if embeddings is not None:
            _require_sizes(embeddings, words, embedding)
        self.words, self.width = words, width
        self.embeddings = nn.Embedding(words, embedding) if embeddings is None else embeddings
        self.encoder = make_encoder(encoder, embedding, width, layers, attention_heads, dropout, sums)

    def forward(
        self, source: Int[Tensor, "batch n"], lengths: Int[Tensor, " batch"], fences: bool = False
    ) -> Float[Tensor, "batch posts width"]:
        """States of the words, zero at padding; with ``fences`` also of a begin before and an end after each sentence.

        Args:
            source: word numbers, padded with anything.
            lengths: of the sentences.
            fences: read ``BEGIN x END``, so that there are n + 2 states; END follows the last word at once.
        """
        require_lengths("lengths", lengths, "source", source, source.shape[1])
        require_range("lengths", lengths, "source", source, source.shape[1])
        words = source.masked_fill(padding(lengths, source.shape[1]), PADDING_ID)
        if fences:
            words, lengths = _fenced(words, lengths), lengths + 2
        return cast(Tensor, self.encoder(self.embeddings(words), lengths))


def _fenced(source: Tensor, lengths: Tensor) -> Tensor:
    fenced = nn.functional.pad(source, (1, 1), value=PADDING_ID)
    fenced[:, 0] = BEGIN_ID
    return fenced.scatter(1, (lengths + 1)[:, None], END_ID)


def _require_sizes(embeddings: nn.Module, words: int, embedding: int) -> None:
    found = (getattr(embeddings, "num_embeddings", None), getattr(embeddings, "embedding_dim", None))
    if found != (words, embedding):
        raise ValueError(
            f"embeddings has num_embeddings and embedding_dim {found}, but words and embedding are "
            f"{(words, embedding)}. Shared embeddings must have the sizes the reorderer is built with."
        )
