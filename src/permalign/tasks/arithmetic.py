"""The task arithmetic: infix to postfix or prefix notation. Every output is a separable permutation of its input."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Literal

from permalign.errors import DataError, excerpt
from permalign.tasks.base import Example, Task
from permalign.tasks.data_folder import data_root, dataset_file
from permalign.tasks.expression_sampler import DepthSampler
from permalign.tasks.expressions import (
    Expression,
    fill,
    fill_template,
    read_infix,
    shape_depth,
    shapes,
    template_count,
)
from permalign.tasks.file_readers import read_table
from permalign.tasks.seeded_random import shuffled

FILES = {"train": "train_10k.tsv", "dev": "val_5k.tsv", "test": "test_5k.tsv"}
LENGTH_FILE = "gen_5k.tsv"
"""The files of the paper's authors, with tab-separated infix, prefix and postfix notation; the last one is LEN test."""

_SIZES = {"train": 10_000, "dev": 5_000, "test": 5_000}
_TRAINING_DEPTH, _TEST_DEPTH = 6, 7
_EXPRESSIONS_PER_SHAPE = 5
_DEEP_EXAMPLES = 1_000
_DEVELOPMENT_DEPTH, _DEVELOPMENT_EXAMPLES, _DEVELOPMENT_MAX_LENGTH = 8, 500, 60


