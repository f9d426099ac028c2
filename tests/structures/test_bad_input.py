"""Wrong arguments are refused with the argument's name, what it was, the rule, and what to do."""

import pytest
import torch

from permalign import MonotoneAlignment, SegmentalAlignment, SeparablePermutation, SynchronousPermutation
from permalign.structures import LabelledSynchronousPermutation

pytestmark = pytest.mark.usefixtures("unchecked")


def refuses(*parts):
    """A ValueError whose message holds all the parts, in any order, and is a sentence or two."""
    return pytest.raises(ValueError, match="(?is)" + "".join(f"(?=.*{part})" for part in parts))


def shape(*sizes):
    return r"\(" + ", ".join(map(str, sizes)) + (",?" if len(sizes) == 1 else "") + r"\)"


def separable(length=3, batch=2, **options):
    return SeparablePermutation(torch.zeros(batch, (length**3 - length) // 6, 2), **options)


class TestSeparableScores:
    def test_a_number_of_splits_that_belongs_to_no_length(self):
        with refuses("scores", shape(2, 5, 2), "4", "10"):
            SeparablePermutation(torch.zeros(2, 5, 2))

    def test_the_wrong_number_of_rules(self):
        with refuses("scores", shape(2, 4, 3)):
            SeparablePermutation(torch.zeros(2, 4, 3))

    @pytest.mark.parametrize(
        ("number", "expected"), [(2, "1 for 2 words, 4 for 3"), (9, "4 for 3 words, 10 for 4")]
    )
    def test_the_wrong_number_of_splits(self, number, expected):
        with refuses("scores", shape(1, number, 2), rf"n words: {expected}\."):
            SeparablePermutation(torch.zeros(1, number, 2))

    def test_the_wrong_number_of_dimensions(self):
        with refuses("scores", shape(4, 2)):
            SeparablePermutation(torch.zeros(4, 2))

    def test_integers(self):
        with refuses("scores", "int64"):
            SeparablePermutation(torch.zeros(2, 4, 2, dtype=torch.int64))

    @pytest.mark.parametrize("number", [torch.nan, torch.inf])
    def test_what_is_not_a_number(self, number):
        scores = torch.zeros(2, 4, 2)
        scores[1, 2, 0] = number
        with refuses("scores", shape(2, 4, 2)):
            SeparablePermutation(scores)

    @pytest.mark.parametrize("sizes", [(1, 4, 4, 3, 2), (1, 4, 4, 4), (1, 4, 4, 4, 3), (1, 1, 1, 1, 2)])
    def test_dense_scores_of_the_wrong_shape(self, sizes):
        with refuses("scores", shape(*sizes)):
            SeparablePermutation.from_dense(torch.zeros(sizes))


class TestSeparableLengths:
    @pytest.mark.parametrize("lengths", [[3, 4], [0, 3], [-1, 2]])
    def test_out_of_range(self, lengths):
        wrong = next(str(length) for length in lengths if not 1 <= length <= 3)
        with refuses("lengths", wrong, "3" if int(wrong) > 3 else r"1\.\."):
            separable(lengths=torch.tensor(lengths))

    @pytest.mark.parametrize(
        "lengths", [torch.tensor([], dtype=torch.int64), torch.tensor([3]), torch.tensor(3)]
    )
    def test_not_one_for_every_sentence(self, lengths):
        with refuses("lengths", shape(*lengths.shape)):
            separable(lengths=lengths)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
    def test_not_integers(self, dtype):
        with refuses("lengths", str(dtype).removeprefix("torch.")):
            separable(lengths=torch.ones(2, dtype=dtype))

    def test_on_another_device(self):
        with refuses("lengths", "meta", "cpu"):
            separable(lengths=torch.ones(2, dtype=torch.int64, device="meta"))


class TestSeparableMethods:
    @pytest.mark.parametrize("order", [[0, 0, 1], [0, 1, 3], [-1, 0, 1]])
    def test_no_permutation(self, order):
        with refuses("order", "once", shape(2, 3)):
            separable().log_prob(torch.tensor([[0, 1, 2], order]))

    @pytest.mark.parametrize("order", [[2, 1, 0], [0, 2, 1], [1, 2, 0]])
    def test_padding_that_is_not_in_its_place(self, order):
        distribution = separable(lengths=torch.tensor([3, 2]))
        distribution.log_prob(torch.tensor([order, [1, 0, 2]]))
        with refuses("order", "padding in its place", shape(2, 3)):
            distribution.log_prob(torch.tensor([[0, 1, 2], order]))

    @pytest.mark.parametrize("sizes", [(2, 4), (3,), (3, 3), (5, 1, 3)])
    def test_orders_of_the_wrong_shape(self, sizes):
        with refuses("order", shape(*sizes)):
            separable().log_prob(torch.zeros(sizes, dtype=torch.int64))

    def test_orders_that_are_not_integers(self):
        with refuses("order", "float"):
            separable().log_prob(torch.zeros(2, 3))

    @pytest.mark.parametrize("sizes", [(2, 3, 4), (1, 3, 3), (2, 9)])
    def test_emissions_of_the_wrong_shape(self, sizes):
        with refuses("emissions", shape(*sizes)):
            separable().log_likelihood(torch.zeros(sizes))

    def test_emissions_of_another_dtype(self):
        with refuses("emissions", "float64", "float32"):
            separable().log_likelihood(torch.zeros(2, 3, 3, dtype=torch.float64))

    def test_emissions_on_another_device(self):
        with refuses("emissions", "meta", "cpu"):
            separable().log_likelihood(torch.zeros(2, 3, 3, device="meta"))

    def test_emissions_that_are_not_numbers(self):
        with refuses("emissions", "NaN"):
            separable().log_likelihood(torch.full((2, 3, 3), torch.nan))

    @pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
    def test_temperature(self, temperature):
        with refuses("temperature", str(temperature)):
            separable().relaxed_sample(temperature)

    @pytest.mark.parametrize("number", [0, -2])
    def test_number_of_derivations(self, number):
        with refuses(str(number)):
            separable().top_derivations(number)

    def test_words_for_a_drawing(self):
        with refuses("words", "2"):
            separable().best_derivation()[0].draw(["two", "words"])

    @pytest.mark.parametrize(
        "other",
        [
            {"length": 4},
            {"batch": 3},
            {"lengths": torch.tensor([2, 3])},
            {"normal_form": True},
        ],
    )
    def test_divergence_of_what_cannot_be_compared(self, other):
        with pytest.raises(ValueError, match=r"\w+"):
            torch.distributions.kl_divergence(separable(), separable(**other))


def two(first=2, second=2):
    return torch.tensor([first, second])


class TestMonotone:
    def build(self, emit=None, words=None, source=None, target=None):
        return MonotoneAlignment(
            torch.zeros(2, 3, 4) if emit is None else emit,
            torch.zeros(2, 3, 4) if words is None else words,
            two() if source is None else source,
            two() if target is None else target,
        )

    def test_shapes_that_differ(self):
        with refuses("word_log_probs", "emit_logits", shape(2, 3, 5), shape(2, 3, 4)):
            self.build(words=torch.zeros(2, 3, 5))

    def test_the_wrong_number_of_dimensions(self):
        with refuses("emit_logits", shape(3, 4)):
            self.build(emit=torch.zeros(3, 4), words=torch.zeros(3, 4))

    @pytest.mark.parametrize("sizes", [(2, 0, 4), (2, 3, 0)])
    def test_no_cells_or_no_steps(self, sizes):
        with refuses("emit_logits", shape(*sizes)):
            self.build(emit=torch.zeros(sizes), words=torch.zeros(sizes))

    def test_dtypes_that_differ(self):
        with refuses("word_log_probs", "float64", "float32"):
            self.build(words=torch.zeros(2, 3, 4, dtype=torch.float64))

    def test_devices_that_differ(self):
        with refuses("word_log_probs", "meta", "cpu"):
            self.build(words=torch.zeros(2, 3, 4, device="meta"))

    def test_not_numbers(self):
        for name in ("emit", "words"):
            with refuses("NaN", "emit_logits" if name == "emit" else "word_log_probs"):
                self.build(**{name: torch.full((2, 3, 4), torch.nan)})

    @pytest.mark.parametrize("wrong", [0, -1, 9])
    def test_lengths_out_of_range(self, wrong):
        with refuses("source_lengths", str(wrong), "3" if wrong > 3 else r"1\.\."):
            self.build(source=two(1, wrong))
        with refuses("target_lengths", str(wrong), "4" if wrong > 4 else r"1\.\."):
            self.build(target=two(1, wrong))

    @pytest.mark.parametrize("name", ["source", "target"])
    def test_lengths_of_the_wrong_kind(self, name):
        with refuses(f"{name}_lengths", shape(3)):
            self.build(**{name: torch.ones(3, dtype=torch.int64)})
        with refuses(f"{name}_lengths", "float"):
            self.build(**{name: torch.ones(2)})
        with refuses(f"{name}_lengths", shape(0)):
            self.build(**{name: torch.ones(0, dtype=torch.int64)})

    def test_an_order_of_the_wrong_shape(self):
        with refuses("order", shape(2, 7)):
            self.build().segments(torch.zeros(2, 7, dtype=torch.int64))


@pytest.mark.parametrize("alignment", ["monotone", "segmental"])
def test_values_are_checked_unless_that_is_turned_off(alignment, monkeypatch):
    def build(**options):
        nan = torch.full((2, 3, 5, 3), torch.nan)
        if alignment == "segmental":
            return SegmentalAlignment(nan, **options)
        return MonotoneAlignment(nan[..., 0], nan[..., 0], **options)

    assert build(validate_args=False)
    with refuses("NaN"):
        build()
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", False)
    assert build()
    with refuses("NaN"):
        build(validate_args=True)


class TestSegmental:
    def build(self, table=None, source=None, target=None):
        return SegmentalAlignment(
            torch.zeros(2, 3, 5, 3) if table is None else table,
            two() if source is None else source,
            two() if target is None else target,
        )

    def test_the_wrong_number_of_dimensions(self):
        with refuses("segment_log_probs", shape(2, 3, 5)):
            self.build(table=torch.zeros(2, 3, 5))

    @pytest.mark.parametrize("sizes", [(2, 0, 5, 3), (2, 3, 0, 3), (2, 3, 5, 0)])
    def test_no_cells_no_starts_or_no_sizes(self, sizes):
        with refuses("segment_log_probs", shape(*sizes)):
            self.build(table=torch.zeros(sizes))

    def test_not_numbers(self):
        with refuses("segment_log_probs", "NaN"):
            self.build(table=torch.full((2, 3, 5, 3), torch.nan))

    def test_lengths_out_of_range(self):
        with refuses("source_lengths", "4", "3"):
            self.build(source=two(1, 4))
        with refuses("target_lengths", "5", "4"):
            self.build(source=two(3, 3), target=two(1, 5))
        with refuses("source_lengths", "0"):
            self.build(source=two(1, 0))

    @pytest.mark.parametrize("name", ["source", "target"])
    def test_lengths_of_the_wrong_kind(self, name):
        with refuses(f"{name}_lengths", shape(3)):
            self.build(**{name: torch.ones(3, dtype=torch.int64)})
        with refuses(f"{name}_lengths", "float"):
            self.build(**{name: torch.ones(2)})

    def test_more_words_than_the_segments_can_hold(self):
        with refuses(r"\bL = 2\b", "3", shape(2, 3, 5, 3)):
            self.build(source=two(1, 1), target=two(1, 3)).log_likelihood()

    def test_an_order_of_the_wrong_shape(self):
        with refuses("order", shape(2, 7)):
            self.build().segments(torch.zeros(2, 7, dtype=torch.int64))


class TestSynchronous:
    def pair(self, scores=(2, 4, 2), segments=(2, 3, 5, 3), **options):
        return SynchronousPermutation(torch.zeros(scores), torch.zeros(segments), **options)

    @pytest.mark.parametrize("scores", [(2, 5, 2), (2, 4, 3), (4, 2)])
    def test_scores_of_the_wrong_shape(self, scores):
        with refuses("split_scores", shape(*scores)):
            self.pair(scores=scores)

    @pytest.mark.parametrize("segments", [(2, 3, 5), (2, 4, 5, 3), (1, 3, 5, 3)])
    def test_segments_of_the_wrong_shape(self, segments):
        with refuses("segment_log_probs", shape(*segments)):
            self.pair(segments=segments)

    @pytest.mark.parametrize("segments", [(2, 3, 0, 3), (2, 3, 5, 0)])
    def test_no_room_for_an_empty_segment(self, segments):
        with refuses("segment_log_probs", shape(*segments), "room for an empty segment"):
            self.pair(segments=segments)

    def test_lengths_out_of_range(self):
        with refuses("source_lengths", "4", "3 tokens"):
            self.pair(source_lengths=torch.tensor([4, 2]))
        with refuses("target_lengths", "5", "4 words"):
            self.pair(target_lengths=torch.tensor([5, 2]))

    @pytest.mark.parametrize("number", [torch.nan, torch.inf])
    def test_what_is_not_a_number(self, number):
        scores, segments = torch.zeros(1, 1, 2), torch.zeros(1, 2, 3, 2)
        for name, tensor in (("split_scores", scores), ("segment_log_probs", segments)):
            tensor.view(-1)[0] = number
            with refuses(name, str(number)):
                SynchronousPermutation(scores, segments)
            tensor.view(-1)[0] = 0.0

    def test_different_kinds_of_numbers(self):
        with refuses("segment_log_probs", "float64", "float32"):
            SynchronousPermutation(torch.zeros(1, 1, 2), torch.zeros(1, 2, 3, 2).double())

    def test_labels_of_other_sentences(self):
        with refuses("segment_log_probs", shape(1, 2, 3, 2), "token_scores", shape(1, 3, 4)):
            LabelledSynchronousPermutation(
                torch.zeros(2, 4, 4, 4), torch.zeros(1, 3, 4), torch.zeros(1, 2, 3, 2)
            )
