import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.reproduction.grids import record_of, small_table

from permalign.errors import UsageError
from permalign.reproduction.cells import Published
from permalign.reproduction.plots import cost_by_length, plot_cost, plot_systems, write_plots
from permalign.reproduction.records import RunKey
from permalign.reproduction.report import as_markdown, write_report
from permalign.reproduction.run_list import write_run_list
from permalign.reproduction.summary import leads, p_values, summarize
from permalign.reproduction.tables import TABLES, get_table
from permalign.reproduction.worker import Job
from permalign.training.experiments import load_experiment


def by_run(*records):
    return {record.run: record for record in records}


@pytest.mark.parametrize("name", TABLES)
def test_every_cell_has_options_that_fit(name):
    table = get_table(name)
    assert len(table.by_name) == len(table.cells)
    for cell in table.cells:
        job = Job(RunKey.of(cell, 1), (cell.evaluation,), Path("runs"), Path("records"))
        assert Job.from_json(job.as_json()) == job


def test_the_papers_numbers_are_in_their_cells():
    numbers = {
        "table2": {
            "soft/arithmetic-len": 86.9,
            "shared/arithmetic-len": 40.9,
            "tagging/scan-len": 57.7,
            "soft/arithmetic-depth-8": None,
            "soft-viterbi/arithmetic-len": None,
        },
        "table3": {"hard/zh-temp": 45.7, "seq2seq/de-len": 15.2, "ssnt/en-temp": 38.7},
        "table4": {"hard/en-ja-len": 28.7, "hard/tatoeba-iid": None},
    }
    actual = {
        name: {cell: get_table(name).by_name[cell].paper for cell in cells} for name, cells in numbers.items()
    }
    assert actual == numbers


def test_columns_that_share_data_share_runs_and_table_5_uses_runs_of_table_3():
    two, three, five = (get_table(name).by_name for name in ("table2", "table3", "table5"))
    names = {
        RunKey.of(two[name], 0).name
        for name in ("soft/arithmetic-iid", "soft-viterbi/arithmetic-len", "soft/arithmetic-depth-10")
    }
    assert len(names) == 1
    assert RunKey.of(two["soft/scan-iid"], 0).name != RunKey.of(two["soft/scan-len"], 0).name
    assert RunKey.of(three["hard/zh-temp"], 0).name == RunKey.of(five["hard/geoquery-zh"], 0).name


def test_cells_are_chosen_by_pattern():
    table = get_table("table3")
    assert [cell.name for cell in table.select(["hard/zh-*"])] == [
        "hard/zh-iid",
        "hard/zh-temp",
        "hard/zh-len",
    ]
    assert len(table.select(["ssnt", "hard/en-iid"])) == 10
    assert len(table.select([])) == len(table.cells)
    with pytest.raises(UsageError, match="hard/zh-temp"):
        table.select(["hard/zh-tmp"])


def test_a_table_shows_means_and_what_was_not_run(tmp_path):
    table = small_table(tmp_path)
    good = table.by_name["good/plain"]
    records = by_run(
        record_of(good, 0, [True, False, False, False]), record_of(good, 1, [True, True, True, False])
    )
    text = as_markdown(table, summarize(table, records), ())
    assert "| A system that works | 50.0 ± 35.4, *50.0* | not run |" in text
    assert "| One that does not † | not run |  |" in text
    assert "4.0" in text  # minutes of two runs and their evaluations
    assert "permalign reproduce table0 --cell good/plain --seeds 0,1" in text
    assert "0123456789" in text


def test_another_config_is_another_run(tmp_path):
    table = small_table(tmp_path)
    records = by_run(record_of(table.by_name["good/plain"], 0, [True], settings=["training.max_steps=7"]))
    assert not summarize(table, records)["good/plain"].records
    assert summarize(table, records, ["training.max_steps=7"])["good/plain"].records


def test_the_list_of_runs_has_every_config_with_the_mean_of_its_seeds_and_its_failures(tmp_path):
    table = small_table(tmp_path)
    good = table.by_name["good/plain"]
    unused = [
        record_of(good, 0, [True, False], settings=["training.max_steps=7"]),
        record_of(good, 1, [True, True], settings=["training.max_steps=7"]),
    ]
    failed = record_of(table.by_name["bad/plain"], 1, [True])
    failed.dev, failed.evaluations, failed.failure = {}, {}, "there was no room"
    lines = write_run_list([*unused, failed], tmp_path).read_text().splitlines()[-2:]
    bad, mean = sorted(lines, key=lambda line: "no room" not in line)
    assert "--set training.max_steps=7` | 0, 1 | 40.0 ± 0.0 exact_match (iid/dev)" in mean
    assert "iid/dev plain 75.0 ± 35.4" in mean
    assert "seed 1 failed: there was no room" in bad


def test_systems_are_tested_against_the_best_baseline(tmp_path):
    table = small_table(tmp_path)
    records = by_run(
        record_of(table.by_name["good/plain"], 0, [False] * 5 + [True]),
        record_of(table.by_name["bad/plain"], 0, [True] * 6),
    )
    best, by_row = p_values(table, summarize(table, records), table.columns[0])
    assert best == "good"
    assert by_row == {"bad": 2 / 2**5}
    page = write_report(table, records, tmp_path).read_text()
    assert "Against the best baseline" in page
    assert f"| One that does not † | {2 / 2**5:.3f} |" in page


