"""Exact search for outputs: the best derivations of a sentence, reordering and words at once, under a grammar.

Where every source token writes at most one word, an output is written by a tree over the source: a node's words are
those of its two parts, one after the other in their original order (straight) or the other way round (inverted). A
beam fixes an order first and searches the words for it. This search finds tree and words together.

An item is a source span with the words that it writes. Items are built from tokens by the rules

    (i,i+1) writes nothing or one word                                        log p(word | token i)
    (i,j) writes u, (j,k) writes v  =>  (i,k) writes u v  (straight)          score_S(i,j,k)
                                        (i,k) writes v u  (inverted)          score_I(i,j,k)

and taken from an agenda by ``inside + outside``, where ``inside`` is the weight of the item's best tree, and
``outside`` that of the best completion to an output with as many arguments as its functions take, whatever their types.
The latter is never too low, and consistent, so an item's first tree is its best one, and the first items of the whole
sentence are the best outputs, in order (A* parsing, Klein and Manning, 2003). Only words that are part of some program
are kept (`ProgramParts`). The bounds take O(n^5) in the worst case, and the items depend on how much the types change:
there may be exponentially many, so that their number is limited.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import NamedTuple

from torch import Tensor

from permalign.decoding.beam import NEVER_WRITTEN
from permalign.decoding.output_constraint import Constraint, GrammarConstraint
from permalign.errors import UsageError
from permalign.kernels.layout import split_fenceposts, split_index
from permalign.shapes import Float
from permalign.structures import OrderDistribution, SeparablePermutation
from permalign.tasks.program_parts import NOTHING, Effects, ProgramParts, balances
from permalign.text.codec import END_ID

MAX_ITEMS = 20_000
"""How many items a search may take; most of GeoQuery's questions take less than a thousand."""

STRAIGHT, INVERTED = 0, 1


class FoundOutput(NamedTuple):
    """An output and the weight of its best derivation."""

    tokens: tuple[int, ...]
    weight: float


@dataclass(frozen=True)
class SentenceScores:
    """What the search reads of one sentence of n tokens.

    Attributes:
        splits: the score of each rule: ``splits[start, middle, end]`` is that of straight and of inverted.
        words: for each token, the log-probabilities of the words that it may write.
        nothing: for each token, the log-probability that it writes nothing.
        normal_form: whether a left part may not use the rule of the node above it.
    """

    splits: dict[tuple[int, int, int], tuple[float, float]]
    words: Sequence[dict[int, float]]
    nothing: Sequence[float]
    normal_form: bool = False


class _Item(NamedTuple):
    """A span with the words that it writes, the rule at its top (-1 for a token), and what they are part of."""

    start: int
    end: int
    tokens: tuple[int, ...]
    rule: int
    effects: Effects
    inside: float

    @property
    def key(self) -> tuple[int, int, int, tuple[int, ...]]:
        return self.start, self.end, self.rule, self.tokens


_Option = tuple[tuple[int, ...], Effects, float]
"""What a token may write: words, their effects, and the weight."""


