"""The systems in the rows of tables, and how their cells are trained and evaluated."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from permalign.reproduction.cells import Cell, Column, Evaluation, Row

Choice = TypeVar("Choice")


@dataclass(frozen=True)
class System:
    """A system, with everything that is needed to train and evaluate it on each task.

    Attributes:
        row: the row of the system in the table.
        experiment: the name of the experiment without the name of the task; if it depends on the column, a mapping from
            prefixes of column keys to names.
        settings: changes to the options of the experiment; if they depend on the column, a mapping from prefixes of
            column keys to settings.
        paper: the paper's numbers, in the order of the columns.
        evaluation: the attributes of `Evaluation` that differ for this system, such as ``decoding``.
        columns: the keys of the columns in which the system has a cell; None for all columns.
    """

    row: Row
    experiment: str | Mapping[str, str]
    settings: tuple[str, ...] | Mapping[str, tuple[str, ...]] = ()
    paper: tuple[float, ...] = ()
    evaluation: Mapping[str, Any] | None = None
    columns: tuple[str, ...] | None = None

    def runs_in(self, column: Column) -> bool:
        """Whether the system has a cell in a column."""
        return self.columns is None or column.key in self.columns

    def cell(
        self, column: Column, task: str, settings: tuple[str, ...], index: int, evaluation: Evaluation
    ) -> Cell:
        """The cell of the system in a column.

        Args:
            column: the column.
            task: the name of the task, with which the name of the experiment begins.
            settings: the settings of the column, which are applied after those of the system.
            index: the index of the column among the paper's numbers; -1 if the paper has none.
            evaluation: the evaluation of the column, before the changes of the system are applied.
        """
        experiment = self.experiment if isinstance(self.experiment, str) else _choose(self.experiment, column)
        system_settings = (
            self.settings if isinstance(self.settings, tuple) else _choose(self.settings, column)
        )
        changed = replace(evaluation, **(self.evaluation or {}))
        number = self.paper[index] if 0 <= index < len(self.paper) else None
        return Cell(
            self.row.key, column.key, f"{task}/{experiment}", (*system_settings, *settings), changed, number
        )


def _choose(choices: Mapping[str, Choice], column: Column) -> Choice:
    return next(choice for prefix, choice in choices.items() if column.key.startswith(prefix))


def both_decodings(
    key: str,
    title: str,
    experiment: str | Mapping[str, str],
    settings: tuple[str, ...] | Mapping[str, tuple[str, ...]] = (),
    paper: tuple[float, ...] = (),
) -> Iterator[System]:
    """Yield a separable system twice: with greedy decoding, as in the paper, and with Viterbi decoding."""
    ours = not paper
    yield System(Row(key, title, ours), experiment, settings, paper, {"decoding": "greedy"})
    viterbi = Row(f"{key}-viterbi", f"{title}, Viterbi", ours=True)
    yield System(viterbi, experiment, settings, evaluation={"decoding": "viterbi"})


def condition_settings(condition: str) -> tuple[str, str]:
    """The settings that train on the training split of a condition and select models on its dev split."""
    return f"train={condition}/train", f"dev={condition}/dev"
