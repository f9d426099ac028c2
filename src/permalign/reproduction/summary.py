"""Collect the results of a table's cells: means and deviations over seeds, and tests against the best baseline."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from permalign.errors import PermalignError
from permalign.evaluation.significance import Spread, bleu_randomization_test, permutation_test
from permalign.reproduction.cells import Cell, Column, Row, Table
from permalign.reproduction.records import RunKey, RunRecord, unpack_bits


@dataclass(frozen=True)
class CellResult:
    """The results of a cell.

    Attributes:
        cell: the cell.
        key: the run of the cell with seed 0; None if its options are invalid.
        records: the records of all runs with the cell's evaluation, sorted by seed.
        problem: the error message if a run failed or the options are invalid; None otherwise.
    """

    cell: Cell
    key: RunKey | None
    records: tuple[RunRecord, ...]
    problem: str | None = None

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        """The recorded results of the cell's evaluation, one for each seed."""
        return [record.evaluations[self.cell.evaluation.key] for record in self.records]

    def spread(self, metric: str) -> Spread | None:
        """The values of a metric over seeds; None if it was not measured."""
        values = tuple(
            evaluation["metrics"][metric]
            for evaluation in self.evaluations
            if metric in evaluation.get("metrics", {})
        )
        return Spread(values) if values else None

    @property
    def seconds(self) -> float:
        """The time that training and evaluation took, summed over seeds."""
        evaluated = sum(evaluation.get("seconds", 0.0) for evaluation in self.evaluations)
        return float(evaluated + sum(record.training["seconds"] for record in self.records))


def summarize(
    table: Table, records: Mapping[str, RunRecord], settings: Iterable[str] = ()
) -> dict[str, CellResult]:
    """Collect the results of all cells of a table, by the names of the cells, with all seeds that were run.

    Args:
        table: the table.
        records: all records, by the names of their runs.
        settings: changes to the options of all runs, applied after the settings of the cells.
    """
    settings = tuple(settings)
    by_config: dict[str, list[RunRecord]] = {}
    for record in sorted(records.values(), key=lambda record: record.seed):
        by_config.setdefault(record.config, []).append(record)
    results = {}
    for cell in table.cells:
        try:
            key = RunKey.of(cell, 0, settings)
        except PermalignError as error:
            results[cell.name] = CellResult(cell, None, (), str(error))
            continue
        runs = by_config.get(key.config, [])
        failures = [record.failure for record in runs if record.failure]
        evaluated = tuple(record for record in runs if cell.evaluation.key in record.evaluations)
        results[cell.name] = CellResult(cell, key, evaluated, failures[0] if failures else None)
    return results


def p_values(
    table: Table, results: dict[str, CellResult], column: Column
) -> tuple[str | None, dict[str, float]]:
    """Compare all systems of a column with its best baseline, by the first metric of the table.

    Returns:
        The key of the best baseline's row (None if there is no baseline), and for each row that is not a baseline the
        p-value of the difference (see `p_value`), if it can be tested.
    """
    metric = table.metrics[0] if table.metrics else ""
    means = {
        row: spread.mean
        for row in table.rows
        if (result := results.get(f"{row.key}/{column.key}")) and (spread := result.spread(metric))
    }
    baselines = {row: mean for row, mean in means.items() if row.baseline}
    if not baselines:
        return None, {}
    best = max(baselines, key=lambda row: baselines[row])
    by_row = {row: results[f"{row.key}/{column.key}"] for row in means}
    tested = {
        row.key: p_value(by_row[best], result, metric) for row, result in by_row.items() if not row.baseline
    }
    return best.key, {key: value for key, value in tested.items() if value is not None}


@dataclass(frozen=True)
class Lead:
    """The best system of a column, compared with the best other system.

    Attributes:
        column: the column.
        given: what both systems have besides the training set (see `Row.given`).
        best: the best system.
        other: the best other system.
        difference: the difference between their means over seeds.
        p_value: the p-value of the test of the metric, see `p_value`.
    """

    column: Column
    given: str
    best: Row
    other: Row
    difference: float
    p_value: float


def leads(table: Table, results: dict[str, CellResult]) -> Iterator[Lead]:
    """Yield a comparison for each column and each set of systems that are given the same, if there are at least two."""
    metric = table.metrics[0]
    for given in dict.fromkeys(row.given for row in table.rows):
        for column in table.columns:
            means = {
                row: spread.mean
                for row in table.rows
                if row.given == given
                and (result := results.get(f"{row.key}/{column.key}"))
                and (spread := result.spread(metric))
            }
            if len(means) < 2:
                continue
            best, other = sorted(means, key=lambda row: means[row], reverse=True)[:2]
            first, second = (results[f"{row.key}/{column.key}"] for row in (best, other))
            if (value := p_value(first, second, metric)) is not None:
                yield Lead(column, given, best, other, means[best] - means[other], value)


def p_value(first: CellResult, second: CellResult, metric: str) -> float | None:
    """The p-value of a difference: of a paired permutation test or, for BLEU, of paired approximate randomization.

    See `permalign.evaluation.significance`. None if the records of BLEU have no statistics of sentences. BLEU is
    compared with as many seeds as both systems have.
    """
    if metric != "bleu":
        return permutation_test(judgements(first, metric), judgements(second, metric))
    seeds = min(len(first.records), len(second.records))
    evaluations = [result.evaluations[:seeds] for result in (first, second)]
    if any("bleu_statistics" not in evaluation for system in evaluations for evaluation in system):
        return None
    statistics = [[evaluation["bleu_statistics"] for evaluation in system] for system in evaluations]
    return bleu_randomization_test(*statistics)


def judgements(result: CellResult, metric: str) -> Sequence[Sequence[bool]]:
    """For each seed, whether each example was answered correctly."""
    return [unpack_bits(evaluation[metric], evaluation["examples"]) for evaluation in result.evaluations]
