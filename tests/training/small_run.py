"""A run that takes a second, and a function that compares the files of runs."""

import json

from tests.models.small import examples

from permalign.training.progress_display import Display
from permalign.training.state import latest_state

SILENT = Display()


def write_data(folder, count=60):
    """Write examples in which the target is the source in reverse order and in capitals."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(
            {
                "source": list(example.source),
                "target": list(example.target),
                "split": "dev" if i % 4 == 0 else "train",
            }
        )
        for i, example in enumerate(examples(count))
    ]
    path = folder / "data.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    return path


def options(data, **training):
    """Options with every kind of random noise, and with all features of training that have a state."""
    return {
        "task": {"name": "own", "path": str(data)},
        "model": {
            "reorderer": {
                "kind": "separable",
                "objective": "hard",
                "embedding_dim": 8,
                "encoder": {"hidden_size": 8},
                "scorer_hidden_size": 8,
            },
            "head": {"kind": "ssnt", "embedding_dim": 8, "encoder": {"hidden_size": 8}, "hidden_size": 8},
        },
        "training": {
            "max_steps": 12,
            "batch_size": 8,
            "evaluate_every": 4,
            "log_every": 3,
            "keep_checkpoints": 2,
            "optimizer": "adamw",
            "weight_decay": 0.01,
            "learning_rate": 0.01,
            "schedule": "plateau",
            "plateau_patience": 1,
            "gradient_accumulation_steps": 2,
            "reorderer_first": {"steps": 6, "probability": 0.5},
            "stages": [{"steps": 5, "objective": "soft"}],
            **training,
        },
    }


def remains(run):
    """All files of a run that do not depend on the time: the bytes of models and states, and the records."""
    binary = {
        str(path.relative_to(run)): path.read_bytes()
        for path in run.rglob("*")
        if path.is_file() and path.suffix in (".safetensors", ".jsonl") and path.name != "metrics.jsonl"
    }
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    state = json.loads((latest_state(run / "state") / "state.json").read_text())
    timeless = [{key: value for key, value in record.items() if key != "seconds"} for record in records]
    for name in ("seconds", "processor_seconds", "records"):  # records have the time, too
        del state["progress"][name]
    return binary, timeless, state
