"""Word alignments: links and posteriors by enumeration, subwords merged to words, and what has no alignments."""

import itertools
from pathlib import Path

import pytest
import torch
from tests.models.small import make
from typer.testing import CliRunner

from permalign import Transducer
from permalign.cli.app import app
from permalign.explain import explain, html, svg, text
from permalign.explain.word_alignment import WordAlignment, align
from permalign.text.tokenized_vocabulary import TokenizedVocabulary
from permalign.text.tokenizers import PunctuationTokenizer
from permalign.text.word_spans import word_spans


@torch.no_grad()
def enumerated_posteriors(model, source, target):
    """Sum over all segmentations of an output in the source order, one by one, by their probabilities."""
    ids = model.source.encode(source), model.target.encode(target)
    states = model.embeddings(torch.tensor([ids[0]]))
    n, m = map(len, ids)
    pair = torch.tensor([n]), torch.tensor([ids[1]]), torch.tensor([m])
    log_probs = model.head.segment_log_probs(states, *pair)[0].double()
    posteriors, total = torch.zeros(m, n).double(), 0.0
    for sizes in itertools.product(range(model.head.max_segment_length + 1), repeat=n):
        if sum(sizes) != m:
            continue
        starts = [sum(sizes[:cell]) for cell in range(n)]
        weight = sum(log_probs[cell, starts[cell], sizes[cell]] for cell in range(n)).exp()
        total = total + weight
        for cell in range(n):
            posteriors[starts[cell] : starts[cell] + sizes[cell], cell] += weight
    return posteriors / total


@pytest.mark.parametrize("head", ["segments", "swan"])
def test_posteriors_are_sums_over_segmentations(head):
    model = make("none", head).eval()
    source, target = ["a", "b", "c"], ["C", "A", "B", "D"]
    alignment = align(model, source, target)
    expected = enumerated_posteriors(model, source, target)
    torch.testing.assert_close(torch.tensor(alignment.posteriors).double(), expected, atol=1e-4, rtol=0)
    assert [output for _, output in alignment.links] == [0, 1, 2, 3]
    assert all(a <= b for (a, _), (b, _) in itertools.pairwise(alignment.links))  # in the source order


def test_ssnt_links_the_most_probable_cell_and_never_the_end():
    model = make("none", "ssnt").eval()
    alignment = align(model, "a b", "B A")
    for output, row in enumerate(alignment.posteriors):
        linked = [source for source, of_output in alignment.links if of_output == output]
        best = max(range(2), key=row.__getitem__)
        assert linked == ([best] if row[best] > 1 - sum(row) else [])


def test_links_follow_the_order_of_a_tree():
    model = make("exact", "tagging").eval()
    (alignment,) = model.align([("a b c", "C B A")])
    assert sorted(source for source, _ in alignment.links) == [0, 1, 2]
    assert model.align([("a b c", "C")])[0].problem is not None


def test_models_without_alignments_are_refused():
    with pytest.raises(ValueError, match="attention weights do not say"):
        align(make("none", "attention"), "a b", "A")
    with pytest.raises(ValueError, match="mixes them"):
        align(make("local", "ssnt"), "a b", "A")


class Pieces:
    """Cuts words into pieces of at most two characters, like a subword codec."""

    def tokenize(self, words):
        marked = "▁".join(["", *words])
        starts = [i for i, c in enumerate(marked) if c == "▁"] + [len(marked)]
        return [
            marked[i : min(i + 3, end)]
            for start, end in itertools.pairwise(starts)
            for i in range(start, end, 3)
        ]


def test_subwords_belong_to_the_words_they_are_part_of():
    spans = word_spans(Pieces(), ["hedgehog", "is", "a"])
    assert [list(span) for span in spans] == [[0], [0], [0], [1], [2]]


def test_the_command_writes_pharaoh_and_names_bad_lines(tmp_path):
    make("none", "segments").save_pretrained(tmp_path / "model")
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("a b\tB A\na\tA B C D\n")
    result = CliRunner().invoke(app, ["align", str(tmp_path / "model"), "--file", str(pairs), "--posteriors"])
    first, second = result.stdout.splitlines()
    assert first.startswith(("0-0:", "1-0:"))
    assert second == ""
    assert "pairs.tsv, example 2: no alignment" in result.stderr
    pairs = tmp_path / "pairs.txt"
    pairs.write_text("a b\tB A\na\tA B C D\n")
    result = CliRunner().invoke(app, ["align", str(tmp_path / "model"), "--file", str(pairs), "--posteriors"])
    assert result.stdout.splitlines() == [first, second]
    assert "pairs.txt, line 2: no alignment" in result.stderr
    pairs.write_text("no tab\n")
    result = CliRunner().invoke(app, ["align", str(tmp_path / "model"), "--file", str(pairs)])
    assert result.exit_code == 1
    assert "expected a sentence, a tab and an output" in result.stderr


@pytest.mark.parametrize(
    ("files", "columns"),
    [
        ({"pairs.tsv": "source\ttarget\na b\tB A\n"}, []),
        ({"pairs.csv": "question,answer\na b,B A\n"}, []),
        ({"pairs.jsonl": '{"x": "a b", "y": "B A"}\n'}, ["--source-column", "x", "--target-column", "y"]),
        ({"a.en": "a b\n", "a.de": "B A\n"}, []),
    ],
)
def test_the_command_reads_what_the_other_commands_read(tmp_path, files, columns):
    make("none", "segments").save_pretrained(tmp_path / "model")
    arguments = ["align", str(tmp_path / "model"), *columns]
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        arguments += ["--file", str(tmp_path / name)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 1


def test_the_command_takes_the_columns_that_a_run_was_trained_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("forms.tsv").write_text("a\tA A\tx\nb\tB B\ty\na\tA A\ty\nb\tB B\tx\n")
    settings = ["--set", "training.max_steps=1", "--run", "run"]
    columns = ["--source-column", "1,3", "--target-column", "2"]
    result = CliRunner().invoke(app, ["train", "forms.tsv", "--recipe", "exact", *columns, *settings])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, ["align", "run", "--file", "forms.tsv"])
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 4


def test_pharaoh_counts_from_zero():
    assert WordAlignment(((0, 0), (2, 1)), ()).pharaoh() == "0-0 2-1"


def test_tokens_with_joiners_are_merged_to_words():
    source, target = (
        TokenizedVocabulary.build([side.split()], PunctuationTokenizer(joiners=joiners))
        for side, joiners in (("12 mai, 2021", False), ("2021-05-12", True))
    )
    model = Transducer({"head": {"kind": "segments", "max_segment_length": 4}}, source, target).eval()
    (alignment,) = model.align([("12 mai 2021", "2021-05-12")])
    assert alignment.problem is None
    assert {output for _, output in alignment.links} == {0}
    assert word_spans(target, ["2021-05", "x"]) == [range(0, 1)] * 3 + [range(1, 2)]


def test_explanations_show_words_and_no_joiners():
    source, target = (
        TokenizedVocabulary.build([side.split()], PunctuationTokenizer(joiners=joiners))
        for side, joiners in (("12 mai, 2021", False), ("2021-05-12", True))
    )
    model = Transducer({"head": {"kind": "segments", "max_segment_length": 4}}, source, target).eval()
    trace = explain(model, "12 mai 2021", "2021-05-12")
    assert trace.target == ("2021", "￭-￭", "05", "￭-￭", "12")
    assert trace.output == ("2021-05-12",)
    assert text(trace).startswith("12 mai 2021 → 2021-05-12 (given target)\n")
    assert "￭" not in text(trace) + svg(trace) + html(trace)
