"""Every number of the committed tables is computed again from the records."""

import re
import shlex
from pathlib import Path

import pytest

from permalign.reproduction.records import RUNS, RunStore
from permalign.reproduction.report import as_markdown
from permalign.reproduction.run_list import write_run_list
from permalign.reproduction.summary import summarise
from permalign.reproduction.tables import TABLES, get_table
from permalign.training.experiments import experiment_names

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="the results are not in the package")


@pytest.fixture(scope="module")
def records():
    return RunStore(RESULTS / RUNS).read()


@pytest.fixture(scope="module")
def results(records):
    """The results of tables 2 and 3."""
    return {name: summarise(get_table(name), records) for name in ("table2", "table3")}


def settings_of(page):
    """The settings of the command that a page says it was made by."""
    words = shlex.split(re.search(r"^Made by `(.*)`\.$", page, re.MULTILINE)[1])
    return [words[index + 1] for index, word in enumerate(words) if word == "--set"]


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_what_the_records_give(name, records):
    page = (RESULTS / f"{name}.md").read_text("utf-8")
    settings = settings_of(page)
    table = get_table(name)
    assert page == as_markdown(table, summarise(table, records, settings), settings)


def test_the_list_of_runs_is_what_the_records_give(records, tmp_path):
    written = write_run_list(records.values(), tmp_path).read_text("utf-8")
    assert (RESULTS / "runs.md").read_text("utf-8") == written


def test_records_are_sorted_and_in_the_form_in_which_they_are_written(records):
    lines = (RESULTS / RUNS).read_text("utf-8").splitlines()
    assert lines == [records[name].to_json() for name in sorted(records)]


def test_every_experiment_has_a_run(records):
    assert {record.experiment for record in records.values()} == set(experiment_names())


# --- Numbers in the prose ------------------------------------------------------------------------------------

README_ROWS = {
    "arithmetic LEN, and at derivation depth 13": ["labelled/arithmetic-len", "labelled/arithmetic-depth-13"],
    "arithmetic LEN: soft and hard": ["soft/arithmetic-len", "hard/arithmetic-len"],
    "SCAN-SP LEN": ["labelled/scan-len"],
    "GeoQuery TEMP in EN, ZH, DE": ["reranked/en-temp", "reranked/zh-temp", "reranked/de-temp"],
    "GeoQuery LEN in EN, ZH, DE": ["reranked/en-len", "reranked/zh-len", "reranked/de-len"],
    "GeoQuery IID in EN, ZH, DE": ["reranked/en-iid", "reranked/zh-iid", "reranked/de-iid"],
    "GeoQuery IID, TEMP, LEN in EN: the same": [
        f"reranked-linked/en-{condition}" for condition in ("iid", "temp", "len")
    ],
    "GeoQuery IID, TEMP, LEN in EN: an ensemble": [
        f"reranked-linked-ensemble/en-{condition}" for condition in ("iid", "temp", "len")
    ],
}
"""The cells behind each row of the README's table, by how the row begins."""


def rows_below(text, head):
    """The rows of the Markdown table with this header, as lists of cells."""
    lines = text.partition(head)[2].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.strip().startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows


def mean(results, cell):
    (result,) = [table[cell] for table in results.values() if cell in table]
    return f"{result.spread('exact_match').mean:.1f}"


def best_of_paper(results, column):
    """The best of the paper's numbers in a column."""
    return max(
        result.cell.paper
        for table in results.values()
        for result in table.values()
        if result.cell.column == column and result.cell.paper is not None
    )


def test_the_readme_reports_what_the_records_give(results):
    rows = rows_below((ROOT / "README.md").read_text("utf-8"), "| | ours | the paper |")
    assert len(rows) == len(README_ROWS)
    for (title, ours, _), (beginning, cells) in zip(rows, README_ROWS.items(), strict=True):
        assert title.startswith(beginning)
        assert ours == ", ".join(mean(results, cell) for cell in cells)


def test_the_summary_of_geoquery_reports_what_the_records_give(results):
    text = (RESULTS / "README.md").read_text("utf-8")
    rows = rows_below(text, "| without / with reranking; the paper's best | EN | ZH | DE |")
    assert [condition for condition, *_ in rows] == ["TEMP", "LEN", "IID"]
    for condition, *cells in rows:
        for language, cell in zip(("en", "zh", "de"), cells, strict=True):
            column = f"{language}-{condition.lower()}"
            means = [mean(results, f"{row}/{column}") for row in ("exact-constrained", "reranked")]
            assert cell == f"{' / '.join(means)}; {best_of_paper(results, column):.1f}"
