"""What the server answers, what it refuses, and that it survives both."""

import json
import shutil
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

import pytest
from starlette.testclient import TestClient
from tests.explain.server.fake_worker import COMMAND
from tests.explain.server.served import listening
from tests.models.small import make

from permalign.explain import compare, explain, sample
from permalign.explain.server.answers import answer_job
from permalign.explain.server.application import application
from permalign.explain.server.limits import Limits
from permalign.explain.server.served_runs import ModelCache, find_run, find_runs
from permalign.explain.server.worker_messages import Job

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
    assert described[0]["examples"] == ["a b", "a b c", "a b c d", "d c b a"]


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


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        ("explain", {"sentence": "\ud800"}),
        ("explain", {"sentence": "a", "target": "\udfff b"}),
        ("predict", {"sentences": ["a", "\ud800"]}),
    ],
)
def test_half_of_a_surrogate_pair_is_named(client, operation, fields):
    body = json.dumps({"run": "exact", **fields})  # with escapes, which httpx would not write
    answer = client.post(f"/api/{operation}", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert "has half of a surrogate pair (\\ud...), which is not valid text" in answer.json()["error"]


def test_large_bodies_without_a_declared_length_are_refused(client):
    body = (b"x" * 1000 for _ in range(100))
    answer = client.post("/api/explain", content=body, headers={"content-type": "application/json"})
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
        f"/api/{name}"
        for name in ("runs", "predictions", "expected", "explain", "samples", "compare", "predict", "svg")
    }
    assert set(described["components"]["schemas"]) >= {"Trace", "Node", "Segment", "Confidence", "Comparison"}
    trace = described["components"]["schemas"]["Trace"]["properties"]
    assert {"source", "order", "nodes", "segments", "confidence"} <= set(trace)
    docs = client.get("/api/docs").text
    assert "POST /api/explain" in docs
    assert 'id="Trace"' in docs


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "localhost.evil.example",
        "",
        "127.0.0.1:8000@evil.example",
        "localhost:8000@evil.example",
        "user@localhost",
        "127.0.0.1:",
        "localhost:80a",
        "localhost:8000:8000",
        "localhost/",
        "[::1",
        "::1",
        "[localhost]",
    ],
)
def test_other_host_names_are_refused(client, host):
    assert client.get("/", headers={"host": host}).status_code == 421


def test_two_host_names_are_refused(client):
    headers = [("host", "localhost"), ("host", "evil.example")]
    assert client.get("/", headers=headers).status_code == 421


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
    ],
)
def test_requests_that_are_not_declared_as_json_are_refused(client, content_type):
    body = json.dumps({"run": "exact", "sentence": SENTENCE})
    headers = {} if content_type is None else {"content-type": content_type}
    answer = client.post("/api/explain", content=body, headers=headers)
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://[", "https://localhost.evil.example"]
)
def test_requests_from_other_sites_are_refused(client, origin):
    body = {"run": "exact", "sentence": SENTENCE}
    answer = client.post("/api/explain", json=body, headers={"host": "localhost:8000", "origin": origin})
    assert answer.status_code == 403


def test_requests_from_our_own_page_are_answered(client):
    body = {"run": "exact", "sentence": SENTENCE}
    headers = {"host": "localhost:8000", "origin": "http://localhost:8000"}
    assert client.post("/api/explain", json=body, headers=headers).status_code == 200
    headers = {"content-type": "application/json; charset=utf-8"}
    assert client.post("/api/explain", content=json.dumps(body), headers=headers).status_code == 200


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


@contextmanager
def fake_client(runs, **limits):
    """A client of a server whose workers do what the sentence says; see `fake_worker`."""
    app = application(runs, replace(GENEROUS, **limits), command=COMMAND)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize(
    ("sentence", "status", "reason"),
    [
        ("fail", 500, "The server failed; its own output says why."),
        ("die", 503, "ended, perhaps for lack of memory; try a shorter sentence."),
        ("allocate", 503, "more memory than a request may use; try a shorter sentence."),
        ("sleep 600", 503, "took too long; try a shorter sentence."),
    ],
)
def test_what_goes_wrong_in_a_worker_is_answered_without_its_details(runs, sentence, status, reason):
    if sentence == "allocate" and sys.platform != "linux":
        pytest.skip("only Linux enforces the limit")
    with fake_client(runs, timeout_seconds=3.0, num_workers=1) as client:
        answer = post(client, sentence=sentence)
        assert answer.status_code == status
        assert answer.json()["error"].endswith(reason)
        assert "secret" not in answer.text
        assert client.get("/api/runs").status_code == 200
        assert post(client, sentence="answer").status_code == 200


