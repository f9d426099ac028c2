"""Which figures of a load break a promise."""

from dataclasses import replace

import pytest
from tests.trust.load import Interruption, Load

GOOD = Load(100, 60.0, {"200": 3600, "429": 5}, 60.0, 900, 2000, (900, 1000, 1050), other_work=0.05)


def test_fast_answers_and_flat_memory_are_as_promised():
    assert GOOD.faults(50) == []
    assert "60.0 answers a second" in str(GOOD)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"statuses": {"200": 3600, "503": 1}}, "{'503': 1}"),
        ({"memory": (900, 1000, 1101)}, "from 1000 to 1101 MB"),
        ({"answers_a_second": 49.0}, "49.0 answers a second, not 50"),
    ],
)
def test_errors_growing_memory_and_slow_answers_are_faults(change, fault):
    (found,) = replace(GOOD, **change).faults(50)
    assert fault in found


def test_a_busy_machine_may_be_slow():
    assert replace(GOOD, answers_a_second=10.0, other_work=0.5).faults(50) == []


def test_a_server_that_ends_late_or_in_silence_is_a_fault():
    assert Interruption(0.4, 503, other_work=0.05).faults() == []
    assert Interruption(3.1, 503, other_work=0.5).faults() == []
    assert "after 3.1 s, not 3" in Interruption(3.1, 503, other_work=0.05).faults()[0]
    assert "with 200, not 503" in Interruption(0.4, 200, other_work=0.05).faults()[0]
