"""A table of small cells, and records as runs write them."""

import json

from tests.training.small_run import write_data

from permalign.reproduction.cells import Cell, Column, Evaluation, Row, Table
from permalign.reproduction.records import RunKey, RunRecord, pack_bits

SMALL = (
    "train=iid/train",
    "dev=iid/dev",
    "model.reorderer={embedding_dim: 8, encoder: {hidden_size: 8}, scorer_hidden_size: 8}",
    "model.head={embedding_dim: 8}",
    "training={max_steps: 5, batch_size: 8, evaluate_every: 5, max_dev_examples: 4, stages: []}",
)


def small_table(folder):
    """A table with a row that works and a row that fails, because its longest sentence does not fit into a batch."""
    data = write_data(folder)
    settings = (f"task={json.dumps({'name': 'own', 'path': str(data)})}", *SMALL)
    cells = (
        Cell("good", "plain", "arithmetic/soft", settings, Evaluation("iid/dev"), paper=50.0),
        Cell("good", "greedy", "arithmetic/soft", settings, Evaluation("iid/dev", decoding="greedy")),
        Cell("bad", "plain", "arithmetic/soft", (*settings, "training.max_tokens=2"), Evaluation("iid/dev")),
    )
    rows = Row("good", "A system that works", baseline=True), Row("bad", "One that does not", ours=True)
    columns = Column("plain", "Plain"), Column("greedy", "Greedy")
    return Table("table0", "Table 0", ("exact_match",), rows, columns, cells, seeds=(0, 1))


def record_of(cell, seed, correct, settings=()):
    """The record of a run with these judgements."""
    record = RunRecord.begin(RunKey.of(cell, seed, settings))
    record.environment = {"commit": "0123456789abcdef", "system": "Linux", "cores": 2}
    record.training = {
        "ended": "all 5 steps are done",
        "steps": 5,
        "seconds": 90.0,
        "cpu_seconds": 80.0,
    }
    record.dev = {"split": "iid/dev", "metric": "exact_match", "best": 40.0, "step": 5, "restarts": []}
    record.dev["scores"] = [[5, 40.0]]
    record.evaluations[cell.evaluation.key] = {
        "split": cell.evaluation.split,
        "examples": len(correct),
        "metrics": {"exact_match": 100.0 * sum(correct) / len(correct)},
        "seconds": 30.0,
        "exact_match": pack_bits(correct),
    }
    return record
