"""Reordering and alignment in one sum: source tokens write segments, and a separable permutation orders them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from permalign import kernels
from permalign.checks import (
    require_floats,
    require_lengths,
    require_log_probs,
    require_range,
    require_scores,
    sample_count,
    shape_of,
    should_validate,
)
from permalign.kernels import Walks
from permalign.kernels.layout import (
    leaf_spans,
    max_phrase_length_of,
    span_offsets,
    split_index,
    valid_splits,
)
from permalign.shapes import Float, Int
from permalign.structures.aligned_segments import Segment, consecutive_segments
from permalign.structures.derivations import Derivation, Tree
from permalign.structures.distribution import OrderDistribution
from permalign.structures.log_space import LOG_ZERO, is_too_large, minus_infinity_below
from permalign.structures.separable import SeparablePermutation
from permalign.structures.splits import require_split_scores

LOG_SMALLEST_SHARE = log(1e-100)
"""Pruned sums below this share of the relaxed likelihood are not trusted: their cells come close to underflow."""


@dataclass(frozen=True)
class Transduction(Derivation):
    """A derivation of an output: the tree, its order, and the words that each leaf writes.

    ``log_prob`` is the joint log-probability of tree and segments, ``log p(derivation, output | source)``.

    Attributes:
        segments: one segment for every leaf, in the order of the output, empty ones included.
    """

    segments: tuple[Segment, ...]


class PrunedLikelihood(NamedTuple):
    """A likelihood summed over the probable cells of its chart, and what the others can add to it at most.

    Attributes:
        log_likelihood: ``(batch,)``, never above the exact log-likelihood.
        lost: ``(batch,)``, not differentiable: the exact log-likelihood is at most ``log_likelihood + lost``.
    """

    log_likelihood: Tensor
    lost: Tensor

    @classmethod
    def exact(cls, log_likelihood: Tensor) -> "PrunedLikelihood":
        """A likelihood that has lost nothing."""
        return cls(log_likelihood, torch.zeros_like(log_likelihood))


class SynchronousPermutation:
    r"""All ways to write an output: a separable permutation of the source, and a segment of 0..L words for each token.

    ``C(i,k,p,q)`` is the log of the summed weight of the ways in which the source span (i,k) writes the words
    p..q-1; leaves are segments, and the rules of `permalign.SeparablePermutation` put two spans' words one after the
    other, straight or inverted:

        C(i,i+1,p,q) = segment[i,p,q-p]                                                  (-inf if q - p > L)
        C(i,k,p,q) = logsumexp over j and p <= r <= q of { score_S(i,j,k) + C(i,j,p,r) + C(j,k,r,q),
                                                           score_I(i,j,k) + C(j,k,p,r) + C(i,j,r,q) }
        log p(y|x) = C(0,n,0,m) - log Z(x)

    O(n^3 m^3) time. Cells that cannot be part of a whole derivation are left out: a span of w tokens writes at most w L
    words. The tagging likelihood of `SeparablePermutation` is the special case of segments of one word each.

    With ``phrase_scores`` a leaf may be a phrase of several tokens, which keep their order and write one segment
    together. The weight of a tree is then the sum of the scores of its rules and of its phrases, ``C(i,k,p,q)`` of such
    a span has the additional term ``phrase(i,k) + segment[phrase,p,q-p]``, and Z sums over trees with phrases. Leaves
    are the spans
    of at most s tokens, packed by width and then by first token: the n tokens, n - 1 phrases of two, and so on.

    Args:
        split_scores: ``(batch, T, 2)`` with ``T = (n^3 - n) / 6``, as in `permalign.SeparablePermutation`.
        segment_log_probs: ``(batch, leaves, m + 1, L + 1)`` indexed ``[leaf, start, length]``: the log-probability
            that the leaf writes the words start..start+length-1 and then ends its segment; may be -inf. The leaves
            are the n tokens, followed by the phrases.
        source_lengths: ``(batch,)``, the number of tokens; None means all.
        target_lengths: ``(batch,)``, the number of words, 0 allowed; None means all.
        normal_form: whether every order has one derivation, as in `permalign.SeparablePermutation`.
        validate_args: whether to check the values of the arguments; None means torch's default.
        phrase_scores: ``(batch, leaves - n)``, log-weights of phrases as leaves (tokens weigh 0); None for no phrases.

    Example: two tokens, each of which writes its own word with certainty; the output has them swapped.

        >>> segments = torch.full((1, 2, 3, 2), -torch.inf)
        >>> segments[0, 0, 1, 1] = segments[0, 1, 0, 1] = 0.0
        >>> pair = SynchronousPermutation(torch.tensor([[[3.0, 1.0]]]).log(), segments)
        >>> pair.log_likelihood().exp()
        tensor([0.2500])
        >>> pair.best_derivation()[0].segments
        (Segment(source=(1,), target=(0,)), Segment(source=(0,), target=(1,)))

    The same tokens as one phrase, three times as probable as both trees together, which writes both words:

        >>> segments = torch.cat([segments, torch.full((1, 1, 3, 2), -torch.inf)], 1)  # room for the phrase
        >>> segments = torch.nn.functional.pad(segments, (0, 1), value=-torch.inf)  # and for two words
        >>> segments[0, 2, 0, 2] = 0.0
        >>> phrase = torch.tensor([[12.0]]).log()
        >>> pair = SynchronousPermutation(torch.tensor([[[3.0, 1.0]]]).log(), segments, phrase_scores=phrase)
        >>> pair.log_likelihood().exp()  # 3/4 by the phrase, 1/16 by the swapped tokens
        tensor([0.8125])
        >>> pair.best_derivation()[0].segments
        (Segment(source=(0, 1), target=(0, 1)),)
    """

    def __init__(
        self,
        split_scores: Float[Tensor, "batch splits 2"],
        segment_log_probs: Float[Tensor, "batch leaves starts sizes"],
        source_lengths: Int[Tensor, " batch"] | None = None,
        target_lengths: Int[Tensor, " batch"] | None = None,
        normal_form: bool = False,
        validate_args: bool | None = None,
        *,
        phrase_scores: Float[Tensor, "batch phrases"] | None = None,
    ) -> None:
        name = "segment_log_probs"
        require_floats({"split_scores": split_scores, name: segment_log_probs})
        length = require_split_scores("split_scores", split_scores)
        leaves = length + self._require_phrases(phrase_scores, split_scores.shape[0], length)
        expected = (split_scores.shape[0], leaves)
        if segment_log_probs.dim() != 4 or tuple(segment_log_probs.shape[:2]) != expected:
            raise ValueError(
                f"{name} has shape {shape_of(segment_log_probs)}, but must be {expected} + (m + 1, L + 1) for outputs "
                f"of m words and segments of at most L, indexed [token or phrase, start, length]: split_scores has "
                f"shape {shape_of(split_scores)}, {length} tokens"
                + (f", and phrase_scores {shape_of(phrase_scores)}." if phrase_scores is not None else ".")
            )
        starts, sizes = segment_log_probs.shape[2:]
        if not starts or not sizes:
            raise ValueError(
                f"{name} has shape {shape_of(segment_log_probs)}, but must have room for an empty segment: its last "
                "two axes are m + 1 and L + 1."
            )
        self.split_scores, self.segment_log_probs = split_scores, segment_log_probs
        self.length, self.max_segment_length, self.normal_form = length, sizes - 1, normal_form
        self.phrase_scores = phrase_scores
        self.source_lengths = require_lengths(
            "source_lengths", source_lengths, name, segment_log_probs, length
        )
        self.target_lengths = require_lengths(
            "target_lengths", target_lengths, name, segment_log_probs, starts - 1
        )
        if should_validate(validate_args):
            lengths = self.source_lengths
            require_range("source_lengths", lengths, name, segment_log_probs, length, what="tokens")
            require_range(
                "target_lengths", self.target_lengths, name, segment_log_probs, starts - 1, minimum=0
            )
            require_scores("split_scores", split_scores, valid_splits(length, lengths))
            require_log_probs(name, segment_log_probs, self._possible())
            if phrase_scores is not None:
                inside = self._possible()[:, length:, 0, 0]
                require_scores("phrase_scores", phrase_scores, inside)
            self._require_room()

    @property
    def permutation(self) -> OrderDistribution:
        """The distribution over orders of tokens before any output is seen, without phrases."""
        return SeparablePermutation(
            self.split_scores, self.source_lengths, self.normal_form, validate_args=False
        )

    @property
    def prior(self) -> "SynchronousPermutation":
        """Trees with phrases before any output is seen: the output is empty, and leaves write nothing for certain."""
        nothing = self.split_scores.new_zeros(*self.segment_log_probs.shape[:2], 1, 1)
        return SynchronousPermutation(
            self.split_scores,
            nothing,
            self.source_lengths,
            torch.zeros_like(self.source_lengths),
            self.normal_form,
            validate_args=False,
            phrase_scores=self.phrase_scores,
        )

    # --- Sums over derivations --------------------------------------------------------------------------------

    def log_likelihood(self) -> Float[Tensor, " batch"]:
        """The log-probability of the output, summed over all permutations and all segmentations.

        It is -inf where there is no way to write the output. Its gradient with respect to the segments is their
        posterior; with respect to the scores, it is the posterior of rules minus their prior.
        """
        total, log_partition = self._total(self.split_scores, self.segment_log_probs), self.log_partition()
        if is_too_large(log_partition):
            total = self._total(self.split_scores.double(), self.segment_log_probs.double())
            log_partition = self._exact_log_partition()
        return minus_infinity_below(total - log_partition, total).to(self.split_scores.dtype)

    def pruned_log_likelihood(self, threshold: float, tolerance: float = inf) -> PrunedLikelihood:
        """`log_likelihood` without the cells (i,k,p,q) that cannot be probable, and a bound on what is lost.

        A relaxed likelihood, which does without the tree and takes O(n^2 m^2 L), bounds the posterior of every cell
        (see `permalign.kernels.portable.pruned_synchronous.bound_cells`). Cells that are below a threshold are left
        out. Gradients are those of the pruned sum. It is exact if nothing is left out: if more than half of the cells
        are above the threshold, as they are where a model is uncertain, all are kept. Neither phrases nor normal forms
        nor labels can be pruned.

        Args:
            threshold: the relaxed posterior below which cells are left out, in 0..1; 0 for none. It is relative to the
                relaxed likelihood, so that even a sentence whose bound is useless seldom loses much.
            tolerance: a guarantee, in nats. Sentences that may have lost more are summed again, exactly.

        >>> splits, segments = torch.zeros(1, 4, 2), torch.full((1, 3, 4, 2), 1e-4).log()
        >>> segments[0, torch.arange(3), torch.arange(3), 1] = 0.0  # each token is nearly certain of its word
        >>> pair = SynchronousPermutation(splits, segments)
        >>> log_likelihood, lost = pair.pruned_log_likelihood(threshold=1e-3)
        >>> 0 <= float(pair.log_likelihood() - log_likelihood) <= float(lost) < 0.01
        True
        """
        self._require_prunable(threshold, tolerance)
        lengths = self.source_lengths, self.target_lengths
        splits, segments = self.split_scores.double(), self._finite(self.segment_log_probs.double())
        rules = kernels.span_softmax(kernels.inside(splits, lengths[0])[1], lengths[0])
        pruning = kernels.synchronous_bounds(rules, segments, *lengths, threshold)
        total = kernels.pruned_synchronous_inside(rules, segments, pruning, *lengths)
        relaxed = pruning.relaxed(self.target_lengths)
        above = (relaxed - total.detach()).clamp(min=0.0)  # by how much the relaxed likelihood is larger
        lost = torch.minimum((pruning.pruned.log() + above).exp().log1p(), above)
        lost = torch.where(pruning.pruned == 0.0, 0.0, lost)
        uncertain = (lost > tolerance) | (above > -LOG_SMALLEST_SHARE)
        log_likelihood = minus_infinity_below(total, total)
        (rows,) = (uncertain & (relaxed > LOG_ZERO / 2)).nonzero(as_tuple=True)
        if len(rows):
            exact = self._select(rows).log_likelihood()
            log_likelihood = log_likelihood.index_put((rows,), exact.to(log_likelihood))
            lost = lost.index_fill(0, rows, 0.0)
        dtype = self.split_scores.dtype
        return PrunedLikelihood(log_likelihood.to(dtype), lost.to(dtype))

    def log_partition(self) -> Float[Tensor, " batch"]:
        """``log Z(x)``, the log of the summed weight of all trees before any output is seen."""
        if self.phrase_scores is None:
            return self.permutation.log_partition()
        prior = self.prior
        return prior._total(prior.split_scores, prior.segment_log_probs)

    def rule_posteriors(self) -> Float[Tensor, "batch splits 2"]:
        """The probability that a derivation uses each split with each rule, given the output; 0 at padding."""
        return self._posteriors()[0]

    def segment_posteriors(self) -> Float[Tensor, "batch leaves starts sizes"]:
        """The probability that a leaf writes exactly that segment, given the output; 0 where impossible."""
        return self._posteriors()[1]

    # --- Single derivations -----------------------------------------------------------------------------------

    def best_derivation(self) -> list[Transduction]:
        """The most probable derivation of every output: tree and segments. O(n^3 m^3).

        For an impossible output it is a straight tree that writes nothing, with log-probability -inf.
        """
        walks = Walks(*(field.cpu() for field in self._walk(None)))
        log_partitions = self._exact_log_partition().tolist()
        return [self._transduction(walks, 0, row, log_z) for row, log_z in enumerate(log_partitions)]

    def frequent_derivations(
        self, uniforms: Float[Tensor, "samples batch n"], count: int
    ) -> list[list[Transduction]]:
        """For every output, derivations drawn from their posterior, most frequent first.

        Derivations that put the same leaves into the same order count as one.

        Args:
            uniforms: the uniform numbers that samples are drawn by. The first number of a sample chooses the label of
                the root, where there are labels; the others choose the options of nodes, from the root down. (`sample`
                draws its own numbers, and returns orders and sizes without trees.)
            count: the maximum number of derivations for each output.
        """
        with torch.no_grad():
            walks = Walks(*(field.cpu() for field in self._walk(uniforms)))
            log_partitions = self._exact_log_partition().tolist()
        by_output = []
        for row, log_partition in enumerate(log_partitions):
            keys = torch.cat([walks.orders[:, row], walks.widths[:, row]], 1).tolist()
            first_sample = {tuple(key): sample for sample, key in reversed(list(enumerate(keys)))}
            frequent = [key for key, _ in Counter(map(tuple, keys)).most_common(count)]
            by_output.append(
                [self._transduction(walks, first_sample[key], row, log_partition) for key in frequent]
            )
        return by_output

    def sample(
        self, sample_shape: Sequence[int] = (), generator: torch.Generator | None = None
    ) -> Int[Tensor, "*samples batch 3 n"]:
        """Derivations drawn from their posterior given the output: orders, sizes of segments, and widths of leaves.

        ``[..., 0, position]`` is the token at a position, ``[..., 1, position]`` the number of words of the leaf that
        begins there, ``[..., 2, position]`` its number of tokens; the last two are 0 inside a phrase. Padding keeps its
        place and writes nothing.
        """
        batch, device = self.split_scores.shape[0], self.split_scores.device
        shape = (sample_count(sample_shape), batch, self.length)
        with torch.no_grad():
            walks = self._walk(torch.rand(shape, generator=generator, dtype=torch.float64, device=device))
        samples = torch.stack([walks.orders, walks.sizes, walks.widths], dim=2)
        return samples.view(*sample_shape, *samples.shape[1:])

    # --- Behind the scenes ------------------------------------------------------------------------------------

    def _select(self, rows: Tensor) -> "SynchronousPermutation":
        """The distributions of some sentences of the batch, without phrases."""
        return SynchronousPermutation(
            self.split_scores[rows],
            self.segment_log_probs[rows],
            self.source_lengths[rows],
            self.target_lengths[rows],
            validate_args=False,
        )

    def _require_prunable(self, threshold: float, tolerance: float) -> None:
        if not 0.0 <= threshold <= 1.0:
            raise ValueError(f"threshold must be in 0..1, a posterior, but is {threshold:g}.")
        if not tolerance >= 0.0:
            raise ValueError(f"tolerance must be at least 0 nats, but is {tolerance:g}.")
        if self.phrase_scores is not None or self.normal_form:
            which = "normal_form is true" if self.normal_form else "there are phrase_scores"
            raise ValueError(
                f"{which}, but only sums over plain trees whose leaves are tokens can be pruned. Use log_likelihood()."
            )

    def _transduction(self, walks: Walks, sample: int, row: int, log_partition: float) -> Transduction:
        """The derivation of one sample of one sentence; for an impossible output one that writes nothing."""
        length, walk = int(self.source_lengths[row]), Walks(*(field[sample, row] for field in walks))
        nodes = walk.nodes[walk.nodes[:, 0] >= 0]
        order, sizes, widths = (field[:length] for field in (walk.orders, walk.sizes, walk.widths))
        possible = (
            int(sizes.sum()) == int(self.target_lengths[row]) and int(sizes.max()) <= self.max_segment_length
        )
        if not possible:
            straight = [[0, end - 1, end, 0, 0] for end in range(length, 1, -1)]
            nodes, order = torch.tensor(straight, dtype=torch.int64).view(-1, 5), torch.arange(length)
            sizes, widths = torch.zeros_like(order), torch.ones_like(order)
        begins = widths > 0
        first, sizes, widths = order[begins], sizes[begins], widths[begins]
        tree = self._tree(nodes, walk.leaves[:length], first, widths)
        log_prob = -torch.inf
        if possible:
            weight = self._weight(row, nodes, first, sizes, widths) + self._grammar_weight(row, tree)
            log_prob = -torch.inf if weight < LOG_ZERO / 2 else min(0.0, weight - log_partition)
        leaves = zip(first.tolist(), widths.tolist(), strict=True)
        sources = [tuple(range(token, token + width)) for token, width in leaves]
        return Transduction(tree, tree.order, log_prob, tuple(consecutive_segments(sources, sizes.tolist())))

    def _walk(self, uniforms: Tensor | None) -> Walks:
        """The best derivation of every output, or samples drawn by ``uniforms`` ``(samples, batch, n)``."""
        pair = (
            self.split_scores,
            self._finite(self.segment_log_probs),
            self.source_lengths,
            self.target_lengths,
        )
        draws = None if uniforms is None else uniforms[..., 1:].contiguous()
        return kernels.synchronous_walk(*pair, draws, self.normal_form)

    def _exact_log_partition(self) -> Tensor:
        """`log_partition` in double precision."""
        if self.phrase_scores is None:
            return self.permutation.double().log_partition()
        prior = self.prior
        return prior._total(prior.split_scores.double(), prior.segment_log_probs.double())

    def _tree(self, nodes: Tensor, labels: Tensor, first: Tensor, widths: Tensor) -> Tree:
        """The tree of nodes (i, j, k, rule, label) in pre-order, tokens' labels, and leaves in the output's order."""
        phrases = [
            (start, start + width) for start, width in zip(first.tolist(), widths.tolist(), strict=True)
        ]
        return Tree.from_nodes(nodes[:, :4].tolist(), len(labels), phrases=phrases)

    def _grammar_weight(self, row: int, tree: Tree) -> float:
        """What a derivation weighs besides its splits and segments: nothing, or the scores of its labels."""
        return 0.0

    def _finite(self, segment_log_probs: Tensor) -> Tensor:
        """Segment log-probabilities plus the scores of phrases, with a finite log-zero where impossible or padding."""
        if self.phrase_scores is not None:
            scores = functional.pad(self.phrase_scores.to(segment_log_probs), (self.length, 0))
            segment_log_probs = segment_log_probs + scores[:, :, None, None]
        return torch.where(self._possible(), segment_log_probs, LOG_ZERO).clamp(min=LOG_ZERO)

    def _inputs(self) -> tuple[Tensor, ...]:
        """All tensors that the sum depends on."""
        phrases = () if self.phrase_scores is None else (self.phrase_scores,)
        return self.split_scores, self.segment_log_probs, *phrases

    def _total(self, split_scores: Tensor, segment_log_probs: Tensor) -> Tensor:
        return kernels.synchronous_inside(
            split_scores,
            self._finite(segment_log_probs),
            self.source_lengths,
            self.target_lengths,
            self.normal_form,
        )

    def _posteriors(self) -> tuple[Tensor, Tensor]:
        """The gradients of the sum; by the portable kernels if somebody may differentiate them again."""
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

    def _weight(self, row: int, nodes: Tensor, first: Tensor, sizes: Tensor, widths: Tensor) -> float:
        """The log-weight of one derivation, from its nodes and its leaves in the output's order."""
        device = self.split_scores.device
        start, middle, end, rule, _ = nodes.to(device).unbind(-1)
        first, sizes, widths = (tensor.to(device) for tensor in (first, sizes, widths))
        splits = split_index(self.length, start, middle, end)
        leaves = torch.from_numpy(span_offsets(self.length)).to(device)[widths] + first
        segments = self.segment_log_probs[row, leaves, sizes.cumsum(0) - sizes, sizes]
        weight = self.split_scores[row, splits, rule].double().sum() + segments.double().sum()
        if self.phrase_scores is not None:
            weight = weight + self.phrase_scores[row, leaves[widths > 1] - self.length].double().sum()
        return float(weight.detach())

    def _possible(self) -> Tensor:
        """A mask ``(batch, leaves, m + 1, L + 1)`` of the (leaf, start, length) that lie inside the pair."""
        device = self.segment_log_probs.device
        _, leaves, starts, sizes = self.segment_log_probs.shape
        first, width = (spans.to(device) for spans in leaf_spans(self.length, leaves))
        in_source = first + width <= self.source_lengths[:, None]
        ends = torch.arange(starts, device=device)[:, None] + torch.arange(sizes, device=device)
        in_target = ends <= self.target_lengths[:, None, None]
        return in_source[:, :, None, None] & in_target[:, None]

    @staticmethod
    def _require_phrases(phrase_scores: Tensor | None, batch: int, tokens: int) -> int:
        """The number of phrases that these scores are of."""
        if phrase_scores is None:
            return 0
        require_floats({"phrase_scores": phrase_scores})
        fits = phrase_scores.dim() == 2 and phrase_scores.shape[0] == batch
        if not fits or max_phrase_length_of(tokens, tokens + phrase_scores.shape[1]) is None:
            raise ValueError(
                f"phrase_scores has shape {shape_of(phrase_scores)}, but must be ({batch}, P), with P the number of "
                f"spans of 2 to s tokens for some s: {tokens - 1} for s = 2, {2 * tokens - 3} for s = 3, and so on; "
                f"there are {tokens} tokens."
            )
        return phrase_scores.shape[1]

    def _require_room(self) -> None:
        too_long = self.target_lengths > self.source_lengths * self.max_segment_length
        if bool(too_long.any()):
            row = int(too_long.nonzero()[0])
            words, tokens = int(self.target_lengths[row]), int(self.source_lengths[row])
            longest = self.max_segment_length
            raise ValueError(
                f"target_lengths[{row}] is {words} words, but {tokens} source tokens with segments of at most "
                f"L = {longest} words write {tokens * longest} at most. Use L = {-(-words // tokens)} or "
                f"more (segment_log_probs has shape {shape_of(self.segment_log_probs)}), or leave the pair out."
            )
