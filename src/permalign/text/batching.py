"""Batches: examples as padded tensors of token ids."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from permalign.tasks.base import Example
from permalign.text.batch_sampler import BucketSampler
from permalign.text.codec import PADDING_ID, SPECIALS, UNKNOWN_ID, Codec


@dataclass(frozen=True, slots=True)
class Batch:
    """Examples as padded tensors of token ids.

    Attributes:
        source: the source ids ``(batch, source position)``, padded with `PADDING_ID`.
        source_lengths: the lengths of the sources, ``(batch,)``.
        target: the target ids ``(batch, target position)``, padded; without begin and end symbols.
        target_lengths: the lengths of the targets, ``(batch,)``.
        examples: the example of each row.
        indices: the index of each example in the dataset, from which its order can be restored.
        copies: the target id that copying each source token writes, ``(batch, source position)``; None for a model that
            does not copy, or until it has looked them up (`permalign.text.sentence_vocabulary.CopyCodec`). With copies,
            targets may hold ids beyond the target vocabulary.
    """

    source: Tensor
    source_lengths: Tensor
    target: Tensor
    target_lengths: Tensor
    examples: tuple[Example, ...]
    indices: tuple[int, ...]
    copies: Tensor | None = None

    def __len__(self) -> int:
        return len(self.examples)

    def select(self, rows: Tensor) -> "Batch":
        """Select rows by their indices or by a mask; the result has no ``examples`` and ``indices``."""
        return Batch(
            self.source[rows],
            self.source_lengths[rows],
            self.target[rows],
            self.target_lengths[rows],
            (),
            (),
            None if self.copies is None else self.copies[rows],
        )

    def swap_sides(self) -> "Batch":
        """Exchange source and target; the result has no ``examples``, ``indices`` and ``copies``."""
        return Batch(self.target, self.target_lengths, self.source, self.source_lengths, (), ())

    def to(self, device: torch.device | str) -> "Batch":
        """Move the tensors of the batch to a device."""
        return replace(
            self,
            source=self.source.to(device),
            source_lengths=self.source_lengths.to(device),
            target=self.target.to(device),
            target_lengths=self.target_lengths.to(device),
            copies=None if self.copies is None else self.copies.to(device),
        )


class Batches:
    """All batches of a dataset; iterating yields the remaining batches of the current epoch of its ``sampler``.

    To make them in other processes, give them to a `torch.utils.data.DataLoader` with their sampler:
    ``DataLoader(batches, sampler=batches.sampler, batch_size=None, num_workers=2)``.

    Args:
        examples: the examples; they are encoded once, when the object is created.
        source_codec: encodes the sources.
        target_codec: encodes the targets.
        max_tokens: the largest number of tokens in a batch, counting both sides and padding.
        seed: the seed of the shuffling.
        shuffle: whether to shuffle; otherwise every epoch goes from short to long examples.
        batch_size: the largest number of examples in a batch; None for no limit.
        curriculum_epochs: the number of first epochs that go from short to long examples.
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
        """The number of batches in an epoch."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        for indices in self.sampler:
            yield self[indices]

    def __getitem__(self, indices: Sequence[int]) -> Batch:
        """The batch of some examples, by their indices, as a `torch.utils.data.DataLoader` asks for it."""
        if isinstance(indices, int):
            raise TypeError(
                f"batches are made of several examples, but only the index {indices} was asked for. In a DataLoader, "
                "pass sampler=batches.sampler and batch_size=None."
            )
        source, source_lengths = pad([self._sources[index] for index in indices])
        target, target_lengths = pad([self._targets[index] for index in indices])
        examples = tuple(self._examples[index] for index in indices)
        return Batch(source, source_lengths, target, target_lengths, examples, tuple(indices))


def hide_words(batch: Batch, share: float) -> Batch:
    """Replace a share of the source words by unknown ones.

    Args:
        batch: a batch.
        share: the probability that a word is replaced; drawn with torch's global generator.
    """
    drawn = torch.rand(batch.source.shape, device=batch.source.device) < share
    is_word = batch.source >= len(SPECIALS)
    return replace(batch, source=batch.source.masked_fill(drawn & is_word, UNKNOWN_ID))


def pad(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad sequences to equal length; returns the padded tensor and the lengths.

    >>> pad([[7, 8, 9], [5]])
    (tensor([[7, 8, 9],
             [5, 0, 0]]), tensor([3, 1]))
    """
    lengths = [len(sequence) for sequence in sequences]
    width = max(lengths, default=0)
    rows = [[*sequence, *[PADDING_ID] * (width - len(sequence))] for sequence in sequences]
    padded = torch.tensor(rows, dtype=torch.long).reshape(len(sequences), width)
    return padded, torch.tensor(lengths, dtype=torch.long)
