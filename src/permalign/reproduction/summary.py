"""A table's cells with what their runs gave: means and deviations over seeds, tests against the best baseline."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from permalign.errors import PermalignError
from permalign.evaluation.significance import Spread, permutation_test
from permalign.reproduction.cells import Cell, Column, Table
from permalign.reproduction.records import Records, RunKey, RunRecord, unpacked


@dataclass(frozen=True)
class CellResult:
    """What is known of a cell.

    Attributes:
        cell: which.
        key: its run, with the first seed; None if its options are wrong.
        records: of the runs that were put to its trial, by seed.
        problem: why it has no result, where there is a reason beside that it was not run.
    """

    cell: Cell
    key: RunKey | None
    records: tuple[RunRecord, ...]
    problem: str | None = None

    @property
    def tests(self) -> list[dict[str, Any]]:
        """The results of its trial, by seed."""
        return [record.tests[self.cell.trial.key] for record in self.records]

    def spread(self, metric: str) -> Spread | None:
        """A metric over seeds; None where it was not measured."""
        values = tuple(test["metrics"][metric] for test in self.tests if metric in test.get("metrics", {}))
        return Spread(values) if values else None

    @property
    def seconds(self) -> float:
        """Of training and testing, all seeds together."""
        tested = sum(test.get("seconds", 0.0) for test in self.tests)
        return float(tested + sum(record.training["seconds"] for record in self.records))


def summarise(table: Table, records: Records, settings: Iterable[str] = ()) -> dict[str, CellResult]:
    """All cells of a table, by name, with every seed that was run."""
    settings = tuple(settings)
    kept = sorted(path.stem for path in records.folder.glob("*.json"))
    results = {}
    for cell in table.cells:
        try:
            key = RunKey.of(cell, 0, settings)
        except PermalignError as error:
            results[cell.name] = CellResult(cell, None, (), str(error))
            continue
        family = key.name.removesuffix("0")
        found = [record for name in kept if name.startswith(family) and (record := records.read(name))]
        found.sort(key=lambda record: record.seed)
        failures = [record.failure for record in found if record.failure]
        tried = tuple(record for record in found if cell.trial.key in record.tests)
        results[cell.name] = CellResult(cell, key, tried, failures[0] if failures else None)
    return results


def p_values(
    table: Table, results: dict[str, CellResult], column: Column
) -> tuple[str | None, dict[str, float]]:
    """The best baseline of a column by the table's metric, and by row how probable its difference is by chance.

    The paired permutation test of `permalign.evaluation.significance`, over the examples of the test set.
    """
    metric = table.metrics[0] if table.metrics else ""
    spreads = {
        row: spread.mean
        for row in table.rows
        if (result := results.get(f"{row.key}/{column.key}")) and (spread := result.spread(metric))
    }
    baselines = {row: mean for row, mean in spreads.items() if row.baseline}
    if not baselines:
        return None, {}
    best = max(baselines, key=lambda row: baselines[row])
    right = {row: judgements(results[f"{row.key}/{column.key}"], metric) for row in spreads}
    return best.key, {
        row.key: permutation_test(right[best], right[row]) for row in spreads if not row.baseline
    }


def judgements(result: CellResult, metric: str) -> Sequence[Sequence[bool]]:
    """For each seed, whether each example was answered right."""
    return [unpacked(test[metric], test["examples"]) for test in result.tests]
