import json

import pytest

from permalign.errors import DataError
from permalign.tasks.geoquery.geobase import read_geobase
from permalign.tasks.geoquery.world import Entity, build_world, inverse


@pytest.fixture
def write(tmp_path):
    def write_bytes(content):
        path = tmp_path / "geobase"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_bytes


def test_the_facts_are_the_expected_ones(data_dir):
    found = read_geobase(data_dir / "geobase" / "geobase")
    assert found == json.loads((data_dir / "geobase/expected/geobase.json").read_text())
    assert sum(map(len, found.values())) == 698


def test_numbers_are_numbers_and_lists_are_lists(write):
    comment = "/* river(name, length) */\n\n"
    river = "river('hudson', 492.5e+1, ['new york', 'new jersey']).\n"
    facts = read_geobase(write(comment + river + "road('95',[]).\n"))
    assert facts["river"] == [{"name": "hudson", "length": 4925, "states": ["new york", "new jersey"]}]
    assert facts["road"] == [{"number": "95", "states": []}]
    assert facts["lake"] == []


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("\nriver('hudson',492,['new york'])\n", "line 2: expected a Prolog fact"),
        ("stream('hudson',492).\n", "line 1: unknown relation 'stream'; known are state, city"),
        ("river('hudson',492).\n", "line 1: 'river' has 3 arguments, but 2 are given"),
        ("river('hudson',long,['new york']).\n", "line 1: cannot read argument 2 of 'river'"),
        (
            "river('hudson','492',['new york']).\n",
            "line 1: the length of 'river' must be a number, not '492'",
        ),
        ("river('hudson',492,'new york').\n", "line 1: the states of 'river' must be a list"),
        ("river(492,492,['new york']).\n", "line 1: the name of 'river' must be a quoted name"),
        ("river('hudson',492,['new york').\n", "line 1: cannot read argument 3"),
        ("river('hudson',492,['new york'])).\n", "line 1: cannot read argument 3"),
        ("road('95',[]).\n/* never\n", "line 2: the comment that begins here is never closed"),
        ("road(\r'95',[]).\n", "line 1: .*carriage return"),
        (b"\x00road('95',[]).\n", "line 1: .*zero bytes"),
        (b"road('95',[]).\nroad('\xe9',[]).\n", "line 2: byte 7"),
        ("road('" + "9" * 10_000_000 + "',[]).\n", "line 1: the line is longer"),
    ],
)
def test_malformed_facts_are_errors_with_their_line(write, content, words):
    with pytest.raises(DataError, match=f"geobase, {words}"):
        read_geobase(write(content))


def test_a_mountain_as_high_as_its_state_is_its_highest_point(data_dir):
    world = build_world(read_geobase(data_dir / "geobase" / "geobase"))
    (peak,) = world.high_point[Entity("state", "alaska")]
    assert peak == Entity("place", "mount mckinley", "alaska")
    assert peak in world.mountains
    assert world.named["place", "mckinley"] == {peak}
    assert len(world.mountains) == 50


def test_every_state_in_a_relation_is_a_known_state(data_dir):
    world = build_world(read_geobase(data_dir / "geobase" / "geobase"))
    states = {entity for entity in world.entities if entity.kind == "state"}
    assert len(states) == 51
    for relation in (world.within, world.borders, world.traverses):
        for entity, others in relation.items():
            assert entity in world.entities
            assert {other for other in others if other.kind == "state"} <= states
    assert inverse(world.borders) == {state: near for state, near in world.borders.items() if near}
