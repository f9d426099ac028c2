"""Beam search for any head, batched over sentences, with or without a constraint."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from permalign.decoding.output_constraint import Constraint
from permalign.heads.base import Decoder
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, UNKNOWN_ID

SearchMethod = Literal["beam", "exact"]

NEVER_WRITTEN = [PADDING_ID, UNKNOWN_ID, BEGIN_ID]

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class SearchSettings:
    """How to search for outputs.

    Attributes:
        beam: the beam size; 1 is greedy search. An exact search looks for as many outputs.
        constraints: what may follow a prefix, for each sentence; None for anything.
        max_length: the maximum length of an output; None lets the head choose one by the length of the sentence.
        max_operations: how many operations it may take to rank the candidates of one sentence by exact likelihoods;
            None for any number.
        length_penalty: the exponent of the length by which log-probabilities are divided when outputs are compared; see
            `normalised_score`.
        search: by a beam, or exactly, for the outputs with the best derivations (see `exact_search`).
        scores: whether outputs need a score even where there is only one candidate to choose from.
    """

    beam: int = 1
    constraints: Sequence[Constraint | None] | None = None
    max_length: int | None = None
    max_operations: float | None = None
    length_penalty: float = 0.0
    search: SearchMethod = "beam"
    scores: bool = True

    def select(self, sentences: Sequence[int]) -> "SearchSettings":
        """The settings for some of the sentences."""
        if self.constraints is None:
            return self
        return replace(self, constraints=[self.constraints[index] for index in sentences])


def normalised_score(score: float, length: int, length_penalty: float) -> float:
    """Divide the log-probability of an output by a power of its length, END included.

    Every further token makes an output less probable, so that a wide beam prefers outputs that are too short. An
    exponent of 1 compares the mean log-probability of a token; 0 compares log-probabilities as they are.

    >>> normalised_score(-6.0, length=2, length_penalty=1.0)
    -2.0
    """
    return score / _divisor(length, length_penalty)


@dataclass(frozen=True)
class Hypothesis:
    """A finished output: its token ids and its log-probability."""

    tokens: tuple[int, ...]
    score: float


@dataclass
class _Beams:
    """The prefixes of all sentences that are still searched; every sentence has the same number of prefixes.

    They are kept in arrays, for these are small, and an operation on a small array costs less than one on a tensor.

    Attributes:
        sentences: the index of each sentence.
        tokens: ``(sentences, prefixes, written)``, the token ids of all prefixes.
        alive: ``(sentences, prefixes)``, False for a copy that only fills a row.
        states: the constraint's state after each prefix, for every sentence that has a constraint.
        finished_ranks: ``(sentences, n_best)``, the ranks of the best finished hypotheses, worst first; -inf where
            there are fewer.
    """

    sentences: Integers
    tokens: Integers
    alive: Booleans
    states: list[list[object]]
    finished_ranks: Floats

    @classmethod
    def start(cls, rules: Sequence[Constraint | None], n_best: int) -> "_Beams":
        """One empty prefix for every sentence."""
        count = len(rules)
        return cls(
            np.arange(count),
            np.empty((count, 1, 0), np.int64),
            np.ones((count, 1), np.bool_),
            [[] if rule is None else [rule.start()] for rule in rules],
            np.full((count, n_best), -np.inf),
        )


class _Continuations(NamedTuple):
    """Continuations of each sentence's prefixes, best first: ``(sentences, continuations)`` each.

    Attributes:
        scores: their scores, -inf for those that only fill up a row.
        parents: the index of the prefix that each of them continues.
        tokens: the token that each of them adds.
    """

    scores: Floats
    parents: Integers
    tokens: Integers


@torch.inference_mode()
def beam_search(
    decoder: Decoder,
    max_lengths: Sequence[int],
    beam: int,
    n_best: int = 1,
    constraints: Sequence[Constraint | None] | None = None,
    same_length: bool = False,
    length_penalty: float = 0.0,
) -> list[list[Hypothesis]]:
    """Find the best outputs of every sentence, best first.

    Each step takes the ``beam`` best continuations of a sentence's prefixes; those that end are finished, the others
    are extended further. Beam size 1 is greedy search.

    Args:
        decoder: a decoder with one row for each sentence, before the first token.
        max_lengths: the maximum output length of each sentence.
        beam: the beam size.
        n_best: how many outputs to return at most; not above ``beam``.
        constraints: what may follow a prefix, for each sentence; None for anything.
        same_length: whether outputs have exactly their maximum length, so that a constraint can plan for it.
        length_penalty: the exponent of `normalised_score`, by which finished outputs are compared.
    """
    if not 1 <= n_best <= beam:
        raise ValueError(
            f"n_best is {n_best} and beam {beam}, but 1 <= n_best <= beam must hold. Widen the beam."
        )
    rules: Sequence[Constraint | None] = constraints or [None] * len(max_lengths)
    finished: list[list[Hypothesis]] = [[] for _ in rules]
    limits = np.array(max_lengths)
    # an output is never more probable than its prefixes, and no longer than the maximum length
    bound_divisors = np.array([_divisor(limit, length_penalty) for limit in max_lengths])
    beams, scores, written = _Beams.start(rules, n_best), decoder.scores(), 0
    while True:
        allowed = _allowed_scores(scores, beams, rules, limits - written, same_length)
        found = _best_continuations(allowed, beams, rules, beam)
        _finish(found, beams, beam, _divisor(written, length_penalty), finished)
        chosen, best_prefix, alive = _extensions(found, beam)
        # also those without a prefix, whose best is -inf
        is_over = beams.finished_ranks[:, 0] >= best_prefix / bound_divisors
        (kept,) = (~is_over).nonzero()
        if not len(kept):
            break
        parents, tokens = chosen.parents[kept], chosen.tokens[kept]
        rows = parents + kept[:, None] * beams.alive.shape[1]
        beams = _extended(beams, rules, kept, parents, tokens, alive[kept])
        limits, bound_divisors = limits[kept], bound_divisors[kept]
        decoder.extend(*(torch.from_numpy(array.flatten()).to(scores.device) for array in (rows, tokens)))
        scores, written = decoder.scores(), written + 1
    return [
        sorted(hypotheses, key=lambda hypothesis: -_rank(hypothesis, length_penalty))[:n_best]
        for hypotheses in finished
    ]


def _divisor(length: int, length_penalty: float) -> float:
    """What the score of an output is divided by; see `normalised_score`."""
    divisor: float = (length + 1) ** length_penalty
    return divisor


def _rank(hypothesis: Hypothesis, length_penalty: float) -> float:
    return normalised_score(hypothesis.score, len(hypothesis.tokens), length_penalty)


def _allowed_scores(
    scores: Tensor, beams: _Beams, rules: Sequence[Constraint | None], left: Integers, same_length: bool
) -> Tensor:
    """Scores of all continuations, ``(sentences, prefixes, vocabulary)``, -inf for those that are not allowed.

    Args:
        scores: ``(rows, vocabulary)``, the decoder's. They have room for the unknown words of the sentence that has
            most of them.
        beams: the prefixes.
        rules: the constraints of all sentences.
        left: ``(sentences,)``, how many tokens may still be written.
        same_length: whether exactly so many must be written.
    """
    never = torch.tensor(NEVER_WRITTEN, device=scores.device)
    allowed = scores.index_fill(1, never, -torch.inf).view(*beams.alive.shape, -1)
    if not beams.alive.all():
        allowed[torch.from_numpy(~beams.alive).to(scores.device)] = -torch.inf
    if any(beams.states):
        allowed = _constrained(allowed, beams, rules, left, same_length)
    if (left <= 0).any():
        over = (left <= 0) & np.array([not states for states in beams.states])
        not_end = torch.arange(scores.shape[-1], device=scores.device) != END_ID
        only_end = torch.from_numpy(over).to(scores.device)[:, None, None] & not_end
        allowed = allowed.masked_fill(only_end, -torch.inf)
    return allowed


def _constrained(
    scores: Tensor, beams: _Beams, rules: Sequence[Constraint | None], left: Integers, same_length: bool
) -> Tensor:
    """The scores, -inf for what constraints forbid; prefixes that may be followed by the same tokens share a mask."""
    vocab_size = scores.shape[-1]
    anything = torch.ones(vocab_size, dtype=torch.bool)
    masks, number, chosen = [anything], {id(anything): 0}, []
    for row, (sentence, remaining) in enumerate(zip(beams.sentences.tolist(), left.tolist(), strict=True)):
        rule, states = rules[sentence], beams.states[row]
        for prefix, alive in enumerate(beams.alive[row].tolist()):
            mask = anything
            if rule is not None and alive:
                mask = rule.mask(states[prefix], remaining, same_length)
            if id(mask) not in number:
                number[id(mask)] = len(masks)
                masks.append(mask)  # which keeps it, so that no other mask gets its id
            chosen.append(number[id(mask)])
    allowed = torch.stack([pad(mask, (0, vocab_size - len(mask))) for mask in masks])  # or cut to size
    forbidden = ~allowed.to(scores.device)[torch.tensor(chosen, device=scores.device)]
    return scores.masked_fill(forbidden.view_as(scores), -torch.inf)


def _best_continuations(
    scores: Tensor, beams: _Beams, rules: Sequence[Constraint | None], beam: int
) -> _Continuations:
    """The best continuations of every sentence, of all its prefixes."""
    num_prefixes, vocab_size = scores.shape[1:]
    # each prefix can end in one way only, so among 2 * beam continuations at least beam do not end
    top = scores.flatten(1).topk(min(2 * beam, num_prefixes * vocab_size))
    best, indices = top.values.double().cpu().numpy(), top.indices.cpu().numpy()
    requiring = [
        (row, rule)
        for row, states in enumerate(beams.states)
        if states and (rule := rules[beams.sentences[row]]) is not None and rule.requires_tokens
    ]
    if requiring:
        best, indices = _spread_all(scores, beams, requiring, best, indices)
    return _Continuations(best, *np.divmod(indices, vocab_size))


def _spread_all(
    scores: Tensor,
    beams: _Beams,
    requiring: Sequence[tuple[int, Constraint]],
    best: Floats,
    indices: Integers,
) -> tuple[Floats, Integers]:
    """Continuations, those of sentences that require tokens sorted anew and with others among them."""
    values, chosen = best.tolist(), indices.tolist()
    for row, rule in requiring:
        ranked = dict(zip(chosen[row], values[row], strict=True))
        spread = _spread_over_progress(rule, beams.states[row], scores[row], ranked)
        chosen[row], values[row] = list(spread), list(spread.values())
    width = max(map(len, chosen))
    return (
        np.array([row + [-np.inf] * (width - len(row)) for row in values]),
        np.array([row + [0] * (width - len(row)) for row in chosen]),
    )


def _finish(
    found: _Continuations, beams: _Beams, beam: int, divisor: float, finished: list[list[Hypothesis]]
) -> None:
    """Add the outputs that end to the finished ones of their sentences."""
    scores = found.scores[:, :beam]
    ends = (found.tokens[:, :beam] == END_ID) & (scores > -np.inf)
    at, rank = ends.nonzero()
    if not len(at):
        return
    outputs = beams.tokens[at, found.parents[at, rank]].tolist()
    of_outputs = zip(beams.sentences[at].tolist(), outputs, scores[at, rank].tolist(), strict=True)
    for sentence, output, score in of_outputs:
        finished[sentence].append(Hypothesis(tuple(output), score))
    ranks = np.where(ends, scores / divisor, -np.inf)
    n_best = beams.finished_ranks.shape[1]
    beams.finished_ranks = np.sort(np.concatenate([beams.finished_ranks, ranks], 1))[:, -n_best:]


def _extensions(found: _Continuations, beam: int) -> tuple[_Continuations, Floats, Booleans]:
    """The continuations that are extended further, ``beam`` for each sentence.

    Returns:
        The continuations, filled up with copies of the last one; the score of each sentence's best, -inf if it has
        none; and which of them are no copies.
    """
    continues = (found.tokens != END_ID) & (found.scores > -np.inf)
    count = np.minimum(continues.sum(1, keepdims=True), beam)
    first = (~continues).argsort(1, kind="stable")  # those that continue come first, in their order
    sentences, slots = np.arange(len(first))[:, None], np.arange(beam)
    ranks = first[sentences, np.minimum(slots, np.maximum(count - 1, 0))]
    chosen = _Continuations(*(field[sentences, ranks] for field in found))
    alive = slots < count
    return chosen, np.where(alive, chosen.scores, -np.inf).max(1), alive


def _extended(
    beams: _Beams,
    rules: Sequence[Constraint | None],
    kept: Integers,
    parents: Integers,
    tokens: Integers,
    alive: Booleans,
) -> _Beams:
    """The prefixes of the sentences that are kept, each with one more token."""
    sentences, before = beams.sentences[kept], beams.tokens[kept[:, None], parents]
    states: list[list[object]] = []
    for row, sentence, *chosen in zip(
        kept.tolist(), sentences.tolist(), parents.tolist(), tokens.tolist(), alive.tolist(), strict=True
    ):
        rule, own = rules[sentence], beams.states[row]
        states.append(
            []
            if rule is None
            else [
                rule.advance(own[parent], token) if lives else None
                for parent, token, lives in zip(*chosen, strict=True)
            ]
        )
    written = np.concatenate([before, tokens[..., None]], 2)
    return _Beams(sentences, written, alive, states, beams.finished_ranks[kept])


def _spread_over_progress(
    constraint: Constraint, states: Sequence[object], scores: Tensor, continuations: dict[int, float]
) -> dict[int, float]:
    """Sort the continuations of a sentence such that a beam has room for those that meet a constraint bit by bit.

    Prefixes with required tokens are less probable than others until the end, so that a beam would lose them. As in
    dynamic beam allocation (Post and Vilar, 2018), tokens that a constraint wants are added to the continuations, and
    the best continuation of every progress comes first, then the second best of each, and so on.

    Args:
        constraint: the constraint of the sentence.
        states: its state after each prefix; None for a copy that only fills a row.
        scores: the scores of all continuations, ``(prefixes, vocabulary)``.
        continuations: the best continuations and their scores, best first, by their index in the flattened scores.
    """
    vocab_size = scores.shape[1]
    wanted = {
        parent * vocab_size + token: float(scores[parent, token])
        for parent, state in enumerate(states)
        if state is not None
        for token in constraint.wanted(state)
        if token < vocab_size
    }
    if not wanted:
        return continuations
    banks: dict[int, list[tuple[int, float]]] = {}
    possible = {index: value for index, value in {**continuations, **wanted}.items() if value > -torch.inf}
    for index, value in sorted(possible.items(), key=lambda item: -item[1]):
        parent, token = divmod(index, vocab_size)
        state = states[parent]
        after = state if token == END_ID else constraint.advance(state, token)
        banks.setdefault(constraint.progress(after), []).append((index, value))
    ordered = [banks[progress] for progress in sorted(banks, reverse=True)]
    return dict(entry for rank in zip_longest(*ordered) for entry in rank if entry is not None)
