"""Alignments worked by hand, and models of words small enough to add up the probability of every output."""

from itertools import product

import pytest
import torch
from tests.structures.contract import seeded

from permalign import MonotoneAlignment, SegmentalAlignment

pytestmark = pytest.mark.usefixtures("backend")

NEVER = -1e9


def outputs(vocabulary, longest):
    """Every sequence of words up to a length."""
    return [words for length in range(longest + 1) for words in product(range(vocabulary), repeat=length)]


class TinyMonotoneModel:
    """Words and emissions that depend on the cell, the step and the word before, as those of a decoder would.

    The last word of the vocabulary is EOS, which only the last cell may emit.
    """

    def __init__(self, cells, vocabulary, steps, seed):
        draw = {"dtype": torch.float64, "generator": seeded(seed)}
        self.eos = vocabulary
        self.emit = torch.randn(cells, steps, vocabulary + 1, **draw)  # (cell, step, previous)
        logits = torch.randn(cells, steps, vocabulary + 1, vocabulary + 1, **draw)
        logits[:-1, ..., self.eos] = -torch.inf
        self.words = logits.log_softmax(-1)  # (cell, step, previous, word)

    def force_the_end(self, step):
        """From this step on nothing is emitted before the last cell, and there it is EOS."""
        self.emit[:-1, step:] = NEVER
        self.words[-1, step:] = NEVER
        self.words[-1, step:, :, self.eos] = 0

    def likelihoods(self, sentences):
        targets = [[*words, self.eos] for words in sentences]
        cells, longest = len(self.emit), max(map(len, targets))
        emit = torch.zeros(len(targets), cells, longest, dtype=torch.float64)
        words = torch.zeros_like(emit)
        for row, target in enumerate(targets):
            for step, (previous, word) in enumerate(zip([self.eos, *target], target, strict=False)):
                emit[row, :, step] = self.emit[:, step, previous]
                words[row, :, step] = self.words[:, step, previous, word]
        sources = torch.full((len(targets),), cells)
        lengths = torch.tensor([len(target) for target in targets])
        return MonotoneAlignment(emit, words, sources, lengths).log_likelihood().exp()


class TestTotalProbability:
    @pytest.mark.parametrize(("cells", "vocabulary", "steps"), [(1, 2, 4), (2, 2, 5), (3, 3, 4), (4, 2, 6)])
    def test_monotone_outputs_sum_to_one_when_the_end_is_forced(self, cells, vocabulary, steps):
        model = TinyMonotoneModel(cells, vocabulary, steps, seed=cells)
        model.force_the_end(steps - 1)
        total = model.likelihoods(outputs(vocabulary, steps - 1)).sum()
        assert total.item() == pytest.approx(1.0, abs=1e-12)

    def test_monotone_outputs_tend_to_one(self):
        model = TinyMonotoneModel(cells=3, vocabulary=1, steps=80, seed=5)
        likelihoods = model.likelihoods(outputs(1, 79))  # one for every length
        masses = likelihoods.cumsum(0)
        assert (likelihoods >= 0).all()
        assert masses[3] < 0.9
        assert 1 - masses[40] < 0.01
        assert masses[-1].item() == pytest.approx(1.0, abs=1e-4)
        assert masses[-1] <= 1 + 1e-12

    @pytest.mark.parametrize(("cells", "longest"), [(1, 3), (2, 2), (3, 2)])
    def test_segmental_outputs_sum_to_one(self, cells, longest):
        vocabulary, stop = 2, 2
        steps = cells * longest
        draw = {"dtype": torch.float64, "generator": seeded(cells)}
        # The next word of a segment by cell, place in it, and the two words before it.
        logits = torch.randn(cells, longest + 1, vocabulary + 1, vocabulary + 1, vocabulary + 1, **draw)
        logits[:, longest] = NEVER
        logits[:, longest, ..., stop] = 0  # no segment is longer
        table = logits.log_softmax(-1)
        empty = sum(table[cell, 0, stop, stop, stop] for cell in range(cells)).exp()
        sentences = [words for words in outputs(vocabulary, steps) if words]
        segments = torch.full((len(sentences), cells, steps + 1, longest + 1), NEVER, dtype=torch.float64)
        for row, words in enumerate(sentences):
            for cell, start, length in product(range(cells), range(len(words) + 1), range(longest + 1)):
                if start + length <= len(words):
                    before = (stop, stop, *words[:start])[-2:]
                    path = (*before, *words[start : start + length], stop)
                    segments[row, cell, start, length] = sum(
                        table[cell, place, path[place], path[place + 1], path[place + 2]]
                        for place in range(length + 1)
                    )
        sources = torch.full((len(sentences),), cells)
        lengths = torch.tensor([len(words) for words in sentences])
        total = SegmentalAlignment(segments, sources, lengths).log_likelihood().exp().sum() + empty
        assert total.item() == pytest.approx(1.0, abs=1e-12)


