"""How a reorderer reads the source: word embeddings, and an encoder over them."""

from typing import cast

from torch import Tensor, nn

from permalign.checks import require_lengths, require_range
from permalign.encoders.base import Encoder
from permalign.masks import padding_mask
from permalign.shapes import Float, Int
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, SPECIALS


class SourceEncoder(nn.Module):
    """Maps token ids to states in context.

    Args:
        embeddings: maps token ids ``(batch, n)`` to vectors, and has the attributes `num_embeddings` and
            `embedding_dim`: a `torch.nn.Embedding`, the reorderer's own or the head's, or the contextual embeddings of
            a pretrained model.
        encoder: puts the embeddings into context; None for embeddings that have context already.

    Attributes:
        hidden_size: the size of its states.
    """

    def __init__(self, embeddings: nn.Module, encoder: Encoder | None) -> None:
        super().__init__()
        vocab_size, embedding_dim = cast(int, embeddings.num_embeddings), cast(int, embeddings.embedding_dim)
        if vocab_size <= len(SPECIALS):
            raise ValueError(
                f"embeddings has num_embeddings {vocab_size}, but a vocabulary holds {len(SPECIALS)} special tokens "
                "and at least one word. Build it with len(vocabulary)."
            )
        if encoder is not None and encoder.input_size != embedding_dim:
            raise ValueError(
                f"encoder has input_size {encoder.input_size}, but embeddings has embedding_dim {embedding_dim}. Build "
                "the encoder for these embeddings."
            )
        self.embeddings, self.encoder = embeddings, encoder
        self.hidden_size = embedding_dim if encoder is None else encoder.hidden_size

    def forward(
        self, source: Int[Tensor, "batch n"], lengths: Int[Tensor, " batch"], add_boundaries: bool = False
    ) -> Float[Tensor, "batch posts hidden_size"]:
        """Compute the states of the words, zero at padding.

        Args:
            source: token ids; those at padding are ignored.
            lengths: the lengths of the sentences.
            add_boundaries: read ``BEGIN x END`` instead of ``x``, which gives n + 2 states; END follows the last word
                of each sentence directly.
        """
        require_lengths("lengths", lengths, "source", source, source.shape[1])
        require_range("lengths", lengths, "source", source, source.shape[1])
        tokens = source.masked_fill(padding_mask(lengths, source.shape[1]), PADDING_ID)
        if add_boundaries:
            tokens, lengths = _with_boundaries(tokens, lengths), lengths + 2
        embedded: Tensor = self.embeddings(tokens)
        if self.encoder is not None:
            return self.encoder(embedded, lengths)
        return embedded.masked_fill(padding_mask(lengths, embedded.shape[1])[..., None], 0)


def _with_boundaries(source: Tensor, lengths: Tensor) -> Tensor:
    padded = nn.functional.pad(source, (1, 1), value=PADDING_ID)
    padded[:, 0] = BEGIN_ID
    return padded.scatter(1, (lengths + 1)[:, None], END_ID)
