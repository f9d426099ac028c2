"""Bucketing: group examples of similar length into batches. This module does not import torch."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from permalign.files import fingerprint
from permalign.tasks.seeded_random import shuffled

Lengths = tuple[int, int]
"""The source and target lengths of an example."""


class BucketSampler:
    """Groups examples of similar length into batches, in an order determined by seed and epoch alone.

    In each epoch, the examples are shuffled, sorted by source and target length (ties remain shuffled) and divided into
    batches, and the batches are shuffled: O(n log n). A batch has as many examples as possible such that their number
    times (longest source + longest target) is at most ``max_tokens``, so padding is counted.

    Iterating yields the remaining batches of the current epoch, and then advances to the next epoch. The position
    (seed, epoch, offset) can be saved after any batch; a sampler that loads it continues with the next batch.

    >>> sampler = BucketSampler([(3, 3), (1, 1), (3, 2), (1, 2)], max_tokens=12, seed=0)
    >>> list(sampler)
    [[1, 3], [2, 0]]
    >>> sampler.state_dict()["epoch"], sampler.state_dict()["offset"]
    (1, 0)

    Args:
        lengths: the source and target lengths of every example.
        max_tokens: the largest number of tokens in a batch, counting both sides and padding.
        seed: the seed of the shuffling.
        shuffle: whether to shuffle; otherwise every epoch goes from short to long examples.
        batch_size: the largest number of examples in a batch; None for no limit.
        curriculum_epochs: the number of first epochs that go from short to long examples.
    """

    def __init__(
        self,
        lengths: Sequence[Lengths],
        max_tokens: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        batch_size: int | None = None,
        curriculum_epochs: int = 0,
    ) -> None:
        for index, (source, target) in enumerate(lengths):
            if source + target > max_tokens:
                raise ValueError(
                    f"example {index} has {source} + {target} tokens, more than the {max_tokens} of a "
                    "batch. Raise max_tokens, or leave out the example."
                )
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}, but must be at least 1.")
        self._lengths = list(lengths)
        self._max_tokens = max_tokens
        self._shuffle = shuffle
        self._batch_size = batch_size
        self._curriculum_epochs = curriculum_epochs
        self.seed = seed
        self.epoch = 0
        self.offset = 0

    def __len__(self) -> int:
        """The number of batches in an epoch; it is the same in all epochs, because only ties are reordered."""
        return len(self._divide(sorted(range(len(self._lengths)), key=self._lengths.__getitem__)))

    def __iter__(self) -> Iterator[list[int]]:
        batches = self.batches(self.epoch)
        while self.offset < len(batches):
            self.offset += 1
            yield batches[self.offset - 1]
        self.epoch += 1
        self.offset = 0

    def batches(self, epoch: int) -> list[list[int]]:
        """All batches of an epoch; each batch is a list of the indices of its examples."""
        generator = Random(f"{self.seed}/{epoch}")
        indices = list(range(len(self._lengths)))
        if self._shuffle:
            indices = shuffled(indices, generator)
        batches = self._divide(sorted(indices, key=self._lengths.__getitem__))
        if self._shuffle and epoch >= self._curriculum_epochs:
            return shuffled(batches, generator)
        return batches

    def state_dict(self) -> dict[str, int | str]:
        """The position, and a fingerprint of the batches to which it refers."""
        return {
            "seed": self.seed,
            "epoch": self.epoch,
            "offset": self.offset,
            "fingerprint": self._fingerprint(),
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore a position that `state_dict` returned; the next iteration continues from there.

        Raises:
            ValueError: the position belongs to other data or to differently built batches.
        """
        if state.get("fingerprint") != self._fingerprint():
            raise ValueError(
                "the saved position belongs to other batches: the examples, max_tokens, batch_size, shuffle or "
                "curriculum_epochs were different. Give the sampler the same arguments as before."
            )
        seed, epoch, offset = (state.get(name) for name in ("seed", "epoch", "offset"))
        if not (isinstance(seed, int) and isinstance(epoch, int) and isinstance(offset, int)):
            raise ValueError(
                f"seed, epoch and offset must be whole numbers, found {seed!r}, {epoch!r}, {offset!r}."
            )
        if epoch < 0 or not 0 <= offset <= len(self):
            raise ValueError(
                f"there is no batch {offset} in epoch {epoch}; an epoch has {len(self)} batches."
            )
        self.seed, self.epoch, self.offset = seed, epoch, offset

    def _divide(self, indices: Sequence[int]) -> list[list[int]]:
        """Divide the examples into batches, filling one after the other."""
        batches: list[list[int]] = []
        longest_source = longest_target = 0
        for index in indices:
            source, target = self._lengths[index]
            new_width = max(longest_source, source) + max(longest_target, target)
            if batches and self._has_room(len(batches[-1]) + 1, new_width):
                batches[-1].append(index)
                longest_source, longest_target = max(longest_source, source), max(longest_target, target)
            else:
                batches.append([index])
                longest_source, longest_target = source, target
        return batches

    def _has_room(self, examples: int, width: int) -> bool:
        within_limit = self._batch_size is None or examples <= self._batch_size
        return within_limit and examples * width <= self._max_tokens

    def _fingerprint(self) -> str:
        settings = (
            self._lengths,
            self._max_tokens,
            self._batch_size,
            self._shuffle,
            self._curriculum_epochs,
        )
        return fingerprint([repr(settings).encode()])