class ExactSearch:
    """The search for the best outputs of one sentence.

    Args:
        scores: the scores of the sentence.
        parts: what parts of programs there are; None allows all outputs.
        names: the token of the grammar for each token id; not needed without ``parts``.
        max_length: the maximum length of an output; None for any.

    >>> from permalign.tasks.grammar import Grammar, Rule
    >>> parts = ProgramParts(Grammar(["Num"], [Rule("len", "Num", ("River",)), Rule("ohio", "River")]))
    >>> scores = SentenceScores(  # "ohio length": the words are swapped, although that is less probable
    ...     splits={(0, 1, 2): (-0.5, -1.0)}, words=[{1: -0.1}, {0: -0.2}], nothing=[-3.0, -2.0]
    ... )
    >>> ExactSearch(scores, parts, ["len", "ohio"]).find(num_outputs=1, max_items=100)
    [FoundOutput(tokens=(0, 1), weight=-1.3)]
    >>> [output.tokens for output in ExactSearch(scores).find(num_outputs=3, max_items=100)]
    [(1, 0), (0, 1), (1,)]
    """

    def __init__(
        self,
        scores: SentenceScores,
        parts: ProgramParts | None = None,
        names: Sequence[str] = (),
        max_length: int | None = None,
    ) -> None:
        self._scores, self._parts, self._names = scores, parts, names
        self._max_length = inf if max_length is None else max_length
        self._length = len(scores.nothing)
        self._tokens = [self._options(position) for position in range(self._length)]
        whole = (0,) if parts is None else parts.program_balances
        self._outside = outside_bounds(
            scores.splits, [_best_by_balance(options) for options in self._tokens], whole
        )
        self._agenda: list[tuple[float, int, _Item]] = []
        self._ticket = count()  # of items with the same bound, the first one is taken
        self._best: dict[tuple[int, int, int, tuple[int, ...]], float] = {}
        self._starting: list[list[_Item]] = [[] for _ in range(self._length + 1)]
        self._ending: list[list[_Item]] = [[] for _ in range(self._length + 1)]

    def find(self, num_outputs: int, max_items: int) -> list[FoundOutput] | None:
        """The outputs with the best derivations, best first; None if it takes more than ``max_items`` items.

        There may be fewer than ``num_outputs``.
        """
        for position, options in enumerate(self._tokens):
            for tokens, effects, weight in options:
                self._push(position, position + 1, -1, tokens, effects, weight)
        found: dict[tuple[int, ...], float] = {}
        done: set[tuple[int, int, int, tuple[int, ...]]] = set()
        while self._agenda:
            _, _, item = heappop(self._agenda)
            if item.key in done:
                continue
            done.add(item.key)
            if len(done) > max_items:
                return None
            if item.end - item.start == self._length:
                found.setdefault(item.tokens, item.inside)
                if len(found) == num_outputs:
                    break
                continue
            for right in self._starting[item.end]:
                self._combine(item, right)
            for left in self._ending[item.start]:
                self._combine(left, item)
            self._starting[item.start].append(item)
            self._ending[item.end].append(item)
        return [FoundOutput(tokens, weight) for tokens, weight in found.items()]

    def _options(self, position: int) -> list[_Option]:
        """What a token may write."""
        options: list[_Option] = [((), NOTHING, self._scores.nothing[position])]
        for token, weight in self._scores.words[position].items():
            effects = NOTHING if self._parts is None else self._parts.of_token(self._names[token])
            options.append(((token,), effects, weight))
        return [option for option in options if option[1]]

    def _combine(self, left: _Item, right: _Item) -> None:
        start, end = left.start, right.end
        straight, inverted = self._scores.splits[start, left.end, end]
        for rule, score, first, second in (
            (STRAIGHT, straight, left, right),
            (INVERTED, inverted, right, left),
        ):
            if self._scores.normal_form and left.rule == rule:
                continue
            effects = NOTHING if self._parts is None else self._parts.join(first.effects, second.effects)
            if effects:
                inside = score + left.inside + right.inside
                self._push(start, end, rule, first.tokens + second.tokens, effects, inside)

    def _push(
        self, start: int, end: int, rule: int, tokens: tuple[int, ...], effects: Effects, inside: float
    ) -> None:
        """Put an item on the agenda, unless it is part of no output, or is there already with a better tree."""
        whole = end - start == self._length
        if whole and self._parts is not None and not self._parts.is_program(effects):
            return
        if len(tokens) > self._max_length:
            return
        if whole or not self._scores.normal_form:
            rule = -1  # the rule at the top no longer matters
        key = start, end, rule, tokens
        if inside <= self._best.get(key, -inf):
            return
        bounds = self._outside[start, end]
        outside = max(bounds.get(balance, -inf) for balance in balances(effects))
        if outside > -inf:
            self._best[key] = inside
            item = _Item(start, end, tokens, rule, effects, inside)
            heappush(self._agenda, (-inside - outside, next(self._ticket), item))


def _best_by_balance(options: Sequence[_Option]) -> dict[int, float]:
    """The best weight of a token by the balance of what it writes."""
    best: dict[int, float] = {}
    for _, effects, weight in options:
        for balance in balances(effects):
            best[balance] = max(weight, best.get(balance, -inf))
    return best


