"""Pruned sums of `SynchronousPermutation` against the contract, its twin, and the exact sums that they bound."""

import pytest
import torch
from tests.structures import test_synchronous_contract as exact_sums
from tests.structures.contract import Contract, seeded

from permalign import SynchronousPermutation, kernels
from permalign.kernels.layout import split_count
from permalign.kernels.numerics import LARGEST_SHARE
from permalign.kernels.portable.pruned_synchronous import kept_cells
from permalign.structures import LabelledSynchronousPermutation

PLAIN = exact_sums.TestSynchronousPermutation()
SIZES = PLAIN.sizes
THRESHOLDS = [1e-6, 1e-3, 0.03, 0.3, 1.0]


def pair_parameters(sizes, seed, scale=1.0):
    return PLAIN.parameters(sizes, seeded(seed), scale)


def peaked_parameters(sizes, seed, scale=8.0):
    """Token i nearly always writes word i, or nothing; trees are straight. A few segments are likely elsewhere."""
    parameters = pair_parameters(sizes, seed)
    segments = parameters["segment_log_probs"] - scale
    for token in range(segments.shape[1]):
        segments[:, token, :, 0] += scale / 2
        if token + 1 < segments.shape[2]:
            segments[:, token, token, 1] = -0.1
    segments = torch.where(torch.rand(segments.shape, generator=seeded(seed + 1)) < 0.05, -0.5, segments)
    splits = parameters["split_scores"] + torch.tensor([scale / 4, 0.0])
    return parameters | {"segment_log_probs": segments, "split_scores": splits}


def kept_of(parameters, threshold):
    """The cells that are kept at this threshold."""
    splits, lengths = parameters["split_scores"], parameters["source_lengths"]
    rules = kernels.span_softmax(kernels.inside(splits, lengths)[1], lengths)
    segments = SynchronousPermutation(**parameters, validate_args=False)._finite(
        parameters["segment_log_probs"]
    )
    return kept_cells(
        kernels.synchronous_bounds(rules, segments, lengths, parameters["target_lengths"], threshold).rows
    )


class TestNothingIsPruned(Contract):
    """With a threshold of zero, the pruned sum is the exact one, and meets the same contract."""

    sizes = SIZES
    small = PLAIN.small
    differentiable = PLAIN.differentiable

    def parameters(self, sizes, generator, scale=1.0):
        return PLAIN.parameters(sizes, generator, scale)

    def alone(self, parameters, sentence, size):
        return PLAIN.alone(parameters, sentence, size)

    def padding(self, parameters):
        return PLAIN.padding(parameters)

    def build(self, parameters):
        return PLAIN.build(parameters)

    def twin(self, parameters):
        return PLAIN.twin(parameters)

    def values(self, distribution, parameters):
        if isinstance(distribution, SynchronousPermutation):
            return {"log_likelihood": distribution.pruned_log_likelihood(threshold=0.0).log_likelihood}
        return {"log_likelihood": distribution.log_likelihood()}

    def marginals(self, distribution):
        return PLAIN.marginals(distribution)

    def call_methods(self, distribution, parameters):
        distribution.pruned_log_likelihood(threshold=0.1)

    def count(self, size):
        return PLAIN.count(size)

    def outcomes(self, twin, sentence):
        return PLAIN.outcomes(twin, sentence)


