"""The pretrained encoder on tiny models with random weights and a tokenizer made here: nothing is downloaded."""

import sys

import pytest
import torch
from tests.reorderers.contract import alone

from permalign.encoders import BiLstmEncoder
from permalign.encoders.huggingface import ContextualEmbeddings, HuggingFaceEncoder
from permalign.errors import PermalignError
from permalign.reorderers import SeparableReorderer, SinkhornReorderer, SourceEncoder
from permalign.text.codec import BEGIN_ID, END_ID
from permalign.text.vocabulary import Vocabulary

transformers = pytest.importorskip(
    "transformers", reason='the pretrained encoder needs transformers: pip install "permalign[hf]"'
)
tokenizers = pytest.importorskip("tokenizers", reason="comes with transformers")

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "river", "##s", "in", "texas", "long", "##est", "-"]
RIVERS = ["the", "longest", "rivers", "in", "texas"]


def make_tokenizer(**specials):
    numbers = {piece: number for number, piece in enumerate(PIECES)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(numbers, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    usual = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **(usual | specials))


def make_model(room=300, pooler=False):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(PIECES),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=room,
    )
    return transformers.BertModel(config, add_pooling_layer=pooler)


def make_encoder(pooling="mean"):
    return HuggingFaceEncoder(make_model(), make_tokenizer(), pooling).double().eval()


def piece_states(encoder, pieces):
    return encoder.model(torch.tensor([[PIECES.index(piece) for piece in pieces]])).last_hidden_state[0]


class TestPooling:
    pieces = ("[CLS]", "the", "long", "##est", "river", "##s", "in", "texas", "[SEP]")

    def test_the_mean_of_the_subwords_of_a_word(self):
        encoder = make_encoder("mean")
        states = piece_states(encoder, self.pieces)
        words = [states[1], states[2:4].mean(0), states[4:6].mean(0), states[6], states[7]]
        torch.testing.assert_close(encoder([RIVERS])[0], torch.stack(words))

    def test_the_first_subword_of_a_word(self):
        encoder = make_encoder("first")
        torch.testing.assert_close(encoder([RIVERS])[0], piece_states(encoder, self.pieces)[[1, 2, 4, 6, 7]])

    def test_a_word_that_is_cut_at_a_hyphen_stays_one_word(self):
        encoder = make_encoder()
        states = piece_states(encoder, ("[CLS]", "river", "-", "texas", "[SEP]"))
        torch.testing.assert_close(encoder([["river-texas"]])[0, 0], states[1:4].mean(0))

    def test_words_without_subwords_are_unknown(self):
        encoder = make_encoder()
        found = encoder([["the", "\x01", "texas"], ["the", "", "zebra"]])
        expected = piece_states(encoder, ("[CLS]", "the", "[UNK]", "texas", "[SEP]"))[1:4]
        torch.testing.assert_close(found[0], expected)
        expected = piece_states(encoder, ("[CLS]", "the", "[UNK]", "[UNK]", "[SEP]"))[1:4]
        torch.testing.assert_close(found[1], expected)


def test_padding_and_the_rest_of_the_batch_change_nothing():
    encoder = make_encoder()
    sentences = [RIVERS, ["texas"], ["longest", "river"]]
    states = encoder(sentences)
    assert states.shape == (3, 5, 8)
    for row, sentence in enumerate(sentences):
        torch.testing.assert_close(states[row, : len(sentence)], encoder([sentence])[0])
        assert (states[row, len(sentence) :] == 0).all()


def test_words_have_context():
    states = make_encoder()([["river", "the"], ["river", "in"]])
    assert (states[0, 0] - states[1, 0]).abs().max() > 1e-3


def test_gradients_reach_every_parameter():
    encoder = make_encoder().train()
    encoder([RIVERS, ["texas"]]).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())


def test_two_hundred_words():
    assert make_encoder()([["river"] * 200]).isfinite().all()


