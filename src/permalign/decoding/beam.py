"""Beam search over prefixes, for any head: batched over sentences, with or without a constraint."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from permalign.decoding.constraint import Constraint
from permalign.heads.base import Decoder
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, UNKNOWN_ID

NEVER_WRITTEN = [PADDING_ID, UNKNOWN_ID, BEGIN_ID]


@dataclass(frozen=True)
class Hypothesis:
    """A finished output, and its log-probability."""

    words: tuple[int, ...]
    score: float


@dataclass
class _Prefix:
    """An unfinished output, in some row of the decoder."""

    words: tuple[int, ...] = ()
    state: object = None  # of the constraint
    alive: bool = True  # or only there to fill a row


@dataclass
class _Search:
    """One sentence: what is unfinished (in the order of its rows) and what is finished."""

    longest: int
    prefixes: list[_Prefix]
    finished: list[Hypothesis] = field(default_factory=list)

    def is_over(self, best_prefix: float, wanted: int) -> bool:
        """No prefix can beat what is finished: a longer output is never more probable than its prefix."""
        ranked = sorted((hypothesis.score for hypothesis in self.finished), reverse=True)
        return best_prefix == -torch.inf or (len(ranked) >= wanted and ranked[wanted - 1] >= best_prefix)


def beam_search(
    decoder: Decoder,
    longest: Sequence[int],
    beam: int,
    n_best: int = 1,
    constraint: Constraint | None = None,
    same_length: bool = False,
) -> list[list[Hypothesis]]:
    """The best outputs of every sentence, best first.

    At each step the ``beam`` best continuations of a sentence's prefixes are taken; those that end are finished, the
    others go on. Beam 1 is greedy search.

    Args:
        decoder: with one row for each sentence, and nothing written.
        longest: the most words an output of each sentence may have.
        beam: how many prefixes to keep.
        n_best: how many outputs to return at most; at most ``beam``.
        constraint: what may follow.
        same_length: whether outputs have exactly ``longest`` words, so that a constraint can plan for it.
    """
    if not 1 <= n_best <= beam:
        raise ValueError(
            f"n_best is {n_best} and beam {beam}, but 1 <= n_best <= beam must hold. Widen the beam."
        )
    start = constraint.start() if constraint else None
    searches = [_Search(limit, [_Prefix(state=start)]) for limit in longest]
    active = list(searches)
    written = 0
    while active:
        scores = _allowed_scores(
            decoder.scores(), active, written, constraint, same_length
        )  # (sentences, prefixes, words)
        rows, words, active = _continue(scores, active, beam, n_best, constraint)
        if active:
            device = scores.device
            decoder.extend(torch.tensor(rows, device=device), torch.tensor(words, device=device))
        written += 1
    return [sorted(search.finished, key=lambda hypothesis: -hypothesis.score)[:n_best] for search in searches]


def _allowed_scores(
    scores: Tensor, active: Sequence[_Search], written: int, constraint: Constraint | None, same_length: bool
) -> Tensor:
    """Scores of all continuations, ``(sentences, prefixes, words)``, -inf for what is not allowed."""
    words = scores.shape[-1]
    never, only_end = torch.zeros(2, words, dtype=torch.bool)
    never[NEVER_WRITTEN] = True
    only_end[END_ID] = True
    masks = []
    for search in active:
        left = search.longest - written
        for prefix in search.prefixes:
            if not prefix.alive:
                masks.append(torch.zeros_like(never))
            elif constraint is not None:
                masks.append(constraint.mask(prefix.state, left, same_length) & ~never)
            else:
                masks.append(only_end if left <= 0 else ~never)
    allowed = torch.stack(masks).to(scores.device)
    return scores.masked_fill(~allowed, -torch.inf).view(len(active), -1, words)


def _continue(
    scores: Tensor, active: Sequence[_Search], beam: int, n_best: int, constraint: Constraint | None
) -> tuple[list[int], list[int], list[_Search]]:
    """Choose the continuations; returns the decoder's rows and words, and the sentences that go on."""
    prefixes, vocabulary = scores.shape[1], scores.shape[2]
    # beam more than wanted, so that as many go on as end
    best, places = scores.flatten(1).topk(min(2 * beam, prefixes * vocabulary))
    rows, words, going_on = [], [], []
    for index, (search, values, chosen) in enumerate(
        zip(active, best.tolist(), places.tolist(), strict=True)
    ):
        following: list[_Prefix] = []
        sources: list[int] = []
        best_prefix = -torch.inf
        for rank, (value, place) in enumerate(zip(values, chosen, strict=True)):
            parent, word = divmod(place, vocabulary)
            if value == -torch.inf or len(following) == beam:
                break
            prefix = search.prefixes[parent]
            if word == END_ID:
                if rank < beam:
                    search.finished.append(Hypothesis(prefix.words, value))
                continue
            state = constraint.advance(prefix.state, word) if constraint else None
            following.append(_Prefix((*prefix.words, word), state))
            sources.append(index * prefixes + parent)
            best_prefix = max(best_prefix, value)
        if search.is_over(best_prefix, n_best):
            continue
        while len(following) < beam:  # rows come in equal numbers
            following.append(_Prefix(following[-1].words, alive=False))
            sources.append(sources[-1])
        search.prefixes = following
        rows += sources
        words += [prefix.words[-1] for prefix in following]
        going_on.append(search)
    return rows, words, going_on
