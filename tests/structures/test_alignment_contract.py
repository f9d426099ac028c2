"""`MonotoneAlignment` and `SegmentalAlignment` against the contract of all distributions and their twins."""

from math import comb, log

import pytest
import torch
from tests.structures.contract import Contract, seeded

from permalign import MonotoneAlignment, SegmentalAlignment
from permalign.structures.brute_force import EnumeratedMonotoneAlignment, EnumeratedSegmentalAlignment


def lengths_of(sizes):
    cells, steps = zip(*sizes, strict=True)
    return {"source_lengths": torch.tensor(cells), "target_lengths": torch.tensor(steps)}


class AlignmentContract(Contract):
    end_cells: int  # how many cells at the end stand for no token

    def random_order(self, cells, seed):
        """Tokens in some order, padding in its place."""
        order = torch.arange(5 - self.end_cells)
        order[: cells - self.end_cells] = torch.randperm(cells - self.end_cells, generator=seeded(seed))
        return order

    def values(self, distribution, parameters):
        return {
            "log_likelihood": distribution.log_likelihood(),
            "posteriors": distribution.posteriors(),
        }

    def marginals(self, distribution):
        return [distribution.posteriors()]

    def call_methods(self, distribution, parameters):
        self.values(distribution, parameters)
        distribution.best_alignment()
        distribution.segments()
        distribution.sample((2,))

    def outcomes(self, twin, sentence):
        shares = twin.weights(sentence).softmax(0).tolist()
        return {
            twin._padded(cells): share for cells, share in zip(twin.alignments(sentence), shares, strict=True)
        }

    # ---------------------------------------------------------------- what only alignments have
    def test_best_alignment_equals_the_twin(self):
        for seed in range(30, 35):
            parameters = self.parameters(self.sizes, seeded(seed))
            ours, theirs = self.build(parameters).best_alignment(), self.twin(parameters).best_alignment()
            assert ours.cells.dtype == torch.int64
            assert torch.equal(ours.cells, theirs.cells)
            torch.testing.assert_close(ours.log_prob, theirs.log_prob)

    def test_segments_equal_the_twin(self):
        parameters = self.parameters(self.sizes, seeded(36))
        order = torch.stack([self.random_order(cells, seed) for seed, (cells, _) in enumerate(self.sizes)])
        for mapped in (None, order):
            ours, theirs = self.build(parameters).segments(mapped), self.twin(parameters).segments(mapped)
            assert [[(s.source, s.target) for s in found] for found in ours] == [
                [(s.source, s.target) for s in found] for found in theirs
            ]

    def test_impossible_words(self):
        name = self.differentiable[-1]
        parameters = self.parameters(self.sizes, seeded(37))
        table = parameters[name]
        blocked = torch.rand(table.shape, generator=seeded(38)) < 0.2
        parameters[name] = table.masked_fill(blocked, -torch.inf)
        possible = self.twin(parameters).log_likelihood().isfinite()
        assert possible.any()
        results = []
        for make in (self.build, self.twin):
            leaves = self.leaves(parameters)
            value = make(leaves).log_likelihood()[possible]
            value.sum().backward()
            gradients = [leaves[leaf].grad for leaf in self.differentiable]
            results.append([value, *(gradient[possible] for gradient in gradients)])
            if make == self.build:
                assert all(gradient.isfinite().all() for gradient in gradients)
        torch.testing.assert_close(*results)

    def test_an_impossible_output(self):
        name = self.differentiable[-1]
        parameters = self.parameters(self.sizes, seeded(39))
        parameters[name] = parameters[name].clone()
        parameters[name][0] = -torch.inf
        leaves = self.leaves(parameters)
        value = self.build(leaves).log_likelihood()
        assert value[0] < -1e9
        assert value[1:].isfinite().all()
        value[1:].sum().backward()
        assert all(leaves[leaf].grad.isfinite().all() for leaf in self.differentiable)


class TestMonotoneAlignment(AlignmentContract):
    end_cells = 1
    sizes = [(1, 1), (5, 4), (1, 3), (4, 1), (3, 5), (2, 2)]  # noqa: RUF012
    small = (3, 3)
    differentiable = ("emit_logits", "word_log_probs")

    def parameters(self, sizes, generator, scale=1.0):
        cells, steps = (max(column) for column in zip(*sizes, strict=True))
        draw = {"dtype": torch.float64, "generator": generator}
        return {
            "emit_logits": scale * torch.randn(len(sizes), cells, steps, **draw),
            "word_log_probs": -scale * torch.randn(len(sizes), cells, steps, **draw).abs(),
        } | lengths_of(sizes)

    def alone(self, parameters, sentence, size):
        cells, steps = size
        return {
            name: parameters[name][sentence : sentence + 1, :cells, :steps] for name in self.differentiable
        } | lengths_of([size])

    def padding(self, parameters):
        _, cells, steps = parameters["emit_logits"].shape
        beyond_cells = torch.arange(cells) >= parameters["source_lengths"][:, None]
        beyond_steps = torch.arange(steps) >= parameters["target_lengths"][:, None]
        mask = beyond_cells[:, :, None] | beyond_steps[:, None, :]
        return {"emit_logits": mask, "word_log_probs": mask}

    def build(self, parameters):
        return MonotoneAlignment(**parameters)

    def twin(self, parameters):
        return EnumeratedMonotoneAlignment(**parameters)

    def count(self, size):
        """Let every emission cost one half, at the last cell too; then every alignment weighs the same."""
        cells, steps = size
        words = torch.zeros(1, cells, steps, dtype=torch.float64)
        words[:, -1] = -log(2)
        found = MonotoneAlignment(torch.zeros_like(words), words, **lengths_of([size])).log_likelihood()
        return found + (cells - 1 + steps) * log(2), comb(cells + steps - 2, steps - 1)

    def test_one_cell_emits_every_step(self):
        posteriors = self.build(self.parameters(self.sizes, seeded(40))).posteriors()
        for sentence, (_, steps) in enumerate(self.sizes):
            expected = torch.zeros(5, dtype=torch.float64)
            expected[:steps] = 1
            torch.testing.assert_close(posteriors[sentence].sum(0), expected)