def forced(cells, steps):
    """Emission logits that leave one alignment only."""
    emit = torch.full((1, cells, len(steps)), -60.0, dtype=torch.float64)
    for step, cell in enumerate(steps):
        emit[0, cell, step] = 60.0
    return MonotoneAlignment(emit, torch.zeros_like(emit), torch.tensor([cells]), torch.tensor([len(steps)]))


class TestSegments:
    def pairs(self, segments):
        return [(segment.source, segment.target) for segment in segments]

    def test_cells_without_words_join_the_next_run(self):
        (found,) = forced(4, [0, 2, 2, 3]).segments()
        assert self.pairs(found) == [((0,), (0,)), ((1, 2), (1, 2)), ((3,), (3,))]

    def test_a_permutation_maps_them_back_and_drops_the_end_cell(self):
        (found,) = forced(4, [0, 2, 2, 3]).segments(torch.tensor([[2, 0, 1]]))
        assert self.pairs(found) == [((2,), (0,)), ((0, 1), (1, 2)), ((), (3,))]

    def test_cells_before_the_end_cell_join_its_run(self):
        (found,) = forced(4, [1, 3, 3]).segments(torch.tensor([[2, 0, 1]]))
        assert self.pairs(found) == [((2, 0), (0,)), ((1,), (1, 2))]

    def test_one_cell(self):
        (found,) = forced(1, [0, 0]).segments()
        assert self.pairs(found) == [((0,), (0, 1))]

    def test_segmental_segments_include_empty_ones(self):
        table = torch.full((1, 3, 4, 3), -9.0)
        table[0, 0, 0, 1] = table[0, 1, 1, 0] = table[0, 2, 1, 2] = 0
        alignment = SegmentalAlignment(table, torch.tensor([3]), torch.tensor([3]))
        assert self.pairs(alignment.segments()[0]) == [((0,), (0,)), ((1,), ()), ((2,), (1, 2))]
        mapped = alignment.segments(torch.tensor([[1, 2, 0]]))[0]
        assert self.pairs(mapped) == [((1,), (0,)), ((2,), ()), ((0,), (1, 2))]
        assert alignment.best_alignment().cells.tolist() == [[0, 2, 2]]


class TestMonotoneSemantics:
    def test_emission_at_the_last_cell_is_certain(self):
        words = torch.log(torch.tensor([[[0.5, 0.25, 0.125]]]))
        one = torch.tensor([1])
        for logit in (-50.0, 0.0, 50.0):
            alignment = MonotoneAlignment(torch.full((1, 1, 3), logit), words, one, torch.tensor([3]))
            torch.testing.assert_close(alignment.log_likelihood().exp(), torch.tensor([0.5 * 0.25 * 0.125]))

    def test_two_cells_two_words(self):
        """Emit at the first, then move before the second; or move before the first."""
        emit = torch.tensor([[[0.3, -0.4], [7.0, 7.0]]], dtype=torch.float64)
        words = torch.tensor([[[0.2, 0.9], [0.6, 0.7]]], dtype=torch.float64)
        two = torch.tensor([2])
        first, second = emit[0, 0].sigmoid().tolist()
        expected = first * 0.2 * (1 - second) * 0.7 + (1 - first) * 0.6 * 0.7
        alignment = MonotoneAlignment(emit, words.log(), two, two)
        assert alignment.log_likelihood().exp().item() == pytest.approx(expected)
        stay = first * 0.2 * (1 - second) * 0.7 / expected
        assert alignment.posteriors()[0, 0].tolist() == pytest.approx([stay, 0.0])


@pytest.mark.parametrize("seed", range(20))
def test_posteriors_are_probabilities_at_any_scale(seed):
    generator = torch.Generator().manual_seed(seed)
    emit, words = torch.randn(2, 4, 6, 8, generator=generator) * 1e4
    table = torch.randn(4, 6, 9, 3, generator=generator) * 1e4
    columns = MonotoneAlignment(emit, words).posteriors().sum(1)
    cells = SegmentalAlignment(table).posteriors().sum((2, 3))
    torch.testing.assert_close(columns, torch.ones_like(columns))
    torch.testing.assert_close(cells, torch.ones_like(cells))
