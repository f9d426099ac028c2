"""One run of a grid in a process of its own: ``python -m permalign.reproduction.work JOB``, JOB a line of JSON."""

import json
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from permalign.errors import ConfigError, PermalignError
from permalign.files import LockedError, exclusive_lock
from permalign.reproduction.cells import Trial
from permalign.reproduction.records import Records, RunKey, RunRecord, packed

FAILED, BUSY, INTERRUPTED = 1, 75, 130


@dataclass(frozen=True)
class Job:
    """A run to make or finish, and the trials that are missing.

    Attributes:
        key: the run.
        trials: of its model.
        runs: the folder of all runs.
        records: the folder of records.
    """

    key: RunKey
    trials: tuple[Trial, ...]
    runs: Path
    records: Path

    @property
    def folder(self) -> Path:
        """The run's own."""
        return self.runs / self.key.name

    def as_json(self) -> str:
        """The job as one line."""
        return json.dumps({**asdict(self), "runs": str(self.runs), "records": str(self.records)})

    @classmethod
    def from_json(cls, text: str) -> "Job":
        """The job of a line."""
        values = json.loads(text)
        key = values["key"]
        trials = ({**trial, "settings": tuple(trial["settings"])} for trial in values["trials"])
        return cls(
            RunKey(key["experiment"], tuple(key["settings"]), key["seed"], key["options"]),
            tuple(Trial(**trial) for trial in trials),
            Path(values["runs"]),
            Path(values["records"]),
        )


def work(job: Job) -> None:
    """Train, or go on training, and then put the model to the missing trials; each result is kept at once."""
    records = Records(job.records)
    record = records.read(job.key.name) or RunRecord.begin(job.key)
    if record.failure is not None:  # it is given another chance
        record.failure = None
        records.write(record)
    try:
        train(job, record)
        records.write(record)
        for trial in job.trials:
            record.tests[trial.key] = put_to(trial, job.folder)
            records.write(record)
    except Exception as error:
        said = str(error) if isinstance(error, (PermalignError, ValueError)) else repr(error)
        record.failure = " ".join(said.split())[:500]
        records.write(record)
        raise


def train(job: Job, record: RunRecord) -> None:
    """Finish the run, from wherever it stands, and note what it gave."""
    from permalign.training.experiments import load_experiment
    from permalign.training.run_dir import RunDirectory
    from permalign.training.running import resume
    from permalign.training.running import train as begin
    from permalign.training.state import latest_state, read_progress

    run = RunDirectory(job.folder)
    state = latest_state(run.state)
    progress = read_progress(state) if state is not None else None
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
    record.environment.pop("command", None)  # that of this process; the record has one for people
    attempts = [
        read_progress(state)
        for folder in sorted((job.folder / "attempts").glob("seed-*"))
        if (state := latest_state(folder / "state")) is not None
    ]
    all_of_it = (progress, *attempts)
    record.training = {
        "ended": progress.finished,
        "steps": progress.step,
        "seconds": round(sum(one.seconds for one in all_of_it), 1),
        "processor_seconds": round(sum(one.processor_seconds for one in all_of_it), 1),
    }
    record.dev = {
        "split": options.dev,
        "metric": metric,
        "best": score,
        "step": step,
        "attempts": [one.best for one in attempts],
        "scores": [[line["step"], line[metric]] for line in evaluations],
    }


def put_to(trial: Trial, folder: Path) -> dict[str, Any]:
    """The result of a trial; answers are kept with the run."""
    from permalign.runs import Run, Search

    begun = time.monotonic()
    run = Run(folder, settings=trial.settings)
    if trial.decoding is not None:
        for member in run.model.members:
            use_decoding(member.reorderer, trial.decoding)
    if trial.shown:
        from permalign.reproduction.examples import explained_examples

        return {"split": trial.split, "shown": explained_examples(run, trial)}
    search = Search(beam=trial.beam, constrained=trial.constrained)
    report = run.evaluate(trial.split, search)
    run.write(trial.split, search, report, run.predictions / trial.manner)
    executes = [answer.executes_right for answer in report.answers]
    result: dict[str, Any] = {
        "split": trial.split,
        "examples": len(report.answers),
        "metrics": {name: round(value, 4) for name, value in report.metrics.items()},
        "signatures": report.signatures,
        "notes": list(report.notes),
        "seconds": round(time.monotonic() - begun, 1),
        "exact_match": packed([answer.correct for answer in report.answers]),
    }
    if None not in executes:
        result["execution_accuracy"] = packed([bool(one) for one in executes])
    return result


def use_decoding(reorderer: object, decoding: str) -> None:
    """Let a reorderer that has a choice choose orders so."""
    if not hasattr(reorderer, "decoding"):
        raise ConfigError(f"a trial asks for {decoding} decoding, but the model's reorderer has no choice.")
    cast(Any, reorderer).decoding = decoding


def end_with_parent() -> None:
    """Stop politely when whoever started this process is gone: then its end of our input closes."""

    def watch() -> None:
        os.read(sys.stdin.fileno(), 1)  # no buffered reading, which Python could not end with
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


def main(line: str) -> int:
    """Do a job; the result is a code to exit with."""
    end_with_parent()
    job = Job.from_json(line)
    try:
        with exclusive_lock(job.runs / ".locks" / job.key.name):
            try:
                work(job)
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
