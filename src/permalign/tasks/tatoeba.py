"""The task tatoeba: Chinese to English, a free substitute for FBIS.

The upstream file ``cmn.txt`` (with columns for English, Chinese and the attribution) contains raw text, which is
preprocessed here: traditional characters become simplified ones, both sides are lower-cased, Chinese is segmented by
jieba, and English is split into words, clitics and punctuation. Pairs that are too short, too long or repeated are left
out and counted.
"""

import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from permalign.errors import DataError, PermalignError
from permalign.tasks.base import Example
from permalign.tasks.data_folder import cache_folder, dataset_file
from permalign.tasks.file_readers import read_table
from permalign.tasks.partitions import PartitionedExamples, PartitionedTask, shipped_partition

ENGLISH_LENGTHS = range(4, 31)
CHINESE_LENGTHS = range(2, 41)
MAX_TRAIN_LENGTH = 12
RELEASED_SIZE = 28_673

_ENGLISH_TOKEN = re.compile(
    r"""
    (?:[a-z]\.){2,}                 # a.m., i.d.
    | \d+(?:[.,]\d+)+               # 10,000, 10.00
    | \w+(?:[-.]\w+)*               # left-handed, no.3
    | '(?:s|m|re|ve|ll|d|t)\b       # he 's, don 't
    | [^\w\s]                       # one punctuation mark
    """,
    re.VERBOSE,
)
_ATTRIBUTION = re.compile(r"#(\d+) \((.*?)\) & #(\d+) \((.*)\)$")


class Tatoeba(PartitionedTask):
    """28,673 pairs of everyday sentences; their authors, whom the licence CC-BY requires to name, are in ``meta``.

    ``iid`` has 500 dev and 500 test pairs, whose sentences do not occur in train. ``len`` trains on pairs with at most
    12 English tokens, and divides the 1,158 longer pairs into dev and test. The id of an example is its index among all
    pairs, and ``meta["attribution"]`` names its authors.
    """

    name = "tatoeba"
    description = "Chinese to English, short everyday sentences (free substitute for FBIS)"
    metric = "bleu"
    conditions = ("iid", "len")

    def __init__(self, data_dir: str | Path | None = None) -> None:
        self._data_dir = data_dir

    def _load(self) -> PartitionedExamples:
        path = dataset_file("zh-en", "cmn.txt", self._data_dir)
        examples, note = read_tatoeba(path)
        long = {index for index, pair in enumerate(examples) if len(pair.target) > MAX_TRAIN_LENGTH}
        partitions = {
            condition: shipped_partition("tatoeba", condition, len(examples)) for condition in self.conditions
        }
        if len(examples) != RELEASED_SIZE or long != {*partitions["len"]["dev"], *partitions["len"]["test"]}:
            raise DataError(
                f"contains {len(examples):,} usable pairs, but the splits were made for a file with {RELEASED_SIZE:,}. "
                "Remove it, and run `permalign data fetch tatoeba`.",
                path,
            )
        return PartitionedExamples(examples, partitions, (note,))


def read_tatoeba(path: Path) -> tuple[list[Example], str]:
    """Read and preprocess all pairs of cmn.txt; returns the examples and a note on what was left out."""
    tokenize_chinese = chinese_tokenizer()
    examples: list[Example] = []
    seen: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
    skipped: Counter[str] = Counter()
    for number, (english, chinese, attribution) in read_table(path, 3).rows:
        source, target = tokenize_chinese(chinese), tokenize_english(english)
        if len(source) not in CHINESE_LENGTHS or len(target) not in ENGLISH_LENGTHS:
            skipped["length"] += 1
        elif (source, target) in seen:
            skipped["repeated"] += 1
        else:
            seen.add((source, target))
            meta = {"attribution": _authors(attribution, path, number)}
            examples.append(Example(source, target, str(len(examples)), meta))
    left_out = f"left out {skipped['length']:,} pairs by length and {skipped['repeated']:,} repeated ones"
    return examples, f"{path}: {left_out}, kept {len(examples):,}."


def tokenize_english(text: str) -> tuple[str, ...]:
    """Split English text into lower-cased words, clitics and punctuation marks.

    >>> tokenize_english("I'm left-handed, don’t you know?")
    ('i', "'m", 'left-handed', ',', 'don', "'t", 'you', 'know', '?')
    """
    return tuple(_ENGLISH_TOKEN.findall(text.lower().replace("’", "'")))


def chinese_tokenizer() -> Callable[[str], tuple[str, ...]]:
    """Return a function that splits Chinese text into simplified, lower-cased words.

    Raises:
        PermalignError: jieba or opencc is not installed.
    """
    try:
        with warnings.catch_warnings(
            action="ignore"
        ):  # newer versions of Python warn about the code of both libraries
            import jieba
            import opencc
    except ImportError as error:
        raise PermalignError(
            f'Chinese word segmentation needs {error.name}: pip install "permalign[chinese]".'
        ) from None
    jieba.setLogLevel(logging.WARNING)
    tokenizer = jieba.Tokenizer()
    # By default jieba stores its unpacked dictionary in the shared temporary folder, where anybody can replace it.
    # Use the user's own cache folder instead, if it can be written to.
    with suppress(OSError):
        cache_folder().mkdir(parents=True, exist_ok=True)
        tokenizer.tmp_dir = str(cache_folder())
    simplify = opencc.OpenCC("t2s").convert

    def tokenize(text: str) -> tuple[str, ...]:
        words = tokenizer.cut(simplify(text).lower())
        return tuple(word for word in words if not word.isspace())

    return tokenize


def _authors(attribution: str, path: Path, number: int) -> str:
    match = _ATTRIBUTION.search(attribution)
    if match is None:
        raise DataError(
            "the third column should end in an attribution like `#538123 (CM) & #891077 (Martha)`, "
            f"found {attribution[:80]!r}.",
            path,
            number,
        )
    return f"#{match[1]} {match[2]} & #{match[3]} {match[4]}"
