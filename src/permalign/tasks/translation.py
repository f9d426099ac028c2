"""Translation: English to Japanese, Chinese to English from FBIS, and any two aligned files.

The text is taken as it is: tokens are separated by white space, and nothing is changed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from permalign.errors import DataError
from permalign.tasks.base import Example
from permalign.tasks.data_folder import dataset_file
from permalign.tasks.partitions import (
    PARTS,
    Partition,
    PartitionedExamples,
    PartitionedTask,
    partition_examples,
    shipped_partition,
)
from permalign.tasks.text_files import read_text


class EnglishJapanese(PartitionedTask):
    """50,000 short sentences of the Tanaka corpus, English to Japanese.

    ``iid`` is the upstream division. ``len`` pools all 51,000 pairs: English of at most 12 tokens is train,
    the 1,076 longer ones are halved. An example's id is its place in the pool.
    """

    name = "en-ja"
    description = "English to Japanese, short everyday sentences (small_parallel_enja)"
    metric = "bleu"
    conditions = ("iid", "len")

    LONGEST_IN_TRAIN = 12

    def __init__(self, data_dir: str | Path | None = None) -> None:
        self._data_dir = data_dir

    def _load(self) -> PartitionedExamples:
        examples: list[Example] = []
        upstream: dict[str, range] = {}
        for part in PARTS:
            english = dataset_file("en-ja", f"{part}.en", self._data_dir)
            japanese = dataset_file("en-ja", f"{part}.ja", self._data_dir)
            begin = len(examples)
            pairs = enumerate(read_aligned(english, japanese, blank="error"), begin)
            examples.extend(Example(source, target, str(place)) for place, (_, source, target) in pairs)
            upstream[part] = range(begin, len(examples))
        by_length = shipped_partition("en-ja", "len", len(examples))
        self._check(examples, by_length)
        return PartitionedExamples(examples, {"iid": upstream, "len": by_length})

    def _check(self, examples: Sequence[Example], cut: Partition) -> None:
        """Refuse files that the shipped halves were not drawn from."""
        long = {place for place, pair in enumerate(examples) if len(pair.source) > self.LONGEST_IN_TRAIN}
        if long != {*cut["dev"], *cut["test"]}:
            raise DataError(
                "the sentences of more than 12 tokens are not those of the released corpus, so the length "
                "split does not fit. Move the folder away and run `permalign data fetch en-ja`.",
                dataset_file("en-ja", "train.en", self._data_dir).parent,
            )


class Aligned(PartitionedTask):
    """Two text files where line i of one is the translation of line i of the other.

    Args:
        source_file: what a model reads, tokens separated by spaces.
        target_file: what it should write.
        shortest: leave out pairs whose measured side has fewer tokens.
        max_length: leave out pairs whose measured side has more tokens.
        longest_in_train: adds the condition ``len``: longer pairs are not trained on but halved into dev and
            test.
        dev_size: how many pairs the ``iid`` condition holds out as dev; by default a tenth.
        test_size: the same for test.
        seed: of the random partitions.

    Lengths are measured on the source side. Pairs with an empty side are left out; how many were is in
    `notes`.
    """

    name = "aligned"
    description = "any two aligned text files (--source-file, --target-file)"
    metric = "bleu"
    measured_side: Literal["source", "target"] = "source"

    def __init__(
        self,
        source_file: str | Path,
        target_file: str | Path,
        *,
        shortest: int = 1,
        max_length: int | None = None,
        longest_in_train: int | None = None,
        dev_size: int | None = None,
        test_size: int | None = None,
        seed: int = 0,
    ) -> None:
        self._source_file = Path(source_file)
        self._target_file = Path(target_file)
        self._shortest = shortest
        self._longest = max_length
        self._longest_in_train = longest_in_train
        self._dev_size = dev_size
        self._test_size = test_size
        self._seed = seed
        self.conditions = ("iid",) if longest_in_train is None else ("iid", "len")

    def _load(self) -> PartitionedExamples:
        examples: list[Example] = []
        empty = unfit = 0
        for number, source, target in read_aligned(self._source_file, self._target_file):
            if not source or not target:
                empty += 1
            elif not self._fits(source if self.measured_side == "source" else target):
                unfit += 1
            else:
                examples.append(Example(source, target, str(number)))
        partitions = partition_examples(
            examples,
            self._source_file,
            dev_size=self._dev_size,
            test_size=self._test_size,
            longest_in_train=self._longest_in_train,
            measured_side=self.measured_side,
            seed=self._seed,
        )
        return PartitionedExamples(examples, partitions, self._notes(empty, unfit, len(examples)))

    def _notes(self, empty: int, unfit: int, kept: int) -> tuple[str, ...]:
        if not empty and not unfit:
            return ()
        left_out = f"left out {empty:,} pairs with an empty side and {unfit:,} by length"
        return (f"{self._source_file} and {self._target_file}: {left_out}, kept {kept:,}.",)

    def _fits(self, tokens: Sequence[str]) -> bool:
        return self._shortest <= len(tokens) and (self._longest is None or len(tokens) <= self._longest)


class ChineseEnglish(Aligned):
    """FBIS (LDC2003E14), which only a licensed user has: two aligned files, tokenised.

    English of 4 to 30 tokens is kept. ``iid`` is drawn from the seed; ``len`` trains on at most 29 English
    tokens and halves the sentences of exactly 30. Which pairs are held out is ours, as the original division
    is not published. An example's id is its line number.
    """

    name = "zh-en"
    description = "Chinese to English from the licensed FBIS corpus (--source-file, --target-file)"
    measured_side = "target"

    def __init__(
        self,
        source_file: str | Path,
        target_file: str | Path,
        *,
        shortest: int = 4,
        max_length: int = 30,
        longest_in_train: int = 29,
        dev_size: int = 2000,
        test_size: int = 2000,
        seed: int = 0,
    ) -> None:
        super().__init__(
            source_file,
            target_file,
            shortest=shortest,
            max_length=max_length,
            longest_in_train=longest_in_train,
            dev_size=dev_size,
            test_size=test_size,
            seed=seed,
        )


Pair = tuple[int, tuple[str, ...], tuple[str, ...]]


def read_aligned(source: Path, target: Path, *, blank: Literal["error", "keep"] = "keep") -> list[Pair]:
    """The line numbers and tokens of two files with the same number of lines.

    Raises:
        DataError: one file is longer, or one cannot be read; the message gives the name and the line.
    """
    sources = read_text(source, blank=blank).lines
    targets = read_text(target, blank=blank).lines
    if len(sources) != len(targets):
        longer, other = (source, target) if len(sources) > len(targets) else (target, source)
        raise DataError(
            f"this line has no partner: {other} ends before it ({source.name} has {len(sources)} lines, "
            f"{target.name} {len(targets)}). Aligned files have the same number of lines.",
            longer,
            min(len(sources), len(targets)) + 1,
        )
    return [
        (number, tuple(source_text.split()), tuple(target_text.split()))
        for (number, source_text), (_, target_text) in zip(sources, targets, strict=True)
    ]
