import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from tests.training.small_run import SILENT, options, write_data

from permalign import Ensemble, Transducer
from permalign.errors import ConfigError, DataError, PermalignError
from permalign.evaluation import evaluate, read_predictions
from permalign.files import exclusive_lock
from permalign.options.run import RunOptions
from permalign.tasks.geoquery import GeoQuery
from permalign.tasks.registry import get_task
from permalign.training import average, ensemble, train
from permalign.training.experiments import experiment_names, load_experiment
from permalign.training.launch import _chance_warning, resume
from permalign.training.progress_display import Display
from permalign.training.run_directory import LOCK, RunDirectory
from permalign.training.setup import prepare
from permalign.training.state import Progress
from permalign.training.trained_run import DecodingSettings, TrainedRun

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    data = write_data(folder, count=200)
    values = options(
        data,
        max_steps=150,
        evaluate_every=50,
        log_every=50,
        gradient_accumulation_steps=1,
        stages=[],
        keep_checkpoints=3,
    )
    values["model"]["reorderer"] |= {
        "objective": "soft",
        "encoder": {"hidden_size": 16},
        "scorer_hidden_size": 16,
    }
    values["model"]["head"] |= {"kind": "tagging", "encoder": {"kind": "none"}}
    progress = train(values, folder / "run", display=SILENT)
    return folder / "run", data, progress


def test_a_run_learns_and_keeps_its_best_model(trained):
    run, data, progress = trained
    task = get_task("own", path=data)
    report = evaluate(Transducer.from_pretrained(run), task, task.examples("iid/dev"))
    assert report.metrics["exact_match"] == progress.best
    assert progress.best > 50


def test_the_folder_has_all_documented_files(trained):
    run, _, _ = trained
    names = {path.name for path in run.iterdir()}
    assert names == {
        "config.yaml", "environment.json", "metrics.jsonl", "events",
        "model", "checkpoints", "state", "predictions", ".lock",
    }  # fmt: skip
    assert json.loads((run / "environment.json").read_text())["packages"]["torch"]
    assert {path.name for path in (run / "checkpoints").iterdir()} == {
        "step-0000050", "step-0000100", "step-0000150", "last",
    }  # fmt: skip


def test_dev_predictions_are_the_best_models(trained):
    run, _, progress = trained
    answers = read_predictions(run / "predictions" / "dev.jsonl")
    assert 100 * sum(answer.correct for answer in answers) / len(answers) == pytest.approx(progress.best)


def test_no_file_that_is_loaded_is_a_pickle(trained):
    files = [
        path for path in trained[0].rglob("*") if path.is_file() and not {"events", ".lock"} & set(path.parts)
    ]
    assert {path.suffix for path in files} == {".json", ".jsonl", ".yaml", ".safetensors", ".md"}


def test_the_resolved_config_is_a_config(trained):
    run, _, _ = trained
    values = yaml.safe_load((run / "config.yaml").read_text())
    assert values["training"]["batch_size"] == 8
    assert values["model"]["head"]["label_smoothing"] == 0.0
    assert load_experiment(str(run / "config.yaml")) == RunOptions.parse(values)


def test_tensorboard_reads_the_events(trained):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(trained[0] / "events")).Reload()
    assert [event.step for event in events.Scalars("dev/exact_match")] == [50, 100, 150]


def test_a_run_is_not_overwritten_by_default(trained):
    run, data, _ = trained
    before = (run / "metrics.jsonl").read_text()
    with pytest.raises(PermalignError, match=r"already contains a run. Resume it with --resume"):
        train(options(data), run, display=SILENT)
    assert (run / "metrics.jsonl").read_text() == before


def test_a_folder_that_is_not_a_run_is_never_overwritten(tmp_path):
    data = write_data(tmp_path)
    with pytest.raises(PermalignError, match="is not a run"):
        train(options(data), tmp_path, overwrite=True, display=SILENT)
    assert data.exists()


