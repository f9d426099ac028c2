"""`LabelledSynchronousPermutation` against the contract of all distributions and its twin."""

import pytest
import torch
from tests.structures.contract import seeded
from tests.structures.test_alignment_contract import lengths_of
from tests.structures.test_synchronous_contract import LONGEST, TestSynchronousPermutation

from permalign import SynchronousPermutation
from permalign.kernels.layout import split_count
from permalign.structures import LabelledSynchronousPermutation
from permalign.structures.brute_force import (
    EnumeratedLabelledPermutation,
    EnumeratedSynchronousPermutation,
)
from permalign.structures.brute_force.alignments import compositions

LABELS = 2
GRAMMAR = ("rule_scores", "root_scores")


class TestLabelledSynchronousPermutation(TestSynchronousPermutation):
    sizes = [(1, 0), (3, 4), (2, 3), (1, 2), (3, 6), (3, 0)]  # noqa: RUF012
    small = (2, 2)
    differentiable = ("rule_scores", "root_scores", "token_scores", "split_scores", "segment_log_probs")

    def parameters(self, sizes, generator, scale=1.0):
        parameters = super().parameters(sizes, generator, scale)
        draw = {"dtype": torch.float64, "generator": generator}
        tokens = parameters["segment_log_probs"].shape[1]
        return parameters | {
            "rule_scores": scale * torch.randn(2, LABELS, LABELS, LABELS, **draw),
            "root_scores": scale * torch.randn(LABELS, **draw),
            "token_scores": scale * torch.randn(len(sizes), tokens, LABELS, **draw),
        }

    def alone(self, parameters, sentence, size):
        row = slice(sentence, sentence + 1)
        tokens = parameters["token_scores"][row, : size[0]]
        grammar = {name: parameters[name] for name in GRAMMAR}
        return super().alone(parameters, sentence, size) | grammar | {"token_scores": tokens}

    def padding(self, parameters):
        tokens = parameters["token_scores"]
        beyond = torch.arange(tokens.shape[1]) >= parameters["source_lengths"][:, None]
        none = {name: torch.zeros_like(parameters[name], dtype=torch.bool) for name in GRAMMAR}
        return super().padding(parameters) | none | {"token_scores": beyond[..., None].expand_as(tokens)}

    def build(self, parameters):
        return LabelledSynchronousPermutation(**parameters)

    def twin(self, parameters):
        own = {name: parameters[name] for name in (*GRAMMAR, "token_scores", "split_scores")}
        permutation = EnumeratedLabelledPermutation(**own, lengths=parameters["source_lengths"])
        pair = {name: parameters[name] for name in ("source_lengths", "target_lengths")}
        segments = parameters["segment_log_probs"]
        return EnumeratedSynchronousPermutation(
            parameters["split_scores"], segments, **pair, permutation=permutation
        )

    def count(self, size):
        tokens, words = size
        zeros = {
            "rule_scores": (2, LABELS, LABELS, LABELS),
            "root_scores": (LABELS,),
            "token_scores": (1, tokens, LABELS),
            "split_scores": (1, split_count(tokens), 2),
            "segment_log_probs": (1, tokens, words + 1, LONGEST + 1),
        }
        parameters = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in zeros.items()}
        found = self.build(parameters | lengths_of([size])).log_likelihood()
        return found, len(list(compositions(words, tokens, LONGEST)))

    def test_best_derivations_equal_the_twin(self):
        """The best of all trees, labels and cuts, weighed by the twin."""
        for seed in range(30, 33):
            parameters = self.parameters(self.sizes, seeded(seed))
            twin = self.twin(parameters)
            for sentence, best in enumerate(self.build(parameters).best_derivation()):
                labelled = twin.permutation.sentence_weights(sentence)
                segments = twin.weights(sentence) - twin.permutation.log_probs(sentence)[:, None]
                weights = (labelled.amax(1) - labelled.flatten().logsumexp(0))[:, None] + segments
                assert best.log_prob == pytest.approx(weights.max().item())
                tree, cut = divmod(int(weights.argmax()), weights.shape[1])
                assert best.order == twin.permutation.trees(sentence)[tree].order
                sizes = tuple(len(segment.target) for segment in best.segments)
                assert sizes == twin.cuts(sentence)[cut]
                assert all(node.label is not None for node in best.tree.nodes())

    def test_outputs_without_room(self):
        parameters = self.parameters([(2, 5), (3, 2)], seeded(42))
        with pytest.raises(ValueError, match=r"target_lengths\[0\] is 5 words.*L = 2.*write 4.*Use L = 3"):
            self.build(parameters)
        distribution = LabelledSynchronousPermutation(**self.leaves(parameters), validate_args=False)
        value = distribution.log_likelihood()
        assert value[0] == -torch.inf
        value[1].backward()
        assert distribution.best_derivation()[0].log_prob == -torch.inf

    def test_one_label_is_the_plain_distribution(self):
        parameters = self.parameters(self.sizes, seeded(50))
        grammar = {
            "rule_scores": torch.zeros(2, 1, 1, 1, dtype=torch.float64),
            "token_scores": torch.zeros_like(parameters["token_scores"][..., :1]),
        }
        plain = {name: t for name, t in parameters.items() if name not in (*GRAMMAR, "token_scores")}
        one_label = LabelledSynchronousPermutation(**plain, **grammar)
        theirs = SynchronousPermutation(**plain)
        self.assert_same(self.values(one_label, plain), self.values(theirs, plain))
        for ours, other in zip(one_label.best_derivation(), theirs.best_derivation(), strict=True):
            assert ours.segments == other.segments
            assert ours.log_prob == pytest.approx(other.log_prob)


del TestSynchronousPermutation  # it is collected where it stands
