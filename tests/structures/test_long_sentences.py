"""Sentences too long to enumerate: against recurrences that are written down once more, and in single precision."""

import numpy as np
import pytest
import torch

from permalign import (
    LabelledPermutation,
    MonotoneAlignment,
    SegmentalAlignment,
    SeparablePermutation,
    SynchronousPermutation,
)
from permalign.structures import LabelledSynchronousPermutation
from permalign.structures.brute_force import packed_splits
from permalign.structures.sinkhorn import sinkhorn_matrix


class Recurrences:
    """The sums of a sentence by plain recurrences over its spans ``(start, end)``, in double precision.

    Args:
        scores: the scores of all splits, ``(splits, 2)``: straight and inverted.
    """

    def __init__(self, scores: np.ndarray) -> None:
        self.length = next(n for n in range(1, 100) if (n**3 - n) // 6 == len(scores))
        self.scores = {split: scores[place] for split, place in packed_splits(self.length).items()}
        self.log_weight = {(start, start + 1): 0.0 for start in range(self.length)}
        for start, end in self.spans():
            self.log_weight[start, end] = np.logaddexp.reduce(
                [
                    self.log_rule(start, middle, end, rule)
                    for middle in range(start + 1, end)
                    for rule in (0, 1)
                ]
            )

    def spans(self):
        """The spans of two words and more, short ones first."""
        for width in range(2, self.length + 1):
            for start in range(self.length - width + 1):
                yield start, start + width

    def log_rule(self, start, middle, end, rule):
        below = self.log_weight[start, middle] + self.log_weight[middle, end]
        return self.scores[start, middle, end][rule] + below

    def expected_matrix(self):
        """The expected matrix of every span, from those of its parts; the rows are positions."""
        of_span = {(start, start + 1): np.ones((1, 1)) for start in range(self.length)}
        for start, end in self.spans():
            mean = np.zeros((end - start, end - start))
            for middle in range(start + 1, end):
                left, right = of_span[start, middle], of_span[middle, end]
                for rule in (0, 1):
                    weight = np.exp(self.log_rule(start, middle, end, rule) - self.log_weight[start, end])
                    first = len(right) if rule else 0  # the position of the left part
                    second = 0 if rule else len(left)
                    mean[first : first + len(left), : len(left)] += weight * left
                    mean[second : second + len(right), len(left) :] += weight * right
            of_span[start, end] = mean
        return of_span[0, self.length]

    def log_likelihood(self, emissions):
        """The log of the summed probability of all orders, each with the emissions of its words."""
        log_weight = {
            (start, start + 1, position): emissions[start, position]
            for start in range(self.length)
            for position in range(self.length)
        }
        for start, end in self.spans():
            for position in range(self.length - (end - start) + 1):
                terms = []
                for middle in range(start + 1, end):
                    straight, inverted = self.scores[start, middle, end]
                    left, right = middle - start, end - middle
                    terms += [
                        straight
                        + log_weight[start, middle, position]
                        + log_weight[middle, end, position + left],
                        inverted
                        + log_weight[middle, end, position]
                        + log_weight[start, middle, position + right],
                    ]
                log_weight[start, end, position] = np.logaddexp.reduce(terms)
        return log_weight[0, self.length, 0] - self.log_weight[0, self.length]


@pytest.mark.parametrize("length", [13, pytest.param(30, marks=pytest.mark.slow)])
def test_sums_are_those_of_plain_recurrences(length, backend):
    generator = torch.Generator().manual_seed(length)
    scores = 2 * torch.randn(1, (length**3 - length) // 6, 2, dtype=torch.float64, generator=generator)
    emissions = torch.randn(1, length, length, dtype=torch.float64, generator=generator).log_softmax(-1)
    orders, expected = SeparablePermutation(scores), Recurrences(scores[0].numpy())
    assert orders.log_partition().item() == pytest.approx(expected.log_weight[0, length], rel=1e-12)
    np.testing.assert_allclose(orders.expected_matrix()[0].numpy(), expected.expected_matrix(), atol=1e-12)
    found = orders.log_likelihood(emissions).item()
    assert found == pytest.approx(expected.log_likelihood(emissions[0].numpy()), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("length", [200, 500])
def test_gradients_of_long_sentences_are_finite_and_single_precision_drifts_little(length):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(1, (length**3 - length) // 6, 2, generator=generator)

    def run(dtype):
        leaves = scores.to(dtype).requires_grad_()
        log_partition = SeparablePermutation(leaves).log_partition()
        (gradient,) = torch.autograd.grad(log_partition.sum(), leaves)
        return log_partition.item(), gradient

    single, gradient = run(torch.float32)
    double, expected = run(torch.float64)
    assert gradient.isfinite().all()
    assert single == pytest.approx(double, rel=1e-6)
    assert gradient.sum().item() == pytest.approx(length - 1, rel=1e-4)  # a tree has so many splits
    torch.testing.assert_close(gradient.double(), expected, rtol=0.01, atol=1e-5)


@pytest.mark.slow
def test_taggings_and_orders_of_a_long_sentence():
    length, generator = 120, torch.Generator().manual_seed(0)
    scores = torch.randn(1, (length**3 - length) // 6, 2, generator=generator)
    emissions = torch.randn(1, length, length, generator=generator).log_softmax(-1)
    single = SeparablePermutation(scores.requires_grad_())
    likelihood = single.log_likelihood(emissions)
    (gradient,) = torch.autograd.grad(likelihood.sum(), scores)
    assert gradient.isfinite().all()
    double = SeparablePermutation(scores.detach().double())
    assert likelihood.item() == pytest.approx(double.log_likelihood(emissions.double()).item(), rel=1e-5)
    matrix = single.expected_matrix().detach()
    torch.testing.assert_close(matrix.sum(1), torch.ones(1, length), rtol=0, atol=1e-4)
    torch.testing.assert_close(matrix.sum(2), torch.ones(1, length), rtol=0, atol=1e-4)
    torch.testing.assert_close(matrix.double(), double.expected_matrix(), rtol=0, atol=1e-5)


@pytest.mark.slow
def test_alignments_of_long_pairs():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 400, 300, generator=generator)
    words = torch.randn(2, 400, 300, generator=generator).sub(5).requires_grad_()
    likelihood = MonotoneAlignment(logits, words).log_likelihood()
    (gradient,) = torch.autograd.grad(likelihood.sum(), words)
    assert gradient.isfinite().all()
    torch.testing.assert_close(
        gradient.sum(1), torch.ones(2, 300), rtol=0, atol=1e-3
    )  # a word is written once
    double = MonotoneAlignment(logits.double(), words.detach().double()).log_likelihood()
    torch.testing.assert_close(likelihood.double(), double, rtol=1e-5, atol=0)


@pytest.mark.slow
def test_synchronous_charts_of_long_pairs():
    generator = torch.Generator().manual_seed(0)
    splits = torch.randn(1, (24**3 - 24) // 6, 2, generator=generator)
    segments = torch.randn(1, 24, 31, 4, generator=generator).sub(3).requires_grad_()
    likelihood = SynchronousPermutation(splits, segments).log_likelihood()
    (gradient,) = torch.autograd.grad(likelihood.sum(), segments)
    assert gradient.isfinite().all()
    assert gradient.sum().item() == pytest.approx(24, rel=1e-4)  # every word writes one segment
    double = SynchronousPermutation(splits.double(), segments.detach().double()).log_likelihood()
    torch.testing.assert_close(likelihood.double(), double, rtol=1e-5, atol=0)


# --- The other distributions, by recurrences that are written down once more ----------------------------------------


def spans(length):
    """The spans of two words and more, short ones first."""
    for width in range(2, length + 1):
        for start in range(length - width + 1):
            yield start, start + width


def log_sum_over_labels(rules, left, right):
    """``[a] = log of the sum over b and c of exp(rules[a, b, c] + left[b] + right[c])``."""
    return np.logaddexp.reduce(rules + left[:, None] + right, axis=(1, 2))


def labelled_sum(rules, tokens, splits, root):
    """The log of the summed weight of all labelled trees over a sentence."""
    length = len(tokens)
    places = packed_splits(length)
    log_weight = {(start, start + 1): tokens[start] for start in range(length)}
    for start, end in spans(length):
        log_weight[start, end] = np.logaddexp.reduce(
            [
                splits[places[start, middle, end], rule]
                + log_sum_over_labels(rules[rule], log_weight[start, middle], log_weight[middle, end])
                for middle in range(start + 1, end)
                for rule in (0, 1)
            ]
        )
    return np.logaddexp.reduce(root + log_weight[0, length])


def labelled_tagging_sum(rules, tokens, splits, root, emissions):
    """The same, where every word also emits what stands at its position in the output."""
    length = len(tokens)
    places = packed_splits(length)
    log_weight = {
        (start, start + 1, position): tokens[start] + emissions[start, position]
        for start in range(length)
        for position in range(length)
    }
    for start, end in spans(length):
        for position in range(length - (end - start) + 1):
            terms = []
            for middle in range(start + 1, end):
                straight, inverted = splits[places[start, middle, end]]
                first, second = position + middle - start, position + end - middle
                left, right = log_weight[start, middle, position], log_weight[middle, end, first]
                terms.append(straight + log_sum_over_labels(rules[0], left, right))
                left, right = log_weight[start, middle, second], log_weight[middle, end, position]
                terms.append(inverted + log_sum_over_labels(rules[1], left, right))
            log_weight[start, end, position] = np.logaddexp.reduce(terms)
    return np.logaddexp.reduce(root + log_weight[0, length, 0])


def one_after_the_other(first, second):
    """``[..., p, q]``: two parts write the words p..q-1, the first of them up to any r."""
    return np.logaddexp.reduce(first[..., None] + second[..., None, :, :], axis=-2)


def written_by_tokens(segments):
    """Of every token, the weight ``[p, q]`` of writing the words p..q-1."""
    length, starts, sizes = segments.shape
    written = np.full((length, starts, starts), -np.inf)
    for start in range(starts):
        for size in range(min(sizes, starts - start)):
            written[:, start, start + size] = segments[:, start, size]
    return written


def synchronous_sum(splits, segments):
    """The log of the summed weight of all ways in which the tokens of a sentence write the output."""
    length, starts, _ = segments.shape
    places = packed_splits(length)
    log_weight = {  # of every span, by the first word that it writes and the word after the last
        (token, token + 1): written for token, written in enumerate(written_by_tokens(segments))
    }
    for start, end in spans(length):
        terms = []
        for middle in range(start + 1, end):
            straight, inverted = splits[places[start, middle, end]]
            left, right = log_weight[start, middle], log_weight[middle, end]
            terms += [
                straight + one_after_the_other(left, right),
                inverted + one_after_the_other(right, left),
            ]
        log_weight[start, end] = np.logaddexp.reduce(terms)
    return log_weight[0, length][0, starts - 1]


def labelled_synchronous_sum(rules, tokens, splits, root, segments):
    """The same for labelled trees; a token writes the same segments under any label."""
    length, starts, _ = segments.shape
    places = packed_splits(length)
    log_weight = {  # of every span, by its label, the first word that it writes and the word after the last
        (token, token + 1): tokens[token][:, None, None] + written
        for token, written in enumerate(written_by_tokens(segments))
    }
    for start, end in spans(length):
        terms = []
        for middle in range(start + 1, end):
            left, right = log_weight[start, middle], log_weight[middle, end]
            both = (
                one_after_the_other(left[:, None], right[None]),  # [b, c, p, q]
                one_after_the_other(right[None], left[:, None]),
            )
            for rule in (0, 1):
                by_rule = rules[rule][..., None, None] + both[rule]  # [a, b, c, p, q]
                split = splits[places[start, middle, end], rule]
                terms.append(split + np.logaddexp.reduce(by_rule, axis=(1, 2)))
        log_weight[start, end] = np.logaddexp.reduce(terms)
    return np.logaddexp.reduce(root + log_weight[0, length][:, 0, starts - 1])


def monotone_sum(logits, words):
    """The log-likelihood by the recurrence over cells i and words j."""
    cells, steps = logits.shape
    log_emit, log_move = -np.logaddexp(0, -logits), -np.logaddexp(0, logits)
    log_emit[-1], log_move[-1] = 0.0, -np.inf  # the last cell emits for certain
    reached = np.full((cells, steps), -np.inf)
    reached[0, 0] = 0.0
    for cell in range(cells):
        for step in range(steps):
            if step > 0:
                by_word = reached[cell, step - 1] + log_emit[cell, step - 1] + words[cell, step - 1]
                reached[cell, step] = np.logaddexp(reached[cell, step], by_word)
            if cell > 0:
                by_move = reached[cell - 1, step] + log_move[cell - 1, step]
                reached[cell, step] = np.logaddexp(reached[cell, step], by_move)
    return reached[-1, -1] + words[-1, -1]


def segmental_sum(segments):
    """The log-likelihood by the recurrence over cells and the words that they have written together."""
    cells, starts, sizes = segments.shape
    written = np.full(starts, -np.inf)
    written[0] = 0.0
    for cell in range(cells):
        after = np.full(starts, -np.inf)
        for start in range(starts):
            for size in range(min(sizes, starts - start)):
                term = written[start] + segments[cell, start, size]
                after[start + size] = np.logaddexp(after[start + size], term)
        written = after
    return written[-1]


def draw(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def assert_values_and_slopes(ours, theirs, arguments, checked=3):
    """Compare values, and derivatives by a few random numbers of every argument with differences of the other's values.

    Args:
        ours: a function of batches of one.
        theirs: the same function of arrays without a batch.
        arguments: the tensors of a batch of one, or without a batch where both functions share them.
        checked: how many numbers of every argument are changed.
    """
    leaves = [tensor.clone().requires_grad_() for tensor in arguments]
    value = ours(*leaves)
    arrays = [tensor.numpy().copy() for tensor in arguments]
    assert value.item() == pytest.approx(theirs(*arrays), rel=1e-12)
    gradients = torch.autograd.grad(value.sum(), leaves)
    step = 1e-4
    for number, (array, gradient) in enumerate(zip(arrays, gradients, strict=True)):
        assert gradient.isfinite().all()
        generator = np.random.default_rng(number)
        likely = gradient.abs().flatten().argmax().item()  # and a few others, most of which change little
        for place in [likely, *generator.integers(array.size, size=checked - 1)]:
            index, values = np.unravel_index(place, array.shape), []
            for change in (step, -step):
                array[index] += change
                values.append(theirs(*arrays))
                array[index] -= change
            slope = (values[0] - values[1]) / (2 * step)
            assert gradient[index].item() == pytest.approx(slope, rel=1e-5, abs=1e-7)


def labelled_scores(length, labels=3):
    """The scores of rules, tokens, splits and roots."""
    return (
        draw(2, labels, labels, labels),
        draw(1, length, labels, seed=1),
        draw(1, (length**3 - length) // 6, 2, seed=2),
        draw(labels, seed=3),
    )


@pytest.mark.slow
def test_labelled_trees_are_those_of_plain_recurrences(backend):

    def ours(rules, tokens, splits, root):
        return LabelledPermutation(rules, tokens, splits, root_scores=root).log_partition()

    def theirs(rules, tokens, splits, root):
        return labelled_sum(rules, tokens[0], splits[0], root)

    assert_values_and_slopes(ours, theirs, labelled_scores(24), checked=2)


@pytest.mark.slow
def test_labelled_taggings_are_those_of_plain_recurrences(backend):
    length = 12
    arguments = (*labelled_scores(length), draw(1, length, length, seed=4).log_softmax(-1))

    def ours(rules, tokens, splits, root, emissions):
        return LabelledPermutation(rules, tokens, splits, root_scores=root).log_likelihood(emissions)

    def theirs(rules, tokens, splits, root, emissions):
        total = labelled_tagging_sum(rules, tokens[0], splits[0], root, emissions[0])
        return total - labelled_sum(rules, tokens[0], splits[0], root)

    assert_values_and_slopes(ours, theirs, arguments, checked=2)


@pytest.mark.slow
def test_synchronous_sums_are_those_of_plain_recurrences(backend):
    length, words, longest = 14, 18, 3
    splits, segments = (
        draw(1, (length**3 - length) // 6, 2),
        draw(1, length, words + 1, longest + 1, seed=1) - 2,
    )

    def ours(splits, segments):
        return SynchronousPermutation(splits, segments).log_likelihood()

    def theirs(splits, segments):
        return synchronous_sum(splits[0], segments[0]) - Recurrences(splits[0]).log_weight[0, length]

    assert_values_and_slopes(ours, theirs, (splits, segments), checked=2)


@pytest.mark.parametrize(("length", "words"), [(5, 6), pytest.param(12, 14, marks=pytest.mark.slow)])
def test_labelled_synchronous_sums_are_those_of_plain_recurrences(length, words, backend):
    arguments = (*labelled_scores(length), draw(1, length, words + 1, 4, seed=4) - 2)

    def ours(rules, tokens, splits, root, segments):
        distribution = LabelledSynchronousPermutation(rules, tokens, segments, splits, root_scores=root)
        return distribution.log_likelihood()

    def theirs(rules, tokens, splits, root, segments):
        total = labelled_synchronous_sum(rules, tokens[0], splits[0], root, segments[0])
        return total - labelled_sum(rules, tokens[0], splits[0], root)

    assert_values_and_slopes(ours, theirs, arguments, checked=2)


@pytest.mark.slow
def test_monotone_alignments_are_those_of_plain_recurrences():
    logits, words = draw(1, 90, 70), draw(1, 90, 70, seed=1) - 4
    assert_values_and_slopes(
        lambda *tensors: MonotoneAlignment(*tensors).log_likelihood(),
        lambda logits, words: monotone_sum(logits[0], words[0]),
        (logits, words),
    )


@pytest.mark.slow
def test_segmental_alignments_are_those_of_plain_recurrences():
    segments = draw(1, 50, 81, 5) - 3
    assert_values_and_slopes(
        lambda tensor: SegmentalAlignment(tensor).log_likelihood(),
        lambda array: segmental_sum(array[0]),
        (segments,),
    )


# --- Gradients of 200 and 500 words, and what single precision loses ------------------------------------------------


def in_both_precisions(function, *arguments):
    """The value and the gradients of a function in single precision, both finite, and the same in double precision."""
    found = []
    for dtype in (torch.float32, torch.float64):
        leaves = [tensor.to(dtype).requires_grad_() for tensor in arguments]
        value = function(*leaves)
        gradients = torch.autograd.grad(value.sum(), leaves)
        assert value.isfinite().all()
        assert all(gradient.isfinite().all() for gradient in gradients)
        found.append((value.detach().double(), [gradient.double() for gradient in gradients]))
    (value, gradients), (expected, others) = found
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=0)
    for gradient, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(gradient, other, rtol=0.01, atol=1e-3)
    return gradients


@pytest.mark.slow
@pytest.mark.parametrize("length", [200, 500])
def test_gradients_of_long_labelled_trees(length):
    labels = 2
    rules, tokens, splits = in_both_precisions(
        lambda rules, tokens, splits: LabelledPermutation(rules, tokens, splits).log_partition(),
        draw(2, labels, labels, labels).float(),
        draw(1, length, labels, seed=1).float(),
        draw(1, (length**3 - length) // 6, 2, seed=2).float(),
    )
    for gradient, number in ((rules, length - 1), (tokens, length), (splits, length - 1)):
        assert gradient.sum().item() == pytest.approx(number, rel=1e-4)  # of rules, words and nodes in a tree


@pytest.mark.slow
def test_gradients_of_labelled_taggings():
    length, labels = 40, 2
    *_, emissions = in_both_precisions(
        lambda rules, tokens, emissions: LabelledPermutation(rules, tokens).log_likelihood(emissions),
        draw(2, labels, labels, labels).float(),
        draw(1, length, labels, seed=1).float(),
        draw(1, length, length, seed=2).float().log_softmax(-1),
    )
    assert emissions.sum().item() == pytest.approx(length, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("labels", [None, 2])
def test_gradients_of_long_synchronous_trees(labels):
    """Of 200 tokens and a short output; O(n^3 m^3) operations for 500, or for a long output, take too long."""
    length, words = 200, 6 if labels is None else 2

    def run(splits, segments, *grammar):
        if labels is None:
            return SynchronousPermutation(splits, segments).log_likelihood()
        rules, tokens = grammar
        return LabelledSynchronousPermutation(rules, tokens, segments, splits).log_likelihood()

    grammar = (
        [] if labels is None else [draw(2, labels, labels, labels, seed=3), draw(1, length, labels, seed=4)]
    )
    _, segments, *_ = in_both_precisions(
        run,
        draw(1, (length**3 - length) // 6, 2).float(),
        draw(1, length, words + 1, 3, seed=1).float().log_softmax(-1),
        *(scores.float() for scores in grammar),
    )
    assert segments.sum().item() == pytest.approx(length, rel=1e-4)  # every token writes one segment


@pytest.mark.slow
@pytest.mark.parametrize("length", [200, 500])
def test_gradients_of_long_alignments(length):
    _, words = in_both_precisions(
        lambda logits, words: MonotoneAlignment(logits, words).log_likelihood(),
        draw(1, length, length).float(),
        draw(1, length, length, seed=1).float() - 5,
    )
    torch.testing.assert_close(words.sum(1), torch.ones(1, length).double(), rtol=0, atol=1e-3)
    (segments,) = in_both_precisions(
        lambda segments: SegmentalAlignment(segments).log_likelihood(),
        draw(1, length, length + 1, 4, seed=2).float() - 3,
    )
    torch.testing.assert_close(segments.sum((2, 3)), torch.ones(1, length).double(), rtol=0, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("length", [200, 500])
def test_gradients_of_long_matchings(length):
    in_both_precisions(
        lambda scores: sinkhorn_matrix(scores).diagonal(dim1=1, dim2=2).sum(1),
        draw(1, length, length).float(),
    )
