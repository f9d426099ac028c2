"""What the server answers, what it refuses, and that it survives both."""

import json
import threading
import time

import pytest
from starlette.testclient import TestClient

from permalign.explain import compare, explain, sample
from permalign.explain.server.application import application
from permalign.explain.server.limits import Limits
from permalign.explain.server.served_runs import find_runs

GENEROUS = Limits(burst=10_000)
SENTENCE = "a b c d"


@pytest.fixture(scope="module")
def runs(exact_run, ssnt_run):
    return find_runs([exact_run, ssnt_run])


def client_of(runs, limits=GENEROUS, **options):
    return TestClient(application(runs, limits, **options), base_url="http://127.0.0.1:8000")


@pytest.fixture(scope="module")
def client(runs):
    with client_of(runs) as client:
        yield client


def post(client, operation="explain", **fields):
    return client.post(f"/api/{operation}", json={"run": "exact", "sentence": SENTENCE, **fields})


def plain(value):
    return json.loads(json.dumps(value))


def test_the_api_has_the_types_of_python(client, exact_model):
    answer = post(client).json()
    assert answer["trace"] == plain(explain(exact_model, SENTENCE).to_json())
    assert "permalign-picture" in answer["html"]
    drawn = post(client, "samples", count=3, seed=5).json()
    assert [answer["trace"] for answer in drawn] == plain(
        [trace.to_json() for trace in sample(exact_model, SENTENCE, 3, seed=5)]
    )
    assert post(client, "compare").json() == plain(compare(exact_model, SENTENCE).to_json())


def test_targets_checkpoints_and_runs_can_be_chosen(client):
    assert post(client, target="A B C D").json()["trace"]["target_given"]
    early = post(client, checkpoint="step-0000000").json()
    assert early["trace"] != post(client).json()["trace"]
    assert post(client, run="ssnt").status_code == 200
    described = client.get("/api/runs").json()
    assert [run["name"] for run in described] == ["exact", "ssnt"]
    assert described[0]["checkpoints"] == ["best", "step-0000000", "step-0000080"]
    assert described[0]["examples"] == ["a b c d"]


def test_predictions_and_pictures(client):
    answers = client.post("/api/predict", json={"run": "exact", "sentences": ["a b", "c"]}).json()
    assert [answer["output"] for answer in answers] == ["B A", "C"]
    picture = post(client, "svg")
    assert picture.headers["content-type"] == "image/svg+xml"
    assert picture.text.startswith("<svg")


@pytest.mark.parametrize(
    ("fields", "status", "reason"),
    [
        ({"sentence": "a " * 61}, 422, "61 words, but at most 60"),
        ({"sentence": "a" * 4001}, 422, "4,001 characters, but at most 4,000"),
        ({"sentence": "  "}, 422, "empty"),
        ({"sentence": SENTENCE, "target": "A " * 61}, 422, "target has 61 words"),
        ({"sentence": SENTENCE, "target": "A B"}, 422, "4 source tokens and 2 output tokens"),
        ({"sentence": "a " * 40_000}, 413, "larger than 65,536 bytes"),
        ({"sentence": SENTENCE, "run": "../../etc"}, 404, "no run of that name"),
        ({"sentence": SENTENCE, "checkpoint": "../../model"}, 404, "no checkpoint of that name"),
        ({"sentence": SENTENCE, "path": "/etc/passwd"}, 422, "path"),
        ({"sentence": 7}, 422, "sentence"),
        ({}, 422, "sentence"),
    ],
)
def test_wrong_requests_get_clear_answers(client, fields, status, reason):
    answer = client.post("/api/explain", json={"run": "exact", **fields})
    assert answer.status_code == status
    assert reason in answer.json()["error"]
    assert post(client).status_code == 200


def test_too_much_at_once_is_refused(client):
    assert post(client, "samples", count=17).status_code == 422
    many = client.post("/api/predict", json={"run": "exact", "sentences": ["a"] * 17})
    assert "at most 16" in many.json()["error"]


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"[]", b'{"run":"exact","sentence":"\\ud800"}', b""])
def test_what_is_not_a_request_is_refused(client, body):
    answer = client.post("/api/explain", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]


