"""Models that copy: words in no vocabulary through training, scores, search, constraints, ensembles and files."""

import dataclasses

import pytest
import torch
from tests.models.small import HEADS_FOR, REORDERERS

from permalign import Ensemble, Transducer, build_model
from permalign.errors import ConfigError
from permalign.explain import explain
from permalign.tasks.base import Example
from permalign.text.batching import Batches
from permalign.text.codec import END_ID, PADDING_ID
from permalign.text.sentence_vocabulary import CopyCodec, hide_copied_words
from permalign.text.tokenized_vocabulary import TokenizedVocabulary
from permalign.text.tokenizers import CharacterTokenizer, HuggingFaceTokenizer, PunctuationTokenizer
from permalign.text.vocabulary import Vocabulary

NAMES = ["ada", "bob", "cleo", "dan", "eve", "finn"]
SOURCE, TARGET = Vocabulary(["call", "greet", *NAMES]), Vocabulary(["CALL", "GREET", *NAMES])
EXAMPLES = [
    Example((name, verb), (verb.upper(), name), f"{verb} {name}")
    for name in NAMES
    for verb in ("call", "greet")
]


def make(reorderer="none", head="ssnt", **options):
    torch.manual_seed(1)
    encoder = {"kind": "none"}
    reorderer = {
        "embedding_dim": 16,
        "encoder": {"hidden_size": 16, "dropout": 0.0},
        "scorer_hidden_size": 16,
        "dropout": 0.0,
        **REORDERERS[reorderer],
    }
    head = {
        "kind": head,
        "embedding_dim": 16,
        "hidden_size": 16,
        "encoder": encoder,
        "dropout": 0.0,
        "embedding_dropout": 0.0,
        "max_segment_length": 1,
        "copy_mechanism": True,
        **options,
    }
    return Transducer({"reorderer": reorderer, "head": head}, SOURCE, TARGET)


