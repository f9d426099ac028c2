"""Narrow beams against beam search written plainly for one sentence; and limits on the length of outputs."""

from itertools import zip_longest

import pytest
import torch
from tests.decoding.test_beam import LETTERS, WORDS, Markov

from permalign.decoding.beam import beam_search
from permalign.decoding.glossary import GlossaryConstraint
from permalign.decoding.output_constraint import RuleConstraint
from permalign.text.codec import END_ID


def plain_beam_search(table, longest, beam):
    """The finished outputs of one sentence, best first, by scores of the next word given the last one."""
    prefixes, finished = [((), 0.0)], {}
    while prefixes:
        ways = []
        for words, score in prefixes:
            last = words[-1] if words else 0
            following = [END_ID] if len(words) == longest else [END_ID, *LETTERS]
            ways += [(score + table[last, word].item(), words, word) for word in following]
        ways.sort(key=lambda way: -way[0])
        finished |= {words: score for score, words, word in ways[:beam] if word == END_ID}
        prefixes = [((*words, word), score) for score, words, word in ways if word != END_ID][:beam]
        if finished and prefixes and max(finished.values()) >= prefixes[0][1]:
            break
    return sorted(finished.items(), key=lambda pair: -pair[1])


@pytest.mark.parametrize("beam", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(8))
def test_a_narrow_beam_is_the_textbooks(seed, beam):
    model, limits = Markov(3, seed), [5, 3, 1]
    found = beam_search(Markov(3, seed), limits, beam)
    for sentence, (hypotheses, longest) in enumerate(zip(found, limits, strict=True)):
        (words, score), *_ = plain_beam_search(model.table[sentence], longest, beam)
        assert hypotheses[0].tokens == words
        assert hypotheses[0].score == pytest.approx(score)


def plain_search_with_requirements(table, longest, beam, constraint):
    """The score of the best output of one sentence, by dynamic beam allocation."""
    prefixes, finished = [((), 0.0, constraint.start())], {}
    while prefixes:
        scores, progress = {}, {}
        for words, score, state in prefixes:
            allowed = constraint.mask(state, longest - len(words), False)
            for word in filter(allowed.__getitem__, (END_ID, *LETTERS)):
                scores[words, word] = score + table[words[-1] if words else 0, word].item()
                after = state if word == END_ID else constraint.advance(state, word)
                progress[words, word] = constraint.progress(after)
        best = sorted(scores, key=lambda way: -scores[way])[: 2 * beam]
        wanted = {(words, word) for words, _, state in prefixes for word in constraint.wanted(state)}
        ways = sorted({*best, *(wanted & scores.keys())}, key=lambda way: -scores[way])
        banks = [
            [way for way in ways if progress[way] == each] for each in sorted(set(progress.values()))[::-1]
        ]
        in_turn = [way for turn in zip_longest(*banks) for way in turn if way is not None]
        finished |= {words: scores[words, word] for words, word in in_turn[:beam] if word == END_ID}
        states = {words: state for words, _, state in prefixes}
        prefixes = [
            ((*words, word), scores[words, word], constraint.advance(states[words], word))
            for words, word in in_turn
            if word != END_ID
        ][:beam]
        if finished and prefixes and max(finished.values()) >= max(score for _, score, _ in prefixes):
            break
    return max(finished.values())


@pytest.mark.parametrize("beam", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_a_narrow_beam_with_required_words_is_the_textbooks(seed, beam):
    a, b, c = LETTERS
    outside = len(WORDS)  # a word that only another sentence can write
    constraint = GlossaryConstraint([[(a, b), (b, b, a)], [(c,), (outside,)]], vocab_size=outside + 1)
    model, limits = Markov(3, seed), [8, 5, 4]
    found = beam_search(Markov(3, seed), limits, beam, constraints=[constraint, None, constraint])
    for sentence in (0, 2):
        score = plain_search_with_requirements(model.table[sentence], limits[sentence], beam, constraint)
        (hypothesis,) = found[sentence]
        assert hypothesis.score == pytest.approx(score)
        assert hypothesis.score == pytest.approx(model.of_output(sentence, hypothesis.tokens))


def constrained(allowed, longest, beam=4):
    rules = [RuleConstraint(allowed, WORDS.tokens)] * 2
    return beam_search(Markov(2), [longest] * 2, beam, n_best=beam, constraints=rules)


@pytest.mark.parametrize("longest", [0, 1, 3])
def test_no_output_is_longer_than_the_limit_under_a_rule(longest):
    for hypotheses in constrained(lambda words: ["a", "b", "</s>"], longest):
        assert hypotheses
        assert max(len(one.tokens) for one in hypotheses) <= longest


def test_a_rule_that_forbids_the_end_at_the_limit_has_no_output():
    endless = constrained(lambda words: ["a"], 3)
    assert endless == [[], []]
    only_even = constrained(lambda words: ["a"] if len(words) % 2 else ["a", "</s>"], 3)
    assert {len(one.tokens) for hypotheses in only_even for one in hypotheses} == {0, 2}


def test_a_rule_of_one_sentence_does_not_concern_the_others():
    only_b = RuleConstraint(lambda words: ["b", "</s>"], WORDS.tokens)
    free = beam_search(Markov(2), [3] * 2, beam=4, n_best=4)
    found = beam_search(Markov(2), [3] * 2, beam=4, n_best=4, constraints=[only_b, None])
    assert (
        found[0] == beam_search(Markov(2), [3] * 2, beam=4, n_best=4, constraints=[only_b] * 2)[0] != free[0]
    )
    assert found[1] == free[1]


def test_scores_under_a_rule_are_those_of_the_model():
    model = Markov(2)
    for sentence, hypotheses in enumerate(constrained(lambda words: ["b", "</s>"], 2)):
        for one in hypotheses:
            assert one.score == pytest.approx(model.of_output(sentence, one.tokens))
            assert set(one.tokens) <= {WORDS.tokens.index("b")}
        assert torch.tensor([one.score for one in hypotheses]).diff().le(0).all()
