"""Numbers of ``results/`` in the pages, read from its files, so that no page can say anything else."""

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from extensions.tables import table
from permalign.reproduction.tables import get_table

RESULTS = Path(__file__).parents[2] / "results"


def read_cells(name: str) -> dict[str, dict[str, Any]]:
    """The cells of a table of results, by name."""
    return {cell["cell"]: cell for cell in json.loads((RESULTS / f"{name}.json").read_text("utf-8"))["cells"]}


def shown(cell: dict[str, Any] | None, metric: str) -> str:
    """A cell as text: mean and deviation over seeds, and the paper's number where there is one."""
    if cell is None:
        return ""
    spread = cell.get(metric)
    text = "not run" if spread is None else f"{spread['mean']:.1f}"
    if spread is not None and spread["deviation"] is not None:
        text += f" ± {spread['deviation']:.1f}"
    return text if cell["paper"] is None else f"{text} (paper {cell['paper']:.1f})"


class ResultsTable(SphinxDirective):
    """``results-table`` with the name of a table; the options ``rows`` and ``columns`` choose from it."""

    required_arguments = 1
    option_spec = {"rows": directives.unchanged_required, "columns": directives.unchanged_required}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """The table."""
        name = self.arguments[0]
        whole, cells = get_table(name), read_cells(name)
        rows = self._chosen("rows", {row.key: row.title for row in whole.rows})
        columns = self._chosen("columns", {column.key: column.title for column in whole.columns})
        head = ("", *columns.values())
        body = [
            (title, *(shown(cells.get(f"{row}/{column}"), whole.metrics[0]) for column in columns))
            for row, title in rows.items()
        ]
        return [table(head, body)]

    def _chosen(self, option: str, titles: dict[str, str]) -> dict[str, str]:
        keys = self.options.get(option, " ".join(titles)).split()
        return {key: titles[key] for key in keys}


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the directive."""
    app.add_directive("results-table", ResultsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
