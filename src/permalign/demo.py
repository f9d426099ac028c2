"""``make demo``: the distribution over reorderings at work on one sentence, in plain text.

Nothing is trained: a handful of scores are set by hand, where a model would compute them from the words.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import exp

import torch

from permalign import kernels
from permalign.kernels.layout import split_count, split_index
from permalign.structures import SeparablePermutation
from permalign.structures.derivations import RULES
from permalign.structures.permutations import derivation_count, separable_count

WORDS = ("the", "girl", "saw", "the", "hedgehog")

# What goes together, and how: the part i..j-1, the part j..k-1, the rule, the score. All other scores are zero.
HABITS = (
    (0, 1, 2, "S", 4.0, "a determiner stays before its noun"),
    (3, 4, 5, "S", 4.0, "so does the other one"),
    (2, 3, 5, "I", 4.0, "the verb moves behind its object"),
    (2, 3, 5, "S", 2.5, "now and then it stays before it"),
    (0, 2, 5, "S", 3.0, "the subject comes first"),
    (0, 2, 5, "I", 0.5, "and hardly ever last"),
)

SAMPLES = 10_000

# Weights (not logarithms) of all splits of three words: straight, inverted.
THREE_WORDS = (((0, 1, 2), 1, 3), ((1, 2, 3), 3, 4), ((0, 1, 3), 2, 1), ((0, 2, 3), 3, 2))


def sentence_distribution() -> SeparablePermutation:
    """The distribution over orders of `WORDS` that `HABITS` give.

    >>> sentence_distribution().best_derivation()[0].reorder(WORDS)
    ['the', 'girl', 'the', 'hedgehog', 'saw']
    """
    scores = torch.zeros(1, split_count(len(WORDS)), 2, dtype=torch.float64)
    for start, middle, end, rule, score, _ in HABITS:
        scores[0, _packed(len(WORDS), start, middle, end), RULES.index(rule)] = score
    return SeparablePermutation(scores)


def three_word_distribution() -> SeparablePermutation:
    """Three words whose greedy derivation, best derivation and most probable order are three different things."""
    weights = torch.zeros(1, split_count(3), 2, dtype=torch.float64)
    for fenceposts, straight, inverted in THREE_WORDS:
        weights[0, _packed(3, *fenceposts)] = torch.tensor([straight, inverted], dtype=weights.dtype)
    return SeparablePermutation(weights.log())


def _packed(words: int, start: int, middle: int, end: int) -> int:
    return int(split_index(words, *torch.tensor([start, middle, end])))


def show_scores() -> Iterator[str]:
    """The sentence, and what its words are told."""
    count = len(WORDS)
    yield f"  {count} words have {separable_count(count)} separable orders, by {derivation_count(count)} trees."
    yield "  A node keeps its two parts straight (S) or inverts them (I). Each split has"
    yield "  a score for either; a model would compute them, here some are set by hand:"
    yield ""
    for start, middle, end, rule, score, reason in HABITS:
        parts = f"{' '.join(WORDS[start:middle])} | {' '.join(WORDS[middle:end])}"
        yield f"    {parts:<27} {rule} {score:+.1f}   {reason}"


def show_tree(distribution: SeparablePermutation) -> Iterator[str]:
    """The best derivation, drawn, and the sentence before and after."""
    (best,) = distribution.best_derivation()
    drawing = best.draw(WORDS).splitlines()
    yield from (f"    {line}" for line in drawing)
    yield ""
    yield f"    before   {' '.join(WORDS)}"
    yield f"    after    {' '.join(best.reorder(WORDS))}"
    yield ""
    yield f"  This tree has probability {exp(best.log_prob):.3f}."


def show_expectation(distribution: SeparablePermutation) -> Iterator[str]:
    """The expected permutation matrix as a table."""
    wide = max(map(len, WORDS)) + 1
    yield "    position" + "".join(f"{word:>{wide}}" for word in WORDS)
    for position, row in enumerate(distribution.expected_matrix()[0].tolist(), start=1):
        cells = (f"{probability:.2f}" if probability >= 0.005 else "." for probability in row)
        yield f"    {position:>8}" + "".join(f"{cell:>{wide}}" for cell in cells)
    yield ""
    yield "  Summed exactly over all trees, not sampled; rows and columns sum to one."


def show_samples(distribution: SeparablePermutation, rows: int = 5) -> Iterator[str]:
    """How often orders are drawn, beside how probable they are."""
    generator = torch.Generator().manual_seed(0)
    drawn = distribution.sample((SAMPLES,), generator=generator)[:, 0].tolist()
    frequent = Counter(map(tuple, drawn)).most_common(rows)
    orders = torch.tensor([order for order, _ in frequent])[:, None]
    probabilities = distribution.log_prob(orders)[:, 0].exp().tolist()
    yield f"    {'order':<29} drawn   probability"
    for (order, count), probability in zip(frequent, probabilities, strict=True):
        yield f"    {' '.join(_reordered(order)):<29} {count / SAMPLES:.3f}   {probability:.3f}"


def _reordered(order: Sequence[int]) -> list[str]:
    return [WORDS[token] for token in order]


def show_three_answers(distribution: SeparablePermutation) -> Iterator[str]:
    """The example on which three ways to decode disagree."""
    (greedy,), (best,) = distribution.greedy_derivation(), distribution.best_derivation()
    probable = distribution.most_probable_order()
    answers = {
        "locally best rule of every span (greedy)": greedy.order,
        "most probable tree (Viterbi)": best.order,
        "most probable order": tuple(probable.order[0].tolist()),
    }
    (trees,) = distribution.top_derivations(derivation_count(3))
    yield f"    {'':<40}  order  its trees"
    for name, order in answers.items():
        parts = [f"{exp(tree.log_prob):.3f}" for tree in trees if tree.order == order]
        total = distribution.log_prob(torch.tensor([order])).exp().item()
        total_of_several = f" = {total:.3f}" if len(parts) > 1 else ""
        yield f"    {name:<40}  {' '.join(map(str, order))}  {' + '.join(parts)}{total_of_several}"
    gap = probable.gap.item()
    yield ""
    yield f"  The last is certified: no other order can be more probable (gap {gap:g})."


def sections() -> Iterator[tuple[str, Iterator[str]]]:
    """The title and the lines of each part."""
    sentence = sentence_distribution()
    yield f'"{" ".join(WORDS)}", on its way to a verb-final language', show_scores()
    yield "The most probable tree", show_tree(sentence)
    yield "Which word stands where? The expected permutation matrix", show_expectation(sentence)
    yield f"{SAMPLES:,} samples against exact probabilities", show_samples(sentence)
    yield (
        "Three words (0 1 2) on which three ways to decode disagree",
        show_three_answers(three_word_distribution()),
    )


def text() -> str:
    """The whole demonstration. In plain torch: so little work is not worth loading the compiled kernels."""
    with kernels.backend("portable"):
        parts = [
            "\n".join([f"{number}. {title}", "", *lines])
            for number, (title, lines) in enumerate(sections(), 1)
        ]
    return "\n\n".join(parts)


def main() -> None:
    """Print the demonstration."""
    print(text())


if __name__ == "__main__":
    main()
