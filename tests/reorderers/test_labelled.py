"""The labelled reorderer: objectives and decodings against brute force, its options, and the grammar it learns."""

import pytest
import torch
from tests.reorderers.contract import EMBEDDING_DIM, VOCAB_SIZE, batch, source_encoder

from permalign.reorderers import InversionPrior, LabelGrammar, LabelledReorderer
from permalign.structures.brute_force import EnumeratedLabelledPermutation


def make(seed=0, num_labels=2, init_std=1.0, factorised=False, embeddings=None, encoder=None, **options):
    torch.manual_seed(seed)
    grammar = LabelGrammar(num_labels, init_std, factorised)
    given = {"vocab_size": VOCAB_SIZE, "embeddings": embeddings, "objective": "exact", "decoding": "viterbi"}
    if encoder is not None:
        given["source_encoder"] = source_encoder(embeddings, **encoder)
    return LabelledReorderer(grammar, **(given | options)).double()


def twin_of(reorderer, source, lengths):
    found = reorderer.eval().distribution(source, lengths)
    scores = (found.rule_scores, found.token_scores, found.split_scores, found.lengths, found.root_scores)
    return EnumeratedLabelledPermutation(*(part.detach() for part in scores))


FEATURES = {
    "token": {},
    "factorised": {"factorised": True},
    "encoding": {"features": "encoding", "encoder": {}},
    "splits": {"scorer_hidden_size": 7, "encoder": {}},
}


@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES)
class TestReordering:
    def test_soft_is_the_expected_matrix(self, features):
        reorderer = make(objective="soft", **features)
        source, lengths, states = batch(3, 4, 1)
        found = reorderer.train()(source, lengths, states)
        expected = twin_of(reorderer, source, lengths).expected_matrix()
        torch.testing.assert_close(found.matrix, expected)
        torch.testing.assert_close(found.states, expected @ states)

    def test_exact_leaves_the_sum_to_the_head(self, features):
        reorderer = make(objective="exact", **features)
        source, lengths, states = batch(4, 2)
        found = reorderer.train()(source, lengths, states)
        assert reorderer.sums_over_orders
        assert found.states is states
        emissions = torch.randn(2, 4, 4, dtype=torch.float64)
        expected = twin_of(reorderer, source, lengths).log_likelihood(emissions)
        torch.testing.assert_close(found.distribution.log_likelihood(emissions), expected)

    @pytest.mark.parametrize(("objective", "copies"), [("hard", 1), ("samples", 5)])
    def test_samples_are_permutations(self, features, objective, copies):
        reorderer = make(objective=objective, num_samples=5, **features)
        source, lengths, states = batch(4, 2)
        found = reorderer.train()(source, lengths, states)
        assert found.copies == copies
        matrix = found.matrix.detach()
        assert matrix.shape == (2 * copies, 4, 4)
        assert ((matrix == 0) | (matrix == 1)).all()
        assert (matrix.sum(1) == 1).all()
        found.states.square().mul(torch.arange(4.0)[:, None]).sum().backward()
        assert reorderer.grammar.rules.grad.abs().sum() > 0

    def test_decodings(self, features):
        given = batch(4, 3, 1)
        orders = {}
        for decoding in ("greedy", "viterbi", "permutation", "marginal"):
            reorderer = make(decoding=decoding, **features).eval()
            twin, found = twin_of(reorderer, *given[:2]), reorderer(*given)
            orders[decoding] = None if found.order is None else found.order.tolist()
            if decoding == "viterbi":
                best = [one[0] for one in twin.top_labelled(1)]
                assert [one.order for one in found.derivations] == [one.order for one in best]
                assert found.derivations[0].tree.label == best[0].labels[0]
        assert orders["greedy"] == [list(twin.padded(tree.order)) for tree, _ in twin.greedy_labelled()]
        assert orders["permutation"] == twin.most_probable_order().order.tolist()
        assert orders["marginal"] is None
        torch.testing.assert_close(found.matrix, twin.expected_matrix())


def test_labels_of_tokens_know_no_context():
    reorderer = make()
    tokens = reorderer.distribution(torch.tensor([[4, 5, 4]]), torch.tensor([3])).token_scores
    assert torch.equal(tokens[0, 0], tokens[0, 2])
    assert reorderer.source_encoder is None


def test_shared_embeddings():
    shared = torch.nn.Embedding(VOCAB_SIZE, EMBEDDING_DIM).double()
    reorderer = make(embeddings=shared, objective="soft")
    reorderer.train()(*batch(3, 4)).states.square().sum().backward()
    assert shared.weight.grad.abs().sum() > 0


