"""Small runs with checkpoints, whose models write words backwards, trained for a few seconds; and a browser."""

import json
import os
import shutil
import threading
from urllib.request import Request, urlopen

import pytest
import torch
from tests.models.small import examples, make, train

PREDICTIONS = [("abcd", "DCBA"), ("ab", "BA"), ("abc", "CAB"), ("dcba", "ABDC")]
"""Sentences with stored outputs; the last two are wrong."""


def prediction(source, output):
    target = source[::-1].upper()
    return {
        "id": source,
        "source": list(source),
        "target": list(target),
        "output": list(output),
        "score": -0.5,
        "correct": output == target,
    }


def write_run(folder, model, steps):
    """Train a model, and save it before training, halfway through and at the end."""
    some = examples(60)
    model.save_pretrained(folder / "checkpoints" / "step-0000000")
    train(model, some, steps=steps // 2)
    model.save_pretrained(folder / "checkpoints" / f"step-{steps // 2:07d}")
    train(model, some, steps=steps // 2)
    model.eval().save_pretrained(folder / "model")
    (folder / "predictions").mkdir()
    lines = [json.dumps(prediction(source, output)) for source, output in PREDICTIONS]
    (folder / "predictions" / "dev.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def exact_run(tmp_path_factory):
    """A run with the exact objective and a tagging head, which learns to reverse the words."""
    return write_run(tmp_path_factory.mktemp("runs") / "exact", make("exact", "tagging"), 160)


@pytest.fixture(scope="session")
def ssnt_run(tmp_path_factory):
    """A run with the soft objective and an SSNT head."""
    return write_run(tmp_path_factory.mktemp("runs") / "ssnt", make("soft", "ssnt"), 100)


@pytest.fixture(scope="session")
def exact_model(exact_run):
    from permalign import Transducer

    return Transducer.from_pretrained(exact_run)


@pytest.fixture(scope="session")
def ssnt_model(ssnt_run):
    from permalign import Transducer

    return Transducer.from_pretrained(ssnt_run)


@pytest.fixture
def undecided():
    """A model whose greedy order, Viterbi order and most probable order differ."""
    model = make("soft", "tagging").eval()
    # straight and inverted of 012, 123, 013, 023, in packed order
    scores = torch.tensor([[[1.0, 3.0], [3.0, 4.0], [2.0, 1.0], [3.0, 2.0]]]).log()

    def distribution(source, lengths):
        from permalign.structures import SeparablePermutation

        assert source.shape == (1, 3)
        return SeparablePermutation(scores, lengths)

    model.reorderer.distribution = distribution
    return model


@pytest.fixture(scope="module")
def address(exact_run, ssnt_run):
    """The address of an explorer with two runs, served by a thread."""
    from permalign.explain.server.application import application
    from permalign.explain.server.limits import Limits
    from permalign.explain.server.listening import Server, bind, configuration
    from permalign.explain.server.served_runs import find_runs

    listening = bind("127.0.0.1", 0)
    limits = Limits(burst=10_000)
    app = application(find_runs([exact_run, ssnt_run]), limits)
    server = Server(configuration(app, limits))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
    body = json.dumps({"run": "exact", "sentence": "a"}).encode()
    first = Request(f"{address}api/explain", body, {"content-type": "application/json"})
    with urlopen(
        first, timeout=120
    ) as answer:  # a browser does not wait as long as it takes to start a worker
        assert answer.status == 200
    yield address
    server.should_exit = True
    thread.join(10)
    listening.close()


@pytest.fixture(scope="module")
def browser():
    """The system's Chromium; without it tests are skipped, but fail in CI unless NO_BROWSER is set."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        reason = "no chromium on this machine: apt-get install chromium, to test the explorer in a browser"
        must_run = os.environ.get("CI") == "true" and "NO_BROWSER" not in os.environ
        pytest.fail(reason) if must_run else pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser, address):
    """Opens pages, none of which may log an error, fail in a script, or send a request to another host."""
    contexts, errors, requests = [], [], []

    def open_page(query="", **options):
        context = browser.new_context(**{"reduced_motion": "reduce", **options})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(15_000)
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: (errors.append("a dialog"), dialog.dismiss()))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(address + query)
        return page

    open_page.errors = errors
    yield open_page
    for context in contexts:
        context.close()
    assert [error for error in errors if "status of 4" not in error] == []
    assert [url for url in requests if not url.startswith((address, "blob:"))] == []
