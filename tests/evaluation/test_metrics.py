import itertools
import random
import subprocess
import sys

import pytest
from tests.evaluation.runs import aligned, model_for
from tests.models import small

from permalign.evaluation import JudgedPrediction, compute_metrics, evaluate, main_metric, make_report
from permalign.evaluation.metrics import token_accuracy
from permalign.evaluation.sacrebleu_metrics import bleu_statistics, corpus_score
from permalign.plugins import TASKS
from permalign.tasks.base import Example
from permalign.tasks.registry import get_task


def prediction(target, output):
    return JudgedPrediction(
        Example(("x",), tuple(target), "0"), tuple(output), 0.0, tuple(target) == tuple(output)
    )


@pytest.mark.parametrize(
    ("target", "output", "right", "places"),
    [
        ("abc", "abc", 3, 3),
        ("abc", "ab", 2, 3),
        ("abc", "abcd", 3, 4),
        ("abc", "bc", 0, 3),
        ("abc", "", 0, 3),
        ("abc", "xbx", 1, 3),
    ],
)
def test_missing_and_superfluous_tokens_count_as_wrong(target, output, right, places):
    assert token_accuracy([prediction(target, output)]) == pytest.approx(100 * right / places)


def test_token_accuracy_counts_the_positions_of_all_examples_together():
    predictions = [prediction("a", "a"), prediction("abcdefghi", "")]
    assert token_accuracy(predictions) == pytest.approx(10.0)
    padded = itertools.zip_longest("abcde", "abxdefg")  # the slow twin: lay them side by side
    assert token_accuracy([prediction("abcde", "abxdefg")]) == pytest.approx(
        100 * sum(a == b for a, b in padded) / 7
    )


def test_outputs_of_one_token_and_of_none():
    def accuracy(*outputs):
        return token_accuracy([JudgedPrediction(Example(("x",), t, "0"), o, 0.0, t == o) for t, o in outputs])

    assert accuracy((("a",), ("a",))) == 100.0
    assert accuracy((("a",), ())) == 0.0
    assert accuracy(((), ())) == 0.0
    assert accuracy((("a",), ("a",)), ((), ("b",)), (("c", "d"), ("c",))) == 50.0


@pytest.mark.parametrize(
    ("judgements", "expected"),
    [((True, False), 50.0), ((True, True), 100.0), ((True, None), None), ((None, None), None)],
)
def test_what_is_not_known_of_all_outputs_has_no_share(judgements, expected):
    example = Example(("x",), ("a",), "0")
    judged = [
        JudgedPrediction(example, ("a",), 0.0, True, executes_right=judgement, well_formed=judgement)
        for judgement in judgements
    ]
    metrics, _ = compute_metrics(judged)
    assert metrics.get("execution_accuracy") == metrics.get("well_formed") == expected
    assert metrics["exact_match"] == 100.0


def test_a_translation_is_measured_in_bleu_and_a_program_in_exact_match():
    options = {"aligned": {"source_file": "a", "target_file": "b"}, "own": {"path": "x"}}
    options["zh-en"] = options["aligned"]
    main = {name: main_metric(get_task(name, **options.get(name, {}))) for name in TASKS}
    bleu = {"en-ja", "zh-en", "tatoeba", "zh-en-docs", "aligned"}
    assert {name for name, metric in main.items() if metric == "bleu"} == bleu
    assert set(main.values()) == {"bleu", "exact_match"}


def test_metrics_without_predictions_are_an_error():
    with pytest.raises(ValueError, match="predictions is empty"):
        compute_metrics([])


