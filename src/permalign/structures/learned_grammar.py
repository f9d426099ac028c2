"""A learned grammar in readable form: its rules, most used first, and examples of what its labels cover."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from permalign.structures.derivations import RULES, Rule
from permalign.structures.labelled import LabelledPermutation

ARROWS = {"S": "→", "I": "⇄"}


@dataclass(frozen=True)
class RuleUse:
    """A rule of the grammar, and how often it is used.

    Attributes:
        rule: straight (S) or inverted (I).
        label: the label of the node.
        left: the label of its left part, in the order of the source.
        right: the label of its right part.
        score: the rule's log-weight.
        uses: how many nodes use it, in expectation over all derivations of all sentences read.
        share: its share of the uses of all rules with this label.
    """

    rule: Rule
    label: int
    left: int
    right: int
    score: float
    uses: float
    share: float

    def __str__(self) -> str:
        return f"{self.label} {ARROWS[self.rule]} {self.left} {self.right}"


@dataclass(frozen=True)
class LabelUse:
    """A label of the grammar, and what it covers.

    Attributes:
        label: the number of the label.
        uses: how many nodes and leaves have it, in expectation.
        yields: the texts it covers in the most probable derivations with their counts, most frequent first.
    """

    label: int
    uses: float
    yields: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class LearnedGrammar:
    """The rules and labels of a grammar, most used first; made by `read_grammar`."""

    rules: tuple[RuleUse, ...]
    labels: tuple[LabelUse, ...]

    def draw(self, rules: int = 20, examples: int = 5) -> str:
        """The grammar as text.

        Args:
            rules: the number of rules to show, most used first.
            examples: the number of texts to show for each label.
        """
        lines = ["rules by use (→ straight, ⇄ inverted; parts in the order of the source)"]
        lines.append(f"{'uses':>9} {'share':>6} {'score':>7}  rule")
        lines += [
            f"{rule.uses:9.1f} {rule.share:6.0%} {rule.score:7.2f}  {rule}" for rule in self.rules[:rules]
        ]
        lines.append("labels by use, with the texts that they cover most often")
        for label in self.labels:
            texts = "  ".join(f"{text!r} ({count})" for text, count in label.yields[:examples])
            lines.append(f"{label.uses:9.1f}  [{label.label}]  {texts or 'nothing'}")
        return "\n".join(lines)


def read_grammar(
    batches: Iterable[tuple[LabelledPermutation, Sequence[Sequence[str]]]],
) -> LearnedGrammar:
    """Make a learned grammar readable: count how often its rules and labels are used on given sentences.

    Args:
        batches: distributions that all share one grammar, each with the words of its sentences.

    >>> rules = torch.full((2, 2, 2, 2), -9.0)
    >>> rules[1, 1, 0, 0] = 0.0  # two words of label 0 change places and make label 1
    >>> words = torch.tensor([[[0.0, -9.0], [0.0, -9.0]]])
    >>> grammar = read_grammar([(LabelledPermutation(rules, words), [["she", "sang"]])])
    >>> print(grammar.draw(rules=1))
    rules by use (→ straight, ⇄ inverted; parts in the order of the source)
         uses  share   score  rule
          1.0   100%    0.00  1 ⇄ 0 0
    labels by use, with the texts that they cover most often
          2.0  [0]  'she' (1)  'sang' (1)
          1.0  [1]  'she sang' (1)
    """
    rules, counts, spans = None, None, None
    yields: dict[int, Counter[str]] = {}
    with torch.no_grad():
        for distribution, sentences in batches:
            _require_words(distribution, sentences)
            rules = distribution.rule_scores
            used, reached = distribution.rule_counts().sum(0), distribution.span_marginals().sum((0, 1))
            counts, spans = (
                (used, reached) if counts is None or spans is None else (counts + used, spans + reached)
            )
            for derivation, words in zip(distribution.best_derivation(), sentences, strict=True):
                for node in derivation.tree.nodes():
                    texts = yields.setdefault(node.label or 0, Counter())
                    texts[" ".join(words[node.start : node.end])] += 1
    if rules is None or counts is None or spans is None:
        raise ValueError(
            "batches is empty, but rules are ranked by their use. Pass at least one batch of sentences."
        )
    uses_of_label = counts.sum((0, 2, 3)).tolist()
    rule_uses = []
    by_use = counts.flatten().argsort(descending=True)
    for (orientation, label, left, right), uses, score in zip(
        torch.stack(torch.unravel_index(by_use, counts.shape), dim=-1).tolist(),
        counts.flatten()[by_use].tolist(),
        rules.flatten()[by_use].tolist(),
        strict=True,
    ):
        share = uses / uses_of_label[label] if uses_of_label[label] > 0 else 0.0
        rule_uses.append(RuleUse(RULES[orientation], label, left, right, score, uses, share))
    labels = [
        LabelUse(label, float(spans[label]), tuple(yields.get(label, Counter()).most_common()))
        for label in spans.argsort(descending=True).tolist()
    ]
    return LearnedGrammar(tuple(rule_uses), tuple(labels))


def _require_words(distribution: LabelledPermutation, sentences: Sequence[Sequence[str]]) -> None:
    lengths = distribution.lengths.tolist()
    given = [len(words) for words in sentences]
    if given != lengths:
        raise ValueError(
            f"sentences have {given} words, but the distribution has lengths {lengths}. "
            "Pass the words of the same sentences, without padding."
        )