def test_bleu_is_tested_where_the_records_have_statistics_of_sentences(tmp_path):
    table = replace(small_table(tmp_path), metrics=("bleu",))
    good, bad = (record_of(table.by_name[f"{row}/plain"], 0, [True]) for row in ("good", "bad"))
    for record, matches in ((good, 4), (bad, 3)):
        (evaluation,) = record.evaluations.values()
        evaluation["metrics"] = {"bleu": 25.0 * matches}
        evaluation["bleu_statistics"] = [[matches, 3, 2, 1, 4, 3, 2, 1, 4, 4]] * 20
    results = summarize(table, by_run(good, bad))
    best, by_row = p_values(table, results, table.columns[0])
    assert best == "good"
    assert by_row["bad"] < 0.01
    (lead,) = leads(table, results)
    assert lead.p_value == by_row["bad"]
    assert "paired approximate randomization" in as_markdown(table, results, ())
    del evaluation["bleu_statistics"]
    results = summarize(table, by_run(good, bad))
    assert p_values(table, results, table.columns[0]) == ("good", {})
    assert not list(leads(table, results))


def test_plots_are_written_where_there_is_something_to_show(tmp_path):
    table2, table3 = get_table("table2"), get_table("table3")
    assert write_plots(table2, {}, tmp_path) == ()
    records = by_run(
        record_of(table2.by_name["soft/arithmetic-depth-9"], 0, [True, False]),
        *(
            record_of(table3.by_name[f"hard/{column}-temp"], 0, [True, False])
            for column in ("en", "zh", "de")
        ),
        record_of(
            table3.by_name["soft/zh-temp"], 0, [True, False]
        ),  # not run in the other languages: left out
    )
    assert [path.name for path in write_plots(table2, records, tmp_path)] == ["depth.png"]
    assert [path.name for path in write_plots(table3, records, tmp_path)] == ["temp.png"]
    table4 = get_table("table4")
    assert write_plots(table4, {}, tmp_path) == ()
    record = record_of(table4.by_name["hard/en-ja-len"], 0, [True, False])
    assert [path.name for path in write_plots(table4, by_run(record), tmp_path)] == ["learning-curves.png"]
    results = summarize(table3, records)
    assert plot_systems(tmp_path / "none.png", table3, results, ["en-iid"]) is None
    assert plot_systems(tmp_path / "none.png", table3, results, ["en-iid", "zh-temp"]) is None
    assert plot_systems(tmp_path / "one.png", table3, results, ["zh-temp"]) is not None


def test_cost_by_length_is_read_from_the_benchmarks(tmp_path, request):
    results = request.config.rootpath / "benchmarks" / "results" / "core.json"
    series = cost_by_length(json.loads(results.read_text())["measurements"])
    assert [length for length, _ in series["the paper's method"]] == [25, 41]
    assert [length for length, _ in series["permalign"]] == [25, 40, 41, 80]
    assert plot_cost(tmp_path / "cost.png", results).stat().st_size > 1000


@pytest.mark.parametrize("name", ["table2", "table3", "table3-tuned", "table4", "table6"])
def test_no_model_is_chosen_on_examples_that_it_is_tested_on(name, data_dir):
    """Compares each cell's dev set with its test set: by ids in GeoQuery, where some questions occur twice."""
    compared, tasks = set(), {}
    for cell in get_table(name).cells:
        chosen = load_experiment(cell.experiment, cell.settings)
        tested = load_experiment(cell.experiment, (*cell.settings, *cell.evaluation.settings))
        case = (str(tested.task), chosen.dev, cell.evaluation.split)
        if case in compared:
            continue
        compared.add(case)
        dev_task, test_task = (
            tasks.setdefault(str(options.task), options.make_task()) for options in (chosen, tested)
        )
        geoquery = chosen.task["name"] == "geoquery"
        dev, test = (
            {example.id if geoquery else (example.source, example.target) for example in task.examples(split)}
            for task, split in ((dev_task, chosen.dev), (test_task, cell.evaluation.split))
        )
        assert dev, cell.name
        assert test, cell.name
        assert not dev & test, cell.name
    assert compared


def test_the_best_system_is_tested_against_the_best_other_one_that_is_given_the_same(tmp_path):
    table = small_table(tmp_path)
    good, bad = table.rows
    records = by_run(
        record_of(table.by_name["good/plain"], 0, [False] * 5 + [True]),
        record_of(table.by_name["bad/plain"], 0, [True] * 6),
    )
    (lead,) = leads(table, summarize(table, records))
    assert (lead.column.key, lead.best, lead.other) == ("plain", bad, good)
    assert (lead.difference, lead.p_value) == (pytest.approx(500 / 6), 2 / 2**5)
    page = write_report(table, records, tmp_path).read_text()
    assert (
        "| Plain | the training set only | One that does not † | A system that works | 83.3 | 0.062 |" in page
    )
    helped = replace(table, rows=(good, replace(bad, given="names")))
    assert not list(leads(helped, summarize(helped, records)))


def test_published_numbers_stand_beside_the_means_of_groups_of_columns(tmp_path):
    table = replace(
        small_table(tmp_path),
        groups={"both": ("plain", "greedy"), "plain": ("plain",)},
        published=(Published("A large model", {"both": 61.9}, pretrained=True),),
    )
    both = record_of(table.by_name["good/plain"], 0, [True, False])
    both.evaluations |= record_of(table.by_name["good/greedy"], 0, [True, True]).evaluations
    page = write_report(table, by_run(both), tmp_path).read_text()
    assert "| A system that works | 75.0 (1) | 50.0 (1) |" in page
    assert "| One that does not † | not run | not run |" in page
    assert "| *A large model (pretrained)* | *61.9* |  |" in page
