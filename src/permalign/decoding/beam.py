"""Beam search for any head, batched over sentences, with or without a constraint."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from permalign.decoding.output_constraint import Constraint
from permalign.heads.base import Decoder
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, UNKNOWN_ID

SearchMethod = Literal["beam", "exact"]

NEVER_WRITTEN = [PADDING_ID, UNKNOWN_ID, BEGIN_ID]


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
    """

    beam: int = 1
    constraints: Sequence[Constraint | None] | None = None
    max_length: int | None = None
    max_operations: float | None = None
    length_penalty: float = 0.0
    search: SearchMethod = "beam"

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
    divisor: float = (length + 1) ** length_penalty
    return score / divisor


@dataclass(frozen=True)
class Hypothesis:
    """A finished output: its token ids and its log-probability."""

    tokens: tuple[int, ...]
    score: float


@dataclass
class _Prefix:
    """An unfinished output, one row of the decoder."""

    tokens: tuple[int, ...] = ()
    state: object = None  # the constraint's state after these tokens
    alive: bool = True  # False for a copy that only fills a row


@dataclass
class _Search:
    """The search for one sentence: its prefixes, in the order of their rows, and its finished hypotheses."""

    max_length: int
    constraint: Constraint | None
    prefixes: list[_Prefix]
    finished: list[Hypothesis] = field(default_factory=list)

    def is_over(self, best_prefix: float, n_best: int, length_penalty: float) -> bool:
        """Whether no prefix can still get among the best.

        An output is never more probable than its prefixes, and no longer than the maximum length.
        """
        ranked = sorted((_rank(hypothesis, length_penalty) for hypothesis in self.finished), reverse=True)
        bound = normalised_score(best_prefix, self.max_length, length_penalty)
        return best_prefix == -torch.inf or (len(ranked) >= n_best and ranked[n_best - 1] >= bound)


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
    searches = [
        _Search(max_length, rule, [_Prefix(state=rule.start() if rule else None)])
        for max_length, rule in zip(max_lengths, rules, strict=True)
    ]
    active = list(searches)
    written = 0
    while active:
        scores = _allowed_scores(decoder.scores(), active, written, same_length)
        rows, tokens, active = _advance(scores, active, beam, n_best, length_penalty)
        if active:
            device = scores.device
            decoder.extend(torch.tensor(rows, device=device), torch.tensor(tokens, device=device))
        written += 1
    return [
        sorted(search.finished, key=lambda hypothesis: -_rank(hypothesis, length_penalty))[:n_best]
        for search in searches
    ]


def _rank(hypothesis: Hypothesis, length_penalty: float) -> float:
    return normalised_score(hypothesis.score, len(hypothesis.tokens), length_penalty)


def _allowed_scores(scores: Tensor, active: Sequence[_Search], written: int, same_length: bool) -> Tensor:
    """Scores of all continuations, ``(sentences, prefixes, vocabulary)``, -inf for those that are not allowed.

    The scores of a batch have room for the unknown words of the sentence that has most of them.
    """
    vocab_size = scores.shape[-1]
    allowed = scores.clone()
    allowed[:, NEVER_WRITTEN] = -torch.inf
    impossible, only_end, constrained, masks = [], [], [], []
    prefixes = ((search, prefix) for search in active for prefix in search.prefixes)
    for row, (search, prefix) in enumerate(prefixes):
        left = search.max_length - written
        if not prefix.alive:
            impossible.append(row)
        elif search.constraint is not None:
            mask = search.constraint.mask(prefix.state, left, same_length)
            masks.append(pad(mask, (0, vocab_size - len(mask)))[:vocab_size])
            constrained.append(row)
        elif left <= 0:
            only_end.append(row)
    if masks:
        mask = torch.stack(masks).to(scores.device)
        allowed[constrained] = allowed[constrained].masked_fill(~mask, -torch.inf)
    if impossible or only_end:
        allowed[impossible + only_end] = -torch.inf
        allowed[only_end, END_ID] = scores[only_end, END_ID]
    return allowed.view(len(active), -1, vocab_size)


