"""What the rows of tables are made of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from permalign.reproduction.cells import Cell, Column, Row, Trial

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class System:
    """A row, and what to train for it.

    Attributes:
        row: how it is shown.
        experiment: its name after the task's; or several, by how the names of columns begin.
        settings: what differs; or by how the names of columns begin.
        paper: the paper's numbers by column.
        trial: how its trials differ.
        columns: where it can be run; None for everywhere.
    """

    row: Row
    experiment: str | Mapping[str, str]
    settings: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()
    paper: tuple[float, ...] = ()
    trial: Mapping[str, Any] | None = None
    columns: tuple[str, ...] | None = None

    def runs_in(self, column: Column) -> bool:
        """Whether it has a cell in a column."""
        return self.columns is None or column.key in self.columns

    def cell(self, column: Column, task: str, settings: tuple[str, ...], paper: int, trial: Trial) -> Cell:
        """Its cell in a column, whose place among the paper's numbers is ``paper``."""
        experiment = self.experiment if isinstance(self.experiment, str) else _chosen(self.experiment, column)
        own = self.settings if isinstance(self.settings, tuple) else _chosen(self.settings, column)
        changed = Trial(**{**trial.__dict__, **(self.trial or {})})
        number = self.paper[paper] if 0 <= paper < len(self.paper) else None
        return Cell(self.row.key, column.key, f"{task}/{experiment}", (*own, *settings), changed, number)


def _chosen(choices: Mapping[str, Choice], column: Column) -> Choice:
    return next(choice for beginning, choice in choices.items() if column.key.startswith(beginning))


def both_decodings(
    key: str,
    title: str,
    experiment: str | Mapping[str, str],
    settings: tuple[str, ...] | Mapping[str, tuple[str, ...]] = (),
    paper: tuple[float, ...] = (),
) -> Iterator[System]:
    """A separable system twice: with the paper's greedy choice of rules, and with the best derivation."""
    ours = not paper
    yield System(Row(key, title, ours), experiment, settings, paper, {"decoding": "greedy"})
    viterbi = Row(f"{key}-viterbi", f"{title}, Viterbi", ours=True)
    yield System(viterbi, experiment, settings, trial={"decoding": "viterbi"})


def condition_settings(condition: str) -> tuple[str, str]:
    """Train and choose models on the parts of a condition."""
    return f"train={condition}/train", f"dev={condition}/dev"
