import json

import pytest
import torch
from benchmarks import (
    alignment,
    answers,
    labelled,
    models,
    processes,
    reordering,
    table,
    tasks,
    transduction,
    translation,
)
from benchmarks.measuring import Measurement, best_seconds, current_bytes, machine, peak_bytes

TINY = reordering.Size(batch=2, length=5, width=8, hidden=16)
TINY_PAIRS = alignment.Size(batch=2, cells=3, steps=4, vocab_size=11, width=8)


def test_our_method_and_the_papers_agree():
    problem = reordering.Problem(TINY)
    differences = reordering.agreement(problem.fast(), problem.slow())
    assert differences["difference of outputs"] <= 1e-6
    assert differences["difference of gradients"] <= 1e-5


@pytest.mark.slow
def test_kernels_for_other_devices_take_fewer_operations_and_less_memory():
    time, operations, memory = reordering.backends(
        TINY, long=reordering.Size(4, 40, 8, 32), launches=TINY, times=1
    )
    assert time.name == "vectorized"
    assert operations.met
    assert memory.met


def test_unequal_outputs_are_not_compared():
    fast, slow = reordering.Problem(TINY).fast(), reordering.Problem(TINY).slow()
    wrong = slow._replace(outputs=tuple(output + 1e-4 for output in slow.outputs))
    with pytest.raises(RuntimeError, match="cannot be compared"):
        reordering.agreement(fast, wrong)
    wrong = slow._replace(gradients=tuple(gradient * 1.01 for gradient in slow.gradients))
    with pytest.raises(RuntimeError, match="cannot be compared"):
        reordering.agreement(fast, wrong)


def test_a_speedup_is_the_ratio_of_its_seconds():
    plain, with_dropout = reordering.against_the_paper(TINY, target=1, slow_times=2, fast_times=4)
    for measurement in (plain, with_dropout):
        details = measurement.details
        assert measurement.measured == details["paper seconds"] / details["permalign seconds"]
    assert plain.details["difference of outputs"] <= 1e-5


def test_growth_and_share_are_ratios_of_their_seconds():
    growth = reordering.growth(batch=1, length=3, times=2, width=8, hidden=16)
    assert growth.measured == growth.details["seconds at 6"] / growth.details["seconds at 3"]
    share = reordering.dynamic_programs_against_scoring(TINY, times=2)
    assert share.measured == share.details["dynamic programs seconds"] / share.details["scoring seconds"]


def test_labelled_trees_on_both_backends():
    size = labelled.Size(batch=2, length=5, labels=3)
    for measurement in labelled.compiled_against_portable(size, slow_times=1, fast_times=1):
        details = measurement.details
        assert measurement.measured == details["portable seconds"] / details["compiled seconds"]
    assert labelled.likelihood_seconds(size, target=60.0, times=1).met
    factorised = labelled.factorised_against_full(size, full_labels=2, times=1)
    assert (
        factorised.measured == factorised.details["factorised seconds"] / factorised.details["full seconds"]
    )


