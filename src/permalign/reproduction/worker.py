"""The process that trains and evaluates one run: ``python -m permalign.reproduction.worker JOB``, with JOB in JSON."""

import json
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from permalign.errors import PermalignError
from permalign.files import LockedError, exclusive_lock
from permalign.reproduction.cells import Evaluation
from permalign.reproduction.records import RunKey, RunRecord, RunStore, pack_bits

FAILED, BUSY, INTERRUPTED = 1, 75, 130
"""Exit codes. A run is busy if another process is working on it."""


@dataclass(frozen=True)
class Job:
    """A run to train or resume, and the evaluations that it lacks.

    Attributes:
        key: the run.
        evaluations: the evaluations to make after training.
        runs: the folder that contains the folders of all runs.
        records: the path of the file of all records.
    """

    key: RunKey
    evaluations: tuple[Evaluation, ...]
    runs: Path
    records: Path

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.runs / self.key.name

    def as_json(self) -> str:
        """Write the job as a line of JSON."""
        return json.dumps({**asdict(self), "runs": str(self.runs), "records": str(self.records)})

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """Read a job from a line of JSON."""
        values = json.loads(text)
        key = values["key"]
        evaluations = (
            Evaluation(**{**evaluation, "settings": tuple(evaluation["settings"])})
            for evaluation in values["evaluations"]
        )
        return cls(
            RunKey(key["experiment"], tuple(key["settings"]), key["seed"], key["options"]),
            tuple(evaluations),
            Path(values["runs"]),
            Path(values["records"]),
        )


def run_job(job: Job) -> None:
    """Train or resume the run, and then make the evaluations that it lacks; every result is recorded immediately."""
    store = RunStore(job.records)
    record = store.find(job.key.name) or RunRecord.begin(job.key)
    if record.failure is not None:  # the run is tried again
        record.failure = None
        store.write(record)
    try:
        train(job, record)
        store.write(record)
        for evaluation in job.evaluations:
            record.evaluations[evaluation.key] = evaluate(evaluation, job.folder)
            store.write(record)
    except Exception as error:
        message = str(error) if isinstance(error, (PermalignError, ValueError)) else repr(error)
        record.failure = " ".join(message.split())[:500]
        store.write(record)
        raise


def train(job: Job, record: RunRecord) -> None:
    """Train the run to its end, resuming it if it was started before, and fill in its record.

    A record describes a single model. So if the run was recorded before, but its folder is gone and training it again
    gives other development scores (with another version, say), the evaluations of the former model are removed.
    """
    from permalign.training.experiments import load_experiment
    from permalign.training.launch import REORDERER_PRETRAINING, WITHOUT_RECOMBINATION, resume
    from permalign.training.launch import train as begin
    from permalign.training.run_directory import RunDirectory
    from permalign.training.state import latest_progress

    run = RunDirectory(job.folder)
    progress = latest_progress(run.state)
    if progress is None or progress.finished is None:
        if run.config.exists():
            progress = resume(job.folder)
        else:
            settings = [*job.key.settings, f"seed={job.key.seed}"]
            progress = begin(load_experiment(job.key.experiment, settings), job.folder)
    options = run.read_options()
    evaluations = [
        line for line in map(json.loads, run.metrics.read_text("utf-8").splitlines()) if line["kind"] == "dev"
    ]
    metric = next(name for name in evaluations[0] if name not in ("step", "kind"))
    step, score = progress.kept[0]
    record.environment = json.loads((job.folder / "environment.json").read_text("utf-8"))
    record.environment.pop("command", None)  # the worker's; the record already has the command of the run
    attempts = [
        attempt
        for folder in sorted(run.attempts.glob("seed-*"))
        if (attempt := latest_progress(folder / "state")) is not None
    ]
    first_models = [
        first_model
        for name in (WITHOUT_RECOMBINATION, REORDERER_PRETRAINING)
        if (first_model := latest_progress(run.attempts / name / "state")) is not None
    ]
    sessions = (progress, *attempts, *first_models)
    record.training = {
        "ended": progress.finished,
        "steps": progress.step,
        "seconds": round(sum(session.seconds for session in sessions), 1),
        "cpu_seconds": round(sum(session.processor_seconds for session in sessions), 1),
    }
    scores = [[line["step"], line[metric]] for line in evaluations]
    if record.dev and record.dev["scores"] != scores:
        record.evaluations.clear()
    record.dev = {
        "split": options.dev,
        "metric": metric,
        "best": score,
        "step": step,
        "restarts": [attempt.best for attempt in attempts],
        "scores": scores,
    }


def evaluate(evaluation: Evaluation, folder: Path) -> dict[str, Any]:
    """Evaluate a trained run; returns the results to record, and stores the predictions in the folder of the run."""
    from permalign.evaluation.sacrebleu_metrics import bleu_statistics
    from permalign.training.trained_run import DecodingSettings, TrainedRun

    started = time.monotonic()
    run = TrainedRun(folder, settings=evaluation.settings)
    if evaluation.decoding is not None:
        run.model.use_decoding(evaluation.decoding)
    if evaluation.explained:
        from permalign.reproduction.examples import explain_examples

        return {"split": evaluation.split, "explained": explain_examples(run, evaluation)}
    decoding = DecodingSettings(
        beam=evaluation.beam,
        grammar=evaluation.grammar,
        length_penalty=evaluation.length_penalty,
        search=evaluation.search,
    )
    report = run.evaluate(evaluation.split, decoding)
    run.write(evaluation.split, decoding, report, run.predictions_folder / evaluation.variant)
    executions = [prediction.executes_right for prediction in report.predictions]
    result: dict[str, Any] = {
        "split": evaluation.split,
        "examples": len(report.predictions),
        "metrics": {name: round(value, 4) for name, value in report.metrics.items()},
        "signatures": report.signatures,
        "notes": list(report.notes),
        "seconds": round(time.monotonic() - started, 1),
        "exact_match": pack_bits([prediction.correct for prediction in report.predictions]),
    }
    if "bleu" in report.metrics:
        texts = [(prediction.text, prediction.reference) for prediction in report.predictions]
        result["bleu_statistics"] = bleu_statistics(*zip(*texts, strict=True))
    if None not in executions:
        result["execution_accuracy"] = pack_bits([bool(executes_right) for executes_right in executions])
    return result


def end_with_parent() -> None:
    """Terminate this process when its parent ends, because that closes the other end of our standard input."""

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)  # a buffered read would keep Python from exiting
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main(line: str) -> int:
    """Run a job; returns the exit code."""
    end_with_parent()
    job = Job.from_json(line)
    try:
        with exclusive_lock(job.runs / ".locks" / job.key.name):
            try:
                run_job(job)
            except KeyboardInterrupt:
                return INTERRUPTED
            except Exception:
                traceback.print_exc()
                return FAILED
    except LockedError:
        return BUSY
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
