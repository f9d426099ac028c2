"""Glossaries: files, phrases in sentences, and outputs of every head that contain what is required."""

import itertools

import pytest
import torch
from tests.models.small import HEADS, make

from permalign import Transducer
from permalign.decoding.glossary import Glossary, GlossaryConstraint
from permalign.errors import DataError
from permalign.heads.copying import CopyGate
from permalign.text.codec import END_ID
from permalign.text.tokenized_vocabulary import TokenizedVocabulary
from permalign.text.tokenizers import PunctuationTokenizer


def read(tmp_path, text):
    path = tmp_path / "terms.tsv"
    path.write_text(text, encoding="utf-8")
    return Glossary.read(path)


def test_entries_have_alternatives_and_longer_phrases_come_first(tmp_path):
    glossary = read(tmp_path, "\ufeffhouse\tHaus\tHauses\r\n\nred house\trotes Haus\n")
    found = glossary.find(["the", "red", "house", "of", "a", "house"])
    assert [requirement.phrase for requirement in found] == [("red", "house"), ("house",)]
    assert found[1].is_met(["des", "Hauses"])
    assert not found[0].is_met(["rotes", "kleines", "Haus"])


@pytest.mark.parametrize("text", ["house\n", "\tHaus\n", "", "house\t \n"])
def test_broken_files_are_named(tmp_path, text):
    with pytest.raises(DataError, match=r"terms\.tsv.*(expected)"):
        read(tmp_path, text)


def test_the_line_of_a_broken_entry_is_named(tmp_path):
    with pytest.raises(DataError, match=r"terms\.tsv, line 3: expected"):
        read(tmp_path, "house\tHaus\n\nred\n")


@pytest.mark.parametrize("entry", [(" ", "Haus"), ("house", []), ("house", " "), ("house", ["Haus", ""])])
def test_entries_without_a_phrase_or_an_output_are_errors(entry):
    with pytest.raises(ValueError, match="needs a source phrase and an output"):
        Glossary(dict([entry]))


def test_the_constraint_allows_exactly_the_outputs_that_contain_what_is_required():
    constraint = GlossaryConstraint([[(4, 4, 5)], [(6,), (5, 5)]], vocab_size=7)
    words = [4, 5, 6]
    for length in range(6):
        for output in itertools.product(words, repeat=length):
            state = constraint.start()
            possible = True
            for written, token in enumerate(output):
                possible &= bool(constraint.mask(state, length - written, False)[token])
                state = constraint.advance(state, token)
                room = length - written - 1
                missing = constraint.num_tokens - constraint.progress(state)
                assert not possible or length < constraint.num_tokens or missing <= room, output
            ended = possible and bool(constraint.mask(state, 0, False)[END_ID])
            text = "".join(map(str, output))
            assert ended == ("445" in text and ("6" in text or "55" in text)), text


@pytest.mark.parametrize(
    ("prefix", "wanted", "progress"),
    [((), {4, 5, 6}, 0), ((4, 4), {5, 6}, 2), ((6,), {4}, 1), ((6, 5), {4}, 1), ((4, 4, 5), {5, 6}, 3)],
)
def test_what_continues_a_phrase_that_is_not_written_yet_is_wanted(prefix, wanted, progress):
    constraint = GlossaryConstraint([[(4, 4, 5)], [(6,), (5, 5)]], vocab_size=7)
    state = constraint.start()
    for token in prefix:
        state = constraint.advance(state, token)
    assert constraint.wanted(state) == wanted
    assert constraint.progress(state) == progress


def test_only_the_end_may_follow_an_output_of_the_maximum_length():
    constraint = GlossaryConstraint([[(4,)]], vocab_size=7)
    met = constraint.advance(constraint.start(), 4)
    assert constraint.mask(met, 0, False).nonzero().flatten().tolist() == [END_ID]
    assert not constraint.mask(constraint.start(), 0, False)[END_ID]


def test_both_constraints_hold():
    letters = GlossaryConstraint([[(5,)]], vocab_size=6)  # it knows fewer tokens than the other one
    constraint = GlossaryConstraint([[(4,), (6,)]], vocab_size=7, inner=letters, forbidden=[6])
    state = constraint.start()
    assert constraint.mask(state, 2, False).tolist() == [False] * 4 + [True, True, False]
    state = constraint.advance(state, 4)
    assert constraint.mask(state, 1, False).nonzero().flatten().tolist() == [5]
    assert constraint.mask(constraint.advance(state, 5), 0, False).nonzero().flatten().tolist() == [END_ID]


@pytest.mark.parametrize("head", HEADS)
def test_every_head_honours_a_glossary(head):
    model = make("none", head).eval()
    glossary = {"b": ["E F", "D D"], "unseen": "A"}
    (prediction,) = model.predict(["a b c"], beam=2, glossary=glossary)
    assert "E F" in prediction.text or "D D" in prediction.text
    assert prediction.unmet == ()
    assert prediction.score == pytest.approx(model.score(["a b c"], [prediction.tokens])[0], abs=1e-4)


def test_unknown_words_of_a_phrase_are_replaced_and_not_copied():
    model = make("none", "tagging", copy_mechanism=True).eval()
    (gate,) = (module for module in model.modules() if isinstance(module, CopyGate))
    torch.nn.init.constant_(gate.of_cells.bias, -50.0)  # copy every word

    def text(glossary=None):
        return model.predict("zebra lion gnu", glossary=glossary).text

    assert text() == "zebra lion gnu"
    assert text({"zebra": "E"}) == "E lion gnu"
    assert text({"zebra lion": "E F"}) in ("E F gnu", "gnu E F")
    words = text({"zebra": "zebra", "lion": "gnu"}).split()  # a copy may be what is required
    assert words[0] == "zebra"
    assert words[2] == "gnu"
    assert "lion" not in words
    assert text({"zebra": "unheard"}) == "zebra lion gnu"  # nothing that could be written is required


def test_what_cannot_be_honoured_is_reported():
    model = make("none", "tagging").eval()
    too_long, unknown = model.predict(["a", "b"], glossary={"a": "A B", "b": "unheard"})
    assert too_long.unmet == ("a",)
    assert unknown.unmet == ("b",)
    assert too_long.tokens
    assert torch.isfinite(torch.tensor(too_long.score))


def test_phrases_are_found_and_met_beside_punctuation_if_the_tokens_are_split_there():
    source, target = (
        TokenizedVocabulary.build([side.split()], PunctuationTokenizer(joiners=joiners))
        for side, joiners in (("12 mai, 2021", False), ("2021-05-12", True))
    )
    model = Transducer({"head": {"kind": "ssnt"}}, source, target).eval()
    prediction = model.predict("12 mai, 2021", glossary={"mai": "12", "2021": "05-12"})
    assert prediction.unmet == ()
    assert "05-12" in prediction.text
    whole_words = make("none", "ssnt").eval()
    assert "E F" not in whole_words.predict("a b, c", glossary={"b": "E F"}).text
