"""Beam search for any head, batched over sentences, with or without a constraint."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from permalign.decoding.output_constraint import Constraint
from permalign.heads.base import Decoder
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, UNKNOWN_ID

NEVER_WRITTEN = [PADDING_ID, UNKNOWN_ID, BEGIN_ID]


@dataclass(frozen=True)
class SearchSettings:
    """How to search for outputs.

    Attributes:
        beam: the beam size; 1 is greedy search.
        constraints: what may follow a prefix, for each sentence; None for anything.
        max_length: the maximum length of an output; None lets the head choose one by the length of the sentence.
        max_operations: how many operations it may take to rank the candidates of one sentence by exact likelihoods;
            None for any number.
        length_penalty: the exponent of the length by which log-probabilities are divided when outputs are compared; see
            `normalised_score`.
    """

    beam: int = 1
    constraints: Sequence[Constraint | None] | None = None
    max_length: int | None = None
    max_operations: float | None = None
    length_penalty: float = 0.0

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

    Attributes:
        sentences: the index of each sentence.
        tokens: ``(sentences, prefixes, written)``, the token ids of all prefixes.
        alive: ``(sentences, prefixes)``, False for a copy that only fills a row.
        states: the constraint's state after each prefix, for every sentence that has a constraint.
        finished_ranks: ``(sentences, n_best)``, the ranks of the best finished hypotheses; -inf where there are fewer.
    """

    sentences: Tensor
    tokens: Tensor
    alive: Tensor
    states: list[list[object]]
    finished_ranks: Tensor

    @classmethod
    def start(cls, rules: Sequence[Constraint | None], n_best: int, device: torch.device) -> "_Beams":
        """One empty prefix for every sentence."""
        count = len(rules)
        return cls(
            torch.arange(count, device=device),
            torch.empty((count, 1, 0), dtype=torch.int64, device=device),
            torch.ones((count, 1), dtype=torch.bool, device=device),
            [[] if rule is None else [rule.start()] for rule in rules],
            torch.full((count, n_best), -torch.inf, dtype=torch.float64, device=device),
        )


class _Continuations(NamedTuple):
    """Continuations of each sentence's prefixes, best first: ``(sentences, continuations)`` each.

    Attributes:
        scores: their scores, -inf for those that only fill up a row.
        parents: the index of the prefix that each of them continues.
        tokens: the token that each of them adds.
    """

    scores: Tensor
    parents: Tensor
    tokens: Tensor

    def take(self, ranks: Tensor) -> "_Continuations":
        """Those at some ranks, ``(sentences, new)``."""
        return _Continuations(*(field.gather(1, ranks) for field in self))


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
    written = 0
    scores = decoder.scores()
    device = scores.device
    limits = torch.tensor(max_lengths, device=device)
    # a prefix has at most its score, divided by the largest power of a length
    divisors = [_divisor(limit, length_penalty) for limit in max_lengths]
    bound_divisors = torch.tensor(divisors, dtype=torch.float64, device=device)
    beams = _Beams.start(rules, n_best, device)
    while True:
        allowed = _allowed_scores(scores, beams, rules, limits - written, same_length)
        found = _best_continuations(allowed, beams, rules, beam)
        _finish(found, beams, beam, _divisor(written, length_penalty), finished)
        chosen, best_prefix, alive = _extensions(found, beam)
        # an output is never more probable than its prefixes, and no longer than the maximum length
        bound = best_prefix.double() / bound_divisors
        unfinished = (best_prefix > -torch.inf) & ~(beams.finished_ranks[:, -1] >= bound)
        kept = unfinished.nonzero().squeeze(1)
        if not len(kept):
            break
        rows = (chosen.parents + beams.alive.shape[1] * torch.arange(len(chosen.parents), device=device)[:, None])[kept]
        tokens, limits, bound_divisors = chosen.tokens[kept], limits[kept], bound_divisors[kept]
        beams = _extended(beams, rules, kept, chosen.parents[kept], tokens, alive[kept])
        decoder.extend(rows.flatten(), tokens.flatten())
        scores = decoder.scores()
        written += 1
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
    scores: Tensor, beams: _Beams, rules: Sequence[Constraint | None], left: Tensor, same_length: bool
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
    vocab_size, device = scores.shape[-1], scores.device
    never = torch.zeros(vocab_size, dtype=torch.bool)
    never[NEVER_WRITTEN] = True
    allowed = scores.masked_fill(never.to(device), -torch.inf).view(*beams.alive.shape, vocab_size)
    if not bool(beams.alive.all()):
        allowed = allowed.masked_fill(~beams.alive[..., None], -torch.inf)
    if any(beams.states):
        allowed = _constrained(allowed, beams, rules, left.tolist(), same_length)
    if bool((left <= 0).any()):
        free = torch.tensor([not states for states in beams.states], device=device)
        not_end = torch.arange(vocab_size, device=device) != END_ID
        allowed = allowed.masked_fill((free & (left <= 0))[:, None, None] & not_end, -torch.inf)
    return allowed


