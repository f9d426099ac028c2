"""The packed forests of the two grammars, for k-best search: trees without labels, and trees with labels."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from permalign.kernels.layout import by_ends, split_index, split_offset
from permalign.structures.derivations import Tree
from permalign.structures.kbest import Choice, Forest, Item


class SeparableForest(Forest):
    """The trees of `SeparablePermutation` over one sentence.

    An item is (start, end, the rule it may not use or -1), a choice (middle, rule). A span has 2 (w - 1) choices.

    Args:
        scores: ``(T, 2)``, the score of every split and rule, packed.
        best: ``(T, 2)``, the weight of the best tree through each of them (`permalign.kernels.best_inside`).
        length: the number of tokens of the sentence.
        normal_form: whether a left child may not repeat its parent's rule.
    """

    def __init__(self, scores: Tensor, best: Tensor, length: int, normal_form: bool) -> None:
        self._scores: list[list[float]] = scores.tolist()
        self._best: list[list[float]] = best.tolist()
        self._length, self._normal_form = length, normal_form
        self.root = (0, length, -1)

    def leaf_weight(self, item: Item) -> float | None:
        """A token weighs nothing."""
        start, end, _ = item
        return 0.0 if end - start == 1 else None

    def choices(self, item: Item) -> Iterator[tuple[float, Choice]]:
        """All splits of the span, with the rules that it may use, best first."""
        start, end, forbidden = item
        first = self._split(start, start + 1, end)
        choices = [
            (self._best[first + middle - start - 1][rule], (middle, rule))
            for middle in range(start + 1, end)
            for rule in (0, 1)
            if rule != forbidden
        ]
        return iter(sorted(choices, key=lambda choice: -choice[0]))

    def children(self, item: Item, choice: Choice) -> tuple[Item, ...]:
        """The two parts of the span."""
        (start, end, _), (middle, rule) = item, choice
        return (start, middle, rule if self._normal_form else -1), (middle, end, -1)

    def weight(self, item: Item, choice: Choice, children: Sequence[float]) -> float:
        """The score of the split, plus the weights of its parts."""
        (start, end, _), (middle, rule), (left, right) = item, choice, children
        return self._scores[self._split(start, middle, end)][rule] + left + right

    def tree(self, steps: Sequence[tuple[Item, Choice | None]]) -> Tree:
        """The tree of these splits."""
        nodes = [(item[0], choice[0], item[1], choice[1]) for item, choice in steps if choice is not None]
        return Tree.from_nodes(nodes, self._length)

    def _split(self, start: int, middle: int, end: int) -> int:
        """The packed index of a split."""
        return split_offset(self._length, end - start) + start * (end - start - 1) + middle - start - 1


class LabelledForest(Forest):
    """The trees of `LabelledPermutation` over one sentence.

    An item is (start, end, label), a choice (middle, orientation, left label, right label): 2 (w - 1) K^2 of them. The
    root, with label -1, is one more item, whose choices are the labels of the whole sentence.

    Args:
        rules: ``(2, K, K, K)``, the scores of the rules.
        root: ``(K,)``, the scores of the root's labels.
        tokens: ``(n, K)``, the scores of the tokens' labels.
        splits: ``(T, 2)``, the scores of the splits, packed.
        chart: ``(1, spans, K)``, the best weights of spans by label.
    """

    def __init__(self, rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, chart: Tensor) -> None:
        self._rules, self._root, self._splits = rules, root, splits
        self._length, self._labels = tokens.shape
        self._token_scores: list[list[float]] = tokens.tolist()
        left, right = by_ends(chart, self._length)
        self._left, self._right = left[0], right[0]  # [fencepost, width, label]
        self.root = (0, self._length, -1)

    def leaf_weight(self, item: Item) -> float | None:
        """A token weighs the score of its label."""
        start, end, label = item
        return self._token_scores[start][label] if end - start == 1 and label >= 0 else None

    def choices(self, item: Item) -> Iterator[tuple[float, Choice]]:
        """All splits of the span with the labels of their parts, best first; at the root all labels."""
        start, end, label = item
        if label < 0:
            for weight, top in _best_first(self._root + self._left[0, self._length]):
                yield weight, (top,)
            return
        width = end - start
        left = self._left[start, 1:width][:, None, :, None]
        right = self._right[end, 1:width].flip(0)[:, None, None]
        weights = self._of_splits(start, end)[..., None, None] + left + right + self._rules[:, label]
        for weight, index in _best_first(weights.flatten()):
            index, right_label = divmod(index, self._labels)
            index, left_label = divmod(index, self._labels)
            split, orientation = divmod(index, 2)
            yield weight, (start + 1 + split, orientation, left_label, right_label)

    def children(self, item: Item, choice: Choice) -> tuple[Item, ...]:
        """The two parts of the span with their labels; below the root the whole sentence with its label."""
        start, end, label = item
        if label < 0:
            return ((start, end, choice[0]),)
        middle, _, left, right = choice
        return (start, middle, left), (middle, end, right)

    def weight(self, item: Item, choice: Choice, children: Sequence[float]) -> float:
        """The scores of rule and split, plus the weights of the parts."""
        start, end, label = item
        if label < 0:
            return float(self._root[choice[0]]) + sum(children)
        middle, orientation, left, right = choice
        split = self._of_splits(start, end)[middle - start - 1, orientation]
        return float(self._rules[orientation, label, left, right] + split) + sum(children)

    def tree(self, steps: Sequence[tuple[Item, Choice | None]]) -> Tree:
        """The labelled tree of these splits."""
        nodes, leaves = [], {}
        for (start, end, label), choice in steps:
            if choice is None:
                leaves[start] = label
            elif label >= 0:
                nodes.append((start, choice[0], end, choice[1], label))
        return Tree.from_nodes(nodes, self._length, [leaves[token] for token in range(self._length)])

    def _of_splits(self, start: int, end: int) -> Tensor:
        """The scores ``(w - 1, 2)`` of the splits of a span."""
        middle = torch.arange(start + 1, end, device=self._splits.device)
        ends = torch.full_like(middle, start), middle, torch.full_like(middle, end)
        return self._splits[split_index(self._length, *ends)]


def _best_first(weights: Tensor) -> Iterator[tuple[float, int]]:
    """The numbers of a tensor with their indices, from the largest to the smallest; the first index of equal ones."""
    values = weights.cpu().numpy()
    indices = np.argsort(-values, kind="stable")
    return zip(values[indices].tolist(), indices.tolist(), strict=True)