class TestSegmentalAlignment(AlignmentContract):
    end_cells = 0
    longest = 2
    sizes = [(1, 2), (5, 4), (3, 5), (2, 1), (1, 1), (4, 5)]  # noqa: RUF012
    small = (3, 4)
    differentiable = ("segment_log_probs",)

    def parameters(self, sizes, generator, scale=1.0):
        cells, steps = (max(column) for column in zip(*sizes, strict=True))
        shape = (len(sizes), cells, steps + 1, self.longest + 1)
        table = -scale * torch.randn(shape, dtype=torch.float64, generator=generator).abs()
        return {"segment_log_probs": table} | lengths_of(sizes)

    def alone(self, parameters, sentence, size):
        cells, steps = size
        table = parameters["segment_log_probs"][sentence : sentence + 1, :cells, : steps + 1]
        return {"segment_log_probs": table} | lengths_of([size])

    def padding(self, parameters):
        _, cells, starts, lengths = parameters["segment_log_probs"].shape
        ends = torch.arange(starts)[:, None] + torch.arange(lengths)  # (start, length)
        beyond_cells = torch.arange(cells) >= parameters["source_lengths"][:, None]
        beyond_steps = ends > parameters["target_lengths"][:, None, None]
        return {"segment_log_probs": beyond_cells[:, :, None, None] | beyond_steps[:, None]}

    def build(self, parameters):
        return SegmentalAlignment(**parameters)

    def twin(self, parameters):
        return EnumeratedSegmentalAlignment(**parameters)

    def count(self, size):
        cells, steps = size
        table = torch.zeros(1, cells, steps + 1, self.longest + 1, dtype=torch.float64)
        ways = sum(
            (-1) ** full * comb(cells, full) * comb(steps - full * (self.longest + 1) + cells - 1, cells - 1)
            for full in range(cells + 1)
            if steps >= full * (self.longest + 1)
        )
        return SegmentalAlignment(table, **lengths_of([size])).log_likelihood(), ways

    def test_every_cell_emits_one_segment_and_every_word_is_in_one(self):
        posteriors = self.build(self.parameters(self.sizes, seeded(40))).posteriors()
        for sentence, (cells, steps) in enumerate(self.sizes):
            table = posteriors[sentence, :cells]
            torch.testing.assert_close(table.sum((1, 2)), torch.ones(cells, dtype=torch.float64))
            for step in range(steps):
                covering = sum(
                    table[:, start, length].sum()
                    for start in range(step + 1)
                    for length in range(step - start + 1, self.longest + 1)
                )
                assert covering.item() == pytest.approx(1.0)

    def test_without_lengths_nothing_is_padding(self):
        alignment = SegmentalAlignment(torch.zeros(2, 3, 5, 3))
        assert alignment.source_lengths.tolist() == [3, 3]
        assert alignment.target_lengths.tolist() == [4, 4]

    def test_an_empty_output_is_one_empty_segment_for_every_cell(self):
        table = self.parameters([(3, 2)], seeded(41))["segment_log_probs"]
        alignment = SegmentalAlignment(table, **lengths_of([(3, 0)]))
        torch.testing.assert_close(alignment.log_likelihood(), table[:, :, 0, 0].sum(1))

    @pytest.mark.parametrize("seed", range(10))
    def test_segments_are_those_of_the_best_alignment(self, seed):
        alignment = self.build(self.parameters([(4, 5)], seeded(seed)))
        (segments,) = alignment.segments()
        cells = alignment.best_alignment().cells[0].tolist()
        assert [segment.source for segment in segments] == [(0,), (1,), (2,), (3,)]
        assert [len(segment.target) for segment in segments] == [cells.count(cell) for cell in range(4)]

    def test_infeasible_outputs_name_the_longest_segment(self, unchecked):
        with pytest.raises(ValueError, match=r"\b2\b"):
            SegmentalAlignment(torch.zeros(1, 2, 6, 3), **lengths_of([(2, 5)])).log_likelihood()
