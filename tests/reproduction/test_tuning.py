import json
from dataclasses import replace

import pytest
from tests.reproduction.grids import record_of, small_table

from permalign.errors import DataError
from permalign.options.run import RunOptions
from permalign.reproduction import tuned_systems, tuning
from permalign.reproduction.cells import Evaluation, Row
from permalign.reproduction.records import RunKey, RunStore
from permalign.reproduction.summary import summarize
from permalign.reproduction.tables import get_table
from permalign.reproduction.tuned_systems import SYSTEMS, ranges_of, with_chosen_settings
from permalign.reproduction.tuning import SHIPPED, best_candidate, choose, read_trail, tune_cell
from permalign.training.experiments import load_experiment
from permalign.training.tuning_ranges import Range
from permalign.yaml_files import parse_yaml

RATES = ("training.learning_rate=0.001:0.1:log",)


def candidate(dev, *settings, cell="hard/zh-temp"):
    return {"cell": cell, "trial": 0, "dev": dev, "settings": list(settings)}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("column", ["en-temp", "zh-temp"])
def test_every_value_that_is_tried_is_one_that_the_system_may_have(system, column):
    cell = get_table("table3").by_name[f"{system}/{column}"]
    for dimension in map(Range.parse, ranges_of(system)):
        for value in dimension.choices or (dimension.low, dimension.high):
            options = load_experiment(cell.experiment, (f"{dimension.option}={value}", *cell.settings))
            assert isinstance(options, RunOptions)


def test_the_first_of_the_best_candidates_is_chosen_and_one_that_failed_is_not():
    first, second = candidate(80.0, "a=1"), candidate(80.0, "a=2")
    assert best_candidate([candidate(None), candidate(70.0), first, second]) is first
    trail = [first, second, candidate(10.0, cell="exact/de-len"), candidate(9.0, "b=1", cell="exact/de-len")]
    assert choose(trail) == {"hard": {"zh-temp": ("a=1",)}, "exact": {"de-len": ()}}


def test_both_rows_of_a_system_have_the_options_that_were_chosen_and_others_have_no_cells():
    table = get_table("table3")
    tuned = with_chosen_settings(table, {"hard": {"zh-temp": ("model.head.dropout=0.5",)}})
    assert set(tuned.by_name) == {"hard/zh-temp", "hard-constrained/zh-temp"}
    for name, cell in tuned.by_name.items():
        former = table.by_name[name]
        assert cell == replace(former, settings=("model.head.dropout=0.5", *former.settings))
    assert len(tuned.rows) == 2 * len(SYSTEMS)


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A table with one system, plain and with a beam, that is tuned in one column."""
    small = small_table(tmp_path)
    cell = small.by_name["good/plain"]
    beam = replace(cell, row="good-constrained", evaluation=Evaluation("iid/dev", beam=2))
    rows = (small.rows[0], Row("good-constrained", "The same with a beam"))
    table = replace(small, name="table3", rows=rows, columns=small.columns[:1], cells=(cell, beam))
    monkeypatch.setattr(tuning, "get_table", lambda name: table)
    monkeypatch.setattr(tuned_systems, "SYSTEMS", ("good",))
    monkeypatch.setattr(tuning, "ranges_of", lambda system: RATES)
    monkeypatch.setattr(tuning, "TRIALS", 2)
    return table


@pytest.fixture
def tuned(table, tmp_path):
    """A function that tunes the system, and returns its line, its trail and what was chosen."""
    runs, results, file = tmp_path / "runs", tmp_path / "results", tmp_path / "chosen.yaml"

    def tune():
        line = tune_cell("good/plain", runs, results, file)
        return line, read_trail(results / "tuning.jsonl"), parse_yaml(file.read_text("utf-8"))

    return tune


def test_a_system_is_tuned_and_the_chosen_run_is_kept_for_the_table(table, tuned, tmp_path):
    store = RunStore(tmp_path / "results" / "runs.jsonl")
    with pytest.raises(DataError, match="there is no run of good/plain with seed 0"):
        tuned()
    shipped = record_of(table.by_name["good/plain"], 0, [True, False])
    shipped.dev["best"] = -1.0
    store.write(shipped)
    line, trail, chosen = tuned()
    assert [candidate["trial"] for candidate in trail] == [SHIPPED, 0, 1]
    best = best_candidate(trail)
    assert line.startswith(f"good/plain: {best['trial']}, ")
    assert chosen == {"good": {"plain": best["settings"]}}

    results = summarize(with_chosen_settings(table, choose(trail)), store.read())
    assert set(results) == {"good/plain", "good-constrained/plain"}
    for result in results.values():
        assert [record.seed for record in result.records] == [0, 1, 2]
        assert result.records[0].dev["best"] == best["dev"]
    first = results["good/plain"].records[0]
    kept = load_experiment(str(tmp_path / "runs" / first.run / "config.yaml"))
    assert kept.model_dump(exclude={"description"}) == load_experiment(
        first.experiment, [*first.settings, "seed=0"]
    ).model_dump(exclude={"description"})
    assert not (tmp_path / "runs" / "tuning" / "good-plain" / f"trial-{best['trial']:04d}").exists()
    assert store.find(shipped.run) == shipped

    before = store.path.read_text("utf-8")
    assert tuned() == (line, trail, chosen)
    assert store.path.read_text("utf-8") == before


def test_the_options_of_the_experiment_may_be_the_best_and_their_run_is_not_repeated(table, tuned, tmp_path):
    store = RunStore(tmp_path / "results" / "runs.jsonl")
    shipped = record_of(table.by_name["good/plain"], 0, [True, False])
    shipped.dev["best"] = 100.0
    store.write(shipped)
    line, _, chosen = tuned()
    assert line.startswith(f"good/plain: {SHIPPED}, 100.0 on dev")
    assert chosen == {"good": {"plain": []}}
    assert store.read() == {shipped.run: shipped}
    assert RunKey.of(table.by_name["good/plain"], 0).name == shipped.run


def test_the_trail_of_a_cell_is_replaced_when_it_is_tuned_again(table, tmp_path):
    trail, file = tmp_path / "tuning.jsonl", tmp_path / "chosen.yaml"
    for dev in (10.0, 20.0):
        tuning.write_candidates([candidate(dev, f"a={dev}", cell="good/plain")], trail, file)
    (line,) = trail.read_text("utf-8").splitlines()
    assert json.loads(line)["dev"] == 20.0
    assert parse_yaml(file.read_text("utf-8")) == {"good": {"plain": ["a=20.0"]}}
