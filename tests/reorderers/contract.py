"""A batch and an encoder that the tests of all reorderers share."""

import torch
from tests.structures.contract import seeded

from permalign.models.build_parts import build_encoder
from permalign.options.model import EncoderOptions
from permalign.reorderers import SourceEncoder

VOCAB_SIZE, EMBEDDING_DIM, HIDDEN_SIZE, STATE_SIZE = 12, 6, 8, 5


def source_encoder(embeddings=None, embedding_dim=EMBEDDING_DIM, **options):
    """A small encoder of source sentences, over given embeddings or new ones."""
    if embeddings is None:
        embeddings = torch.nn.Embedding(VOCAB_SIZE, embedding_dim)
    options = EncoderOptions(**{"hidden_size": HIDDEN_SIZE, "dropout": 0.0, **options})
    return SourceEncoder(embeddings, build_encoder(options, embeddings.embedding_dim))


def batch(*lengths):
    """Token ids, lengths, and a head's states; what stands at padding should not matter."""
    size = max(lengths)
    source = torch.randint(4, VOCAB_SIZE, (len(lengths), size), generator=seeded(size))
    states = torch.randn(len(lengths), size, STATE_SIZE, dtype=torch.float64, generator=seeded(size + 1))
    return source, torch.tensor(lengths), states


def alone(batch, row):
    """One sentence of a batch, without padding."""
    source, lengths, states = batch
    length = int(lengths[row])
    return source[row : row + 1, :length], lengths[row : row + 1], states[row : row + 1, :length]