def test_a_run_that_was_deleted_while_it_is_served_is_named(exact_run, tmp_path):
    folder = tmp_path / "short-lived"
    shutil.copytree(exact_run / "model", folder)
    runs = find_runs([folder])
    shutil.rmtree(folder)
    job = Job("explain", {"run": "short-lived", "sentence": "a b"})
    answer = answer_job(job, ModelCache(runs), GENEROUS)
    assert answer.status == 410
    assert b"short-lived can no longer be read" in answer.body
    assert str(tmp_path).encode() not in answer.body


def test_a_slow_answer_does_not_stop_the_others(runs):
    with fake_client(runs, timeout_seconds=6.0, max_pending=2) as client, ThreadPoolExecutor(1) as thread:
        slow = thread.submit(post, client, sentence="sleep 600")
        quick = [post(client, sentence=f"answer {number}").status_code for number in range(3)]
        assert quick == [200] * 3
        assert not slow.done()
        assert slow.result().status_code == 503


def test_the_same_request_is_answered_once(runs):
    with fake_client(runs) as client:
        first, again, other = (
            post(client, sentence=text).json() for text in ("answer", "answer", "answer 2")
        )
        assert first == again == other  # of the same process
        assert post(client, sentence="die").status_code == 503
        assert post(client, sentence="answer").json() == first  # remembered
        assert post(client, sentence="answer 3").json() != first


def send(port, sentence):
    """Send a request, and return the connection."""
    body = json.dumps({"run": "exact", "sentence": sentence}).encode()
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    head = f"POST /api/explain HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return connection


def test_work_ends_when_its_client_is_gone(runs):
    app = application(runs, replace(GENEROUS, num_workers=1, timeout_seconds=600.0), command=COMMAND)
    with listening(app) as port:
        abandoned = send(port, "sleep 600")
        time.sleep(0.5)
        abandoned.close()
        with send(port, "answer") as connection:
            assert connection.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_server_that_stops_does_not_wait_for_its_workers(runs, capfd):
    app = application(runs, replace(GENEROUS, timeout_seconds=600.0), command=COMMAND)
    with listening(app) as port:
        waiting = send(port, "sleep 600")
        time.sleep(0.5)
    with waiting:
        assert b"The server was stopped." in waiting.recv(4096)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("operation", ["explain", "predict", "svg"])
def test_answers_that_cost_too_much_are_refused_before_they_are_computed(exact_run, operation):
    models = ModelCache({"exact": find_run(exact_run, "exact")})
    sentence = {"sentences": [SENTENCE]} if operation == "predict" else {"sentence": SENTENCE}
    request = {"run": "exact", **sentence}
    refused = answer_job(Job(operation, request), models, Limits(max_operations=10))
    assert refused.status == 422
    assert b"Sentences of up to 1 words can be answered" in refused.body
    assert answer_job(Job(operation, request), models, Limits()).status == 200


@pytest.mark.parametrize(("length", "is_allowed"), [(20, True), (30, False), (60, True)])
def test_the_allowed_cost_can_be_computed_in_time(length, is_allowed):
    """Outputs of sixty words that write at most one word each, in trees with four labels, as for GeoQuery.

    An output of 20 words takes seven to nine seconds of CPU time. If every word writes exactly one, there is little to
    sum over.
    """
    head = make("labelled exact", "segments", max_segment_length=1).head
    assert (head.cost_over_orders(60, length, num_labels=4) <= Limits().max_operations) == is_allowed


def test_stored_predictions_are_listed_with_wrong_ones_first(client):
    assert client.get("/api/runs").json()[0]["splits"] == ["dev"]
    page = client.post("/api/predictions", json={"run": "exact", "split": "dev", "count": 3}).json()
    assert (page["examples"], page["wrong"], page["found"], page["max_length"]) == (4, 2, 4, 4)
    assert [row["sentence"] for row in page["predictions"]] == ["a b c", "d c b a", "a b"]
    expected = client.post("/api/expected", json={"run": "exact", "sentence": "a b c"})
    assert expected.json() == {"expected": "C B A"}


@pytest.mark.parametrize(
    ("path", "fields", "status"),
    [
        ("predictions", {"run": "exact", "split": "../../model/config"}, 404),
        ("predictions", {"run": "../exact", "split": "dev"}, 404),
        ("predictions", {"run": "exact", "split": "dev", "count": 1000}, 422),
        ("predictions", {"run": "exact", "split": "dev", "start": -1}, 422),
        ("expected", {"run": "nowhere", "sentence": "a"}, 404),
        ("expected", {"run": "exact", "sentence": "a" * 4001}, 422),
    ],
)
def test_only_what_was_found_at_the_start_is_read(client, path, fields, status):
    assert client.post(f"/api/{path}", json=fields).status_code == status