def _advance(
    scores: Tensor,
    active: Sequence[_Search],
    beam: int,
    n_best: int,
    length_penalty: float,
) -> tuple[list[int], list[int], list[_Search]]:
    """Choose continuations; returns the decoder's rows, the token to add to each, and the unfinished searches."""
    num_prefixes, vocab_size = scores.shape[1], scores.shape[2]
    # each prefix can end in one way only, so among 2 * beam continuations at least beam do not end
    best, indices = scores.flatten(1).topk(min(2 * beam, num_prefixes * vocab_size))
    rows, tokens, unfinished = [], [], []
    for number, (search, values, chosen) in enumerate(
        zip(active, best.tolist(), indices.tolist(), strict=True)
    ):
        extended: list[_Prefix] = []
        parents: list[int] = []
        best_prefix = -torch.inf
        ranked = zip(values, chosen, strict=True)
        continuations = _spread_over_progress(
            search, scores[number], {index: value for value, index in ranked}
        )
        for rank, (index, value) in enumerate(continuations.items()):
            parent, token = divmod(index, vocab_size)
            if value == -torch.inf or len(extended) == beam:
                break
            prefix = search.prefixes[parent]
            if token == END_ID:
                if rank < beam:
                    search.finished.append(Hypothesis(prefix.tokens, value))
                continue
            state = search.constraint.advance(prefix.state, token) if search.constraint else None
            extended.append(_Prefix((*prefix.tokens, token), state))
            parents.append(number * num_prefixes + parent)
            best_prefix = max(best_prefix, value)
        if search.is_over(best_prefix, n_best, length_penalty):
            continue
        while len(extended) < beam:  # every sentence has the same number of rows
            extended.append(_Prefix(extended[-1].tokens, alive=False))
            parents.append(parents[-1])
        search.prefixes = extended
        rows += parents
        tokens += [prefix.tokens[-1] for prefix in extended]
        unfinished.append(search)
    return rows, tokens, unfinished


def _spread_over_progress(
    search: _Search, scores: Tensor, continuations: dict[int, float]
) -> dict[int, float]:
    """Sort the continuations of a sentence such that a beam has room for those that meet a constraint bit by bit.

    Prefixes with required tokens are less probable than others until the end, so that a beam would lose them. As in
    dynamic beam allocation (Post and Vilar, 2018), tokens that a constraint wants are added to the continuations, and
    the best continuation of every progress comes first, then the second best of each, and so on.

    Args:
        search: the search for the sentence.
        scores: the scores of all continuations, ``(prefixes, vocabulary)``.
        continuations: the best continuations and their scores, best first, by their index in the flattened scores.
    """
    constraint, vocab_size = search.constraint, scores.shape[1]
    if constraint is None:
        return continuations
    wanted = {
        parent * vocab_size + token: float(scores[parent, token])
        for parent, prefix in enumerate(search.prefixes)
        if prefix.alive
        for token in constraint.wanted(prefix.state)
        if token < vocab_size
    }
    if not wanted and not any(constraint.progress(p.state) for p in search.prefixes if p.alive):
        return continuations
    banks: dict[int, list[tuple[int, float]]] = {}
    possible = {index: value for index, value in {**continuations, **wanted}.items() if value > -torch.inf}
    for index, value in sorted(possible.items(), key=lambda item: -item[1]):
        parent, token = divmod(index, vocab_size)
        state = search.prefixes[parent].state
        after = state if token == END_ID else constraint.advance(state, token)
        banks.setdefault(constraint.progress(after), []).append((index, value))
    ordered = [banks[progress] for progress in sorted(banks, reverse=True)]
    return dict(entry for rank in zip_longest(*ordered) for entry in rank if entry is not None)
