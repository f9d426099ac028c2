"""Numbers of ``results/`` in the pages, computed from its records, so that no page can say anything else."""

from collections.abc import Iterable
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from extensions.tables import table
from permalign.evaluation.significance import Spread
from permalign.reproduction.records import RUNS, RunStore
from permalign.reproduction.summary import CellResult, summarize
from permalign.reproduction.tables import get_table

RECORDS = Path(__file__).parents[2] / "results" / RUNS


def read_results(name: str, settings: Iterable[str] = ()) -> dict[str, CellResult]:
    """The results of a table's cells, by name; ``settings`` are options that all of its runs have changed."""
    return summarize(get_table(name), RunStore(RECORDS).read(), settings)


def shown(spread: Spread | None, paper: float | None) -> str:
    """A cell as text: mean and deviation over seeds, and the paper's number if there is one."""
    text = "not run" if spread is None else f"{spread.mean:.1f}"
    if spread is not None and spread.deviation is not None:
        text += f" ± {spread.deviation:.1f}"
    return text if paper is None else f"{text} (paper {paper:.1f})"


class ResultsTable(SphinxDirective):
    """``results-table`` with the name of a table.

    The options ``rows`` and ``columns`` choose from it, and ``set`` gives the options that its runs have changed.
    """

    required_arguments = 1
    option_spec = dict.fromkeys(("rows", "columns", "set"), directives.unchanged_required)

    def run(self) -> list[nodes.Node]:
        """The table."""
        name = self.arguments[0]
        whole, results = get_table(name), read_results(name, self.options.get("set", "").split())
        rows = self._chosen("rows", {row.key: row.title for row in whole.rows})
        columns = self._chosen("columns", {column.key: column.title for column in whole.columns})
        head = ("", *columns.values())
        body = [
            (
                title,
                *(self._cell(results.get(f"{row}/{column}"), whole.metrics[0]) for column in columns),
            )
            for row, title in rows.items()
        ]
        return [table(head, body)]

    def _cell(self, result: CellResult | None, metric: str) -> str:
        return "" if result is None else shown(result.spread(metric), result.cell.paper)

    def _chosen(self, option: str, titles: dict[str, str]) -> dict[str, str]:
        keys = self.options.get(option, " ".join(titles)).split()
        return {key: titles[key] for key in keys}


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the directive."""
    app.add_directive("results-table", ResultsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
