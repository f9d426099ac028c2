import pytest
from hypothesis import given
from hypothesis import strategies as st

from permalign.errors import ConfigError, DataError
from permalign.text.loading import load_codec
from permalign.text.tokenized_vocabulary import TokenizedVocabulary
from permalign.text.tokenizers import (
    CharacterTokenizer,
    HuggingFaceTokenizer,
    PunctuationTokenizer,
    WhitespaceTokenizer,
)

TOKENIZERS = {
    "characters": CharacterTokenizer(),
    "punctuation": PunctuationTokenizer(),
    "digits": PunctuationTokenizer(digits=True),
    "whitespace": WhitespaceTokenizer(),
}
SENTENCES = [
    "f(x, g(y)) = 1.5e-3",
    "2021-03-12",
    "walk V;PST",
    "a ( b ) !",
    "naïve über-cool 東京。",
    "((a))",
]


@pytest.fixture
def hugging_face(tmp_path):
    """A small tokenizer of byte pairs, as a file."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train_from_iterator(
        [*SENTENCES, *map(str.lower, SENTENCES)],
        tokenizers.trainers.BpeTrainer(vocab_size=300, show_progress=False),
    )
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path / "tokenizer.json"


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("text", SENTENCES)
def test_the_text_is_restored(name, text):
    tokenizer = TOKENIZERS[name]
    assert tokenizer.join(tokenizer.split(text)) == text


@given(st.lists(st.text("ab1.-( ", min_size=1), min_size=1, max_size=8))
def test_any_text_is_restored(words):
    text = " ".join(" ".join(words).split())
    for tokenizer in TOKENIZERS.values():
        assert tokenizer.join(tokenizer.split(text)) == text


def test_words_keep_their_form_and_punctuation_has_the_joiners():
    assert PunctuationTokenizer().split("12 May, 2021-03") == ["12", "May", "￭,", "2021", "￭-￭", "03"]
    assert PunctuationTokenizer(digits=True).split("v2.10") == ["v", "￭2", "￭.￭", "1", "￭0"]
    assert PunctuationTokenizer(joiners=False, lowercase=True).split("12 May, 2021") == [
        "12",
        "may",
        ",",
        "2021",
    ]


def test_a_tokenizer_of_hugging_face_is_used_as_it_is(hugging_face):
    for name in (hugging_face, hugging_face.parent):
        tokenizer = HuggingFaceTokenizer.load(str(name))
        for text in SENTENCES:
            assert tokenizer.join(tokenizer.split(text)) == text
    with pytest.raises(ConfigError, match="there is no tokenizer"):
        HuggingFaceTokenizer.load(str(hugging_face.parent / "other" / "missing" / "x"))


def test_the_hub_is_not_waited_for_where_it_has_no_address(monkeypatch, capfd):
    def unknown_host(*arguments):
        raise OSError("Name or service not known")

    monkeypatch.setattr("permalign.hub.getaddrinfo", unknown_host)
    monkeypatch.setattr("permalign.hub.getproxies", dict)
    with pytest.raises(
        ConfigError, match=r"there is no tokenizer typo\.json: .*Hugging Face hub .*which cannot be reached"
    ):
        HuggingFaceTokenizer.load("typo.json")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("name", [*TOKENIZERS, "hugging face"])
def test_vocabularies_are_saved_with_their_tokenizer(name, hugging_face, tmp_path):
    tokenizer = TOKENIZERS.get(name) or HuggingFaceTokenizer.load(str(hugging_face), lowercase=True)
    sentences = [sentence.split() for sentence in SENTENCES]
    vocabulary = TokenizedVocabulary.build(sentences, tokenizer)
    vocabulary.save(tmp_path / "saved.json")
    loaded = load_codec(tmp_path / "saved.json")
    assert loaded == vocabulary
    assert hash(loaded) == hash(vocabulary)
    for sentence in sentences:
        lower = tuple(word.lower() if tokenizer.lowercase else word for word in sentence)
        assert loaded.decode(loaded.encode(sentence)) == lower
        assert loaded.convert_ids_to_tokens(loaded.encode(sentence)) == loaded.tokenize(sentence)


def test_a_broken_file_is_an_error(tmp_path):
    vocabulary = TokenizedVocabulary.build([["a"]], CharacterTokenizer())
    path = tmp_path / "saved.json"
    vocabulary.save(path)
    text = path.read_text()
    for old, new in (('"characters"', '"letters"'), ('"lowercase"', '"upper"'), ('"words"', '"pieces"')):
        path.write_text(text.replace(old, new))
        with pytest.raises(DataError):
            load_codec(path)
