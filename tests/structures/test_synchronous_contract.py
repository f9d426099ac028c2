"""`SynchronousPermutation` against the contract of all distributions and its twin."""

from collections import Counter

import pytest
import torch
from tests.structures.contract import Contract, seeded
from tests.structures.test_alignment_contract import lengths_of

from permalign import SynchronousPermutation
from permalign.kernels.layout import split_count, valid_splits
from permalign.structures.brute_force import EnumeratedSynchronousPermutation
from permalign.structures.brute_force.alignments import compositions

LONGEST = 2


class TestSynchronousPermutation(Contract):
    normal_form = False
    sizes = [(1, 0), (4, 4), (3, 5), (2, 1), (1, 2), (4, 0), (3, 6)]  # noqa: RUF012
    small = (3, 2)
    blocked = 0.2  # the share of segments that the test of impossible ones takes away
    differentiable = ("split_scores", "segment_log_probs")

    def parameters(self, sizes, generator, scale=1.0):
        tokens, words = (max(column) for column in zip(*sizes, strict=True))
        draw = {"dtype": torch.float64, "generator": generator}
        segments = torch.randn(len(sizes), tokens, words + 1, LONGEST + 1, **draw)
        return {
            "split_scores": scale * torch.randn(len(sizes), split_count(tokens), 2, **draw),
            "segment_log_probs": -scale * segments.abs(),
        } | lengths_of(sizes)

    def alone(self, parameters, sentence, size):
        tokens, words = size
        row = slice(sentence, sentence + 1)
        room = parameters["segment_log_probs"].shape[1]
        keep = valid_splits(room, torch.tensor([tokens]))[0]
        return {
            "split_scores": parameters["split_scores"][row, keep],
            "segment_log_probs": parameters["segment_log_probs"][row, :tokens, : words + 1],
        } | lengths_of([size])

    def padding(self, parameters):
        _, tokens, starts, sizes = parameters["segment_log_probs"].shape
        source_lengths, target_lengths = parameters["source_lengths"], parameters["target_lengths"]
        ends = torch.arange(starts)[:, None] + torch.arange(sizes)  # (start, length)
        beyond_tokens = torch.arange(tokens) >= source_lengths[:, None]
        beyond_words = ends > target_lengths[:, None, None]
        splits = ~valid_splits(tokens, source_lengths)
        return {
            "split_scores": splits[..., None].expand(-1, -1, 2),
            "segment_log_probs": beyond_tokens[:, :, None, None] | beyond_words[:, None],
        }

    def build(self, parameters):
        return SynchronousPermutation(**parameters, normal_form=self.normal_form)

    def twin(self, parameters):
        return EnumeratedSynchronousPermutation(**parameters, normal_form=self.normal_form)

    def values(self, distribution, parameters):
        return {
            "log_likelihood": distribution.log_likelihood(),
            "rule_posteriors": distribution.rule_posteriors(),
            "segment_posteriors": distribution.segment_posteriors(),
        }

    def marginals(self, distribution):
        return [distribution.rule_posteriors(), distribution.segment_posteriors()]

    def call_methods(self, distribution, parameters):
        self.values(distribution, parameters)
        distribution.best_derivation()
        distribution.sample((2,))

    def count(self, size):
        """All trees weigh the same, so what is left is the number of ways to cut."""
        tokens, words = size
        scores = torch.zeros(1, split_count(tokens), 2, dtype=torch.float64)
        segments = torch.zeros(1, tokens, words + 1, LONGEST + 1, dtype=torch.float64)
        found = self.build({"split_scores": scores, "segment_log_probs": segments} | lengths_of([size]))
        return found.log_likelihood(), len(list(compositions(words, tokens, LONGEST)))

    def outcomes(self, twin, sentence):
        return twin.outcomes(sentence)

    # ---------------------------------------------------------------- what only transductions have
    def test_best_derivations_equal_the_twin(self):
        for seed in range(30, 35):
            parameters = self.parameters(self.sizes, seeded(seed))
            ours, theirs = self.build(parameters).best_derivation(), self.twin(parameters).best_derivation()
            for mine, other in zip(ours, theirs, strict=True):
                assert mine.order == other.order
                assert [(one.source, one.target) for one in mine.segments] == other.segments
                assert mine.log_prob == pytest.approx(other.log_prob)

    def test_every_token_writes_one_segment_and_every_word_is_in_one(self):
        posteriors = self.build(self.parameters(self.sizes, seeded(40))).segment_posteriors()
        for sentence, (tokens, words) in enumerate(self.sizes):
            table = posteriors[sentence, :tokens]
            torch.testing.assert_close(table.sum((1, 2)), torch.ones(tokens, dtype=torch.float64))
            for word in range(words):
                covering = sum(
                    table[:, start, size].sum()
                    for start in range(word + 1)
                    for size in range(word - start + 1, LONGEST + 1)
                )
                assert covering.item() == pytest.approx(1.0)

    def test_impossible_segments(self):
        parameters = self.parameters(self.sizes, seeded(37))
        table = parameters["segment_log_probs"]
        blocked = torch.rand(table.shape, generator=seeded(38)) < self.blocked
        parameters["segment_log_probs"] = table.masked_fill(blocked, -torch.inf)
        possible = self.twin(parameters).log_likelihood().isfinite()
        assert 2 < possible.sum() < len(self.sizes)
        leaves = self.leaves(parameters)
        distribution = self.build(leaves)
        value = distribution.log_likelihood()
        torch.testing.assert_close(value, self.twin(parameters).log_likelihood())
        value[possible].sum().backward()
        assert all(leaves[name].grad.isfinite().all() for name in self.differentiable)
        for posterior in self.marginals(distribution):
            assert posterior.isfinite().all()
            assert (posterior[~possible] == 0).all()
        for one, can_be in zip(distribution.best_derivation(), possible.tolist(), strict=True):
            assert (one.log_prob > -torch.inf) == can_be

    def test_outputs_of_probability_zero(self):
        """There is room, but no token writes anything: every method still returns something."""
        parameters = self.parameters(self.sizes, seeded(46))
        nothing = torch.full_like(parameters["segment_log_probs"], -torch.inf)
        distribution = self.build(parameters | {"segment_log_probs": nothing})
        assert (distribution.log_likelihood() == -torch.inf).all()
        best = distribution.best_derivation()
        assert all(one.log_prob == -torch.inf for one in best)
        assert [sorted(one.order) for one in best] == [list(range(tokens)) for tokens, _ in self.sizes]
        assert distribution.sample((3,)).shape[:2] == (3, len(self.sizes))
        room = parameters["split_scores"].shape[0], distribution.length
        uniforms = torch.rand(5, *room, dtype=torch.float64, generator=seeded(47))
        for some in distribution.frequent_derivations(uniforms, 2):
            assert all(one.log_prob == -torch.inf for one in some)

    def test_frequent_derivations_are_those_of_samples(self):
        parameters = self.parameters(self.sizes, seeded(48))
        distribution = self.build(parameters)
        room = parameters["split_scores"].shape[0], distribution.length
        uniforms = torch.rand(200, *room, dtype=torch.float64, generator=seeded(49))
        drawn = distribution.sample((200,), generator=seeded(49))
        for sentence, some in enumerate(distribution.frequent_derivations(uniforms, 3)):
            counts = Counter(
                (tuple(order), tuple(widths)) for order, _, widths in drawn[:, sentence].tolist()
            )
            length = self.sizes[sentence][0]
            expected = {order[:length] for (order, _), _ in counts.most_common(3)}
            assert len(some) == min(3, len(counts))
            assert {one.order for one in some} <= {order[:length] for order, _ in counts}
            assert some[0].order in expected
            assert all(one.log_prob <= 0 for one in some)

    def test_before_any_output_leaves_write_nothing(self):
        prior = self.build(self.parameters(self.sizes, seeded(44))).prior
        assert all(not segment.target for one in prior.best_derivation() for segment in one.segments)
        torch.testing.assert_close(prior.log_likelihood(), torch.zeros(len(self.sizes), dtype=torch.float64))

    def test_nan_in_the_padding(self):
        parameters = self.parameters(self.sizes, seeded(41))
        masks = self.padding(parameters)
        other = {n: t.masked_fill(masks[n], torch.nan) if n in masks else t for n, t in parameters.items()}
        self.assert_same(
            self.gradients(self.build, other), self.gradients(self.build, parameters), rtol=0.0, atol=0.0
        )

    def test_outputs_without_room(self):
        """Refused by name; without the checks, impossible."""
        parameters = self.parameters([(2, 5), (3, 2)], seeded(42))
        with pytest.raises(ValueError, match=r"target_lengths\[0\] is 5 words.*L = 2.*write 4.*Use L = 3"):
            self.build(parameters)
        distribution = SynchronousPermutation(
            **self.leaves(parameters), normal_form=self.normal_form, validate_args=False
        )
        value = distribution.log_likelihood()
        assert value[0] == -torch.inf
        assert value[1].isfinite()
        value[1].backward()
        assert (distribution.segment_posteriors()[0] == 0).all()
        best = distribution.best_derivation()
        assert best[0].log_prob == -torch.inf
        assert best[1].log_prob <= value[1]
        assert distribution.sample((3,)).shape == (3, 2, 3, 3)


class TestNormalForm(TestSynchronousPermutation):
    normal_form = True
