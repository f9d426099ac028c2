"""Narrow beams against beam search written down plainly for one sentence; and limits on the length of outputs."""

import pytest
import torch
from tests.decoding.test_beam import LETTERS, WORDS, Markov

from permalign.decoding.beam import beam_search
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
