"""No file makes a reader fail in any way but a refusal."""

import pytest
from hypothesis import HealthCheck, given, settings
from tests.trust.hostile_files import READERS, contents, read_hostile

QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.mark.parametrize("reader", READERS)
def test_readers_refuse_what_they_cannot_read(reader, tmp_path):
    @settings(max_examples=40, deadline=None, suppress_health_check=QUIET, derandomize=True, database=None)
    @given(contents)
    def check(content):
        assert len(read_hostile(reader, content, tmp_path)) < 5_000

    check()


LEVELS = [b"(", b"[", b"{", b"answer(", b"- ", b"a: {", b"(1+", b"f ( ", b'{"a":', b"((1+2)*"]


@pytest.mark.parametrize("reader", READERS)
def test_ten_thousand_levels_are_read_or_refused(reader, tmp_path):
    for level in LEVELS:
        assert len(read_hostile(reader, level * 10_000, tmp_path)) < 5_000


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        ("FunQL", "state(" * 10_000 + "all" + ")" * 10_000),
        ("arithmetic", "(" * 10_000 + "1" + "+1)" * 10_000),
        ("programs", "f ( " * 10_000 + "x" + " )" * 10_000),
        ("GeoQuery", "exclude " * 10_000 + "state " * 10_001),
        ("SCAN", "and " * 10_000 + "jump " * 10_001),
    ],
)
def test_what_is_deep_and_right_is_read_or_refused(reader, text, tmp_path):
    assert len(read_hostile(reader, text.encode(), tmp_path)) < 5_000


@pytest.mark.parametrize(
    ("reader", "text"),
    [
        ("configs", "seed: 1"),
        ("model configs", '{"format": "permalign model"}'),
        ("checksums", '{"sha256": {}}'),
        ("vocabularies", '{"format": "permalign vocabulary", "version": 1, "content": []}'),
    ],
)
def test_files_much_larger_than_they_can_be_are_not_read(reader, text, tmp_path, monkeypatch):
    content = b"\n" * 2_000 + text.encode()
    before = read_hostile(reader, content, tmp_path)
    monkeypatch.setattr("permalign.files.MAX_JSON_BYTES", 1_000)
    monkeypatch.setattr("permalign.training.experiments.MAX_BYTES", 1_000)
    after = read_hostile(reader, content, tmp_path)
    assert after != before
    assert "more than 1,000 bytes" in after or "does not hold checksums" in after
