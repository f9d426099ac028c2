"""Reorder and align in one sum: every source token writes a segment, a separable permutation orders the segments."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from permalign import kernels
from permalign.kernels.layout import split_index, valid_splits, words_of_split_count
from permalign.kernels.synchronous_walks import Walks
from permalign.shapes import Float, Int
from permalign.structures.derivations import Derivation, Tree
from permalign.structures.labelled import LabelledPermutation
from permalign.structures.restriction import LOG_ZERO, minus_infinity_below
from permalign.structures.segments import Segment
from permalign.structures.separable import SeparablePermutation
from permalign.structures.support import wrong_scores
from permalign.structures.validation import (
    require_finite,
    require_floats,
    require_lengths,
    require_no_nan_or_plus,
    require_range,
    sample_count,
    shape_of,
)


@dataclass(frozen=True)
class Transduction(Derivation):
    """A derivation of an output: the tree, its order, and the words that each token writes.

    ``log_prob`` is that of tree and segments together, ``log p(derivation, output | source)``. There is a segment for
    every token, in the order of the output, empty ones included.
    """

    segments: tuple[Segment, ...]


class SynchronousPermutation:
    r"""All ways to write an output: a separable permutation of the source, and a segment of 0..L words for each token.

    ``C(i,k,p,q)`` is the log of the summed weight of the ways in which the source span (i,k) writes the words
    p..q-1; leaves are segments, and the rules of `permalign.SeparablePermutation` put two spans' words one after the
    other, straight or inverted:

        C(i,i+1,p,q) = segment[i,p,q-p]                                                  (-inf if q - p > L)
        C(i,k,p,q) = logsumexp over j and p <= r <= q of { score_S(i,j,k) + C(i,j,p,r) + C(j,k,r,q),
                                                           score_I(i,j,k) + C(j,k,p,r) + C(i,j,r,q) }
        log p(y|x) = C(0,n,0,m) - log Z(x)

    O(n^3 m^3) time, of which cells that cannot be part of the whole are left out: a span of w tokens writes at most
    w L words. The tagging likelihood of `SeparablePermutation` is the special case of segments of one word each.

    Args:
        split_scores: ``(batch, T, 2)`` with ``T = (n^3 - n) / 6``, as in `permalign.SeparablePermutation`.
        segment_log_probs: ``(batch, n, m + 1, L + 1)`` indexed ``[token, start, length]``: the log-probability that
            the token writes the words start..start+length-1 and then ends its segment; may be -inf.
        source_lengths: ``(batch,)``, the number of tokens; None means all.
        target_lengths: ``(batch,)``, the number of words, 0 allowed; None means all.
        normal_form: as in `permalign.SeparablePermutation`.

    Example: two tokens, each surely writing its own word; the output has them swapped.

        >>> segments = torch.full((1, 2, 3, 2), -torch.inf)
        >>> segments[0, 0, 1, 1] = segments[0, 1, 0, 1] = 0.0
        >>> pair = SynchronousPermutation(torch.tensor([[[3.0, 1.0]]]).log(), segments)
        >>> pair.log_likelihood().exp()
        tensor([0.2500])
        >>> pair.best_derivation()[0].segments
        (Segment(source=(1,), target=(0,)), Segment(source=(0,), target=(1,)))
    """

    def __init__(
        self,
        split_scores: Float[Tensor, "batch splits 2"],
        segment_log_probs: Float[Tensor, "batch n starts sizes"],
        source_lengths: Int[Tensor, " batch"] | None = None,
        target_lengths: Int[Tensor, " batch"] | None = None,
        normal_form: bool = False,
        validate_args: bool | None = None,
    ) -> None:
        name = "segment_log_probs"
        require_floats({"split_scores": split_scores, name: segment_log_probs})
        packed = split_scores.dim() == 3 and split_scores.shape[2] == 2
        tokens = words_of_split_count(split_scores.shape[1]) if packed else None
        if tokens is None:
            raise ValueError(wrong_scores(split_scores).replace("scores", "split_scores", 1))
        expected = (split_scores.shape[0], tokens)
        if segment_log_probs.dim() != 4 or tuple(segment_log_probs.shape[:2]) != expected:
            raise ValueError(
                f"{name} has shape {shape_of(segment_log_probs)}, but must be {expected} + (m + 1, L + 1) for outputs "
                f"of m words and segments of at most L, indexed [token, start, length]: split_scores has shape "
                f"{shape_of(split_scores)}, {tokens} tokens."
            )
        starts, sizes = segment_log_probs.shape[2:]
        if not starts or not sizes:
            raise ValueError(
                f"{name} has shape {shape_of(segment_log_probs)}, but must have room for an empty segment: its last "
                "two axes are m + 1 and L + 1."
            )
        self.split_scores, self.segment_log_probs = split_scores, segment_log_probs
        self.longest, self.normal_form = sizes - 1, normal_form
        self.source_lengths = require_lengths(
            "source_lengths", source_lengths, name, segment_log_probs, tokens
        )
        self.target_lengths = require_lengths(
            "target_lengths", target_lengths, name, segment_log_probs, starts - 1
        )
        if torch.distributions.Distribution._validate_args if validate_args is None else validate_args:
            lengths = self.source_lengths
            require_range("source_lengths", lengths, name, segment_log_probs, tokens, what="tokens")
            require_range("target_lengths", self.target_lengths, name, segment_log_probs, starts - 1, least=0)
            require_finite("split_scores", split_scores, valid_splits(tokens, lengths))
            require_no_nan_or_plus(name, segment_log_probs, self._possible())
            self._require_room()

    @property
    def tokens(self) -> int:
        """The number of source tokens there is room for, n."""
        return self.segment_log_probs.shape[1]

    @property
    def permutation(self) -> SeparablePermutation | LabelledPermutation:
        """The distribution over orders before any output is seen."""
        return SeparablePermutation(
            self.split_scores, self.source_lengths, self.normal_form, validate_args=False
        )

    # --- Sums over derivations --------------------------------------------------------------------------------

    def log_likelihood(self) -> Float[Tensor, " batch"]:
        """The log-probability of the output, summed over all permutations and all segmentations.

        -inf where there is none. Its gradient in the segments is their posterior, in the scores the posterior of rules
        minus the prior one.
        """
        total = self._total(self.split_scores, self.segment_log_probs)
        return minus_infinity_below(total - self.permutation.log_partition(), total)

    def rule_posteriors(self) -> Float[Tensor, "batch splits 2"]:
        """P(a derivation uses that split with that rule | output); 0 at padding."""
        return self._posteriors()[0]

    def segment_posteriors(self) -> Float[Tensor, "batch n starts sizes"]:
        """P(the token writes exactly that segment | output); 0 where impossible."""
        return self._posteriors()[1]

    # --- Single derivations -----------------------------------------------------------------------------------

    def best_derivation(self) -> list[Transduction]:
        """The most probable derivation of every output: tree and segments. O(n^3 m^3).

        An impossible output has none worth the name: its log-probability is -inf.
        """
        walks = self._walk(None)
        log_partitions = self.permutation.double().log_partition().tolist()
        found = []
        for row, length in enumerate(self.source_lengths.tolist()):
            nodes, order, sizes = (
                walks.nodes[0, row, : length - 1],
                walks.orders[0, row, :length],
                walks.sizes[0, row],
            )
            if int(sizes.sum()) < int(self.target_lengths[row]):  # there is no room for so many words
                nodes = torch.tensor([[0, end - 1, end, 0, -1] for end in range(length, 1, -1)])
            tree = self._tree(nodes, walks.leaves[0, row, :length])
            weight = self._weight(row, nodes, order, sizes[:length]) + self._grammar_weight(row, tree)
            log_prob = -torch.inf if weight < LOG_ZERO / 2 else weight - log_partitions[row]
            if int(sizes.sum()) < int(self.target_lengths[row]):
                log_prob = -torch.inf
            segments = _segments(order.tolist(), sizes[:length].tolist())
            found.append(Transduction(tree, tree.order, min(0.0, log_prob), segments))
        return found

    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Int[Tensor, "*samples batch 2 n"]:
        """Derivations drawn from their posterior given the output: orders, and sizes of segments.

        ``[..., 0, position]`` is the token at a position, ``[..., 1, position]`` how many words it writes; padding
        keeps its place and writes nothing.
        """
        copies = sample_count(sample_shape)
        batch, device = self.split_scores.shape[0], self.split_scores.device
        with torch.no_grad():
            shape = (copies, batch, self.tokens)
            uniforms = torch.rand(shape, generator=generator, dtype=torch.float64, device=device)
            walks = self._walk(uniforms)
        return torch.stack([walks.orders, walks.sizes], dim=2).view(*sample_shape, batch, 2, self.tokens)

    # --- Behind the scenes ------------------------------------------------------------------------------------

    def _walk(self, uniforms: Tensor | None) -> Walks:
        """The best derivation of every output, or some drawn by ``uniforms`` ``(samples, batch, n)``."""
        pair = (
            self.split_scores,
            self._finite(self.segment_log_probs),
            self.source_lengths,
            self.target_lengths,
        )
        draws = None if uniforms is None else uniforms[..., 1:].contiguous()
        return kernels.synchronous_walk(*pair, draws, self.normal_form)

    def _tree(self, nodes: Tensor, leaves: Tensor) -> Tree:
        """From nodes (i, j, k, rule, state) in pre-order, and the states of leaves."""
        return Tree.from_nodes(nodes[:, :4].tolist(), len(leaves))

    def _grammar_weight(self, row: int, tree: Tree) -> float:
        """What a derivation weighs beside its splits and segments."""
        return 0.0

    def _finite(self, segment_log_probs: Tensor) -> Tensor:
        """With a finite log-zero for what is impossible or padding."""
        return torch.where(self._possible(), segment_log_probs, LOG_ZERO).clamp(min=LOG_ZERO)

    def _inputs(self) -> tuple[Tensor, ...]:
        """All that the sum depends on."""
        return self.split_scores, self.segment_log_probs

    def _total(self, split_scores: Tensor, segment_log_probs: Tensor) -> Tensor:
        return kernels.synchronous_inside(
            split_scores,
            self._finite(segment_log_probs),
            self.source_lengths,
            self.target_lengths,
            self.normal_form,
        )

    def _posteriors(self) -> tuple[Tensor, Tensor]:
        """Gradients of the sum. Where they are to be differentiated again, by way of the portable kernels."""
        again = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in self._inputs())
        with torch.inference_mode(False), torch.enable_grad():
            inputs = []
            for tensor in (self.split_scores, self.segment_log_probs):
                double = tensor.double() if again else tensor.detach().double().clone()
                inputs.append(double if double.requires_grad else double.detach().requires_grad_())
            if again:
                with kernels.backend("portable"):
                    total = self._total(*inputs)
            else:
                total = self._total(*inputs)
            gradients = torch.autograd.grad(total.sum(), inputs, create_graph=again)
        possible = (total > LOG_ZERO / 2).detach()
        rules = torch.where(possible[:, None, None], gradients[0], 0.0)
        segments = torch.where(possible[:, None, None, None], gradients[1], 0.0)
        return rules.to(self.split_scores.dtype), segments.to(self.split_scores.dtype)

    def _weight(self, row: int, nodes: Tensor, order: Tensor, sizes: Tensor) -> float:
        """The log-weight of one derivation."""
        start, middle, end, rule, _ = nodes.reshape(-1, 5).to(order.device).unbind(-1)
        splits = split_index(self.tokens, start, middle, end)
        segments = self.segment_log_probs[row, order, sizes.cumsum(0) - sizes, sizes]
        weight = self.split_scores[row, splits, rule].double().sum() + segments.double().sum()
        return float(weight.detach())

    def _possible(self) -> Tensor:
        """Which (token, start, length) lie inside the pair: ``(batch, n, m + 1, L + 1)``."""
        device = self.segment_log_probs.device
        _, tokens, starts, sizes = self.segment_log_probs.shape
        in_source = torch.arange(tokens, device=device) < self.source_lengths[:, None]
        ends = torch.arange(starts, device=device)[:, None] + torch.arange(sizes, device=device)
        in_target = ends <= self.target_lengths[:, None, None]
        return in_source[:, :, None, None] & in_target[:, None]

    def _require_room(self) -> None:
        too_long = self.target_lengths > self.source_lengths * self.longest
        if bool(too_long.any()):
            row = int(too_long.nonzero()[0])
            words, tokens = int(self.target_lengths[row]), int(self.source_lengths[row])
            raise ValueError(
                f"target_lengths[{row}] is {words} words, but {tokens} source tokens with segments of at most "
                f"L = {self.longest} words write {tokens * self.longest} at most. Use L = {-(-words // tokens)} or "
                f"more (segment_log_probs has shape {shape_of(self.segment_log_probs)}), or leave the pair out."
            )


def _segments(order: list[int], sizes: list[int]) -> tuple[Segment, ...]:
    """Segments in the order of the output."""
    segments, word = [], 0
    for token, size in zip(order, sizes, strict=True):
        segments.append(Segment((token,), tuple(range(word, word + size))))
        word += size
    return tuple(segments)
