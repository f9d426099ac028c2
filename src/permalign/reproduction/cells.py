"""The parts of a table: rows, columns, and cells with the evaluation behind each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from permalign.errors import UsageError, unknown_name


@dataclass(frozen=True)
class Evaluation:
    """How a trained model is evaluated.

    Attributes:
        split: the split whose examples it answers.
        settings: changes of the task's options, such as ``task.depth=8``.
        decoding: how the reorderer chooses an order; None for the model's own choice.
        beam: the beam size.
        constrained: whether outputs are constrained to the task's grammar.
        explained: how many examples to keep with the reordered input and the segments behind the output, instead of
            measuring metrics; 0 to measure metrics.
    """

    split: str
    settings: tuple[str, ...] = ()
    decoding: str | None = None
    beam: int = 1
    constrained: bool = False
    explained: int = 0

    @property
    def variant(self) -> str:
        """The decoding settings in one word, which also names the folder of predictions.

        >>> Evaluation("len/test", decoding="greedy", constrained=True).variant
        'greedy-constrained'
        """
        words = [
            self.decoding,
            f"beam-{self.beam}" if self.beam > 1 else None,
            "constrained" if self.constrained else None,
            f"explained-{self.explained}" if self.explained else None,
        ]
        return "-".join(word for word in words if word) or "plain"

    @property
    def key(self) -> str:
        """Identifies the evaluation among those of a run."""
        return f"{self.split} {self.variant}"


@dataclass(frozen=True)
class Row:
    """A system.

    Attributes:
        key: its name on the command line.
        title: its name in the table.
        ours: whether it is ours rather than the paper's.
        baseline: whether it is one of the baselines that other systems are tested against.
    """

    key: str
    title: str
    ours: bool = False
    baseline: bool = False


@dataclass(frozen=True)
class Column:
    """A task under a condition.

    Attributes:
        key: its name on the command line.
        title: its name in the table.
    """

    key: str
    title: str


@dataclass(frozen=True)
class Cell:
    """A system on a task.

    Attributes:
        row: the key of the system's row.
        column: the key of the column.
        experiment: the experiment that is trained.
        settings: the options it changes, as ``option=value``.
        evaluation: how the trained model is evaluated.
        paper: the paper's number, if it has one.
    """

    row: str
    column: str
    experiment: str
    settings: tuple[str, ...]
    evaluation: Evaluation
    paper: float | None = None

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return f"{self.row}/{self.column}"


@dataclass(frozen=True)
class Table:
    """A grid of cells.

    Attributes:
        name: its name on the command line.
        title: its heading.
        metrics: the metrics it reports; the first one is shown beside the paper's numbers.
        rows: the systems.
        columns: the tasks.
        cells: the cells, in the order in which they are run.
        seeds: the seeds of each cell, unless others are asked for.
        notes: paragraphs that a reader needs in order to understand the numbers.
    """

    name: str
    title: str
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...] = (0, 1, 2)
    notes: tuple[str, ...] = field(default=())

    @cached_property
    def by_name(self) -> dict[str, Cell]:
        """The cells by name."""
        return {cell.name: cell for cell in self.cells}

    def cell(self, row: Row, column: Column) -> Cell | None:
        """The cell of a row and a column, if the table has it."""
        return self.by_name.get(f"{row.key}/{column.key}")

    def select(self, patterns: Iterable[str]) -> Sequence[Cell]:
        """The cells that match any of the patterns, in the table's order; all cells if there is no pattern.

        A pattern is ``ROW/COLUMN``, where either may contain ``*``, or a row for all of its cells.
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