def test_inversion_prior():
    reorderer = make(inversion_prior=InversionPrior(0.3, 2.0))
    source, lengths, states = batch(4, 3, 1)
    found = reorderer.train()(source, lengths, states).penalties["inversion_prior"]
    straight, inverted = twin_of(reorderer, source, lengths).rule_marginals().sum((0, 1))
    rate = inverted / (straight + inverted)
    torch.testing.assert_close(found, -2 * (0.3 * rate.log() + 0.7 * (1 - rate).log()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": "words"}, "one of token, encoding"),
        ({"num_labels": 0}, "num_labels is 0"),
        ({"init_std": 0.0}, "labels that start equal stay equal"),
        ({"objective": "exactly"}, "one of soft, hard, samples, exact"),
        ({"decoding": "beam"}, "one of greedy, viterbi, permutation, marginal"),
        ({"scorer_hidden_size": 28, "encoder": {"hidden_size": 7}}, "even"),
        ({"features": "encoding"}, "Pass a SourceEncoder"),
        ({"scorer_hidden_size": 7}, "Pass a SourceEncoder"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_options(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


class TestGrammar:
    def taught(self):
        """Words 4 and 5 have label 0, word 6 label 1: label 0 goes behind label 1, and two of label 0 stay."""
        reorderer = make()
        with torch.no_grad():
            reorderer.grammar.rules.fill_(-12.0)
            reorderer.grammar.rules[0, 0, 0, 0] = reorderer.grammar.rules[1, 0, 0, 1] = 0.0
            reorderer.grammar.root.copy_(torch.tensor([0.0, -12.0]))
            reorderer.token_labels.weight.fill_(-12.0)
            reorderer.token_labels.weight[4:6, 0] = reorderer.token_labels.weight[6, 1] = 0.0
        return reorderer

    def read(self, reorderer):
        first = (torch.tensor([[4, 6], [5, 6]]), torch.tensor([2, 2]), [["a", "x"], ["b", "x"]])
        second = (torch.tensor([[4, 5]]), torch.tensor([2]), [["a", "b"]])
        return reorderer.learned_grammar([first, second])

    def test_rules_come_by_use_and_labels_with_their_yields(self):
        grammar = self.read(self.taught().train())
        assert [str(rule) for rule in grammar.rules[:2]] == ["0 ⇄ 0 1", "0 → 0 0"]
        assert [rule.uses for rule in grammar.rules[:2]] == pytest.approx([2.0, 1.0], abs=1e-3)
        assert grammar.rules[0].share == pytest.approx(2 / 3, abs=1e-3)
        assert grammar.rules[0].score == 0.0
        assert len(grammar.rules) == 16
        assert [label.label for label in grammar.labels] == [0, 1]
        assert grammar.labels[1].yields == (("x", 2),)
        assert dict(grammar.labels[0].yields) == {"a": 2, "b": 2, "a x": 1, "b x": 1, "a b": 1}

    def test_as_text(self):
        lines = self.read(self.taught()).draw(rules=1, examples=2).splitlines()
        assert "0 ⇄ 0 1" in lines[2]
        assert lines[3].startswith("labels")
        assert "[1]  'x' (2)" in lines[5]

    def test_the_mode_is_left_as_it_was(self):
        reorderer = self.taught().train()
        self.read(reorderer)
        assert reorderer.training

    def test_bad_input(self):
        with pytest.raises(ValueError, match="batches is empty"):
            make().learned_grammar([])
        with pytest.raises(ValueError, match=r"sentences have \[1\] words.*lengths \[2\]"):
            make().learned_grammar([(torch.tensor([[4, 5]]), torch.tensor([2]), [["a"]])])


def test_it_learns_to_reverse():
    """By the exact objective, on targets that are the source reversed; longer sentences come out reversed."""
    reorderer = make(objective="exact", init_std=0.5).train()
    optimizer = torch.optim.Adam(reorderer.parameters(), lr=0.05)
    for step in range(60):
        torch.manual_seed(step)
        source = torch.randint(4, VOCAB_SIZE, (8, 4))
        emissions = (source[:, :, None] == source.flip(1)[:, None]).double().clamp(min=0.05).log()
        distribution = reorderer(source, torch.full((8,), 4), torch.zeros(8, 4, 1).double()).distribution
        optimizer.zero_grad()
        (-distribution.log_likelihood(emissions).mean()).backward()
        optimizer.step()
    source, lengths, states = batch(9, 4)
    order = reorderer.eval()(source, lengths, states).order.tolist()
    assert order == [[*reversed(range(9))], [3, 2, 1, 0, *range(4, 9)]]
