"""What a table is made of."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

from permalign.errors import UsageError, unknown_name


@dataclass(frozen=True)
class Trial:
    """A model put to the test.

    Attributes:
        split: the examples to answer.
        settings: changes of the task, such as ``task.depth=8``.
        decoding: how the reorderer chooses an order; None for what the model was made with.
        beam: how many prefixes to keep.
        constrained: whether to write only what the task's grammar reads.
        shown: of so many examples, keep the answer with its reordered input and segments.
    """

    split: str
    settings: tuple[str, ...] = ()
    decoding: str | None = None
    beam: int = 1
    constrained: bool = False
    shown: int = 0

    @property
    def manner(self) -> str:
        """How answers are looked for, in a word that can name a folder.

        >>> Trial("len/test", decoding="greedy", constrained=True).manner
        'greedy-constrained'
        """
        words = [
            self.decoding,
            f"beam-{self.beam}" if self.beam > 1 else None,
            "constrained" if self.constrained else None,
            f"shown-{self.shown}" if self.shown else None,
        ]
        return "-".join(word for word in words if word) or "plain"

    @property
    def key(self) -> str:
        """Names the trial among those of a run."""
        return f"{self.split} {self.manner}"


@dataclass(frozen=True)
class Row:
    """A system.

    Attributes:
        key: names it on the command line.
        title: names it in the table.
        ours: whether the paper does not have it.
        baseline: whether it is one of those that others are tested against.
    """

    key: str
    title: str
    ours: bool = False
    baseline: bool = False


@dataclass(frozen=True)
class Column:
    """A task under a condition."""

    key: str
    title: str


@dataclass(frozen=True)
class Cell:
    """A system on a task.

    Attributes:
        row: of the system.
        column: of the task and condition.
        experiment: what is trained.
        settings: how it differs.
        trial: how it is tested.
        paper: the paper's number, if it has one.
    """

    row: str
    column: str
    experiment: str
    settings: tuple[str, ...]
    trial: Trial
    paper: float | None = None

    @property
    def name(self) -> str:
        """What the command line calls it."""
        return f"{self.row}/{self.column}"


@dataclass(frozen=True)
class Table:
    """A grid of cells.

    Attributes:
        name: what the command line calls it.
        title: what it is about.
        metrics: what it reports, the first of them beside the paper's numbers.
        rows: its systems.
        columns: its tasks.
        cells: in the order in which they are run.
        seeds: with which each is run if nothing else is said.
        notes: what a reader should know.
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
        """Its cells."""
        return {cell.name: cell for cell in self.cells}

    def cell(self, row: Row, column: Column) -> Cell | None:
        """The cell of a row and a column, if the table has it."""
        return self.by_name.get(f"{row.key}/{column.key}")

    def select(self, patterns: Iterable[str]) -> Sequence[Cell]:
        """The cells that any pattern names, in the table's order; all of them if there is no pattern.

        A pattern is ``ROW/COLUMN``, either of them with ``*``, or a row alone.
        """
        wanted = [pattern if "/" in pattern else f"{pattern}/*" for pattern in patterns]
        for pattern in wanted:
            if not any(fnmatchcase(cell.name, pattern) for cell in self.cells):
                raise UsageError(unknown_name(f"cell of {self.name}", pattern, self.by_name))
        return [
            cell
            for cell in self.cells
            if not wanted or any(fnmatchcase(cell.name, pattern) for pattern in wanted)
        ]