@pytest.mark.usefixtures("backend")
class TestPruned:
    @pytest.mark.parametrize("threshold", THRESHOLDS)
    @pytest.mark.parametrize("make", [pair_parameters, peaked_parameters])
    def test_the_sum_is_over_derivations_of_kept_cells(self, make, threshold):
        for seed in range(3):
            parameters = make(SIZES, seed)
            kept = kept_of(parameters, threshold)
            expected = PLAIN.twin(parameters).pruned_log_likelihood(kept)
            assert expected.isfinite().any()
            summed = expected.isfinite()  # where nothing is kept, the sum is exact
            pruned = SynchronousPermutation(**parameters).pruned_log_likelihood(threshold).log_likelihood
            torch.testing.assert_close(pruned[summed], expected[summed], rtol=1e-10, atol=1e-11)

    @pytest.mark.parametrize("threshold", THRESHOLDS)
    def test_gradients_are_those_of_the_pruned_sum(self, threshold):
        parameters = peaked_parameters(SIZES, 3)
        kept, found = kept_of(parameters, threshold), []
        for build, sum_of in (
            (SynchronousPermutation, lambda pair: pair.pruned_log_likelihood(threshold).log_likelihood),
            (
                lambda **given: PLAIN.twin(given),
                lambda twin: twin.pruned_log_likelihood(kept),
            ),
        ):
            leaves = PLAIN.leaves(parameters)
            value = sum_of(build(**leaves))
            found.append((value, leaves))
        summed = found[1][0].isfinite()
        ours, theirs = (
            torch.autograd.grad(value[summed].sum(), [leaves["split_scores"], leaves["segment_log_probs"]])
            for value, leaves in found
        )
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other.nan_to_num(), rtol=1e-9, atol=1e-10)

    @pytest.mark.parametrize("scale", [0.3, 1.0, 3.0, 10.0, 100.0, 1e4, 1e6])
    @pytest.mark.parametrize("make", [pair_parameters, peaked_parameters])
    def test_no_more_is_lost_than_the_bound(self, make, scale):
        for seed in range(4):
            parameters = make(SIZES, 10 + seed, scale)
            distribution = SynchronousPermutation(**parameters)
            exact = distribution.log_likelihood()
            rounding = 1e-9 * (1 + exact.abs())
            for threshold in THRESHOLDS:
                pruned, lost = distribution.pruned_log_likelihood(threshold)
                assert (lost >= 0).all()
                assert (pruned <= exact + rounding).all()
                assert (exact <= pruned + lost + rounding).all()

    def test_the_bound_is_close_where_alignments_are_certain(self):
        parameters = peaked_parameters([(5, 5), (5, 4)], 20, scale=30.0)
        parameters["segment_log_probs"] = parameters["segment_log_probs"].clamp(max=-0.1)
        distribution = SynchronousPermutation(**parameters)
        lost = distribution.pruned_log_likelihood(1e-3).lost
        kept = kept_of(parameters, 1e-3).sum((1, 2, 3))
        assert (kept < LARGEST_SHARE * kept_of(parameters, 0.0).sum((1, 2, 3))).all()
        assert (lost < 0.5).all()

    def test_a_bound_above_the_tolerance_makes_the_sum_exact(self):
        distribution = SynchronousPermutation(**peaked_parameters(SIZES, 21))
        exact = distribution.log_likelihood()
        loose, lost = distribution.pruned_log_likelihood(0.1)
        tolerance = lost.median().item()
        assert (lost > tolerance).any()
        again, lost_again = distribution.pruned_log_likelihood(0.1, tolerance)
        torch.testing.assert_close(again[lost > tolerance], exact[lost > tolerance])
        torch.testing.assert_close(again[lost <= tolerance], loose[lost <= tolerance])
        torch.testing.assert_close(lost_again, lost.masked_fill(lost > tolerance, 0.0))

    def test_sentences_do_not_depend_on_their_batch(self):
        parameters = peaked_parameters(SIZES, 22)
        batch = SynchronousPermutation(**parameters).pruned_log_likelihood(0.01)
        for sentence, size in enumerate(SIZES):
            alone = PLAIN.alone(parameters, sentence, size)
            single = SynchronousPermutation(**alone).pruned_log_likelihood(0.01)
            for mine, all_of_them in zip(single, batch, strict=True):
                torch.testing.assert_close(mine[0], all_of_them[sentence], rtol=1e-10, atol=1e-10)

    def test_impossible_segments_and_outputs(self):
        parameters = pair_parameters(SIZES, 23)
        table = parameters["segment_log_probs"]
        blocked = torch.rand(table.shape, generator=seeded(24)) < 0.3
        parameters["segment_log_probs"] = table.masked_fill(blocked, -torch.inf)
        leaves = PLAIN.leaves(parameters)
        distribution = SynchronousPermutation(**leaves)
        exact = distribution.log_likelihood()
        possible = exact.isfinite()
        assert 0 < possible.sum() < len(SIZES)
        pruned, lost = distribution.pruned_log_likelihood(1e-3)
        assert (pruned[~possible] == -torch.inf).all()
        assert (lost[~possible] == 0).all()
        assert (exact <= pruned + lost + 1e-9)[possible].all()
        pruned[possible].sum().backward()
        assert all(leaves[name].grad.isfinite().all() for name in ("split_scores", "segment_log_probs"))
        everything = torch.full_like(table, -torch.inf)
        nothing = SynchronousPermutation(**parameters | {"segment_log_probs": everything})
        assert (nothing.pruned_log_likelihood(1e-3).log_likelihood == -torch.inf).all()

    def test_outputs_without_room(self):
        parameters = pair_parameters([(2, 5), (3, 2)], 25)
        pair = SynchronousPermutation(**parameters, validate_args=False)
        pruned, lost = pair.pruned_log_likelihood(0.01)
        assert pruned[0] == -torch.inf
        assert pruned[1].isfinite()
        assert lost[0] == 0


def plain_pair():
    return torch.zeros(1, split_count(2), 2), torch.full((1, 2, 3, exact_sums.LONGEST + 1), 0.5).log()


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (lambda: SynchronousPermutation(*plain_pair()), (-0.1,), r"threshold must be in 0\.\.1"),
        (lambda: SynchronousPermutation(*plain_pair()), (float("nan"),), r"threshold must be in 0\.\.1"),
        (lambda: SynchronousPermutation(*plain_pair()), (0.1, -1.0), "tolerance must be at least 0 nats"),
        (lambda: SynchronousPermutation(*plain_pair(), normal_form=True), (0.1,), "normal_form is true, but"),
        (
            lambda: SynchronousPermutation(
                plain_pair()[0], torch.zeros(1, 3, 3, 2), phrase_scores=torch.zeros(1, 1)
            ),
            (0.1,),
            "there are phrase_scores, but",
        ),
        (
            lambda: LabelledSynchronousPermutation(
                torch.zeros(2, 2, 2, 2), torch.zeros(1, 2, 2), plain_pair()[1]
            ),
            (0.1,),
            "labelled trees cannot be pruned",
        ),
    ],
)
def test_what_cannot_be_pruned_is_refused(make, arguments, message):
    with pytest.raises(ValueError, match=message):
        make().pruned_log_likelihood(*arguments)
