"""A batch that every reorderer's tests share."""

import torch
from tests.structures.contract import seeded

WORDS, EMBEDDING, WIDTH, STATE = 12, 6, 8, 5
SIZES = {"words": WORDS, "embedding": EMBEDDING, "width": WIDTH}


def batch(*lengths):
    """Word numbers, lengths, and a head's states; what stands at padding should not matter."""
    room = max(lengths)
    source = torch.randint(4, WORDS, (len(lengths), room), generator=seeded(room))
    states = torch.randn(len(lengths), room, STATE, dtype=torch.float64, generator=seeded(room + 1))
    return source, torch.tensor(lengths), states


def alone(batch, row):
    """One sentence of a batch, without padding."""
    source, lengths, states = batch
    length = int(lengths[row])
    return source[row : row + 1, :length], lengths[row : row + 1], states[row : row + 1, :length]
