"""Every number of the committed tables is computed again from the records."""

import re
import shlex
from pathlib import Path

import pytest

from permalign.reproduction.records import RUNS, RunStore
from permalign.reproduction.report import as_markdown
from permalign.reproduction.run_list import write_run_list
from permalign.reproduction.summary import summarize
from permalign.reproduction.tables import TABLES, get_table
from permalign.reproduction.tuned_systems import SYSTEMS, TRIALS, chosen_settings
from permalign.reproduction.tuning import SHIPPED, TRAIL, choose, command, read_trail
from permalign.training.experiments import experiment_names

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"

pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="the results are not in the package")


@pytest.fixture(scope="module")
def records():
    return RunStore(RESULTS / RUNS).read()


@pytest.fixture(scope="module")
def results(records):
    """The results of tables 2 to 4, and of tuned systems."""
    names = ("table2", "table3", "table4", "table3-tuned")
    return {name: summarize(get_table(name), records) for name in names}


def settings_of(page):
    """The settings of the command that a page says it was made by."""
    words = shlex.split(re.search(r"^Made by `(.*)`\.$", page, re.MULTILINE)[1])
    return [words[index + 1] for index, word in enumerate(words) if word == "--set"]


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_what_the_records_give(name, records):
    page = (RESULTS / f"{name}.md").read_text("utf-8")
    settings = settings_of(page)
    table = get_table(name)
    assert page == as_markdown(table, summarize(table, records, settings), settings)


def test_the_list_of_runs_is_what_the_records_give(records, tmp_path):
    written = write_run_list(records.values(), tmp_path).read_text("utf-8")
    assert (RESULTS / "runs.md").read_text("utf-8") == written


def test_records_are_sorted_and_in_the_form_in_which_they_are_written(records):
    lines = (RESULTS / RUNS).read_text("utf-8").splitlines()
    assert lines == [records[name].to_json() for name in sorted(records)]


def test_tuned_systems_have_the_best_options_of_complete_searches_that_were_all_alike():
    trail = read_trail(RESULTS / TRAIL)
    assert choose(trail) == chosen_settings()
    names = get_table("table3").by_name
    by_cell = {}
    for candidate in trail:
        by_cell.setdefault(candidate["cell"], []).append(candidate)
    for name, candidates in by_cell.items():
        assert [candidate["trial"] for candidate in candidates] == [SHIPPED, *range(TRIALS)]
        assert {candidate["command"] for candidate in candidates} == {command(names[name])}


def test_every_experiment_has_a_run(records):
    assert {record.experiment for record in records.values()} == set(experiment_names())


# --- Numbers in the prose ------------------------------------------------------------------------------------

README_ROWS = {
    "arithmetic LEN: Soft-ReMoto, the paper's protocol": ("soft", "arithmetic-len"),
    "arithmetic LEN: Soft-ReMoto with shared parameters, the paper's protocol": ("shared", "arithmetic-len"),
    "arithmetic LEN: Hard-ReMoto, the paper's protocol": ("hard", "arithmetic-len"),
    "arithmetic LEN: Soft-ReMoto, best of four on deeper expressions": ("soft-deep", "arithmetic-len"),
    "arithmetic LEN: Hard-ReMoto, best of four on deeper expressions": ("hard-deep", "arithmetic-len"),
    "arithmetic LEN: labelled trees": ("labelled", "arithmetic-len"),
    "arithmetic, derivation depth 13: labelled trees": ("labelled", "arithmetic-depth-13"),
    "SCAN-SP LEN: labelled trees": ("labelled", "scan-len"),
}
"""The cell behind each row of the README's table of arithmetic and SCAN-SP."""
GEOQUERY_ROWS = {
    "Seq2Seq with constrained decoding": "seq2seq-constrained",
    "exact transduction": "exact",
    "with constrained decoding": "exact-constrained",
    "with constrained decoding, grammar of all programs": "exact-constrained-all-programs",
    "with reranking as well": "reranked-all-programs",
    "with entity linking as well": "reranked-linked-all-programs",
    "ensemble of three such models": "reranked-linked-ensemble",
}
"""The row of table 3 behind each row of the README's table of GeoQuery."""
LINKED_ROWS = {
    "Seq2Seq": "seq2seq-linked",
    "SSNT": "ssnt-linked",
    "Hard-ReMoto": "hard-linked",
    "exact transduction, constrained and reranked": "reranked-linked-all-programs",
}
"""The row of table 3 behind each row of the table of single models with entity linking."""
GEOQUERY_COLUMNS = [
    f"{language}-{condition}" for language in ("en", "zh", "de") for condition in ("iid", "temp", "len")
]


def rows_below(text, head):
    """The rows of the Markdown table with this header, as lists of cells."""
    lines = text.partition(head)[2].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.strip().startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows


def shown(results, cell):
    """The mean of a cell; nothing if the table has no such cell."""
    cells = [table[cell] for table in results.values() if cell in table]
    return f"{cells[0].spread('exact_match').mean:.1f}" if cells else ""


