"""What a dataset looks like to somebody who has to choose a model for it: lengths, vocabularies, word order."""

from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from random import Random

from permalign.tasks.seeded_random import shuffled

Pair = tuple[Sequence[str], Sequence[str]]
"""The tokens of a source and of its target."""

MAX_PAIRS = 1000
"""The number of pairs, drawn at random, that word order is estimated from."""

MAX_LENGTH = 40
"""The length above which a sentence is not used to estimate word order."""

COPIED = 0.9
"""The share of sources with a word whose targets must have it, too, if it is a word that is copied."""


@dataclass(frozen=True, slots=True)
class DataProfile:
    """Properties of training data that a choice of model depends on.

    Attributes:
        examples: the number of examples.
        source_length: the length that nineteen of twenty sources do not exceed, in tokens.
        target_length: the same for targets.
        longest: the largest number of tokens of a source or target.
        equal_lengths: the share of examples whose source and target have the same length.
        growth: the largest ratio of target length to source length.
        overlap: the share of target tokens that also occur in their source.
        monotone: the share of neighbouring target tokens that are aligned with source tokens in the same order.
        copied_words: the number of different words that are copied; see `copied_words`.
        with_copies: the share of examples with such a word.
    """

    examples: int
    source_length: int
    target_length: int
    longest: int
    equal_lengths: float
    growth: float
    overlap: float
    monotone: float
    copied_words: int
    with_copies: float

    def __str__(self) -> str:
        examples = "1 training example" if self.examples == 1 else f"{self.examples:,} training examples"
        return (
            f"{examples}; 95 % have at most {self.source_length} source and {self.target_length} target tokens; "
            f"{self.equal_lengths:.0%} have equal lengths; {self.overlap:.0%} of target tokens occur in the source; "
            f"{self.monotone:.0%} of neighbouring target tokens keep its order"
        )


def profile_data(pairs: Sequence[Pair]) -> DataProfile:
    """Compute the profile of training data, which has at least one pair.

    >>> profile = profile_data([("a b".split(), "B A".split()), ("a".split(), "A".split()), ("b".split(), "B".split())])
    >>> profile.equal_lengths, profile.monotone, profile.overlap
    (1.0, 0.0, 0.0)
    """
    sources, targets = ([len(pair[side]) for pair in pairs] for side in (0, 1))
    shared = sum(token in set(source) for source, target in pairs for token in target)
    copied = copied_words(pairs)
    return DataProfile(
        examples=len(pairs),
        source_length=_percentile(sources),
        target_length=_percentile(targets),
        longest=max(*sources, *targets),
        equal_lengths=sum(n == m for n, m in zip(sources, targets, strict=True)) / len(pairs),
        growth=max(m / n for n, m in zip(sources, targets, strict=True)),
        overlap=shared / sum(targets),
        monotone=_monotone_share(pairs),
        copied_words=len(copied),
        with_copies=sum(not copied.isdisjoint(source) for source, _ in pairs) / len(pairs),
    )


def copied_words(pairs: Sequence[Pair]) -> Set[str]:
    """The words, such as names and numbers, that targets repeat whenever they are in the source.

    Punctuation marks and single digits are not among them: there are few, so no sentence has an unseen one.

    >>> sorted(copied_words([("2 may 1998".split(), "1998 - 05 - 2".split()), ("9 may".split(), "05 - 9".split())]))
    ['1998']
    """
    in_sources = Counter(word for source, _ in pairs for word in set(source))
    in_both = Counter(word for source, target in pairs for word in set(source).intersection(target))
    return {
        word
        for word, count in in_both.items()
        if count >= COPIED * in_sources[word] and not _is_of_a_closed_class(word)
    }


def _is_of_a_closed_class(word: str) -> bool:
    """Whether a word is a single digit or has only punctuation marks."""
    return (len(word) == 1 and word.isdigit()) or not any(map(str.isalnum, word))


def _percentile(lengths: Sequence[int]) -> int:
    return sorted(lengths)[ceil(0.95 * len(lengths)) - 1]


def _monotone_share(pairs: Sequence[Pair]) -> float:
    """The share of neighbouring target tokens whose source tokens are in the same order, or are the same."""
    short = [pair for pair in pairs if max(map(len, pair)) <= MAX_LENGTH]
    sample = shuffled(short, Random("profile"))[:MAX_PAIRS]
    translation = _translation_table(sample)
    same_order = neighbours = 0
    for source, target in sample:
        aligned = [_best_position(word, source, translation) for word in target]
        same_order += sum(first <= second for first, second in pairwise(aligned))
        neighbours += len(aligned) - 1
    return same_order / neighbours if neighbours else 1.0


def _best_position(word: str, source: Sequence[str], translation: dict[str, dict[str, float]]) -> int:
    """The position of the same word in the source, or else of the word that most probably translates to it."""
    if word in source:
        return source.index(word)
    probabilities = [translation[other][word] for other in source]
    return probabilities.index(max(probabilities))


def _translation_table(pairs: Sequence[Pair], iterations: int = 5) -> dict[str, dict[str, float]]:
    """IBM model 1 (Brown et al., 1993): the probability of each target word given a source word, by a few EM steps."""
    table: dict[str, dict[str, float]] = {}
    for iteration in range(iterations):
        counts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for source, target in pairs:
            for word in target:
                weights = [table[other][word] if iteration else 1.0 for other in source]
                total = sum(weights)
                for other, weight in zip(source, weights, strict=True):
                    counts[other][word] += weight / total
        totals = {other: sum(words.values()) for other, words in counts.items()}
        table = {
            other: {word: count / totals[other] for word, count in words.items()}
            for other, words in counts.items()
        }
    return table