def test_large_bodies_without_a_declared_length_are_refused(client):
    answer = client.post("/api/explain", content=(b"x" * 1000 for _ in range(100)))
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "sentence",
    ["<script>alert(1)</script> a", "שלום a", "👩‍👩‍👧 a", "a\x00b c", "‮a b", "\u200b a", "{{7*7}} $(id)"],
)
def test_hostile_sentences_are_only_words(client, sentence):
    answer = post(client, sentence=sentence)
    assert answer.status_code == 200
    assert answer.json()["trace"]["source"] == sentence.split()
    assert "<script" not in answer.json()["html"]


def test_no_path_of_a_request_reaches_the_files(client):
    for path in (
        "/static/../runs.py",
        "/static/%2e%2e/runs.py",
        "/static//etc/passwd",
        "/static/",
        "/etc/passwd",
    ):
        answer = client.get(path)
        assert answer.status_code == 404
        assert "error" in answer.json()


def test_every_answer_has_a_strict_policy(client):
    for path in ("/", "/static/explorer.js", "/api/runs", "/api/docs", "/nowhere"):
        policy = client.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    page = client.get("/").text
    assert " style=" not in page
    assert " onclick=" not in page


def test_pages_load_nothing_from_other_hosts(client):
    for path in (
        "/",
        "/api/docs",
        *(f"/static/{name}.js" for name in ("explorer", "panel", "api", "state", "picture")),
    ):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "http://" not in answer.text.replace("http://www.w3.org", "")
        assert "https://" not in answer.text


def test_openapi_describes_the_whole_api(client):
    described = client.get("/api/openapi.json").json()
    assert set(described["paths"]) == {
        f"/api/{name}" for name in ("runs", "explain", "samples", "compare", "predict", "svg")
    }
    assert set(described["components"]["schemas"]) >= {"Trace", "Node", "Segment", "Confidence", "Comparison"}
    trace = described["components"]["schemas"]["Trace"]["properties"]
    assert {"source", "order", "nodes", "segments", "confidence"} <= set(trace)
    docs = client.get("/api/docs").text
    assert "POST /api/explain" in docs
    assert 'id="Trace"' in docs


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "localhost.evil.example", ""])
def test_other_host_names_are_refused(client, host):
    assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1", "[::1]:8000", "10.0.0.7:80"])
def test_own_host_names_are_answered(client, host):
    assert client.get("/", headers={"host": host}).status_code == 200


def test_more_host_names_can_be_allowed(runs):
    with client_of(runs, allowed_hosts=["lab.example"]) as client:
        assert client.get("/", headers={"host": "lab.example"}).status_code == 200


def test_a_flood_is_told_to_wait(runs):
    with client_of(runs, Limits(burst=5, requests_per_second=0.01)) as client:
        statuses = [client.get("/api/runs").status_code for _ in range(20)]
        assert statuses == [200] * 5 + [429] * 15
        refused = client.get("/api/runs")
        assert int(refused.headers["retry-after"]) > 0
        assert "Too many" in refused.json()["error"]
        assert client.get("/").status_code == 200  # the page itself still comes


def test_an_internal_error_is_answered_without_its_details(runs, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("permalign.explain.server.application.explain", broken)
    app = application(runs, GENEROUS)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        answer = post(client)
        assert answer.status_code == 500
        assert "secret" not in answer.text
        assert client.get("/api/runs").status_code == 200


def test_a_slow_answer_does_not_stop_the_others(runs, monkeypatch):
    release = threading.Event()

    def slow(*_, **__):
        release.wait(10)
        raise ValueError("late")

    monkeypatch.setattr("permalign.explain.server.application.explain", slow)
    with client_of(runs, Limits(timeout_seconds=0.5, max_pending=1, burst=200)) as client:
        answers = [post(client) for _ in range(4)]
        assert {answer.status_code for answer in answers} == {503, 429}
        assert client.get("/api/runs").status_code == 200
        release.set()
        monkeypatch.undo()
        deadline = time.monotonic() + 5
        while (status := post(client).status_code) != 200 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert status == 200