def best_of_paper(results, column):
    """The best of the paper's numbers in a column; a dash if it has none."""
    numbers = [
        result.cell.paper
        for table in results.values()
        for result in table.values()
        if result.cell.column == column and result.cell.paper is not None
    ]
    return f"{max(numbers):.1f}" if numbers else "–"


def header(first, columns):
    """The header row of a table of GeoQuery."""
    return f"| {' | '.join([first, *(column.replace('-', ' ').upper() for column in columns)])} |"


def test_the_readme_reports_arithmetic_and_scan_as_the_records_give_them(results):
    rows = rows_below(
        (ROOT / "README.md").read_text("utf-8"), "| arithmetic and SCAN-SP | ours | the paper |"
    )
    expected = []
    for title, (row, column) in README_ROWS.items():
        paper = results["table2"][f"{row}/{column}"].cell.paper
        number = best_of_paper(results, column) if paper is None else f"{paper:.1f}"
        expected.append([title, shown(results, f"{row}/{column}"), number])
    assert rows == expected


def test_the_readme_reports_geoquery_as_the_records_give_it(results):
    rows = rows_below((ROOT / "README.md").read_text("utf-8"), header("GeoQuery", GEOQUERY_COLUMNS))
    paper = ["the paper's best system", *(best_of_paper(results, column) for column in GEOQUERY_COLUMNS)]
    ours = [
        [title, *(shown(results, f"{row}/{column}") for column in GEOQUERY_COLUMNS)]
        for title, row in GEOQUERY_ROWS.items()
    ]
    assert rows == [paper, *ours]


def test_the_summary_of_geoquery_reports_what_the_records_give(results):
    text = (RESULTS / "README.md").read_text("utf-8")
    titles = {
        "Seq2Seq with constrained decoding": "seq2seq-constrained",
        "exact transduction": "exact",
        "with constrained decoding": "exact-constrained",
        "with constrained decoding, grammar of all programs": "exact-constrained-all-programs",
        "with reranking as well": "reranked-all-programs",
    }
    paper = ["the paper's best system", *(best_of_paper(results, column) for column in GEOQUERY_COLUMNS)]
    ours = [
        [title, *(shown(results, f"{row}/{column}") for column in GEOQUERY_COLUMNS)]
        for title, row in titles.items()
    ]
    baselines = [best_baseline(results, column) for column in GEOQUERY_COLUMNS]
    assert rows_below(text, header("single models", GEOQUERY_COLUMNS)) == [
        paper,
        ["our best baseline", *baselines],
        *ours,
    ]


@pytest.mark.parametrize("page", ["README.md", "results/README.md"])
def test_translation_is_reported_as_the_records_give_it(results, page):
    head = "| English to Japanese, BLEU | IID | the paper | LEN | the paper |"
    expected = []
    for row in get_table("table4").rows:
        cells = [results["table4"].get(f"{row.key}/{column}") for column in ("en-ja-iid", "en-ja-len")]
        spreads = [cell and cell.spread("bleu") for cell in cells]
        if any(spreads):
            expected.append([row.title])
            for result, spread in zip(cells, spreads, strict=True):
                expected[-1].append(f"{spread.mean:.1f}" if spread else "")
                paper = result and result.cell.paper
                expected[-1].append("–" if paper is None else f"{paper:.1f}")
    assert rows_below((ROOT / page).read_text("utf-8"), head) == expected


def best_baseline(results, column):
    """The best mean among our baselines that decode as in the paper, in a column of table 3."""
    means = [
        results["table3"][f"{row.key}/{column}"].spread("exact_match").mean
        for row in get_table("table3").rows
        if row.baseline and not row.ours
    ]
    return f"{max(means):.1f}"


def test_the_summary_of_entity_linking_reports_what_the_records_give(results):
    text = (RESULTS / "README.md").read_text("utf-8")
    columns = GEOQUERY_COLUMNS[:3]
    for first, rows in (
        ("single models, entities linked", LINKED_ROWS),
        (
            "ensembles of three, entities linked",
            {
                "SSNT": "ssnt-linked-ensemble",
                "exact transduction, constrained and reranked": "reranked-linked-ensemble",
            },
        ),
    ):
        expected = [
            [title, *(shown(results, f"{row}/{column}") for column in columns)] for title, row in rows.items()
        ]
        assert rows_below(text, header(first, columns)) == expected


def test_the_summary_of_tuned_systems_reports_what_the_records_give(results):
    """Every cell shows the mean in table 3, that of the tuned system, and the paper's number."""
    columns = [
        column
        for column in GEOQUERY_COLUMNS
        if all(column in chosen_settings()[system] for system in SYSTEMS)
    ]
    expected = []
    for row in get_table("table3-tuned").rows:
        cells = []
        for column in columns:
            name = f"{row.key}/{column}"
            spreads = [results[table][name].spread("exact_match") for table in ("table3", "table3-tuned")]
            means = [f"{spread.mean:.1f}" if spread else "–" for spread in spreads]
            paper = results["table3"][name].cell.paper
            cells.append(" → ".join(means) + ("" if paper is None else f" ({paper:.1f})"))
        expected.append([row.title, *cells])
    text = (RESULTS / "README.md").read_text("utf-8")
    assert rows_below(text, header("tuned in each column", columns)) == expected