@pytest.mark.parametrize("labels", [0, 3])
def test_likelihoods_of_transduction_are_checked_and_measured(labels, monkeypatch):
    size = transduction.Size(batch=2, length=3, target_length=4, max_segment_length=2, labels=labels)
    measurement = transduction.seconds_of_likelihood(size, target=60.0, times=1)
    assert measurement.met
    assert measurement.details["difference"] <= 1e-5
    monkeypatch.setattr(transduction, "TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match="not measured"):
        transduction.seconds_of_likelihood(size, target=60.0, times=1)


@pytest.mark.parametrize("certain", [True, False])
def test_pruned_sums_are_checked_and_measured(certain, monkeypatch):
    size = transduction.Size(batch=2, length=5, target_length=5, max_segment_length=2)
    measurement = transduction.pruned_against_exact(
        size, target=0.0, threshold=1e-3, times=1, certain=certain
    )
    details = measurement.details
    assert measurement.met
    assert measurement.measured == details["exact seconds"] / details["pruned seconds"]
    assert details["nats lost on average"] <= details["mean bound"] + 1e-5
    monkeypatch.setattr(transduction, "TOLERANCE", -1.0)
    with pytest.raises(RuntimeError, match="more than their bounds"):
        transduction.pruned_against_exact(size, target=0.0, threshold=0.0, times=1)


def test_backends_that_differ_on_labelled_trees_are_not_compared(monkeypatch):
    inside = labelled.Problem.inside
    monkeypatch.setattr(
        labelled.Problem,
        "inside",
        lambda self, backend: [x + (backend == "compiled") for x in inside(self, backend)],
    )
    with pytest.raises(RuntimeError, match="cannot be compared"):
        labelled.compiled_against_portable(labelled.Size(2, 3, 2))


def test_steps_of_translation_models_are_ratios_of_their_seconds():
    rows = {row.name: row for row in translation.steps(2, 3, 4, 900, width=8, times=1)}
    seconds = rows["seq2seq-fused"].details
    assert rows["seq2seq-fused"].measured == seconds["Seq2Seq before seconds"] / seconds["Seq2Seq seconds"]
    before, sampled = (seconds[f"Hard-ReMoto {what} seconds"] for what in ("before", "sampled"))
    assert rows["hard-sampled"].measured == before / sampled


def test_additive_and_full_softmax_agree_in_values_and_gradients():
    problem = alignment.Problem(TINY_PAIRS)
    additive, full = problem.likelihood("additive"), problem.likelihood("full")
    torch.testing.assert_close(additive[0], full[0])
    for ours, theirs in zip(additive[1], full[1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("measure", "arguments", "keys"),
    [
        (reordering.measure_memory, TINY._asdict(), {"peak bytes", "bytes before", "seconds"}),
        (alignment.measure_memory, {"softmax": "full", **TINY_PAIRS._asdict()}, {"extra bytes"}),
        (processes.measure_throughput, {"seconds": 0.01, **TINY._asdict()}, {"sentences per second"}),
    ],
)
def test_the_jobs_of_new_processes(measure, arguments, keys):
    result = measure(**arguments)
    assert set(result) == keys
    assert all(value >= 0 for value in result.values())
    assert measure in processes.jobs().values()


@pytest.mark.slow
def test_two_processes_at_once(monkeypatch):
    monkeypatch.setattr(
        processes, "SETTINGS", {"one": processes.Setting((1,)), "two": processes.Setting((1, 1), "PASSIVE")}
    )
    (ratio,) = processes.compare_settings(seconds=0.01, rounds=2, **TINY._asdict())
    assert ratio.measured == ratio.details["two: sentences/s"] / ratio.details["one: sentences/s"] > 0


def test_a_new_process_returns_a_result():
    assert processes.run("throughput", seconds=0.01, **TINY._asdict())["sentences per second"] > 0


def test_a_process_that_fails_is_reported(capfd):
    with pytest.raises(RuntimeError, match="exit code 1"):
        processes.run("no such job")
    assert "no such job" in capfd.readouterr().err


def test_functions_take_turns():
    calls = []
    seconds = best_seconds(
        {"slow": (lambda: calls.append("s"), 2), "fast": (lambda: calls.append("f"), 5)},
    )
    assert "".join(calls) == "sffsfff"
    assert set(seconds) == {"slow", "fast"}


def test_memory_that_was_written_to_is_counted():
    before = peak_bytes()
    held = bytearray(b"x" * 300_000_000)
    assert peak_bytes() >= max(before, current_bytes() - 1, len(held))


@pytest.mark.parametrize(
    ("goal", "target", "met"),
    [("at least", 3.0, False), ("at least", 2.0, True), ("at most", 2.0, True), ("at most", 1.0, False)],
)
def test_a_target_is_a_lower_or_an_upper_bound(goal, target, met):
    assert Measurement("name", "what", 2.0, "x", goal, target).met is met


def test_without_a_target_none_is_missed():
    assert Measurement("name", "what", 2.0, "x").met


def test_tables_show_every_measurement_with_its_target():
    rows = [
        Measurement("a", "faster", 123.4, "x", "at least", 100.0).as_json(),
        Measurement("b", "memory", 5.04, "GB", "at most", 4.0).as_json(),
        Measurement("c", "together", 0.987, "x").as_json(),
    ]
    results = json.loads(json.dumps({"machine": machine(), "measurements": rows}))
    assert [line.split() for line in table.plain(results).splitlines()[1:]] == [
        ["faster", "123x", "at", "least", "100x"],
        ["memory", "5", "GB", "at", "most", "4", "GB", "MISSED"],
        ["together", "0.99x"],
    ]
    readme = table.with_table(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n", results)
    assert readme.startswith(f"before\n{table.BEGIN}\n| what")
    assert readme.endswith(f"{table.END}\nafter\n")
    assert "| memory | 5 GB | at most 4 GB |" in readme
    assert "old" not in readme
    assert table.with_table(readme, results) == readme


def test_a_readme_without_markers_is_refused():
    with pytest.raises(ValueError, match="markers"):
        table.with_table("nothing here", {})


@pytest.mark.slow
def test_whole_models_are_measured():
    ours, share = models.arithmetic_step(2, 4, models.arithmetic_options(width=8, hidden=16))
    assert ours.measured == ours.details["paper seconds"] / ours.details["permalign seconds"]
    assert share.measured > 0
    step, *parts = models.translation_step(2, 3, 4, vocab_size=20, width=8)
    assert step.measured == step.details["step"]
    assert [part.unit for part in parts] == ["x"] * 3
    many, single = models.predictions(4, 3, vocab_size=10, width=8)
    assert many.measured > 0
    assert single.measured > 0


def test_the_model_with_the_papers_method_computes_the_same():
    source, target, batch = models.random_batch(2, 5, 5, 8, 8)
    torch.manual_seed(0)
    model = models.Transducer(models.arithmetic_options(width=8, hidden=16), source, target)
    fast = model.loss(batch).total
    model.reorderer = models._PaperReorderer(model.reorderer)
    torch.testing.assert_close(model.loss(batch).total, fast)


@pytest.mark.slow
def test_tasks_are_measured():
    assert tasks.grammar_step().unit == "µs"


def test_answers_at_a_small_size():
    rows = [
        answers.constrained_transduction(sentences=2, length=3, width=8),
        answers.ensemble_of_three(sentences=2, length=3, vocab_size=5, width=8),
        answers.answers_without_scores(sentences=2, length=3, labels=2, width=8),
        answers.long_explanation(length=6, width=8, target=60.0),
    ]
    assert [row.name for row in rows] == [
        "constrained-transduction",
        "ensemble",
        "answers-without-scores",
        "explanation",
    ]
    assert all(row.measured > 0 for row in rows)