def _constrained(
    scores: Tensor,
    beams: _Beams,
    rules: Sequence[Constraint | None],
    left: Sequence[int],
    same_length: bool,
) -> Tensor:
    """The scores, -inf for what constraints forbid. Prefixes in the same state share one mask."""
    sentences, alive, vocab_size = beams.sentences.tolist(), beams.alive.tolist(), scores.shape[-1]
    anything = torch.ones(vocab_size, dtype=torch.bool)
    masks, number = [anything], {id(anything): 0}
    chosen = []
    for sentence, is_alive, states, remaining in zip(sentences, alive, beams.states, left, strict=True):
        rule = rules[sentence]
        for prefix, lives in enumerate(is_alive):
            mask = anything
            if rule is not None and lives:
                mask = rule.mask(states[prefix], remaining, same_length)
            if id(mask) not in number:
                number[id(mask)] = len(masks)
                masks.append(mask)  # which also keeps it alive, so that no other mask gets its id
            chosen.append(number[id(mask)])
    table = torch.stack([pad(mask, (0, vocab_size - len(mask)))[:vocab_size] for mask in masks])
    forbidden = ~table.to(scores.device)
    return scores.masked_fill(forbidden[torch.tensor(chosen, device=scores.device)].view_as(scores), -torch.inf)


def _best_continuations(
    scores: Tensor, beams: _Beams, rules: Sequence[Constraint | None], beam: int
) -> _Continuations:
    """The best continuations of every sentence, of all its prefixes."""
    num_prefixes, vocab_size = scores.shape[1:]
    # each prefix can end in one way only, so among 2 * beam continuations at least beam do not end
    best, indices = scores.flatten(1).topk(min(2 * beam, num_prefixes * vocab_size))
    requiring = [
        (row, rule)
        for row, sentence in enumerate(beams.sentences.tolist() if any(beams.states) else [])
        if (rule := rules[sentence]) is not None and rule.requires_tokens
    ]
    if requiring:
        best, indices = _spread_all(scores, beams, requiring, best, indices)
    return _Continuations(best, indices // vocab_size, indices % vocab_size)


def _spread_all(
    scores: Tensor, beams: _Beams, requiring: Sequence[tuple[int, Constraint]], best: Tensor, indices: Tensor
) -> tuple[Tensor, Tensor]:
    """Continuations, those of sentences that require tokens sorted anew and with others among them."""
    values, chosen, alive = best.tolist(), indices.tolist(), beams.alive.tolist()
    for row, rule in requiring:
        states = [state if lives else None for state, lives in zip(beams.states[row], alive[row], strict=True)]
        ranked = dict(zip(chosen[row], values[row], strict=True))
        spread = _spread_over_progress(rule, states, scores[row], ranked)
        chosen[row], values[row] = list(spread), list(spread.values())
    width = max(map(len, chosen))
    values = [[*row, *[-torch.inf] * (width - len(row))] for row in values]
    chosen = [[*row, *[0] * (width - len(row))] for row in chosen]
    return best.new_tensor(values), indices.new_tensor(chosen)


def _finish(
    found: _Continuations, beams: _Beams, beam: int, divisor: float, finished: list[list[Hypothesis]]
) -> None:
    """Add the outputs that end to the finished ones of their sentences."""
    scores, tokens = found.scores[:, :beam], found.tokens[:, :beam]
    ends = (tokens == END_ID) & (scores > -torch.inf)
    at, rank = ends.nonzero(as_tuple=True)
    if not len(at):
        return
    outputs = beams.tokens[at, found.parents[at, rank]].tolist()
    of_outputs = zip(beams.sentences[at].tolist(), outputs, scores[at, rank].tolist(), strict=True)
    for sentence, output, score in of_outputs:
        finished[sentence].append(Hypothesis(tuple(output), score))
    ranks = (scores.double() / divisor).masked_fill(~ends, -torch.inf)
    n_best = beams.finished_ranks.shape[1]
    beams.finished_ranks = torch.cat([beams.finished_ranks, ranks], 1).topk(n_best).values


def _extensions(found: _Continuations, beam: int) -> tuple[_Continuations, Tensor, Tensor]:
    """The continuations that are extended further, ``beam`` for each sentence.

    Returns:
        The continuations, filled up with copies of the last one; the score of each sentence's best, -inf if it has
        none; and which of them are no copies.
    """
    continues = (found.tokens != END_ID) & (found.scores > -torch.inf)
    count = continues.sum(1, keepdim=True).clamp(max=beam)
    first = (~continues).to(torch.uint8).argsort(dim=1, stable=True)  # those that continue come first, in their order
    slots = torch.arange(beam, device=count.device).expand(len(count), -1)
    chosen = found.take(first.gather(1, torch.minimum(slots, (count - 1).clamp(min=0))))
    alive = slots < count
    return chosen, chosen.scores.masked_fill(~alive, -torch.inf).amax(1), alive


def _extended(
    beams: _Beams, rules: Sequence[Constraint | None], kept: Tensor, parents: Tensor, tokens: Tensor, alive: Tensor
) -> _Beams:
    """The prefixes of the sentences that are kept, each with one more token."""
    sentences = beams.sentences[kept]
    before = beams.tokens[kept[:, None], parents]  # (sentences, prefixes, written)
    states = [beams.states[row] for row in kept.tolist()]
    if any(states):
        states = [
            []
            if rule is None
            else [
                rule.advance(own[parent], token) if lives else None
                for parent, token, lives in zip(*chosen, strict=True)
            ]
            for own, rule, *chosen in zip(
                states,
                (rules[sentence] for sentence in sentences.tolist()),
                parents.tolist(),
                tokens.tolist(),
                alive.tolist(),
                strict=True,
            )
        ]
    return _Beams(
        sentences, torch.cat([before, tokens[..., None]], 2), alive, states, beams.finished_ranks[kept]
    )


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
    if not wanted and not any(constraint.progress(state) for state in states if state is not None):
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
