"""`LabelledPermutation` against the contract and its twin; with one label it is `SeparablePermutation`."""

import pytest
import torch
from tests.structures.contract import seeded
from tests.structures.order_contract import OrderContract

from permalign import LabelledPermutation, SeparablePermutation
from permalign.structures import FactorisedLabelledPermutation
from permalign.structures.brute_force import EnumeratedLabelledPermutation, packed_splits
from permalign.structures.permutations import derivation_count

SCORES = ("rule_scores", "token_scores", "split_scores", "root_scores")


def shape(tree):
    """Spans, rules and labels in pre-order."""
    return [(node.start, node.end, node.rule, node.label) for node in tree.nodes()]


def twin_shape(tree, labels):
    labels = iter(labels)

    def below(node):
        return [
            (node.start, node.end, node.rule, next(labels)),
            *(x for child in node.children for x in below(child)),
        ]

    return below(tree)


class TestLabelledPermutation(OrderContract):
    labels = 2
    sizes = [1, 4, 2, 3]  # noqa: RUF012
    small = 3
    differentiable = (*SCORES, "emissions")

    def parameters(self, sizes, generator, scale=1.0):
        batch, longest = len(sizes), max(sizes)
        draw = {"dtype": torch.float64, "generator": generator}
        labels = self.labels
        return {
            "rule_scores": scale * torch.randn(2, labels, labels, labels, **draw),
            "token_scores": scale * torch.randn(batch, longest, labels, **draw),
            "split_scores": scale * torch.randn(batch, (longest**3 - longest) // 6, 2, **draw),
            "root_scores": scale * torch.randn(labels, **draw),
            "emissions": torch.randn(batch, longest, longest, **draw).log_softmax(-1),
            "lengths": torch.tensor(sizes),
        }

    def alone(self, parameters, sentence, size):
        longest = parameters["emissions"].shape[1]
        kept = [place for (_, _, end), place in packed_splits(longest).items() if end <= size]
        return parameters | {
            "token_scores": parameters["token_scores"][sentence : sentence + 1, :size],
            "split_scores": parameters["split_scores"][sentence : sentence + 1, kept],
            "emissions": parameters["emissions"][sentence : sentence + 1, :size, :size],
            "lengths": torch.tensor([size]),
        }

    def padding(self, parameters):
        longest, lengths = parameters["emissions"].shape[1], parameters["lengths"]
        ends = torch.tensor([end for _, _, end in packed_splits(longest)], dtype=torch.int64)
        beyond = torch.arange(longest) >= lengths[:, None]  # (batch, token)
        return {
            "rule_scores": torch.zeros_like(parameters["rule_scores"], dtype=torch.bool),
            "root_scores": torch.zeros_like(parameters["root_scores"], dtype=torch.bool),
            "token_scores": beyond[..., None].expand_as(parameters["token_scores"]),
            "split_scores": (ends > lengths[:, None])[..., None].expand_as(parameters["split_scores"]),
            "emissions": beyond[:, :, None] | beyond[:, None, :],
        }

    def build(self, parameters):
        scores = {name: parameters[name] for name in SCORES}
        return LabelledPermutation(**scores, lengths=parameters["lengths"])

    def twin(self, parameters):
        scores = {name: parameters[name] for name in SCORES}
        return EnumeratedLabelledPermutation(**scores, lengths=parameters["lengths"])

    def own_values(self, distribution):
        return {"span_marginals": distribution.span_marginals(), "rule_counts": distribution.rule_counts()}

    def marginals(self, distribution):
        return [*super().marginals(distribution), distribution.span_marginals()]

    def count(self, size):
        labels = self.labels
        zeros = torch.zeros(2, labels, labels, labels, dtype=torch.float64)
        distribution = LabelledPermutation(zeros, torch.zeros(1, size, labels, dtype=torch.float64))
        return distribution.log_partition(), derivation_count(size) * labels ** (2 * size - 1)

    def outcomes(self, twin, sentence):
        return {order: float(log_prob.exp()) for order, log_prob in twin.order_log_probs(sentence).items()}

    # ---------------------------------------------------------------- what only labelled trees have
    @pytest.mark.parametrize("scale", [20.0, 60.0, 200.0, 1000.0])
    def test_scores_on_both_sides_of_what_probabilities_can_hold(self, scale):
        parameters = self.parameters([4, 3], seeded(21), scale)
        parameters["emissions"] = parameters["emissions"] * scale
        ours = self.values(self.build(parameters), parameters) | self.gradients(self.build, parameters)
        theirs = self.values(self.twin(parameters), parameters) | self.gradients(self.twin, parameters)
        self.assert_same(ours, theirs, rtol=1e-9, atol=1e-8)

    @pytest.mark.parametrize("labels", [1, 3, 5])
    def test_other_numbers_of_labels(self, labels):
        self.labels = labels
        parameters = self.parameters([3, 2] if labels > 1 else [5, 3], seeded(22))
        ours = self.values(self.build(parameters), parameters) | self.gradients(self.build, parameters)
        theirs = self.values(self.twin(parameters), parameters) | self.gradients(self.twin, parameters)
        self.assert_same(ours, theirs, rtol=1e-9, atol=1e-10)

    @pytest.mark.parametrize("scale", [1.0, 40.0])
    def test_one_label_is_no_label(self, scale):
        parameters = self.parameters([1, 7, 2, 5], seeded(23), scale)
        splits, lengths, emissions = (parameters[name] for name in ("split_scores", "lengths", "emissions"))
        rules, tokens = torch.zeros(2, 1, 1, 1).double(), torch.zeros(4, 7, 1).double()
        results = []
        for labelled in (True, False):
            leaf = splits.clone().requires_grad_()
            distribution = (
                LabelledPermutation(rules, tokens, leaf, lengths)
                if labelled
                else SeparablePermutation(leaf, lengths)
            )
            orders = self.reversed_orders(parameters)
            values = [
                distribution.log_partition(),
                distribution.rule_marginals(),
                distribution.expected_matrix(),
                distribution.log_prob(orders),
                distribution.log_likelihood(emissions),
                distribution.entropy(),
            ]
            gradients = [
                torch.autograd.grad(value.square().sum(), leaf, retain_graph=True)[0] for value in values
            ]
            best = [(one.order, pytest.approx(one.log_prob)) for one in distribution.best_derivation()]
            greedy = [(one.order, pytest.approx(one.log_prob)) for one in distribution.greedy_derivation()]
            results.append((values + gradients, best, greedy))
        torch.testing.assert_close(results[0][0], results[1][0], rtol=1e-9, atol=1e-10)
        assert results[0][1:] == results[1][1:]

    def test_derivations_equal_the_twin(self):
        parameters = self.parameters([*self.sizes, 1, 1, 1, 1], seeded(24))
        distribution, twin = self.build(parameters), self.twin(parameters)
        for ours, (theirs,) in zip(distribution.best_derivation(), twin.top_labelled(1), strict=True):
            assert shape(ours.tree) == twin_shape(theirs.tree, theirs.labels)
            assert ours.order == theirs.order
            assert ours.log_prob == pytest.approx(theirs.log_prob)
        for ours, theirs in zip(distribution.greedy_derivation(), twin.greedy_labelled(), strict=True):
            assert shape(ours.tree) == twin_shape(*theirs)

    @pytest.mark.parametrize("number", [1, 7, 300])
    def test_top_derivations_equal_the_twin(self, number):
        parameters = self.parameters([1, 3, 4], seeded(25))
        ours = self.build(parameters).top_derivations(number)
        for found, expected in zip(ours, self.twin(parameters).top_labelled(number), strict=True):
            assert [d.log_prob for d in found] == pytest.approx([d.log_prob for d in expected])
            assert [shape(d.tree) for d in found] == [twin_shape(d.tree, d.labels) for d in expected]

    def test_top_derivations_with_ties_are_all_different(self):
        zeros = LabelledPermutation(torch.zeros(2, 2, 2, 2), torch.zeros(1, 3, 2))
        (ranked,) = zeros.top_derivations(1000)
        assert len({tuple(shape(one.tree)) for one in ranked}) == 8 * 2**5 == len(ranked)

    def test_nodes_and_leaves_are_counted(self):
        distribution = self.build(self.parameters([6, 4, 1], seeded(28)))
        lengths = torch.tensor([6.0, 4.0, 1.0]).double()
        torch.testing.assert_close(distribution.rule_counts().flatten(1).sum(1), lengths - 1)
        torch.testing.assert_close(distribution.span_marginals().sum((1, 2)), 2 * lengths - 1)
        torch.testing.assert_close(distribution.span_marginals()[:, :6].sum((1, 2)), lengths)


class TestFactorisedLabelledPermutation(TestLabelledPermutation):
    """The same with rules that are products: its twin is that of the rules as one tensor."""

    differentiable = ("child_scores", "token_scores", "split_scores", "root_scores", "emissions")

    def parameters(self, sizes, generator, scale=1.0):
        parameters, labels = super().parameters(sizes, generator, scale), self.labels
        del parameters["rule_scores"]
        draw = {"dtype": torch.float64, "generator": generator}
        return {"child_scores": scale * torch.randn(2, 2, labels, labels, **draw), **parameters}

    def padding(self, parameters):
        masks = super().padding({"rule_scores": parameters["child_scores"], **parameters})
        return {"child_scores": masks.pop("rule_scores"), **masks}

    def build(self, parameters):
        scores = {name: parameters[name] for name in self.differentiable[:-1]}
        return FactorisedLabelledPermutation(**scores, lengths=parameters["lengths"])

    def twin(self, parameters):
        left, right = parameters["child_scores"].unbind(1)
        return super().twin({"rule_scores": left[..., :, None] + right[..., None, :], **parameters})


@pytest.mark.usefixtures("unchecked")
class TestBadInput:
    rules, tokens = torch.zeros(2, 3, 3, 3), torch.zeros(2, 4, 3)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"token_scores": torch.zeros(4, 3)}, r"token_scores has shape \(4, 3\).*\(batch, n, K\)"),
            ({"rule_scores": torch.zeros(2, 3, 3, 2)}, r"rule_scores has shape .*must be \(2, 3, 3, 3\)"),
            ({"split_scores": torch.zeros(2, 4, 2)}, r"split_scores has shape .*must be \(2, 10, 2\)"),
            ({"root_scores": torch.zeros(2)}, r"root_scores has shape .*must be \(3,\)"),
            ({"rule_scores": torch.zeros(2, 3, 3, 3).double()}, r"Convert it with"),
            ({"lengths": torch.tensor([4, 5])}, "lengths goes up to 5"),
            ({"lengths": torch.tensor([0, 4])}, "lengths goes down to 0"),
            ({"root_scores": torch.tensor([0.0, torch.nan, 0.0])}, r"root_scores\[1\] is nan"),
            ({"token_scores": torch.full((2, 4, 3), torch.inf)}, "must be finite"),
        ],
    )
    def test_wrong_scores(self, change, message):
        with pytest.raises(ValueError, match=message):
            LabelledPermutation(**({"rule_scores": self.rules, "token_scores": self.tokens} | change))

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda d: d.log_likelihood(torch.zeros(2, 4, 3)), "emissions has shape"),
            (lambda d: d.relaxed_sample(0.0), "temperature is 0.0"),
            (lambda d: d.top_derivations(0), "k is 0"),
            (lambda d: d.most_probable_order(0), "derivations is 0"),
            (lambda d: d.expand((3,)), "can only be expanded"),
            (lambda d: d.log_prob(torch.zeros(2, 4, dtype=torch.int64)), "must be a permutation"),
        ],
    )
    def test_wrong_arguments_of_methods(self, call, message):
        with pytest.raises(ValueError, match=message):
            call(LabelledPermutation(self.rules, self.tokens))

    def test_repr(self):
        distribution = LabelledPermutation(self.rules, self.tokens[:1]).expand((5,))
        assert repr(distribution) == "LabelledPermutation(sentences: 5, length: 4, labels: 3)"
        assert distribution.support.check(distribution.sample()).all()
