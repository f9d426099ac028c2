"""What the rows of tables are made of."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from permalign.reproduction.cells import Cell, Column, Evaluation, Row

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class System:
    """A row, and what to train for it.

    Attributes:
        row: the table's row.
        experiment: the experiment's name after the task's; or a mapping from beginnings of column keys to such names.
        settings: the options it changes; or a mapping from beginnings of column keys to such settings.
        paper: the paper's numbers, by column.
        evaluation: the attributes of `Evaluation` that it changes, such as its decoding.
        columns: the keys of its columns; None for all of them.
    """

    row: Row
    experiment: str | Mapping[str, str]
    settings: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()
    paper: tuple[float, ...] = ()
    evaluation: Mapping[str, Any] | None = None
    columns: tuple[str, ...] | None = None

    def runs_in(self, column: Column) -> bool:
        """Whether it has a cell in a column."""
        return self.columns is None or column.key in self.columns

    def cell(
        self, column: Column, task: str, settings: tuple[str, ...], index: int, evaluation: Evaluation
    ) -> Cell:
        """Its cell in a column.

        Args:
            column: the column.
            task: the task's name, which begins the experiment's.
            settings: the column's settings, applied after the system's own.
            index: the column's position among the paper's numbers; -1 if the paper has none.
            evaluation: the column's evaluation, before the system's changes.
        """
        experiment = self.experiment if isinstance(self.experiment, str) else _chosen(self.experiment, column)
        own = self.settings if isinstance(self.settings, tuple) else _chosen(self.settings, column)
        changed = replace(evaluation, **(self.evaluation or {}))
        number = self.paper[index] if 0 <= index < len(self.paper) else None
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
    yield System(viterbi, experiment, settings, evaluation={"decoding": "viterbi"})


def condition_settings(condition: str) -> tuple[str, str]:
    """Train and choose models on the splits of a condition."""
    return f"train={condition}/train", f"dev={condition}/dev"
