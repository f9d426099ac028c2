"""Text, pictures, pages and figures of traces."""

import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from tests.models.small import PAIRS, make

from permalign.explain import compare, explain, html, svg, text
from permalign.explain.render.description import describe
from permalign.explain.render.figures import accuracy_by_length, alignment, expected_matrix, save
from permalign.explain.render.markup import shortened
from permalign.explain.render.svg_layout import lay_out
from permalign.explain.render.terminal import comparison_text
from permalign.explain.trace.trace import Node, Trace
from permalign.explain.trace.tree_nodes import flatten_tree
from permalign.structures import Segment, Tree

HOSTILE = (
    "<script>alert(1)</script>",
    '"onload="x',
    "&amp;",
    "שלום",
    "👩‍👩‍👧",
    "a\x00b",
    "x" * 500,
    "\ud800",
    "‮evil",
)
LABELLED = Trace(
    ("she", "sang", "a", "song"),
    ("LIED", "SANG"),
    order=(2, 3, 1, 0),
    nodes=(
        Node(0, 4, "I", "S<1>", (1, 2), 0.5, 1.0),
        Node(0, 2, "I", "VP", (3, 4)),
        Node(2, 4, None, "NP"),
        Node(0, 1, None),
        Node(1, 2, None),
    ),
    segments=(Segment((2, 3), (0,)), Segment((1,), (1,)), Segment((0,), ())),
)


def words(count):
    return tuple(f"w{number}" for number in range(count))


def left_branching(count):
    tree = Tree(0, 1)
    for end in range(2, count + 1):
        tree = Tree(0, end, "I" if end % 2 else "S", (tree, Tree(end - 1, end)))
    return Trace(words(count), (), order=tree.order, nodes=flatten_tree(tree))


def parsed(trace):
    return ElementTree.fromstring(svg(trace))


def classes(root, name):
    return [part for part in root.iter() if name in part.get("class", "").split()]


def test_text_has_all_paragraphs(ssnt_model):
    shown = text(explain(ssnt_model, "a b c d"))
    for part in ("a b c d → ", "Tree", "Order", "Segments", "Confidence", "the tree", "the order", "bits"):
        assert part in shown


def test_text_draws_a_line_for_each_word():
    shown = text(left_branching(5)).split("Order\n")[1].splitlines()
    assert [line.split()[0] for line in shown] == list(words(5))
    assert all(any("\u2800" < sign <= "\u28ff" for sign in line) for line in shown)


def test_text_shows_labels_and_leaves_of_several_words():
    shown = text(LABELLED)
    assert "I ⇄ [VP]" in shown
    assert "a song [NP]" in shown
    assert "she    → ∅" in shown


def test_text_does_not_control_the_terminal():
    evil = ("\x1b]0;x\x07", "\x9b2J", "\u202eevil", "a\x7f", "\ud800")
    trace = Trace(evil, evil, order=tuple(range(5)), notes=evil)
    shown = text(trace)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", shown)
    assert "\ufffdevil" in shown


def test_labels_of_leaves_are_beside_their_branches():
    nodes = (Node(0, 2, "S", "top", (1, 2)), Node(0, 1, None, "left"), Node(1, 2, None, "right"))
    trace = Trace(("a", "b"), (), order=(0, 1), nodes=nodes)
    places, names = lay_out(trace).nodes, {part.text: part for part in classes(parsed(trace), "label")}
    assert float(names["left"].get("x")) < places[1][0]
    assert float(names["right"].get("x")) > places[2][0]


def test_text_aligns_wide_characters():
    trace = Trace(("日本", "a"), ("x",), order=(1, 0))
    lines = text(trace).split("Order\n")[1].splitlines()
    assert lines[0].startswith("  日本 ")
    assert lines[1].startswith("     a ")


def test_ways_to_decode_are_side_by_side_where_they_differ(undecided, exact_model):
    shown = comparison_text(compare(undecided, "a b c"))
    assert re.search(r"greedy +viterbi +permutation", shown)
    assert "proven" in shown
    assert "agree" in comparison_text(compare(exact_model, "a b"))


@pytest.mark.parametrize(("reorderer", "head"), PAIRS)
def test_every_trace_is_a_picture_and_a_page(reorderer, head):
    trace = explain(make(reorderer, head), "a b c d")
    root = parsed(trace)
    assert len(classes(root, "word")) == (8 if trace.order is not None else 4)
    assert "</html>" in html(trace)