def train(model, steps=150):
    (batch,) = Batches(EXAMPLES, SOURCE, TARGET, 1000, shuffle=False)
    optimizer = torch.optim.Adam(model.parameters(), 2e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model.train().loss(batch).total.backward()
        optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def trained():
    return train(make("exact", "segments"))


def test_words_in_no_vocabulary_are_copied(trained):
    (prediction,) = trained.predict(["zoe greet"], beam=3)
    assert prediction.text == "GREET zoe"
    assert trained.predict(["zoe call", "zoe zoe", "ada greet"], beam=3)[2].text == "GREET ada"


def test_the_score_of_a_copied_word_is_that_of_the_search(trained):
    (prediction,) = trained.predict(["zoe greet"], beam=3)
    (score,) = trained.score(["zoe greet"], ["GREET zoe"])
    assert score == pytest.approx(prediction.score, abs=1e-5)
    assert score > trained.score(["zoe greet"], ["GREET unheard"])[0]


def test_an_explanation_says_what_was_copied(trained):
    trace = explain(trained, "zoe greet")
    assert trace.target == ("GREET", "zoe")
    assert trace.copied[0] < 0.1
    assert trace.copied[1] > 0.99
    assert "it can copy them: zoe" in " ".join(trace.notes)
    given = explain(trained, "zoe greet", "GREET zoe")
    assert given.copied == pytest.approx(trace.copied, abs=1e-3)
    assert explain(make(copy_mechanism=False), "ada call").copied is None


def test_constraints_know_the_words_of_the_sentence(trained):
    def only_names(words):
        return ["zoe", "</s>"] if words else ["zoe"]

    assert trained.predict(["zoe greet"], beam=2, constraint=only_names)[0].tokens[0] == "zoe"


def test_a_saved_model_copies(trained, tmp_path):
    trained.save_pretrained(tmp_path)
    loaded = Transducer.from_pretrained(tmp_path)
    assert loaded.predict(["zoe greet"], beam=3) == trained.predict(["zoe greet"], beam=3)


def test_an_ensemble_copies_if_all_members_do(trained):
    both = Ensemble([trained, make(head="ssnt")])
    (prediction,) = both.predict(["zoe greet"], beam=3)
    assert both.score(["zoe greet"], [prediction.tokens])[0] == pytest.approx(prediction.score, abs=1e-5)
    with pytest.raises(ValueError, match="only one of member 0 and member 1 has a copy mechanism"):
        Ensemble([trained, make(copy_mechanism=False)])


@pytest.mark.parametrize("reorderer", ["soft", "hard", "samples", "labelled exact", "sinkhorn", "local"])
def test_what_is_copied_moves_with_the_words(reorderer):
    """A batch gives the same likelihood and the same outputs as its sentences one by one."""
    kind = HEADS_FOR.get(reorderer, ["ssnt"])[-1]
    model = make(reorderer, kind)
    model.loss(next(iter(Batches(EXAMPLES, SOURCE, TARGET, 1000)))).total.backward()
    model.eval()
    sentences, outputs = ["zoe greet max", "ada call"], ["GREET zoe max", "CALL ada"]
    together = model.score(sentences, outputs)
    for pair, score in zip(zip(sentences, outputs, strict=True), together, strict=True):
        assert model.score([pair[0]], [pair[1]])[0] == pytest.approx(score, abs=1e-4)
    best = model.predict(sentences, beam=2)[0]
    assert model.score(sentences[:1], [best.tokens])[0] == pytest.approx(best.score, abs=1e-4)


def test_heads_that_cannot_copy_are_refused():
    with pytest.raises(ConfigError, match=r"syntactic_attention cannot copy words\. Use head\.kind: ssnt"):
        make(head="syntactic_attention")
    options = {"inverse": {"head": {"copy_mechanism": True}}}
    with pytest.raises(ConfigError, match="inverse model only scores outputs"):
        build_model(options, SOURCE, TARGET)


def test_an_inverse_model_reads_copied_words_as_unknown():
    options = {"head": {"kind": "ssnt", "copy_mechanism": True}, "inverse": {"weight": 0.5}}
    model = build_model(options, SOURCE, TARGET)
    batch = next(iter(Batches([Example(("zoe", "call"), ("CALL", "zoe"), "0")], SOURCE, TARGET, 100)))
    assert model.loss(batch).total.isfinite()
    assert model.predict(["zoe call"], beam=3)[0].score <= 0


def test_a_word_that_cannot_be_copied_where_it_stands_is_unknown():
    model = make(head="segments", max_segment_length=2)
    example = Example(("zoe", "call"), ("zoe", "CALL", "zoe"), "0")  # "call" would have to copy "zoe"
    (batch,) = Batches([example], SOURCE, TARGET, 100)
    assert model.score(["zoe call"], ["zoe CALL zoe"]) == [-torch.inf]
    loss = model.train().loss(batch).total
    assert loss.isfinite()
    loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


class TestHiding:
    def test_words_that_another_word_may_have_written_are_not_hidden(self):
        examples = [Example(("ada", "call"), ("ada", "CALL", "ada"), "0")]
        (batch,) = Batches(examples, SOURCE, TARGET, 100)
        batch = CopyCodec(SOURCE, TARGET).add_copies(batch)
        assert torch.equal(hide_copied_words(batch, 1.0, len(TARGET)).source, batch.source)

    def batch(self):
        examples = [
            Example(("ada", "zoe", "ada"), ("ada", "zoe", "CALL", "ada"), "0"),
            Example(("call", "bob"), ("CALL", "bob"), "1"),
        ]
        (batch,) = Batches(examples, SOURCE, TARGET, 100, shuffle=False)
        return CopyCodec(SOURCE, TARGET).add_copies(batch)

    def test_targets_hold_the_unknown_words_of_their_sentence(self):
        batch = self.batch()
        row = [example.id for example in batch.examples].index("0")
        assert batch.target[row].tolist() == [
            TARGET.encode(["ada"])[0],
            len(TARGET),
            4,
            TARGET.encode(["ada"])[0],
        ]
        assert batch.copies[row].tolist() == [
            TARGET.encode(["ada"])[0],
            len(TARGET),
            TARGET.encode(["ada"])[0],
        ]

    def test_all_occurrences_of_a_copied_word_are_hidden_together(self):
        batch = self.batch()
        hidden = hide_copied_words(batch, 1.0, len(TARGET))
        row = [example.id for example in batch.examples].index("0")
        assert hidden.source[row].tolist() == [1, 1, 1]
        first, own, again = hidden.copies[row].tolist()
        assert first == again != own
        assert min(first, own) >= len(TARGET)
        assert hidden.target[row].tolist() == [first, own, 4, first]
        other = 1 - row
        assert hidden.source[other, 0] != 1  # "call" is not copied
        assert hidden.source[other, 1] == 1

    def test_nothing_is_hidden_without_dropout(self):
        batch = self.batch()
        same = hide_copied_words(batch, 0.0, len(TARGET))
        assert torch.equal(same.source, batch.source)
        assert torch.equal(same.target, batch.target)

    def test_a_batch_without_examples_is_refused(self):
        batch = dataclasses.replace(self.batch(), copies=None, examples=())
        with pytest.raises(ValueError, match="neither copies nor examples"):
            make().loss(batch)


class TestTokens:
    """Words that a tokenizer split off from punctuation, and characters, are copied as they are."""

    def codecs(self, tokenizer, *sentences):
        sides = zip(*(sentence.split("|") for sentence in sentences), strict=True)
        return [TokenizedVocabulary.build([side.split() for side in texts], tokenizer) for texts in sides]

    def test_unknown_words_between_punctuation_are_read_and_written(self):
        source, target = self.codecs(PunctuationTokenizer(), "12 march 2021|2021-03-12")
        words = CopyCodec(source, target).of(["31", "march", "1945"])
        assert words.own_words == ("31", "march", "1945")
        ids = words.encode(["1945-03-31"])
        assert ids[0] == words.copy_ids[2]
        assert ids[-1] == words.copy_ids[0]
        assert words.decode([PADDING_ID, *ids, END_ID, *ids]) == ("1945-03-31",)

    def test_unknown_characters_are_copied(self):
        source, target = self.codecs(CharacterTokenizer(), "ab|ba")
        words = CopyCodec(source, target).of(["az", "b"])
        assert words.decode(words.encode(["za", "b"])) == ("za", "b")

    def test_pieces_that_a_tokenizer_cannot_join_are_not_copied(self):
        library = pytest.importorskip("tokenizers")
        pieces = library.Tokenizer(library.models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
        pieces.pre_tokenizer = library.pre_tokenizers.Whitespace()
        tokenizer = HuggingFaceTokenizer(pieces.to_str())
        source, target = self.codecs(tokenizer, "a b|a")
        words = CopyCodec(source, target).of(["a", "b"])
        assert words.copy_ids == [*target.encode(["a"]), PADDING_ID]
        assert words.own_words == ()

    def test_a_model_of_dates_copies_days_and_years_that_it_has_never_seen(self):
        pairs = [(f"{y} may {d}", f"{y}-05-{d}") for d in (12, 14, 17, 21) for y in range(2001, 2007)]
        examples = [Example(tuple(x.split()), (y,), x) for x, y in pairs]
        source, target = self.codecs(PunctuationTokenizer(), *("|".join(pair) for pair in pairs))
        torch.manual_seed(0)
        head = {"kind": "ssnt", "embedding_dim": 16, "hidden_size": 16, "encoder": {"kind": "none"}}
        head |= {"dropout": 0.0, "embedding_dropout": 0.0, "copy_mechanism": True}
        model = Transducer({"reorderer": {"kind": "none"}, "head": head}, source, target)
        (batch,) = Batches(examples, source, target, 1000, shuffle=False)
        optimizer = torch.optim.Adam(model.parameters(), 2e-2)
        for _ in range(150):
            optimizer.zero_grad()
            model.train().loss(batch).total.backward()
            optimizer.step()
        prediction = model.eval().predict("1945 may 31")
        assert prediction.text == "1945-05-31"
        assert prediction.unknown == ("1945", "31")
