"""Examples as padded tensors."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from permalign.tasks.base import Example
from permalign.text.codec import PADDING_ID, Codec
from permalign.text.sampler import BucketSampler


@dataclass(frozen=True, slots=True)
class Batch:
    """Some examples as numbers.

    Attributes:
        source: (batch, source position), padded with `PADDING_ID`.
        source_lengths: (batch,)
        target: (batch, target position), padded; without begin and end.
        target_lengths: (batch,)
        examples: what the rows were made of.
        indices: where these are among all examples, to put results back in order.
    """

    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor
    examples: tuple[Example, ...]
    indices: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.examples)

    def swap_sides(self, rows: Tensor) -> "Batch":
        """Some rows with sources and targets in each other's index; of examples it knows nothing."""
        return Batch(
            self.target[rows],
            self.target_lengths[rows],
            self.source[rows],
            self.source_lengths[rows],
            (),
            (),
        )

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch with its tensors on a device."""
        return replace(
            self,
            source=self.source.to(device),
            source_lengths=self.source_lengths.to(device),
            target=self.target.to(device),
            target_lengths=self.target_lengths.to(device),
        )


class Batches:
    """The batches of some examples; each pass over it is the rest of an epoch of its ``sampler``.

    Args:
        examples: encoded once, when this is made.
        source_codec: for the sources.
        target_codec: for the targets.
        max_tokens: how many tokens a batch may have, padding and both sides included.
        seed: of the shuffling.
        shuffle: whether to shuffle at all.
        batch_size: how many examples a batch may have at most.
        curriculum_epochs: how many epochs, the first ones, go from short to long although examples are shuffled.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        source_codec: Codec,
        target_codec: Codec,
        max_tokens: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        batch_size: int | None = None,
        curriculum_epochs: int = 0,
    ) -> None:
        self._examples = examples
        self._sources = [source_codec.encode(example.source) for example in examples]
        self._targets = [target_codec.encode(example.target) for example in examples]
        lengths = [
            (len(source), len(target)) for source, target in zip(self._sources, self._targets, strict=True)
        ]
        self.sampler = BucketSampler(
            lengths,
            max_tokens,
            seed=seed,
            shuffle=shuffle,
            batch_size=batch_size,
            curriculum_epochs=curriculum_epochs,
        )

    def __len__(self) -> int:
        """How many batches an epoch has."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        for indices in self.sampler:
            source, source_lengths = pad([self._sources[index] for index in indices])
            target, target_lengths = pad([self._targets[index] for index in indices])
            examples = tuple(self._examples[index] for index in indices)
            yield Batch(source, source_lengths, target, target_lengths, examples, tuple(indices))


def pad(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """The sequences as the rows of a tensor, and their lengths.

    >>> pad([[7, 8, 9], [5]])
    (tensor([[7, 8, 9],
             [5, 0, 0]]), tensor([3, 1]))
    """
    lengths = [len(sequence) for sequence in sequences]
    width = max(lengths, default=0)
    rows = [[*sequence, *[PADDING_ID] * (width - len(sequence))] for sequence in sequences]
    padded = torch.tensor(rows, dtype=torch.long).reshape(len(sequences), width)
    return padded, torch.tensor(lengths, dtype=torch.long)