def outside_bounds(
    splits: Mapping[tuple[int, int, int], tuple[float, float]],
    tokens: Sequence[Mapping[int, float]],
    whole: Collection[int],
) -> dict[tuple[int, int], dict[int, float]]:
    """For every span and balance, the weight of the best derivation of everything else, if types are ignored.

    The balance of some words is the number of arguments that they leave to be written, less those that they are. That
    of a node is the sum of its parts'. O(n^3 B^2) for B balances.

    Args:
        splits: the scores of all splits, straight and inverted.
        tokens: for each token, the best weight of what it writes by its balance.
        whole: the balances of whole outputs.
    """
    length = len(tokens)
    best = {(position, position + 1): dict(weights) for position, weights in enumerate(tokens)}
    spans = [(start, start + width) for width in range(2, length + 1) for start in range(length - width + 1)]
    for start, end in spans:
        inside = best[start, end] = {}
        for middle in range(start + 1, end):
            score = max(splits[start, middle, end])
            for left, left_weight in best[start, middle].items():
                for right, right_weight in best[middle, end].items():
                    weight = score + left_weight + right_weight
                    if weight > inside.get(left + right, -inf):
                        inside[left + right] = weight
    outside: dict[tuple[int, int], dict[int, float]] = {span: {} for span in best}
    outside[0, length] = dict.fromkeys(whole, 0.0)
    for start, end in reversed(spans):
        for middle in range(start + 1, end):
            score = max(splits[start, middle, end])
            of_left, of_right = outside[start, middle], outside[middle, end]
            for left, left_weight in best[start, middle].items():
                for right, right_weight in best[middle, end].items():
                    above = outside[start, end].get(left + right)
                    if above is not None:
                        of_left[left] = max(of_left.get(left, -inf), above + score + right_weight)
                        of_right[right] = max(of_right.get(right, -inf), above + score + left_weight)
    return outside


def search_exactly(
    distribution: OrderDistribution,
    word_log_probs: Float[Tensor, "batch n vocab"],
    num_outputs: int,
    constraints: Sequence[Constraint | None] | None = None,
    max_length: int | None = None,
    max_items: int = MAX_ITEMS,
) -> list[list[FoundOutput] | None]:
    """Find the outputs with the best derivations for every sentence of a batch.

    Args:
        distribution: the distribution over orders, a `permalign.SeparablePermutation`.
        word_log_probs: the log-probability of every word that a source token may write; that of END is of none.
        num_outputs: how many outputs to find for each sentence.
        constraints: the grammar of the outputs of each sentence; None for any output.
        max_length: the maximum length of an output; None for any.
        max_items: how many items the search may take for a sentence.

    Returns:
        The outputs of each sentence, best first; None for a sentence that takes more items.

    Raises:
        UsageError: the trees have labels, or a constraint is not a grammar.
    """
    if not isinstance(distribution, SeparablePermutation):
        raise UsageError(
            "an exact search is not possible for trees with labels (reorderer.kind: labelled). Use beam search."
        )
    rules = constraints or [None] * len(word_log_probs)
    searches = []
    for row, constraint in enumerate(rules):
        if constraint is not None and not isinstance(constraint, GrammarConstraint):
            raise UsageError(
                "an exact search needs a grammar, but this constraint only says which words may follow others. Use "
                "beam search."
            )
        scores = _scores_of(distribution, word_log_probs, row)
        searches.append(
            ExactSearch(scores, max_length=max_length)
            if constraint is None
            else ExactSearch(scores, constraint.parts, constraint.tokens, max_length)
        )
    return [search.find(num_outputs, max_items) for search in searches]


def _scores_of(distribution: SeparablePermutation, word_log_probs: Tensor, row: int) -> SentenceScores:
    """The scores of one sentence of a batch."""
    length = int(distribution.lengths[row])
    fenceposts = split_fenceposts(length)
    packed = split_index(distribution.length, *fenceposts.unbind(-1))
    scores = distribution.scores[row].detach().cpu()[packed].tolist()
    splits = {
        (start, middle, end): (straight, inverted)
        for (start, middle, end), (straight, inverted) in zip(fenceposts.tolist(), scores, strict=True)
    }
    of_words = word_log_probs[row, :length].detach().cpu().tolist()
    never = {*NEVER_WRITTEN, END_ID}
    words = [
        {word: value for word, value in enumerate(values) if word not in never and value > -inf}
        for values in of_words
    ]
    return SentenceScores(splits, words, [values[END_ID] for values in of_words], distribution.normal_form)
