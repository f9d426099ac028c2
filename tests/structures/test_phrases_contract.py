"""`SynchronousPermutation` whose leaves may be phrases, against the contract of all distributions and its twin."""

import pytest
import torch
from tests.structures.contract import seeded
from tests.structures.test_alignment_contract import lengths_of
from tests.structures.test_synchronous_contract import LONGEST, TestSynchronousPermutation

from permalign import SynchronousPermutation
from permalign.kernels.layout import leaf_count, leaf_spans, split_count
from permalign.structures.brute_force import EnumeratedPhrasePermutation
from permalign.structures.brute_force.alignments import compositions
from permalign.structures.brute_force.phrases import all_phrasings, all_trees


class TestPhrasesOfTwo(TestSynchronousPermutation):
    phrase = 2
    sizes = [(1, 0), (4, 3), (3, 5), (2, 1), (1, 2), (4, 0), (3, 6)]  # noqa: RUF012
    small = (2, 2)
    differentiable = ("split_scores", "segment_log_probs", "phrase_scores")

    def parameters(self, sizes, generator, scale=1.0):
        parameters = super().parameters(sizes, generator, scale)
        segments = parameters["segment_log_probs"]
        batch, tokens, *rest = segments.shape
        phrases = leaf_count(tokens, self.phrase) - tokens
        draw = {"dtype": torch.float64, "generator": generator}
        more = -scale * torch.randn(batch, phrases, *rest, **draw).abs()
        scores = scale * torch.randn(batch, phrases, **draw)
        return parameters | {"segment_log_probs": torch.cat([segments, more], 1), "phrase_scores": scores}

    def inside(self, parameters, tokens):
        """Which leaves of a padded batch lie in a sentence of so many tokens."""
        leaves, phrases = (parameters[name].shape[1] for name in ("segment_log_probs", "phrase_scores"))
        first, width = leaf_spans(leaves - phrases, leaves)
        return first + width <= tokens

    def alone(self, parameters, sentence, size):
        tokens, words = size
        row, keep = slice(sentence, sentence + 1), self.inside(parameters, tokens)
        room = keep.shape[0] - parameters["phrase_scores"].shape[1]
        segments = parameters["segment_log_probs"]
        single = super().alone(parameters | {"segment_log_probs": segments[:, :room]}, sentence, size)
        return single | {
            "segment_log_probs": segments[row, keep, : words + 1],
            "phrase_scores": parameters["phrase_scores"][row, keep[room:]],
        }

    def padding(self, parameters):
        segments = parameters["segment_log_probs"]
        room = segments.shape[1] - parameters["phrase_scores"].shape[1]
        masks = super().padding(parameters | {"segment_log_probs": segments[:, :room]})
        beyond = torch.stack([~self.inside(parameters, int(n)) for n in parameters["source_lengths"]])
        beyond_words = masks["segment_log_probs"].all(1, keepdim=True)
        return masks | {
            "segment_log_probs": beyond[:, :, None, None] | beyond_words,
            "phrase_scores": beyond[:, room:],
        }

    def twin(self, parameters):
        return EnumeratedPhrasePermutation(
            **parameters, max_phrase_length=self.phrase, normal_form=self.normal_form
        )

    def values(self, distribution, parameters):
        return super().values(distribution, parameters) | {"log_partition": distribution.log_partition()}

    def count(self, size):
        """All trees weigh the same, so what is left is the mean number of ways to cut."""
        tokens, words = size
        leaves = leaf_count(tokens, self.phrase)
        zeros = {
            "split_scores": (1, split_count(tokens), 2),
            "segment_log_probs": (1, leaves, words + 1, LONGEST + 1),
            "phrase_scores": (1, leaves - tokens),
        }
        parameters = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in zeros.items()}
        found = self.build(parameters | lengths_of([size])).log_likelihood()
        trees = {
            posts: len(all_trees(0, len(posts) - 1, self.normal_form))
            for posts in all_phrasings(tokens, self.phrase)
        }
        cuts = {posts: len(list(compositions(words, len(posts) - 1, LONGEST))) for posts in trees}
        return found, sum(trees[posts] * cuts[posts] for posts in trees) / sum(trees.values())

    def test_every_token_writes_one_segment_and_every_word_is_in_one(self):
        """As itself or in a phrase."""
        parameters = self.parameters(self.sizes, seeded(40))
        posteriors = self.build(parameters).segment_posteriors()
        room = posteriors.shape[1] - parameters["phrase_scores"].shape[1]
        first, width = leaf_spans(room, posteriors.shape[1])
        for sentence, (tokens, words) in enumerate(self.sizes):
            by_leaf = posteriors[sentence].sum((1, 2))
            for token in range(tokens):
                assert by_leaf[(first <= token) & (token < first + width)].sum().item() == pytest.approx(1.0)
            for word in range(words):
                covering = sum(
                    posteriors[sentence, :, start, size].sum()
                    for start in range(word + 1)
                    for size in range(word - start + 1, LONGEST + 1)
                )
                assert covering.item() == pytest.approx(1.0)

    def test_phrases_that_weigh_nothing_change_nothing(self):
        parameters = self.parameters(self.sizes, seeded(43))
        never = torch.full_like(parameters["phrase_scores"], -1e6)
        phrases = self.build(parameters | {"phrase_scores": never})
        room = parameters["segment_log_probs"].shape[1] - never.shape[1]
        plain = {name: value for name, value in parameters.items() if name != "phrase_scores"}
        plain["segment_log_probs"] = plain["segment_log_probs"][:, :room]
        tokens = SynchronousPermutation(**plain, normal_form=self.normal_form)
        torch.testing.assert_close(phrases.log_likelihood(), tokens.log_likelihood())
        torch.testing.assert_close(phrases.rule_posteriors(), tokens.rule_posteriors())
        assert [one.segments for one in phrases.best_derivation()] == [
            one.segments for one in tokens.best_derivation()
        ]

    def test_wrong_shapes_are_refused_by_name(self):
        parameters = self.parameters([(4, 3)], seeded(45))
        with pytest.raises(ValueError, match=r"phrase_scores has shape \(1, 2\).*3 for s = 2.*4 tokens"):
            self.build(parameters | {"phrase_scores": torch.zeros(1, 2, dtype=torch.float64)})
        short = parameters["segment_log_probs"][:, :4]
        with pytest.raises(ValueError, match=r"segment_log_probs has shape \(1, 4, 4, 3\).*phrase_scores"):
            self.build(parameters | {"segment_log_probs": short})


class TestPhrasesOfThree(TestPhrasesOfTwo):
    phrase = 3
    blocked = 0.5


class TestNormalForm(TestPhrasesOfTwo):
    normal_form = True
