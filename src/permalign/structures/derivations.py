"""Derivations: binary trees over a sentence, whose nodes keep (straight) or swap (inverted) their two parts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from permalign.notebooks import ShownInNotebooks

Rule = Literal["S", "I"]
RULES: tuple[Rule, Rule] = ("S", "I")
MARKS = {"S": "S →", "I": "I ⇄"}


@dataclass(frozen=True)
class Tree:
    """A node over the tokens ``start..end-1`` with all that is below it; labels are optional.

    A leaf has no rule and no children: it is a token, or a phrase of several tokens, which keep their order.

    >>> girl_saw = Tree(0, 2, "I", (Tree(0, 1), Tree(1, 2)))
    >>> girl_saw.order
    (1, 0)
    """

    start: int
    end: int
    rule: Rule | None = None
    children: tuple["Tree", ...] = ()
    label: int | None = None

    @classmethod
    def from_nodes(
        cls,
        nodes: Sequence[Sequence[int]],
        length: int,
        labels: Sequence[int] | None = None,
        phrases: Sequence[tuple[int, int]] = (),
    ) -> "Tree":
        """Build a tree from its internal nodes in pre-order.

        Args:
            nodes: the nodes, each (i, j, k, rule number), or (i, j, k, rule number, label).
            length: the number of tokens.
            labels: the labels of the leaves; None if they have none.
            phrases: the leaves of several tokens, each (first token, one past the last).
        """
        spans = {
            (token, token + 1): cls(token, token + 1, label=None if labels is None else labels[token])
            for token in range(length)
        } | {phrase: cls(*phrase) for phrase in phrases}
        for start, middle, end, rule, *label in reversed(nodes):
            children = (spans[start, middle], spans[middle, end])
            spans[start, end] = cls(start, end, RULES[rule], children, *label)
        return spans[0, length]

    def to_nodes(self) -> list[tuple[int, int, int, int]]:
        """The internal nodes in pre-order, each (i, j, k, rule number), as `from_nodes` takes them.

        >>> Tree(0, 3, "I", (Tree(0, 1), Tree(1, 3, "S", (Tree(1, 2), Tree(2, 3))))).to_nodes()
        [(0, 1, 3, 1), (1, 2, 3, 0)]
        """
        return [
            (node.start, node.children[0].end, node.end, RULES.index(node.rule))
            for node in self.nodes()
            if node.rule is not None
        ]

    def nodes(self) -> Iterator["Tree"]:
        """This node and all below it, in pre-order."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))

    @property
    def leaves(self) -> tuple[tuple[int, int], ...]:
        """The leaves, each (start, end), in the order in which the tree puts them.

        >>> Tree(0, 3, "I", (Tree(0, 2), Tree(2, 3))).leaves
        ((2, 3), (0, 2))
        """
        leaves, waiting = [], [self]
        while waiting:
            node = waiting.pop()
            if node.rule is None:
                leaves.append((node.start, node.end))
            else:  # a stack: the child that comes first in the order is pushed last
                waiting.extend(reversed(node.children) if node.rule == "S" else node.children)
        return tuple(leaves)

    @property
    def order(self) -> tuple[int, ...]:
        """The tokens in the order in which the tree puts them."""
        return tuple(token for start, end in self.leaves for token in range(start, end))

    def draw(self, words: Sequence[str] | None = None) -> str:
        """The tree as text: one line for each node, words in their original order, labels in brackets.

        >>> tree = Tree(0, 3, "S", (Tree(0, 2, "I", (Tree(0, 1), Tree(1, 2))), Tree(2, 3)))
        >>> print(tree.draw(["she", "sang", "today"]))
        S →
        ├─ I ⇄
        │  ├─ she
        │  └─ sang
        └─ today
        >>> print(Tree(0, 3, "I", (Tree(0, 2), Tree(2, 3))).draw(["how", "many", "rivers"]))
        I ⇄
        ├─ how many
        └─ rivers
        >>> print(Tree(0, 2, "I", (Tree(0, 1, label=3), Tree(1, 2, label=0)), label=2).draw(["she", "sang"]))
        I ⇄ [2]
        ├─ she [3]
        └─ sang [0]
        """
        if words is not None and len(words) < self.end:
            raise ValueError(
                f"words has {len(words)} entries, but the tree covers {self.end} tokens. Pass one word for each."
            )
        lines = []
        waiting = [(self, "", "")]
        while waiting:
            node, stem, below = waiting.pop()
            tokens = range(node.start, node.end)
            word = " ".join(str(token) if words is None else words[token] for token in tokens)
            label = "" if node.label is None else f" [{node.label}]"
            lines.append(stem + (word if node.rule is None else MARKS[node.rule]) + label)
            if node.children:
                left, right = node.children
                waiting.append((right, below + "└─ ", below + "   "))
                waiting.append((left, below + "├─ ", below + "│  "))
        return "\n".join(lines)


@dataclass(frozen=True)
class Derivation(ShownInNotebooks):
    """A tree, the order of tokens it yields, and its probability under the distribution it came from."""

    tree: Tree
    order: tuple[int, ...]
    log_prob: float

    @property
    def leaves(self) -> tuple[tuple[int, int], ...]:
        """The leaves of the tree, each (start, end), in its order; see `Tree.leaves`."""
        return self.tree.leaves

    def reorder(self, words: Sequence[str]) -> list[str]:
        """The words in the order of this derivation."""
        if len(words) != len(self.order):
            raise ValueError(
                f"words has {len(words)} entries, but this derivation is of {len(self.order)} tokens. "
                "Pass the tokens of the same sentence."
            )
        return [words[token] for token in self.order]

    def draw(self, words: Sequence[str] | None = None) -> str:
        """The tree as text; see `Tree.draw`."""
        return self.tree.draw(words)
