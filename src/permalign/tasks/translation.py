"""Translation: English to Japanese, Chinese to English from FBIS, and any two aligned files.

The text is used as it is: tokens are separated by white space, and nothing is normalised.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from permalign.errors import DataError
from permalign.tasks.base import Example
from permalign.tasks.data_folder import dataset_file
from permalign.tasks.file_readers import read_text
from permalign.tasks.partitions import (
    PARTS,
    Partition,
    PartitionedExamples,
    PartitionedTask,
    partition_examples,
    shipped_partition,
)
from permalign.tasks.user_data import UserData


class EnglishJapanese(PartitionedTask):
    """50,000 short sentences of the Tanaka corpus, English to Japanese.

    ``iid`` is the upstream split. ``len`` is a split of all 51,000 pairs: English sentences of at most 12 tokens are
    for training, the 1,076 longer ones are divided into dev and test. An example's id is its index among all pairs.
    """

    name = "en-ja"
    description = "English to Japanese, short everyday sentences (small_parallel_enja)"
    metric = "bleu"
    conditions = ("iid", "len")

    MAX_TRAIN_LENGTH = 12

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
        """Raise an error unless the files are those that the shipped partition was made for."""
        long = {index for index, pair in enumerate(examples) if len(pair.source) > self.MAX_TRAIN_LENGTH}
        if long != {*cut["dev"], *cut["test"]}:
            raise DataError(
                "the sentences of more than 12 tokens are not those of the released corpus, so the length split cannot "
                "be made. Remove the folder and run `permalign data fetch en-ja`.",
                dataset_file("en-ja", "train.en", self._data_dir).parent,
            )


class Aligned(PartitionedTask):
    """Two text files where line i of one is the translation of line i of the other.

    Args:
        source_file: the file of sources, one sentence per line, tokens separated by spaces.
        target_file: the file of targets, aligned line by line.
        min_length: the length below which pairs are left out.
        max_length: the length above which pairs are left out; None for no limit.
        max_train_length: if given, adds the condition ``len``, in which longer pairs are divided into dev and test.
        dev_size: the number of pairs in ``iid/dev``; by default a tenth of all.
        test_size: the number of pairs in ``iid/test``; by default a tenth of all.
        seed: the seed of the random splits.

    Lengths are those of sources. Pairs with an empty side are left out; `notes` says how many.
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
        min_length: int = 1,
        max_length: int | None = None,
        max_train_length: int | None = None,
        dev_size: int | None = None,
        test_size: int | None = None,
        seed: int = 0,
    ) -> None:
        self._source_file = Path(source_file)
        self._target_file = Path(target_file)
        self._min_length = min_length
        self._max_length = max_length
        self._max_train_length = max_train_length
        self._dev_size = dev_size
        self._test_size = test_size
        self._seed = seed
        self.conditions = ("iid",) if max_train_length is None else ("iid", "len")

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
            max_train_length=self._max_train_length,
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
        return self._min_length <= len(tokens) and (
            self._max_length is None or len(tokens) <= self._max_length
        )


class ChineseEnglish(Aligned):
    """FBIS (LDC2003E14), which only a licensed user has: two aligned files, tokenised.

    English sentences of 4 to 30 tokens are kept. ``iid`` is a random split; ``len`` trains on at most 29 English
    tokens, and divides the sentences of exactly 30 into dev and test. The splits are our own, as those of the paper are
    not published. An example's id is its line number.
    """

    name = "zh-en"
    description = "Chinese to English from the licensed FBIS corpus (--source-file, --target-file)"
    measured_side = "target"

    def __init__(
        self,
        source_file: str | Path,
        target_file: str | Path,
        *,
        min_length: int = 4,
        max_length: int = 30,
        max_train_length: int = 29,
        dev_size: int = 2000,
        test_size: int = 2000,
        seed: int = 0,
    ) -> None:
        super().__init__(
            source_file,
            target_file,
            min_length=min_length,
            max_length=max_length,
            max_train_length=max_train_length,
            dev_size=dev_size,
            test_size=test_size,
            seed=seed,
        )


class ChineseEnglishDocs(UserData):
    """Sentences of Chinese software documentation and their English originals, from docs.tsv.gz.

    Technical prose, a free substitute for FBIS: ``len`` trains on at most 29 English tokens and tests on exactly 30.
    """

    name = "zh-en-docs"
    description = "Chinese to English, software documentation (place docs.tsv.gz in zh-en/)"
    metric = "bleu"

    def __init__(self, data_dir: str | Path | None = None) -> None:
        self._data_dir = data_dir
        super().__init__("docs.tsv.gz", source_column="zh", target_column="en")

    def _load(self) -> PartitionedExamples:
        self._path = dataset_file("zh-en", "docs.tsv.gz", self._data_dir)
        return super()._load()


Pair = tuple[int, tuple[str, ...], tuple[str, ...]]


def read_aligned(source: Path, target: Path, *, blank: Literal["error", "keep"] = "keep") -> list[Pair]:
    """Read two files with the same number of lines; returns line numbers, sources and targets.

    Raises:
        DataError: the files differ in length, or one cannot be read; the message names file and line.
    """
    sources = read_text(source, blank=blank).lines
    targets = read_text(target, blank=blank).lines
    if len(sources) != len(targets):
        longer, other = (source, target) if len(sources) > len(targets) else (target, source)
        raise DataError(
            f"this line has no counterpart: {other} ends before it ({source.name} has {len(sources)} lines, "
            f"{target.name} {len(targets)}). Aligned files have the same number of lines.",
            longer,
            min(len(sources), len(targets)) + 1,
        )
    return [
        (number, tuple(source_text.split()), tuple(target_text.split()))
        for (number, source_text), (_, target_text) in zip(sources, targets, strict=True)
    ]
