"""Tables, and what they consist of: rows, columns, and cells, each with an evaluation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Literal

from permalign.errors import UsageError, unknown_name


@dataclass(frozen=True)
class Evaluation:
    """How a trained model is evaluated.

    Attributes:
        split: the split that the model is evaluated on.
        settings: changes to the task's options, such as ``task.depth=8``.
        decoding: how the reorderer chooses an order; None for the option ``reorderer.decoding`` of the model.
        beam: the beam size.
        length_penalty: the exponent of the length by which log-probabilities are divided when outputs are compared.
        grammar: the grammar that outputs have to follow: that of the run's training programs, the same generalized
            to other types, or that of all programs of the task; None to allow all outputs.
        search: how outputs are searched: by a beam, or exactly.
        explained: the number of examples to record with their reordered source and their segments, instead of
            computing metrics; 0 to compute metrics.
    """

    split: str
    settings: tuple[str, ...] = ()
    decoding: str | None = None
    beam: int = 1
    length_penalty: float = 0.0
    grammar: Literal["training", "generalized", "task"] | None = None
    search: Literal["beam", "exact"] = "beam"
    explained: int = 0

    @property
    def variant(self) -> str:
        """The decoding settings in one word, which is also the name of the folder of predictions.

        >>> Evaluation("len/test", decoding="greedy", grammar="training").variant
        'greedy-training-grammar'
        """
        words = [
            self.decoding,
            f"beam-{self.beam}" if self.beam > 1 else None,
            f"length-penalty-{self.length_penalty:g}" if self.length_penalty else None,
            {
                "training": "training-grammar",
                "generalized": "generalized-grammar",
                "task": "constrained",
                None: None,
            }[self.grammar],
            "exact-search" if self.search == "exact" else None,
            f"explained-{self.explained}" if self.explained else None,
        ]
        return "-".join(word for word in words if word) or "plain"

    @property
    def key(self) -> str:
        """The name of the evaluation, unique among the evaluations of a run."""
        return f"{self.split} {self.variant}"


@dataclass(frozen=True)
class Row:
    """A row of a table: a system.

    Attributes:
        key: the name of the system on the command line.
        title: the name of the system in the table.
        ours: whether the system is new, and not in the paper.
        baseline: whether the system is one of the baselines that other systems are compared with.
        given: what the system has besides the training set, such as names of entities; systems that have the same are
            compared with each other.
    """

    key: str
    title: str
    ours: bool = False
    baseline: bool = False
    given: str = ""


@dataclass(frozen=True)
class Column:
    """A column of a table: a task under a condition.

    Attributes:
        key: the name of the column on the command line.
        title: the heading of the column in the table.
    """

    key: str
    title: str


@dataclass(frozen=True)
class Cell:
    """A cell of a table: a system, trained and evaluated on a task.

    Attributes:
        row: the key of the row.
        column: the key of the column.
        experiment: the name of the experiment that is trained.
        settings: changes to the options of the experiment, as ``option=value``.
        evaluation: how the trained model is evaluated.
        paper: the number in the paper; None if the paper has none.
    """

    row: str
    column: str
    experiment: str
    settings: tuple[str, ...]
    evaluation: Evaluation
    paper: float | None = None

    @property
    def name(self) -> str:
        """The name of the cell on the command line, ``ROW/COLUMN``."""
        return f"{self.row}/{self.column}"


@dataclass(frozen=True)
class Published:
    """A system of another paper.

    Attributes:
        title: the name of the system.
        numbers: its numbers, by the titles of the table's groups of columns.
        pretrained: whether a pretrained model is part of the system.
    """

    title: str
    numbers: Mapping[str, float]
    pretrained: bool = False


@dataclass(frozen=True)
class Table:
    """A grid of cells.

    Attributes:
        name: the name of the table on the command line.
        title: the heading of the table.
        metrics: the metrics that the table reports; the first one is that of the paper's numbers.
        rows: the systems.
        columns: the tasks and conditions.
        cells: the cells, in the order in which they are run.
        seeds: the seeds with which each cell is run by default.
        notes: paragraphs that explain the numbers.
        groups: columns whose mean is compared with published numbers: the keys of the columns by a title.
        published: the published systems, with their numbers by the titles of groups.
        absent: what the table shows where it has no cell.
    """

    name: str
    title: str
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    notes: tuple[str, ...] = field(default=())
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    published: tuple[Published, ...] = ()
    absent: str = ""

    @cached_property
    def by_name(self) -> dict[str, Cell]:
        """All cells by their names."""
        return {cell.name: cell for cell in self.cells}

    def cell(self, row: Row, column: Column) -> Cell | None:
        """The cell of a row and a column; None if the table has no such cell."""
        return self.by_name.get(f"{row.key}/{column.key}")

    def select(self, patterns: Iterable[str]) -> Sequence[Cell]:
        """Select the cells that match any of the patterns, in the order of the table; without patterns, all cells.

        A pattern is ``ROW/COLUMN``, where both may contain ``*``, or just ``ROW`` for all cells of a row.
        """
        patterns = [pattern if "/" in pattern else f"{pattern}/*" for pattern in patterns]
        for pattern in patterns:
            if not any(fnmatchcase(cell.name, pattern) for cell in self.cells):
                raise UsageError(unknown_name(f"cell of {self.name}", pattern, self.by_name))
        return [
            cell
            for cell in self.cells
            if not patterns or any(fnmatchcase(cell.name, pattern) for pattern in patterns)
        ]