def test_a_picture_has_every_part_in_its_place():
    root = parsed(LABELLED)
    assert len(classes(root, "inverted")) == 2
    assert len(classes(root, "line")) == 4
    assert len(classes(root, "segment")) == 3
    labels = [part.text for part in classes(root, "label")]
    assert labels == ["S<1>", "VP", "NP"]
    moved = {part.get("data-tokens") for part in root.iter() if part.get("data-from")}
    assert moved == {"0", "1", "2", "3"}


def test_words_do_not_overlap():
    layout = lay_out(replace(LABELLED, source=("she", "sang", "a", "wonderfully-long-word")))
    for row in (layout.source, sorted(layout.reordered, key=lambda box: box.x), layout.target):
        assert all(left.right < right.left for left, right in pairwise(row))
    assert max(box.right for box in (*layout.source, *layout.target)) < layout.width


def test_nodes_stand_above_their_children():
    trace = left_branching(30)
    layout = lay_out(trace)
    for place, node in enumerate(trace.nodes):
        assert all(layout.nodes[place][1] < layout.nodes[child][1] for child in node.children)
        assert layout.nodes[place][1] >= 0


def test_long_sentences_are_drawn():
    trace = left_branching(600)  # deeper than Python recurses
    assert "w599" in text(trace)
    assert parsed(trace) is not None
    assert describe(trace).count("<ul") == describe(trace).count("</ul>")


def test_hostile_words_are_only_words():
    trace = Trace(HOSTILE, HOSTILE[::-1], order=tuple(range(len(HOSTILE))), notes=HOSTILE)
    root = parsed(trace)  # well-formed, whatever was in the words
    assert not [part for part in root.iter() if part.tag.endswith("script")]
    page = html(trace)
    page.encode("utf-8")
    assert "<script>alert" not in page
    assert 'onload="' not in page
    assert "\x00" not in page


def test_markup_has_no_inline_style_or_script():
    drawn = svg(LABELLED, standalone=False)
    assert not re.search(r"\sstyle=|<style|<script|\son\w+=", drawn)


def test_a_page_loads_nothing():
    page = html(LABELLED)
    addresses = set(re.findall(r"""(?:https?:)?//[^\s"'<)]+""", page))
    assert {address for address in addresses if address.startswith("http")} <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<link|\ssrc=|@import|url\(|import .* from", page)
    assert "default-src 'none'" in page


def test_long_words_are_shortened_but_their_titles_are_complete():
    root = parsed(Trace(("x" * 80,), (), order=(0,)))
    shown = [part.text for part in classes(root, "text")]
    assert shown == [shortened("x" * 80)] * 2
    assert any(part.text == "x" * 80 for part in root.iter() if part.tag.endswith("title"))


def test_screen_readers_are_told_what_is_shown():
    description = describe(LABELLED)
    assert "inverted VP" in description
    assert "<bdi>a</bdi> <bdi>song</bdi> → <bdi>LIED</bdi>" in description
    segments = classes(parsed(LABELLED), "segment")
    assert [part.get("aria-label") for part in segments] == [
        "LIED, from a song",
        "SANG, from sang",
        "no output, from she",
    ]
    assert [part.get("tabindex") for part in segments] == ["0", "0", None]


def test_notebooks_show_pictures(ssnt_model):
    (prediction,) = ssnt_model.predict(["a b c"], explain=True)
    for shown in (prediction.explanation, prediction.explanation.derivation, explain(ssnt_model, "a b c")):
        drawn = shown._repr_html_()
        assert "<svg" in drawn
        assert "permalign-picture" in drawn


def test_figures_are_pdf_with_text_in_them(ssnt_model, tmp_path):
    trace = explain(ssnt_model, "a b c d")
    lengths = {"ours": [(3, True), (3, False), (5, True)], "theirs": [(3, False), (4, True)]}
    for figure in (expected_matrix(trace), alignment(trace), accuracy_by_length(lengths)):
        save(figure, tmp_path / "figure.pdf")
        written = (tmp_path / "figure.pdf").read_bytes()
        assert written.startswith(b"%PDF")
        assert b"/TrueType" in written or b"/Type0" in written
        assert b"/Type3" not in written


def test_accuracy_is_that_of_each_length():
    (axes,) = accuracy_by_length({"ours": [(3, True), (3, False), (5, True)]}).axes
    (line,) = axes.lines
    assert line.get_xydata().tolist() == [[3, 50], [5, 100]]


def test_figures_without_data_are_refused():
    nothing = Trace(("a",), ("b",))
    with pytest.raises(ValueError, match="no expected matrix"):
        expected_matrix(nothing)
    with pytest.raises(ValueError, match="no alignment"):
        alignment(nothing)
    with pytest.raises(ValueError, match="at least one"):
        accuracy_by_length({})