class Arithmetic(Task):
    """Fully parenthesised expressions, generated from a seed or read from the authors' files.

    IID: of the 40,805 templates of derivation depth up to 6 (expressions whose digits are left out), 20,000 are drawn
    without replacement and filled with random digits. They are split into 10,000, 5,000 and 5,000, so no template of
    the test set occurs in training. LEN has the same training and development sets. Its test set has five expressions
    for each of the 651 shapes of depth 7 (arrangements of parentheses): 3,255 different expressions.

    All models solve IID, so its development set cannot show which of them generalise to deeper expressions.
    ``deep/dev`` can: it has 500 expressions of depth 8 with at most 60 tokens, none of which is in a test set.

    Args:
        notation: the notation of the output.
        seed: the seed of all generated data.
        depth: if given, adds a split ``depth-DEPTH/test`` of up to 1,000 different expressions of exactly this
            derivation depth, drawn from a probabilistic grammar (see `DepthSampler`).
        max_length: the largest number of tokens of an expression in the split ``depth-DEPTH/test``.
        published: whether to read the authors' files instead of generating the data. The LEN test set is generated
            unless their file ``gen_5k.tsv`` lies beside the others; 651 of its 3,255 rows occur twice.
        data_dir: the data folder, which contains the authors' files ``arithmetic/train_10k.tsv`` and so on.
    """

    name = "arithmetic"
    description = "infix arithmetic to postfix or prefix, generated from a seed; IID, LEN and any depth"

    def __init__(
        self,
        notation: Literal["postfix", "prefix"] = "postfix",
        seed: int = 0,
        depth: int | None = None,
        max_length: int = 200,
        published: bool = False,
        data_dir: str | Path | None = None,
    ) -> None:
        if notation not in {"postfix", "prefix"}:
            raise ValueError(f"notation is {notation!r}; expected 'postfix' or 'prefix'.")
        self.notation: Literal["postfix", "prefix"] = notation
        self.seed = seed
        self.depth = depth
        self.published = published
        self.data_dir = data_dir
        self._sampler = None if depth is None else DepthSampler(depth, max_length)

    @property
    def splits(self) -> tuple[str, ...]:  # noqa: D102
        deep = () if self.depth is None else (f"depth-{self.depth}/test",)
        return *(f"{condition}/{part}" for condition in ("iid", "len") for part in FILES), "deep/dev", *deep

    @property
    def notes(self) -> tuple[str, ...]:  # noqa: D102
        if not self.published or self._has_length_file:
            return ()
        return (f"len/test is generated, because the authors' file {LENGTH_FILE} is not beside the others.",)

    @cached_property
    def _has_length_file(self) -> bool:
        return (data_root(self.data_dir) / "arithmetic" / LENGTH_FILE).is_file()

    def examples(self, split: str) -> Sequence[Example]:  # noqa: D102
        if split not in self.splits:
            raise self.unknown_split(split)
        condition, part = split.split("/")
        if condition == "deep":
            return [self._example(expression, f"deep-{i}") for i, expression in enumerate(self._deep_dev)]
        if condition.startswith("depth-"):
            return self._depth_test
        return self._len_test if split == "len/test" else self._parts[part]

    @cached_property
    def _parts(self) -> dict[str, list[Example]]:
        """The examples of the training set, the development set and the IID test set."""
        if self.published:
            return {part: self._read(name) for part, name in FILES.items()}
        generator = Random(f"arithmetic templates {self.seed}")
        numbers = shuffled(range(template_count(_TRAINING_DEPTH)), generator)
        examples = {}
        for part, size in _SIZES.items():
            chosen, numbers = numbers[:size], numbers[size:]
            drawn = (fill_template(number, _TRAINING_DEPTH, generator) for number in chosen)
            examples[part] = [self._example(expression, f"{part}-{i}") for i, expression in enumerate(drawn)]
        return examples

    @cached_property
    def _len_test(self) -> list[Example]:
        if self.published and self._has_length_file:
            return self._read(LENGTH_FILE)
        generator = Random(f"arithmetic shapes {self.seed}")
        deepest = [shape for shape in shapes(_TEST_DEPTH) if shape_depth(shape) == _TEST_DEPTH]
        drawn: dict[Expression, None] = {}  # a set that preserves the order
        for filling in range(1, _EXPRESSIONS_PER_SHAPE + 1):
            for number, shape in enumerate(deepest, start=1):
                while len(drawn) < (filling - 1) * len(deepest) + number:
                    drawn[fill(shape, generator)] = None
        return [self._example(expression, f"len-{i}") for i, expression in enumerate(drawn)]

    @cached_property
    def _deep_dev(self) -> dict[Expression, None]:
        """The expressions of ``deep/dev``, which are deeper than those of the training set and of the LEN test set."""
        sampler = DepthSampler(_DEVELOPMENT_DEPTH, _DEVELOPMENT_MAX_LENGTH)
        generator = Random(f"arithmetic deep development {self.seed}")
        drawn: dict[Expression, None] = {}
        while len(drawn) < _DEVELOPMENT_EXAMPLES:
            drawn[sampler.draw(generator)] = None
        return drawn

    @cached_property
    def _depth_test(self) -> list[Example]:
        if self._sampler is None:
            raise AssertionError("the split exists only if a depth was given")
        generator = Random(f"arithmetic depth {self.depth} {self.seed}")
        drawn: dict[Expression, None] = {}
        while len(drawn) < min(_DEEP_EXAMPLES, self._sampler.count):
            expression = self._sampler.draw(generator)
            if expression not in self._deep_dev:
                drawn[expression] = None
        return [self._example(expression, f"depth-{self.depth}-{i}") for i, expression in enumerate(drawn)]

    def _example(self, expression: Expression, name: str) -> Example:
        source, target = expression.tokens("infix"), expression.tokens(self.notation)
        return Example(source, target, name, {"depth": expression.depth})

    def _read(self, name: str) -> list[Example]:
        path = dataset_file("arithmetic", name, self.data_dir)
        expressions = _expressions(path, read_table(path, columns=3).rows)
        return [self._example(expression, f"{path.stem}-{i}") for i, expression in enumerate(expressions)]


def _expressions(path: Path, rows: Sequence[tuple[int, tuple[str, ...]]]) -> Iterator[Expression]:
    """Yield the expressions of a file; its second and third columns must contain their prefix and postfix forms."""
    for number, (infix, prefix, postfix) in rows:
        try:
            expression = read_infix(infix)
        except ValueError as error:
            raise DataError(f"{excerpt(infix)} is not an infix expression: {error}", path, number) from None
        expected = ("".join(expression.tokens("prefix")), "".join(expression.tokens("postfix")))
        for written, correct in zip((prefix, postfix), expected, strict=True):
            if written != correct:
                raise DataError(f"{excerpt(written)} should be {excerpt(correct)}.", path, number)
        yield expression