class TestLoading:
    def save(self, folder, model, tokenizer=None):
        model.save_pretrained(folder)
        (tokenizer or make_tokenizer()).save_pretrained(folder)
        return HuggingFaceEncoder.from_pretrained(folder).double().eval()

    def test_from_a_folder_without_the_pooler(self, tmp_path):
        model = make_model(pooler=True)
        encoder = self.save(tmp_path, model)
        expected = HuggingFaceEncoder(model, make_tokenizer()).double().eval()([RIVERS])
        torch.testing.assert_close(encoder([RIVERS]), expected)
        assert not [name for name, _ in encoder.named_parameters() if "pooler" in name]

    def test_of_a_model_with_a_decoder_the_encoder(self, tmp_path):
        config = transformers.T5Config(
            vocab_size=len(PIECES), d_model=8, d_kv=4, d_ff=16, num_layers=1, num_heads=2
        )
        encoder = self.save(tmp_path, transformers.T5Model(config))
        assert encoder([RIVERS, ["texas"]]).shape == (2, 5, 8)
        assert not [name for name, _ in encoder.named_parameters() if "decoder" in name]

    def test_a_model_that_reads_from_left_to_right(self, tmp_path):
        config = transformers.GPT2Config(
            vocab_size=len(PIECES), n_embd=8, n_layer=1, n_head=2, bos_token_id=2, eos_token_id=3
        )
        tokenizer = make_tokenizer(pad_token=None, eos_token="[SEP]")
        encoder = self.save(tmp_path, transformers.GPT2Model(config), tokenizer)
        states = encoder([RIVERS, ["texas"]])
        torch.testing.assert_close(states[1, :1], encoder([["texas"]])[0])

    def test_nothing_there(self, tmp_path):
        with pytest.raises(PermalignError, match=r"^[^\n]*cannot be loaded as a pretrained encoder[^\n]*$"):
            HuggingFaceEncoder.from_pretrained(tmp_path)

    def test_weights_in_a_folder_are_loaded_silently(self, tmp_path, capfd):
        from transformers.utils import logging

        self.save(tmp_path, make_model())
        capfd.readouterr()
        HuggingFaceEncoder.from_pretrained(tmp_path)
        assert capfd.readouterr().err == ""
        assert logging.is_progress_bar_enabled()

    def test_the_hub_is_not_waited_for_where_it_has_no_address(self, monkeypatch):
        def unknown_host(*arguments):
            raise OSError("Name or service not known")

        def search_cache(name, local_files_only=False, **options):
            assert local_files_only
            raise OSError("not in the cache")

        monkeypatch.setattr("permalign.hub.getaddrinfo", unknown_host)
        monkeypatch.setattr("permalign.hub.getproxies", dict)
        monkeypatch.setattr(transformers.AutoModel, "from_pretrained", search_cache)
        with pytest.raises(PermalignError, match=r"owner/typo cannot be loaded .*: not in the cache"):
            HuggingFaceEncoder.from_pretrained("owner/typo")

    def test_without_transformers(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(PermalignError, match=r"permalign\[hf\]"):
            HuggingFaceEncoder.from_pretrained("anything")


@pytest.mark.usefixtures("unchecked")
class TestBadInput:
    @pytest.mark.parametrize("sentences", [[], [["texas"], []]])
    def test_nothing_to_read(self, sentences):
        with pytest.raises(ValueError, match="at least one word"):
            make_encoder()(sentences)

    def test_a_sentence_longer_than_the_model_reads(self):
        encoder = HuggingFaceEncoder(make_model(room=6), make_tokenizer())
        encoder([["river"] * 4])
        with pytest.raises(ValueError, match="has 7 subwords, but the model reads at most 6"):
            encoder([["river"] * 5])

    def test_pooling(self):
        with pytest.raises(ValueError, match="must be one of mean, first"):
            make_encoder(pooling="last")

    def test_a_tokenizer_without_padding(self):
        with pytest.raises(ValueError, match=r"Set tokenizer\.pad_token"):
            HuggingFaceEncoder(make_model(), make_tokenizer(pad_token=None))


def make_separable(source_encoder, decoding):
    return SeparableReorderer(source_encoder, scorer_hidden_size=32, objective="hard", decoding=decoding)


class TestContextualEmbeddings:
    vocabulary = Vocabulary([*RIVERS, "river"])

    def make(self):
        return ContextualEmbeddings(make_encoder(), self.vocabulary.tokens)

    def test_ids_are_read_as_their_words(self):
        words = self.make()
        source = torch.tensor(
            [self.vocabulary.encode(RIVERS), [*self.vocabulary.encode(["river"]), 0, 0, 0, 0]]
        )
        torch.testing.assert_close(words(source), words.encoder([RIVERS, ["river"]]))
        assert words(torch.nn.functional.pad(source, (0, 2))).shape == (2, 7, 8)

    def test_a_word_outside_the_vocabulary_is_the_tokenizers_unknown_one(self):
        words = self.make()
        ids = self.vocabulary.encode(["the", "long", "river"])  # "long" is a piece, but no word here
        torch.testing.assert_close(words(torch.tensor([ids])), words.encoder([["the", "[UNK]", "river"]]))

    def test_begin_and_end_are_the_models_own(self):
        words = self.make()
        fenced = torch.tensor([[BEGIN_ID, *self.vocabulary.encode(["the", "river"]), END_ID]])
        expected = piece_states(words.encoder, ("[CLS]", "the", "river", "[SEP]"))
        torch.testing.assert_close(words(fenced)[0], expected)
        torch.testing.assert_close(words(fenced[:, 1:3])[0], expected[1:3])

    @pytest.mark.parametrize(
        "make",
        [
            lambda words: make_separable(SourceEncoder(words, None), decoding="viterbi"),
            lambda words: make_separable(SourceEncoder(words, BiLstmEncoder(8, 6)), decoding="greedy"),
            lambda words: SinkhornReorderer(SourceEncoder(words, None), num_iterations=32, hungarian=True),
        ],
        ids=["separable", "separable with a BiLSTM", "sinkhorn"],
    )
    def test_under_a_reorderer(self, make):
        torch.manual_seed(0)
        reorderer = make(self.make()).double().eval()
        source = torch.tensor([self.vocabulary.encode(RIVERS), [4, 9, 1, 0, 0]])
        given = source, torch.tensor([5, 3]), torch.randn(2, 5, 3, dtype=torch.float64)
        found = reorderer(*given)
        for row, length in enumerate([5, 3]):
            own = reorderer(*alone(given, row))
            assert torch.equal(own.order[0], found.order[row, :length])
            torch.testing.assert_close(own.states[0], found.states[row, :length])
        mixed = reorderer.train()(*given).states
        (mixed * torch.randn_like(mixed)).sum().backward()
        assert {name for name, p in reorderer.named_parameters() if not p.grad.abs().sum()} == set()

    def test_padding_before_a_word(self):
        with pytest.raises(ValueError, match="Pad at the end"):
            self.make()(torch.tensor([[4, 0, 5]]))

    def test_tokens_without_specials(self):
        with pytest.raises(ValueError, match="must begin with"):
            ContextualEmbeddings(make_encoder(), RIVERS)
