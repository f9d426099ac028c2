"""Requests that are drawn from the API's own description, valid and invalid ones: every answer is a described one."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from tests.explain.server.served import listening

from permalign.explain.server.application import application
from permalign.explain.server.limits import Limits
from permalign.explain.server.served_runs import find_runs


@pytest.fixture(scope="module")
def description(exact_run, ssnt_run):
    app = application(find_runs([exact_run, ssnt_run]), Limits(burst=1_000_000))
    with listening(app) as port:
        yield schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/api/openapi.json")


LIMITS = schemathesis.checks.positive_data_acceptance
"""Requires that a request of the right types is accepted, but sentences may also be empty or too long."""

OPERATIONS = {
    "/api/runs": "GET",
    **dict.fromkeys(
        [
            "/api/explain",
            "/api/compare",
            "/api/svg",
            "/api/samples",
            "/api/predict",
            "/api/predictions",
            "/api/expected",
        ],
        "POST",
    ),
}


def test_all_operations_are_tried(description):
    found = [result.ok() for result in description.get_all_operations()]
    assert {operation.path: operation.method.upper() for operation in found} == OPERATIONS


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        (path, mode)
        for path, method in OPERATIONS.items()
        for mode in schemathesis.GenerationMode
        if method == "POST"
        or mode is schemathesis.GenerationMode.POSITIVE  # without fields, none can be wrong
    ],
)
def test_every_request_gets_an_answer_that_is_described(description, path, mode):
    @given(description[path][OPERATIONS[path]].as_strategy(generation_mode=mode))
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
    def ask(case):
        case.call_and_validate(timeout=60, excluded_checks=[LIMITS])

    ask()
