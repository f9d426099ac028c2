"""Recombination: new training pairs from parts of the given ones, cut where a trained model's derivations allow it.

The best derivation of a training pair is a tree over the source words, and every node of it writes consecutive output
words. Where these words are a subprogram, the node and the subprogram are a *fragment*. Replacing a fragment by a
fragment of another pair with the same type yields a new pair, which is kept if the grammar reads its program. New
programs have templates, and lengths, that no training program has.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from random import Random

from permalign.models.base import Model
from permalign.structures import Segment
from permalign.structures.derivations import Tree
from permalign.tasks.base import Example
from permalign.tasks.grammar import Grammar, GrammarError
from permalign.tasks.seeded_random import shuffled
from permalign.tasks.subprograms import find_subprograms

_MAX_DRAWS = 50
"""The number of draws per new pair after which recombination gives up: the pairs may not have enough fragments."""


@dataclass(frozen=True)
class Fragment:
    """Source words and the subprogram that they write.

    Attributes:
        example: the pair that it is part of.
        source: the span of source words, (start, end).
        target: the span of output words, (start, end).
        kinds: the types that the subprogram can have there.
    """

    example: Example
    source: tuple[int, int]
    target: tuple[int, int]
    kinds: frozenset[str]

    @property
    def source_words(self) -> tuple[str, ...]:
        """The source words."""
        return self.example.source[slice(*self.source)]

    @property
    def target_words(self) -> tuple[str, ...]:
        """The tokens of the subprogram."""
        return self.example.target[slice(*self.target)]


def cut(
    example: Example, units: Sequence[str], tree: Tree, segments: Sequence[Segment], grammar: Grammar
) -> list[Fragment]:
    """Cut a pair into fragments; each has the fewest source words that write exactly its subprogram.

    Whole sentences are left out: a question is not part of another question.

    Args:
        example: the pair.
        units: the source as the model reads it: words, and names of several words that were linked to an entity.
        tree: the tree over the units.
        segments: the output words that each unit writes.
        grammar: the grammar of outputs.
    """
    written = {segment.source[0]: segment.target for segment in segments if segment.source}
    first_words = [0, *accumulate(len(unit.split()) for unit in units)]
    spans: dict[tuple[int, int], tuple[int, int]] = {}  # spans of units by target spans
    for node in _nodes(tree):
        words = [word for unit in range(node.start, node.end) for word in written.get(unit, ())]
        if not words or node.end - node.start == len(units):
            continue
        span = (min(words), max(words) + 1)
        known = spans.get(span)
        if known is None or node.end - node.start < known[1] - known[0]:
            spans[span] = (node.start, node.end)
    fragments = []
    for part in find_subprograms(grammar, example.target):
        if (part.start, part.end) in spans:
            start, end = (first_words[unit] for unit in spans[part.start, part.end])
            fragments.append(Fragment(example, (start, end), (part.start, part.end), part.kinds))
    return fragments


def _nodes(tree: Tree) -> Iterator[Tree]:
    stack = [tree]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.children)


def exchange(host: Fragment, donor: Fragment) -> Example:
    """The pair of the host with the fragment of the donor in the place of its own."""
    source = list(host.example.source)
    target = list(host.example.target)
    source[slice(*host.source)] = donor.source_words
    target[slice(*host.target)] = donor.target_words
    return Example(tuple(source), tuple(target), f"{host.example.id}+{donor.example.id}")


def recombine(
    examples: Sequence[Example], fragments: Sequence[Fragment], grammar: Grammar, count: int, seed: int = 0
) -> list[Example]:
    """Draw new pairs by exchanging fragments of the same type; none of them is one of the given pairs.

    Args:
        examples: the given pairs.
        fragments: the fragments of the pairs, in a fixed order.
        grammar: the grammar that has to read the new programs.
        count: the number of new pairs; fewer are returned if the fragments do not yield so many.
        seed: the seed of the draws.
    """
    generator = Random(f"recombination {seed}")
    by_kind: dict[str, list[Fragment]] = {}
    for fragment in fragments:
        for kind in sorted(fragment.kinds):
            by_kind.setdefault(kind, []).append(fragment)
    seen = {(example.source, example.target) for example in examples}
    drawn: list[Example] = []
    for _ in range(_MAX_DRAWS * count if fragments else 0):
        if len(drawn) == count:
            break
        host = fragments[generator.randrange(len(fragments))]
        kind = shuffled(sorted(host.kinds), generator)[0]
        donor = by_kind[kind][generator.randrange(len(by_kind[kind]))]
        pair = exchange(host, donor)
        if (pair.source, pair.target) not in seen and _reads(grammar, pair, host, donor):
            seen.add((pair.source, pair.target))
            drawn.append(pair)
    return drawn


def _reads(grammar: Grammar, pair: Example, host: Fragment, donor: Fragment) -> bool:
    """Whether the new program is well typed, and the donor's subprogram is still a subprogram of it."""
    start = host.target[0]
    try:
        parts = find_subprograms(grammar, pair.target)
    except GrammarError:
        return False
    return any(part[:2] == (start, start + len(donor.target_words)) for part in parts)


def find_fragments(model: Model, examples: Sequence[Example], grammar: Grammar) -> list[Fragment]:
    """The fragments of all pairs that the model can derive."""
    evidence = model.derive(
        [example.source for example in examples], [example.target for example in examples]
    )
    fragments: list[Fragment] = []
    for example, (_, derivation, segments) in zip(examples, evidence, strict=True):
        if derivation is not None and segments is not None and derivation.log_prob > -inf:
            units = model.source.tokenize(example.source)
            fragments += cut(example, units, derivation.tree, segments, grammar)
    return fragments
