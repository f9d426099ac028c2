"""From a model and a sentence to accounts: its own choice, samples, and several ways to decode."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from permalign.explain.account import Account, Comparison, Way
from permalign.explain.distributions import OrderDistribution, draw, searched, tree_of_order
from permalign.explain.given import explain_given
from permalign.explain.sentence import ReadSentence, account_of, read, written_in_order
from permalign.model import Transducer
from permalign.structures import Derivation

WAYS = {
    "greedy": "the locally best rule of every span, from the root down",
    "viterbi": "the most probable tree",
    "permutation": "the most probable order, summed over its trees",
}


def explain(
    model: Transducer,
    sentence: str | Sequence[str],
    target: str | Sequence[str] | None = None,
    *,
    beam: int = 5,
) -> Account:
    """How a model gets from a sentence to its output, and how sure it is; with a target, to that output.

    Args:
        model: any reorderer, any head; what it does not have is left out, and a note says so.
        sentence: text, cut at white space, or words.
        target: explain this output instead of the model's own; see `permalign.explain.given.explain_given` for what
            is exact then.
        beam: how many prefixes to keep in the search for an output.

    Raises:
        ValueError: the sentence is empty, or no model of this kind can write the target.
    """
    read_sentence = read(model, sentence)
    if target is not None:
        return explain_given(read_sentence, target)
    (prediction,) = model.predict([read_sentence.words], beam=beam, explain=True)
    explanation = prediction.explanation
    if explanation is None:
        raise AssertionError("predict was asked to explain")
    derivation = explanation.derivation
    if derivation is None and explanation.order is not None and read_sentence.distribution is not None:
        derivation = tree_of_order(read_sentence.distribution, explanation.order)
    output = model.target.encode(prediction.tokens)
    account = account_of(read_sentence, derivation, explanation.order, output, prediction.score)
    if (
        account.target != explanation.target
    ):  # pieces of words that were cut otherwise than the model wrote them
        account = replace(account, alignment=None, at_end=None)
    return replace(account, target=explanation.target, segments=explanation.segments)


def sample(
    model: Transducer, sentence: str | Sequence[str], count: int = 8, *, seed: int = 0, beam: int = 1
) -> tuple[Account, ...]:
    """Trees drawn from the model's distribution, each with what the head writes when the words stand so.

    Empty for a reorderer without a distribution. The same seed draws the same trees.
    """
    read_sentence = read(model, sentence)
    distribution = read_sentence.distribution
    if distribution is None:
        return ()
    generator = torch.Generator().manual_seed(seed)
    drawn = draw(distribution, count, generator)
    accounts = {one: _in_order(read_sentence, *one, beam) for one in set(drawn)}
    return tuple(accounts[one] for one in drawn)


def compare(model: Transducer, sentence: str | Sequence[str], *, beam: int = 5) -> Comparison | None:
    """Greedy, Viterbi and the most probable permutation; None for a reorderer without a distribution."""
    read_sentence = read(model, sentence)
    distribution = read_sentence.distribution
    if distribution is None:
        return None
    found, gap = _choices(distribution)
    accounts = {one: _in_order(read_sentence, *one, beam) for one in set(found.values())}
    ways = [Way(name, WAYS[name], accounts[one]) for name, one in found.items()]
    return Comparison.of(ways, gap)


Choice = tuple[tuple[int, ...], Derivation | None]
"""An order, and the tree behind it."""


@torch.no_grad()
def _choices(distribution: OrderDistribution) -> tuple[dict[str, Choice], float]:
    """An order for each way to decode, and the gap of the last."""
    probable = distribution.most_probable_order(searched(distribution))
    order = tuple(probable.order[0].tolist())
    (greedy,), (best,) = distribution.greedy_derivation(), distribution.best_derivation()
    choices: dict[str, Choice] = {
        "greedy": (greedy.order, greedy),
        "viterbi": (best.order, best),
        "permutation": (order, best if order == best.order else tree_of_order(distribution, order)),
    }
    return choices, float(probable.gap)


def _in_order(
    sentence: ReadSentence, order: tuple[int, ...], derivation: Derivation | None, beam: int
) -> Account:
    output, log_prob = written_in_order(sentence, order, beam)
    return account_of(sentence, derivation, order, output, log_prob)