def sacrebleu(references, outputs, metric, folder):
    """The number and the signature that sacrebleu's own command prints."""
    for name, lines in (("ref", references), ("hyp", outputs)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(folder / "ref"), "-i", str(folder / "hyp")]
    command += ["-m", metric, "--tokenize", "none", "--force", "-w", "8", "-f", "text"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
    name, _, number = done.stdout.strip().partition(" = ")
    return float(number.split()[0]), name.partition("|")[2]


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_scores_and_signatures_are_those_of_the_command_sacrebleu(metric, tmp_path):
    generator = random.Random(1)
    words = ["it", "'s", "3.5", "a.m.", "(", ")", "don", "'t", "彼", "。", "<unk>", "left-handed"]
    references = [" ".join(generator.choices(words, k=generator.randint(1, 12))) for _ in range(150)]
    outputs = [
        " ".join(word for word in line.split() if generator.random() < 0.8) + " ." for line in references
    ]
    outputs[3] = ""
    value, signature = corpus_score(metric, outputs, references)
    seen, printed = sacrebleu(references, outputs, metric, tmp_path)
    assert value == pytest.approx(seen, abs=1e-7)
    assert 0 < value < 100
    assert signature == printed
    assert ("tok:none" in signature) == (metric == "bleu")


def test_scores_of_tokens_are_computed_without_a_warning(caplog):
    corpus = ["the cat sat on the mat ."] * 200  # sacrebleu warns if many sentences look tokenised
    corpus_score("bleu", corpus, corpus)
    bleu_statistics(["the cat", "."], ["the dog", "."])
    assert caplog.records == []


def test_every_output_needs_a_reference():
    with pytest.raises(ValueError, match="2 outputs but 1 references"):
        corpus_score("bleu", ["a", "b"], ["a"])


def test_a_model_that_knows_its_examples_has_perfect_metrics():
    examples = small.examples(30)
    model = small.make("none", "attention")
    task = get_task("own", path="nowhere")
    before = evaluate(model, task, examples)
    assert small.train(model, examples, steps=300, enough=0.01) < 0.05
    model.train()
    report = evaluate(model, task, examples, beam=2)
    assert before.metrics["exact_match"] < 50
    assert report.metrics == {"exact_match": 100.0, "token_accuracy": 100.0}
    assert [prediction.tokens for prediction in report.predictions] == [
        example.target for example in examples
    ]
    assert all(
        judged.correct and judged.executes_right is None and judged.well_formed is None
        for judged in report.predictions
    )
    assert model.training


def test_predictions_do_not_depend_on_the_batch_size():
    examples = small.examples(20)
    model = small.make("soft", "ssnt")
    task = get_task("own", path="nowhere")
    first, second = (evaluate(model, task, examples, batch_size=size).predictions for size in (3, 64))
    assert [prediction.tokens for prediction in first] == [prediction.tokens for prediction in second]


def test_evaluation_needs_examples():
    model, task = small.make("none", "ssnt"), get_task("own", path="nowhere")
    with pytest.raises(ValueError, match="examples is empty"):
        evaluate(model, task, [])


def test_constrained_outputs_are_programs():
    task = get_task("scan-sp")
    programs = ["and jump twice walk", "after run around left", "thrice look"]
    examples = [
        Example(("a", "b", "c")[:length], tuple(text.split()), "") for length, text in enumerate(programs, 1)
    ]
    model = model_for(examples)
    free, constrained = (
        evaluate(model, task, examples, constraint=constraint) for constraint in (None, task.grammar)
    )
    assert free.metrics["well_formed"] < 100 == constrained.metrics["well_formed"]
    assert "execution_accuracy" not in constrained.metrics


def test_translations_have_bleu_with_its_signature(tmp_path):
    task = get_task(**aligned(tmp_path))
    examples = task.examples("iid/dev")
    right = make_report(task, [(example, example.target, 0.0) for example in examples])
    assert right.metrics["bleu"] == pytest.approx(100)
    assert right.metrics["chrf"] == pytest.approx(100)
    assert set(right.signatures) == {"bleu", "chrf"}
    empty = make_report(task, [(example, (), float("-inf")) for example in examples])
    assert empty.metrics == {"exact_match": 0.0, "token_accuracy": 0.0, "bleu": 0.0, "chrf": 0.0}


# --- Execution --------------------------------------------------------------------------------------------


def judged(task, example, text):
    return make_report(task, [(example, text.split(), 0.0)]).metrics


def test_execution_accuracy_compares_answers_and_not_programs(data_dir):
    task = get_task("geoquery", data_dir=data_dir)
    example = next(example for example in task.examples("iid/test") if example.target[0] == "city")
    assert judged(task, example, " ".join(example.target)) == {
        "exact_match": 100.0,
        "token_accuracy": 100.0,
        "execution_accuracy": 100.0,
        "well_formed": 100.0,
    }
    twice = judged(task, example, " ".join(("city", *example.target)))
    assert twice["exact_match"] == 0
    assert twice["execution_accuracy"] == twice["well_formed"] == 100
    for nothing in ("", "city loc_2", "prediction city", "stateid_ENTITY " * 50, "<unk> ? ( )"):
        metrics = judged(task, example, nothing)
        assert (metrics["execution_accuracy"], metrics["well_formed"]) == (0, 0)


def test_any_program_can_be_judged(data_dir):
    task = get_task("geoquery", data_dir=data_dir)
    examples = task.examples("temp/test")
    generator = random.Random(5)
    outputs = []
    for length in [1, 2, 3, 5, 8, 13, 21, 34, 500] * 12:
        state, tokens = task.grammar.initial, []
        while len(tokens) < length:  # a program that may say anything, and may be deep
            choices = sorted(state.allowed_within(max(length - len(tokens), state.shortest)) - {"</s>"})
            if not choices:
                break
            tokens.append(generator.choice(choices))
            state = state.advance(tokens[-1])
        outputs.append((generator.choice(examples), tokens, 0.0))
    report = make_report(task, outputs)
    assert len(report.predictions) == len(outputs)
    assert 0 <= report.metrics["execution_accuracy"] < report.metrics["well_formed"] <= 100


def test_without_geobase_a_note_says_that_execution_accuracy_is_missing(data_dir, tmp_path):
    (tmp_path / "geoquery").symlink_to(data_dir / "geoquery")
    task = get_task("geoquery", data_dir=tmp_path)
    examples = task.examples("iid/test")[:3]
    report = make_report(task, [(example, example.target, 0.0) for example in examples])
    assert report.metrics == {"exact_match": 100.0, "token_accuracy": 100.0, "well_formed": 100.0}
    assert "no execution accuracy" in report.notes[0]
    assert "permalign data fetch geobase" in report.notes[0]
