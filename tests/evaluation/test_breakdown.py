import pytest

from permalign.evaluation import JudgedPrediction
from permalign.evaluation.breakdown import breakdown, size_measure
from permalign.evaluation.plots import plot_breakdown
from permalign.tasks.base import Example
from permalign.tasks.registry import get_task


def predictions(*sizes):
    """Predictions, every second of which is correct."""
    return [
        JudgedPrediction(
            Example(("w",) * size, ("x",), str(index), {"depth": size}), ("x",), 0.0, index % 2 == 0
        )
        for index, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("by", ["length", "depth"])
def test_every_size_has_its_own_group_if_there_are_few(by):
    measure = size_measure(get_task("arithmetic"), by)
    groups = breakdown(predictions(3, 3, 5, 9), measure)
    assert [(group.label, group.count, group.metrics["exact_match"]) for group in groups] == [
        ("3", 2, 50.0),
        ("5", 1, 100.0),
        ("9", 1, 0.0),
    ]


@pytest.mark.parametrize("max_groups", [1, 2, 3, 7, 100])
def test_groups_have_equal_widths_and_contain_all_predictions(max_groups):
    sizes = [1, 2, 2, 5, 8, 13, 13, 21, 22]
    groups = breakdown(predictions(*sizes), lambda example: len(example.source), max_groups=max_groups)
    assert len(groups) <= max_groups
    assert sum(group.count for group in groups) == len(sizes)
    assert len({group.largest - group.smallest for group in groups}) == 1
    for group in groups:
        assert group.count == sum(group.smallest <= size <= group.largest for size in sizes)


def test_groups_are_no_wider_than_they_have_to_be():
    groups = breakdown(predictions(1, 4, 8), lambda example: len(example.source), max_groups=4)
    assert [group.label for group in groups] == ["1-2", "3-4", "7-8"]


def test_the_depth_of_a_program_is_that_of_its_tree():
    task = get_task("scan-sp")
    depth = size_measure(task, "depth")
    assert depth(Example(("jump", "and", "walk", "twice"), ("and", "jump", "twice", "walk"), "0")) == 3
    arithmetic = get_task("arithmetic", depth=8)
    examples = arithmetic.examples("depth-8/test")[:5]
    assert [size_measure(arithmetic, "depth")(example) for example in examples] == [8] * 5


def test_invalid_arguments_are_errors():
    with pytest.raises(ValueError, match="by is 'width', but examples are grouped by"):
        size_measure(get_task("arithmetic"), "width")
    with pytest.raises(ValueError, match="en-ja have no depth"):
        size_measure(get_task("en-ja"), "depth")(Example(("a",), ("b",), "0"))
    with pytest.raises(ValueError, match="max_groups is 0"):
        breakdown(predictions(1), len, max_groups=0)
    with pytest.raises(ValueError, match="predictions is empty"):
        breakdown([], len)


@pytest.mark.parametrize(
    ("name", "begin"), [("p.png", b"\x89PNG"), ("deep/p.pdf", b"%PDF"), ("p.SVG", b"<?xml")]
)
def test_plots_are_written(tmp_path, name, begin):
    groups = breakdown(predictions(1, 2, 3), lambda example: len(example.source))
    plot_breakdown(tmp_path / name, {"iid/test": groups, "len/test": groups}, "exact_match", "length")
    assert (tmp_path / name).read_bytes().startswith(begin)


def test_an_unknown_format_of_plots_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"p\.jpeg: a plot must end in \.png, \.pdf or \.svg"):
        plot_breakdown(tmp_path / "p.jpeg", {}, "exact_match", "length")
