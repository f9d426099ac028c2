"""Beam search against exhaustive search, on a small model whose probabilities are a table."""

from itertools import pairwise, product

import pytest
import torch

from permalign.decoding.beam import NEVER_WRITTEN, beam_search
from permalign.decoding.output_constraint import GrammarConstraint, RuleConstraint, make_constraints
from permalign.heads.base import Decoder
from permalign.tasks.grammar import Grammar, Rule
from permalign.text.codec import END_ID
from permalign.text.sentence_vocabulary import SentenceVocabulary
from permalign.text.vocabulary import Vocabulary

WORDS = Vocabulary(["a", "b", "c"])
LETTERS = [4, 5, 6]


class Markov(Decoder):
    """The next word depends on the sentence and the last word alone."""

    def __init__(self, sentences, seed=0):
        table = torch.randn(sentences, len(WORDS), len(WORDS), generator=torch.Generator().manual_seed(seed))
        table[:, :, NEVER_WRITTEN] = -torch.inf
        self.table = table.double().log_softmax(-1)
        self.sentence = torch.arange(sentences)
        self.last = torch.zeros(sentences, dtype=torch.int64)
        self.score = torch.zeros(sentences, dtype=torch.float64)

    def scores(self):
        return self.score[:, None] + self.table[self.sentence, self.last]

    def extend(self, rows, words):
        self.score = self.scores()[rows, words]
        self.sentence, self.last = self.sentence[rows], words

    def of_output(self, sentence, words):
        path = [0, *words, END_ID]
        return sum(self.table[sentence, a, b].item() for a, b in pairwise(path))


def every_output(longest):
    return [words for length in range(longest + 1) for words in product(LETTERS, repeat=length)]


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_a_wide_beam_finds_the_best_outputs(seed, length_penalty):
    model = Markov(3, seed)
    found = beam_search(Markov(3, seed), [4, 4, 2], beam=150, n_best=5, length_penalty=length_penalty)
    for sentence, (hypotheses, longest) in enumerate(zip(found, [4, 4, 2], strict=True)):
        scores = {words: model.of_output(sentence, words) for words in every_output(longest)}
        normalised = {words: score / (len(words) + 1) ** length_penalty for words, score in scores.items()}
        best = sorted(normalised, key=lambda words: -normalised[words])[:5]
        ranks = [
            normalised[one.tokens] for one in hypotheses
        ]  # outputs with the same pairs of words are tied
        assert ranks == pytest.approx([normalised[words] for words in best])
        assert len({one.tokens for one in hypotheses}) == 5
        for one in hypotheses:
            assert one.score == pytest.approx(scores[one.tokens])


@pytest.mark.parametrize("seed", range(5))
def test_beam_one_is_greedy(seed):
    model = Markov(1, seed)
    (hypothesis,) = beam_search(Markov(1, seed), [9], beam=1)[0]
    words, last = [], 0
    while len(words) < 9 and (following := model.table[0, last].argmax().item()) != END_ID:
        words.append(following)
        last = following
    assert hypothesis.tokens == tuple(words)
    assert hypothesis.score == pytest.approx(model.of_output(0, words))


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_sentences_of_a_batch_are_independent(beam):
    batched = beam_search(Markov(4), [5, 3, 0, 8], beam)
    for sentence, longest in enumerate([5, 3, 0, 8]):
        alone = Markov(4)
        alone.sentence = torch.tensor([sentence])
        alone.last, alone.score = alone.last[:1], alone.score[:1]
        assert beam_search(alone, [longest], beam)[0] == batched[sentence]


def test_outputs_are_distinct():
    hypotheses = beam_search(Markov(1), [3], beam=20, n_best=20)[0]
    assert len({one.tokens for one in hypotheses}) == len(hypotheses) == 20


def test_a_callers_rule_is_kept():
    constraint = RuleConstraint(lambda words: ["a", "c", "</s>"] if len(words) % 2 else ["b"], WORDS.tokens)
    for one in beam_search(Markov(1), [6], 5, 5, [constraint])[0]:
        assert len(one.tokens) % 2 == 1
        assert all(word == 5 for word in one.tokens[::2])


def small_grammar():
    return Grammar(["X"], [Rule("a", "X"), Rule("b", "X", ("X",)), Rule("c", "X", ("X", "X"))])


@pytest.mark.parametrize("longest", [1, 2, 5])
@pytest.mark.parametrize("same_length", [False, True])
def test_a_grammar_is_kept_without_dead_ends(longest, same_length):
    grammar = small_grammar()
    for seed in range(10):
        hypotheses = beam_search(
            Markov(1, seed), [longest], 3, 3, [GrammarConstraint(grammar, WORDS.tokens)], same_length
        )[0]
        assert hypotheses
        for one in hypotheses:
            grammar.read(WORDS.decode(one.tokens))
            assert len(one.tokens) <= longest


def test_a_grammar_is_restricted_to_the_vocabulary():
    grammar = Grammar(["X"], [*small_grammar().rules, Rule("d", "X"), Rule("e", "X", ("Y",)), Rule("f", "Y")])
    constraint = GrammarConstraint(grammar, WORDS.tokens)
    assert WORDS.tokens[constraint.mask(constraint.start(), 1, False).nonzero().item()] == "a"
    with pytest.raises(ValueError, match="no program can be written"):
        grammar.restricted_to(["e", "b"])


def test_n_best_above_the_beam_is_refused():
    with pytest.raises(ValueError, match="n_best is 3 and beam 2"):
        beam_search(Markov(1), [3], beam=2, n_best=3)


def test_a_function_may_use_the_whole_length_and_then_only_the_end():
    constraint = RuleConstraint(lambda words: ["a", "</s>"], WORDS.tokens)
    allowed = {
        left: {WORDS.tokens[token] for token in constraint.mask((), left, False).nonzero().flatten()}
        for left in (2, 1, 0)
    }
    assert allowed == {2: {"a", "</s>"}, 1: {"a", "</s>"}, 0: {"</s>"}}


def test_sentences_with_the_same_words_share_a_constraint():
    unknown = SentenceVocabulary(WORDS, ["new"], WORDS.encode(["new"]))
    first, second, third = make_constraints(lambda words: ["a"], [WORDS, WORDS, unknown])
    assert first is second
    assert first is not third
