"""Translation tasks: English to Japanese, Chinese to English, and any two aligned files.

The text is not normalised: tokens are what is separated by white space.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from permalign.errors import DataError
from permalign.tasks.aligned_files import read_aligned
from permalign.tasks.base import Example
from permalign.tasks.data_folder import dataset_file
from permalign.tasks.partitions import (
    PARTS,
    Partition,
    PartitionedExamples,
    PartitionedTask,
    describe_random_parts,
    partition_examples,
    shipped_partition,
)
from permalign.tasks.user_data import UserData


class EnglishJapanese(PartitionedTask):
    """50,000 short sentences of the Tanaka corpus, English to Japanese.

    ``iid`` is the upstream split. ``len`` is a split of all 51,000 pairs: pairs with at most 12 English tokens are for
    training, and the 1,076 longer ones are divided into dev and test. The id of an example is its index among all
    pairs.
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
            examples.extend(Example(source, target, str(index)) for index, (_, source, target) in pairs)
            upstream[part] = range(begin, len(examples))
        by_length = shipped_partition("en-ja", "len", len(examples))
        self._check(examples, by_length)
        return PartitionedExamples(examples, {"iid": upstream, "len": by_length})

    def _check(self, examples: Sequence[Example], by_length: Partition) -> None:
        """Raise an error unless the files are those that the shipped partition was made for."""
        long = {index for index, pair in enumerate(examples) if len(pair.source) > self.MAX_TRAIN_LENGTH}
        if long != {*by_length["dev"], *by_length["test"]}:
            raise DataError(
                "the sentences of more than 12 tokens are not those of the released corpus, so the length split cannot "
                "be made. Remove the folder and run `permalign data fetch en-ja`.",
                dataset_file("en-ja", "train.en", self._data_dir).parent,
            )


class Aligned(PartitionedTask):
    """Two text files that are aligned line by line: line i of one is the translation of line i of the other.

    Args:
        source_file: the file of sources, with one sentence per line and tokens separated by spaces.
        target_file: the file of targets, with one sentence per line and tokens separated by spaces.
        min_length: the length below which pairs are left out.
        max_length: the length above which pairs are left out; None for no limit.
        max_train_length: if given, adds the condition ``len``, in which longer pairs are divided into dev and test.
        dev_size: the number of pairs in ``iid/dev``; by default a tenth of all.
        test_size: the number of pairs in ``iid/test``; by default a tenth of all.
        seed: the seed of the random splits.

    The length of a pair is that of its source. Pairs with an empty source or target are left out and counted in
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
        num_empty = num_wrong_length = 0
        for number, source, target in read_aligned(self._source_file, self._target_file):
            if not source or not target:
                num_empty += 1
            elif not self._has_right_length(source if self.measured_side == "source" else target):
                num_wrong_length += 1
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
        notes = self._notes(num_empty, num_wrong_length, len(examples))
        all_notes = (*notes, describe_random_parts(partitions["iid"]))
        return PartitionedExamples(examples, partitions, all_notes, reading_notes=notes)

    def _notes(self, num_empty: int, num_wrong_length: int, num_examples: int) -> tuple[str, ...]:
        if not num_empty and not num_wrong_length:
            return ()
        left_out = f"left out {num_empty:,} pairs with an empty side and {num_wrong_length:,} by length"
        return (f"{self._source_file} and {self._target_file}: {left_out}, kept {num_examples:,}.",)

    def _has_right_length(self, tokens: Sequence[str]) -> bool:
        return self._min_length <= len(tokens) and (
            self._max_length is None or len(tokens) <= self._max_length
        )


class ChineseEnglish(Aligned):
    """FBIS (LDC2003E14), a licensed corpus, given as two aligned files of tokenised text.

    Pairs with 4 to 30 English tokens are used. ``iid`` is a random split; ``len`` trains on pairs with at most 29
    English tokens, and divides those with exactly 30 into dev and test. The splits of the paper are not published, so
    these are different ones. The id of an example is its line number.
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

    The corpus is a free substitute for FBIS: ``len`` trains on at most 29 English tokens and tests on exactly 30.
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