@pytest.mark.parametrize("config", ["name: mine\n", "task: {name: arithmetic}\ntraining: {max_steps: 1}\n"])
def test_a_config_alone_is_not_a_run(tmp_path, config):
    data = write_data(tmp_path / "project" / "model")
    (tmp_path / "project" / "config.yaml").write_text(config)
    with pytest.raises(PermalignError, match="is not a run"):
        train(options(data), tmp_path / "project", overwrite=True, display=SILENT)
    assert data.exists()


def test_a_run_is_trained_by_one_process_at_a_time(trained):
    run, data, _ = trained
    with exclusive_lock(run / LOCK):
        for again in (lambda: resume(run), lambda: train(options(data), run, overwrite=True)):
            with pytest.raises(PermalignError, match=f"is being trained by process {os.getpid()}. Wait"):
                again()
    assert resume(run, display=SILENT).step == 150


def test_overwriting_starts_from_the_beginning(tmp_path):
    data = write_data(tmp_path)
    for steps in (8, 4):
        train(options(data, max_steps=steps, stages=[]), tmp_path / "run", overwrite=True, display=SILENT)
    steps = [
        json.loads(line)["step"] for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert max(steps) == 4


def test_stored_predictions_belong_to_the_model_that_made_them(trained, tmp_path, monkeypatch):
    run, _, progress = trained
    copy = shutil.copytree(run, tmp_path / "run")
    evaluated, evaluate_split = [], TrainedRun.evaluate

    def recorded(self, *arguments):
        evaluated.append(self)
        return evaluate_split(self, *arguments)

    monkeypatch.setattr(TrainedRun, "evaluate", recorded)
    before, decoding = TrainedRun(copy), DecodingSettings()
    assert before.model.training is False  # loaded, before another model takes the place of its files
    worst, _ = progress.kept[-1]
    shutil.copytree(run / "checkpoints" / f"step-{worst:07d}", copy / "model", dirs_exist_ok=True)
    answers = before.predictions("iid/dev", decoding)
    assert before.predictions("iid/dev", decoding) == answers
    assert evaluated == [before]
    after = TrainedRun(copy)
    assert after.predictions("iid/dev", decoding) != answers
    assert evaluated == [before, after]


def test_examples_of_the_training_split_are_noticed_in_other_splits_only(trained, tmp_path):
    run, data, _ = trained
    lines = [json.loads(line) for line in data.read_text().splitlines()]
    seen = next(line for line in lines if line["split"] == "train")
    (tmp_path / "new.tsv").write_text(f"{' '.join(seen['source'])}\t{' '.join(seen['target'])}\n")
    evaluated = TrainedRun(run)
    assert not any("train" in note for note in evaluated.evaluate("iid/train", DecodingSettings()).notes)
    split = evaluated.use_file([str(tmp_path / "new.tsv")])
    assert any("iid/train" in note for note in evaluated.evaluate(split, DecodingSettings()).notes)


def test_the_average_is_the_mean_of_the_kept_models(trained, tmp_path):
    run, _, progress = trained
    mean = average([run], tmp_path / "mean").state_dict()
    models = [
        Transducer.from_pretrained(run / "checkpoints" / f"step-{step:07d}") for step, _ in progress.kept
    ]
    assert len(models) == 3
    for name, tensor in Transducer.from_pretrained(tmp_path / "mean").state_dict().items():
        assert torch.equal(tensor, mean[name])
        expected = sum(model.state_dict()[name] for model in models) / 3
        torch.testing.assert_close(tensor, expected)


def test_an_ensemble_holds_all_models(trained, tmp_path):
    run, data, _ = trained
    folders = [run / "checkpoints" / "step-0000050", run / "checkpoints" / "step-0000100"]
    models = [Transducer.from_pretrained(folder) for folder in folders]
    examples = get_task("own", path=data).examples("iid/dev")[:10]
    pair = [example.source for example in examples], [example.target for example in examples]
    both = ensemble(folders, tmp_path / "both")
    expected = torch.tensor([model.score(*pair) for model in models]).logsumexp(0) - torch.tensor(2.0).log()
    torch.testing.assert_close(torch.tensor(both.score(*pair)), expected)
    again = Ensemble.from_pretrained(tmp_path / "both")
    assert again.predict(pair[0], beam=2) == both.predict(pair[0], beam=2)
    more = ensemble([tmp_path / "both", folders[0]], tmp_path / "more")
    assert len(more.members) == 3
    weighted = torch.tensor([model.score(*pair) for model in (*models, models[0])]).logsumexp(0)
    torch.testing.assert_close(torch.tensor(more.score(*pair)), weighted - torch.tensor(3.0).log())
    with pytest.raises(DataError, match="has other options"):
        average([tmp_path / "both", folders[0]], tmp_path / "mean")


def test_an_ensemble_gets_the_task_of_the_first_run(trained, tmp_path):
    run, _, _ = trained
    Transducer.from_pretrained(run).save_pretrained(tmp_path / "elsewhere")
    ensemble([run / "model", tmp_path / "elsewhere"], tmp_path / "first")
    ensemble([tmp_path / "elsewhere", run / "model"], tmp_path / "second")
    assert (tmp_path / "first" / "config.yaml").is_file()
    assert [path.name for path in (tmp_path / "second").iterdir()] == ["model"]


def test_models_with_other_vocabularies_cannot_form_an_ensemble(trained, tmp_path):
    run, _, _ = trained
    model = Transducer.from_pretrained(run)
    Transducer(model.options, model.target, model.source).save_pretrained(tmp_path / "swapped")
    with pytest.raises(ConfigError, match=r"swapped: the source vocabulary of member 1 differs"):
        ensemble([run / "model", tmp_path / "swapped"], tmp_path / "both")


def test_a_single_model_cannot_be_averaged(trained, tmp_path):
    run, _, _ = trained
    with pytest.raises(ConfigError, match=r"at least two models are needed, but .*model is only one"):
        average([run / "model"], tmp_path / "mean")
    with pytest.raises(PermalignError, match="already exists"):
        average([run], tmp_path)


def test_a_tagging_head_needs_outputs_as_long_as_their_sources(tmp_path):
    data = write_data(tmp_path)
    data.write_text(data.read_text() + '{"source": "a b", "target": "A", "split": "train"}\n')
    values = options(data, stages=[])
    values["model"]["head"] |= {"kind": "tagging", "encoder": {"kind": "none"}}
    with pytest.raises(
        ConfigError, match=r"writes exactly 2 words for a source of 2, but example 61 .* has 1"
    ):
        prepare(RunOptions.parse(values))


def test_examples_that_the_inverse_model_cannot_generate(tmp_path):
    """They are an error, or are skipped and counted; if there are no other examples, they are always an error."""
    data = write_data(tmp_path)
    data.write_text(data.read_text() + '{"source": "a b a b", "target": "A", "split": "train"}\n')
    values = options(data, stages=[])
    values["model"]["inverse"] = {
        "head": {**values["model"]["head"], "kind": "segments", "max_segment_length": 2}
    }
    with pytest.raises(
        ConfigError,
        match=r"model\.inverse\.head\.kind segments writes at most 2 words for a source of 1.*"
        r"Raise model\.inverse\.head\.max_segment_length",
    ):
        prepare(RunOptions.parse(values))
    values["training"]["overlong_targets"] = "skip"
    prepared = prepare(RunOptions.parse(values))
    assert (prepared.skipped, prepared.skipped_by_inverse) == (0, 1)
    data.write_text(
        "".join(
            f'{{"source": "a b a b", "target": "A", "split": "{split}"}}\n'
            for split in ("train", "dev", "test")
        )
    )
    with pytest.raises(ConfigError, match=r"model\.inverse\.head\.kind"):
        prepare(RunOptions.parse(values))


def test_examples_with_overlong_targets_are_an_error_or_skipped(tmp_path):
    data = write_data(tmp_path)
    data.write_text(data.read_text() + '{"source": "a", "target": "A A", "split": "train"}\n')
    values = options(data, stages=[])
    values["model"]["head"] |= {"kind": "segments", "max_segment_length": 1}
    with pytest.raises(
        ConfigError,
        match=r"at most 1 words .*; or skip such examples \(here 1\) with training.overlong_targets",
    ):
        prepare(RunOptions.parse(values))
    whole = prepare(RunOptions.parse(options(write_data(tmp_path / "whole"), stages=[])))
    values["training"]["overlong_targets"] = "skip"
    prepared = prepare(RunOptions.parse(values))
    assert prepared.skipped == 1
    assert len(prepared.batches) == len(whole.batches)
    said = []

    class Listening(type(SILENT)):
        def say(self, message):
            said.append(message)

    values["training"] |= {"max_steps": 1}
    train(values, tmp_path / "run", display=Listening())
    assert "skipped 1 training examples whose targets are too long for segments" in said


def test_it_is_always_an_error_if_all_targets_are_overlong(tmp_path):
    data = tmp_path / "data.jsonl"
    data.write_text(
        '{"source": "a", "target": "A A", "split": "train"}\n{"source": "a", "target": "A", "split": "dev"}\n'
    )
    values = options(data, stages=[], overlong_targets="skip")
    values["model"]["head"] |= {"kind": "segments", "max_segment_length": 1}
    with pytest.raises(
        ConfigError, match=r"Raise model.head.max_segment_length, or use model.head.kind: ssnt\."
    ):
        prepare(RunOptions.parse(values))


def test_an_example_larger_than_a_batch_is_an_error_that_names_the_option(tmp_path):
    with pytest.raises(ConfigError, match=r"training.max_tokens: example"):
        prepare(RunOptions.parse(options(write_data(tmp_path), max_tokens=3)))


def test_a_metric_that_the_task_lacks_is_an_error_before_training(tmp_path):
    with pytest.raises(ConfigError, match=r"training.metric: unknown metric of own 'bleu'"):
        prepare(RunOptions.parse(options(write_data(tmp_path), metric="bleu")))


def test_an_unknown_metric_is_an_error_before_data_is_read(tmp_path):
    with pytest.raises(ConfigError, match=r"did you mean 'exact_match'"):
        prepare(RunOptions.parse(options(tmp_path / "nowhere.jsonl", metric="exact_mach")))


def test_a_run_finds_its_data_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    RunDirectory("run").create(RunOptions.parse(options("data.jsonl")))
    assert RunDirectory("run").read_options().task["path"] == str(tmp_path / "data.jsonl")


def test_dev_examples_are_always_the_same_ones(tmp_path):
    data = write_data(tmp_path)
    first, second = (prepare(RunOptions.parse(options(data, max_dev_examples=5))).dev for _ in range(2))
    assert first == second
    assert len(first) == 5


def test_subwords_are_learned_where_asked_for(tmp_path):
    values = options(write_data(tmp_path))
    values["text"] = {"source": {"kind": "subwords", "vocab_size": 20}, "target": {"vocab_size": 3}}
    model = prepare(RunOptions.parse(values)).model
    assert "Subwords" in repr(model.source)
    assert len(model.target) == 3 + 4  # with the specials


def test_a_vocabulary_without_words_is_an_error(tmp_path):
    values = {**options(write_data(tmp_path)), "text": {"target": {"min_frequency": 1000}}}
    with pytest.raises(ConfigError, match="Lower min_frequency"):
        prepare(RunOptions.parse(values))


def test_patience_ends_a_run_early(tmp_path):
    values = options(
        write_data(tmp_path), max_steps=100, evaluate_every=1, patience=2, learning_rate=1e-9, stages=[]
    )
    progress = train(values, tmp_path / "run", display=SILENT)
    assert progress.step == 3
    assert progress.finished == "exact_match has not improved for 2 evaluations"


def test_a_run_that_never_leaves_chance_says_so(tmp_path):
    class Recorder(Display):
        def __init__(self):
            self.messages = []

        def say(self, message):
            self.messages.append(message)

    display = Recorder()
    train(options(write_data(tmp_path), learning_rate=1e-9), tmp_path / "run", display=display)
    assert any("exact_match on iid/dev is 0.0 %" in message for message in display.messages)
    assert _chance_warning(Progress(best=60.0), "exact_match", "iid/dev") is None
    assert _chance_warning(Progress(best=1.0), "bleu", "iid/dev") is None


def test_training_ends_at_the_first_of_epochs_and_steps(tmp_path):
    data = write_data(tmp_path)  # 45 examples, 6 batches of at most 8
    values = options(data, max_steps=1000, max_epochs=3, gradient_accumulation_steps=2)
    parsed = RunOptions.parse(values)
    assert prepare(parsed).total_steps(parsed, processes=1) == 9
    assert prepare(parsed).total_steps(parsed, processes=2) == 5


def test_the_best_checkpoints_are_kept_and_later_ones_win_ties():
    progress = Progress()
    for step, score in enumerate([50.0, 80.0, 70.0, 80.0], 1):
        progress.step = step
        progress.judge(score, keep=2)
    assert progress.kept == [(4, 80.0), (2, 80.0)]
    assert progress.waited == 2


@pytest.mark.slow
def test_the_wheel_has_the_experiments(tmp_path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*command, "--wheel-dir", str(tmp_path), str(ROOT)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"permalign/experiments/{name}.yaml" for name in experiment_names()} <= set(names)


def test_entities_are_part_of_the_fingerprint_of_the_data(data_dir, monkeypatch):
    options = load_experiment(
        "geoquery/exact", ["text.source.link_entities=true", f"task.data_dir={data_dir}"]
    )
    before = prepare(options).data
    entities = GeoQuery(data_dir=data_dir).entities
    monkeypatch.setattr(GeoQuery, "entities", {**entities, "texas": "riverid"})
    assert prepare(options).data != before


def test_entity_linking_needs_a_task_with_entities(tmp_path):
    values = options(write_data(tmp_path)) | {"text": {"source": {"link_entities": True}}}
    with pytest.raises(ConfigError, match=r"text\.source\.link_entities: the task own has no entities"):
        prepare(RunOptions.parse(values))


def test_a_model_with_entity_linking_knows_all_names_without_the_data(data_dir, tmp_path, monkeypatch):
    settings = ["text.source.link_entities=true", f"task.data_dir={data_dir}"]
    prepared = prepare(load_experiment("geoquery/exact", settings))
    prepared.model.save_pretrained(tmp_path / "model")
    monkeypatch.setenv("PERMALIGN_DATA", str(tmp_path / "nowhere"))
    model = Transducer.from_pretrained(tmp_path / "model").eval()
    known, other = (f"what rivers run through {name} ?" for name in ("texas", "south dakota"))
    first, second = model.predict([known, other], explain=True)
    assert (first.tokens, first.score) == (second.tokens, second.score)
    assert second.explanation.source == ("what", "rivers", "run", "through", "south dakota", "?")


def test_no_checkpoint_is_chosen_before_the_last_stage_has_begun(tmp_path, monkeypatch):
    scores = iter([90.0, 80.0, 10.0, 20.0])  # the first two evaluations are those of the first stage

    def scripted(*arguments, **options):
        return replace(evaluate(*arguments, **options), metrics={"exact_match": next(scores)})

    monkeypatch.setattr("permalign.training.session.evaluate", scripted)
    values = options(
        write_data(tmp_path),
        max_steps=8,
        evaluate_every=2,
        patience=1,
        stages=[{"steps": 4, "objective": "soft"}],
        metric="exact_match",
    )
    progress = train(values, tmp_path / "run", display=SILENT)
    assert progress.best == 20.0
    assert progress.kept == [(8, 20.0), (6, 10.0)]
    kept = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}
    assert "step-0000002" not in kept
    assert "step-0000004" not in kept


def test_stages_leave_steps_for_the_own_objective(tmp_path):
    data = write_data(tmp_path)
    for steps in (500, 3):  # an epoch has three
        values = options(data, max_steps=None, max_epochs=1, evaluate_every=2)
        values["training"]["stages"] = [{"steps": steps, "objective": "soft"}]
        with pytest.raises(ConfigError, match=f"its stages take {steps}: no step would train by the model's"):
            train(values, tmp_path / f"run-{steps}", display=SILENT)
