import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.training.small_run import write_data
from tests.training.two_processes import without_noise

from permalign.options.run import RunOptions
from permalign.text.batching import Batches
from permalign.training.loop import endless
from permalign.training.setup import prepare

ROOT = Path(__file__).parents[2]
LAUNCH = ("torch.distributed.run", "--nproc-per-node", "2", "--standalone")


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    data = write_data(folder)
    paths = os.pathsep.join([str(ROOT), *sys.path])
    subprocess.run(
        [sys.executable, "-m", *LAUNCH, "-m", "tests.training.two_processes", str(data), str(folder)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    return data, folder


def test_gradients_are_those_of_one_process_with_the_joined_batch(two_processes):
    data, folder = two_processes
    prepared = prepare(RunOptions.parse(without_noise(data, max_tokens=40)))
    batches = list(islice(endless(prepared.batches), 4))  # two processes, two batches each
    assert len({len(batch) for batch in batches}) > 1, "all batches have one size; weights would not matter"
    examples = [example for batch in batches for example in batch.examples]
    model = prepared.model.train()
    (joined,) = Batches(examples, model.source, model.target, 10_000, shuffle=False)
    model.loss(joined).total.backward()
    gradients = load_file(folder / "gradients-0.safetensors")
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=0, atol=1e-6)


def test_all_processes_have_the_same_model_in_the_end(two_processes):
    first, second = (load_file(two_processes[1] / f"final-{rank}.safetensors") for rank in (0, 1))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_only_the_main_process_writes(two_processes):
    run = two_processes[1] / "run"
    assert len(list((run / "events").iterdir())) == 1
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if record["kind"] == "dev"] == [4, 8, 12]
