"""The separable reorderer: its objectives and decodings against brute force, and its options."""

import pytest
import torch
from tests.reorderers.contract import EMBEDDING_DIM, HIDDEN_SIZE, VOCAB_SIZE, batch, source_encoder

from permalign.encoders import BiLstmEncoder
from permalign.reorderers import InversionPrior, SeparableReorderer, SourceEncoder
from permalign.structures.brute_force import EnumeratedPermutation
from permalign.structures.permutations import is_separable
from permalign.text.codec import BEGIN_ID, END_ID


def make(seed=0, sharpness=1.0, embeddings=None, encoder=None, **options):
    """A reorderer whose scores are far from uniform."""
    torch.manual_seed(seed)
    defaults = {"scorer_hidden_size": 4 * HIDDEN_SIZE, "objective": "hard", "decoding": "greedy"}
    reorderer = SeparableReorderer(
        source_encoder(embeddings, **(encoder or {})), **(defaults | options)
    ).double()
    with torch.no_grad():
        reorderer.scorer.second.weight.mul_(sharpness)
    return reorderer


def twin_of(reorderer, source, lengths):
    scores = reorderer.eval().distribution(source, lengths).scores.detach()
    return EnumeratedPermutation(scores, lengths, reorderer.normal_form)


def nodes(derivation):
    """What two kinds of trees can be compared by."""

    def below(tree):
        return [
            (tree.start, tree.end, tree.rule),
            *(node for child in tree.children for node in below(child)),
        ]

    return below(derivation.tree)


def is_permutation(matrix):
    ones = torch.ones(matrix.shape[:2], dtype=matrix.dtype)
    return bool(((matrix == 0) | (matrix == 1)).all()) and all(
        torch.equal(matrix.sum(axis), ones) for axis in (1, 2)
    )


class TestSourceEncoder:
    def test_the_scorer_sees_begin_the_words_and_end(self):
        reorderer = make()
        source, lengths, _ = batch(2, 4)
        first, second, *_ = source[0].tolist()
        embedded = reorderer.source_encoder.embeddings(torch.tensor([[BEGIN_ID, first, second, END_ID]]))
        expected = reorderer.source_encoder.encoder(embedded, torch.tensor([4]))
        found = reorderer.source_encoder(source, lengths, add_boundaries=True)
        assert found.shape == (2, 6, HIDDEN_SIZE)
        torch.testing.assert_close(found[:1, :4], expected)
        assert (found[0, 4:] == 0).all()

    def test_shared_embeddings_are_the_same_module(self):
        shared = torch.nn.Embedding(VOCAB_SIZE, EMBEDDING_DIM).double()
        reorderer = make(embeddings=shared, objective="soft")
        assert reorderer.source_encoder.embeddings is shared
        reorderer.train()(*batch(3, 5)).states.sum().backward()
        assert shared.weight.grad.abs().sum() > 0

    def test_contextual_embeddings_need_no_encoder(self):
        reorderer = make(encoder={"kind": "none"})
        assert {name.split(".")[0] for name, _ in reorderer.source_encoder.named_parameters()} == {
            "embeddings"
        }
        assert reorderer.eval()(*batch(3, 5)).order is not None

    def test_without_an_encoder_states_are_embeddings_and_zero_at_padding(self):
        embeddings = torch.nn.Embedding(VOCAB_SIZE, EMBEDDING_DIM)
        encoder, (source, lengths, _) = source_encoder(embeddings, kind="none"), batch(2, 4)
        states = encoder(source, lengths)
        assert torch.equal(states[0, :2], embeddings(source[0, :2]))
        assert torch.equal(states[1], embeddings(source[1]))
        assert (states[0, 2:] == 0).all()

    def test_a_vocabulary_without_words(self):
        with pytest.raises(ValueError, match="num_embeddings 4"):
            source_encoder(torch.nn.Embedding(4, EMBEDDING_DIM))

    def test_an_encoder_for_other_embeddings(self):
        with pytest.raises(ValueError, match="input_size 6, but embeddings has embedding_dim 7"):
            SourceEncoder(torch.nn.Embedding(VOCAB_SIZE, 7), BiLstmEncoder(6, 8))


@pytest.mark.parametrize("normal_form", [False, True])
class TestTraining:
    def test_soft_is_the_expected_matrix(self, normal_form):
        reorderer = make(objective="soft", normal_form=normal_form)
        source, lengths, states = batch(3, 5, 1)
        found = reorderer.train()(source, lengths, states)
        expected = twin_of(reorderer, source, lengths).expected_matrix()
        torch.testing.assert_close(found.matrix, expected)
        torch.testing.assert_close(found.states, expected @ states)
        assert (found.order, found.derivations, found.copies) == (None, None, 1)

    def test_hard_draws_permutations_as_often_as_they_are_probable(self, normal_form):
        reorderer = make(objective="hard", normal_form=normal_form, sharpness=3.0)
        source = torch.tensor([[4, 5, 6]]).expand(3000, 3)
        lengths, states = torch.full((3000,), 3), torch.zeros(3000, 3, 2, dtype=torch.float64)
        matrix = reorderer.train()(source, lengths, states).matrix
        assert is_permutation(matrix.detach())
        expected = twin_of(reorderer, source[:1], lengths[:1]).expected_matrix()[0]
        error = (expected * (1 - expected) / 3000).sqrt()
        assert ((matrix.detach().mean(0) - expected).abs() < 5 * error + 1e-12).all()

    def test_samples_are_copies_of_the_whole_batch(self, normal_form):
        reorderer = make(objective="samples", num_samples=7, normal_form=normal_form)
        source, lengths, states = batch(5, 2)
        found = reorderer.train()(source, lengths, states)
        assert found.copies == 7
        assert found.states.shape == (14, 5, states.shape[2])
        assert is_permutation(found.matrix.detach())
        assert torch.equal(found.states.detach(), (found.matrix @ states.repeat(7, 1, 1)).detach())
        assert torch.equal(found.matrix[1::2, 2:].detach(), torch.eye(5).double()[2:].expand(7, 3, 5))
        assert found.distribution.batch_shape == (2,)
        assert len({tuple(order) for order in found.matrix[::2].argmax(2).tolist()}) > 1

    def test_exact_leaves_the_sum_to_the_head(self, normal_form):
        reorderer = make(objective="exact", normal_form=normal_form)
        source, lengths, states = batch(4, 2)
        found = reorderer.train()(source, lengths, states)
        assert reorderer.sums_over_orders
        assert found.states is states
        assert (found.matrix, found.order) == (None, None)
        emissions = torch.randn(2, 4, 4, dtype=torch.float64)
        expected = twin_of(reorderer, source, lengths).log_likelihood(emissions)
        torch.testing.assert_close(found.distribution.log_likelihood(emissions), expected)


def test_temperature_is_that_of_the_relaxation():
    gradients = []
    for temperature in (0.5, 5.0):
        reorderer = make(objective="hard", temperature=temperature).train()
        torch.manual_seed(5)
        source, lengths, states = batch(5, 4)
        (reorderer(source, lengths, states).states * states).sum().backward()
        gradients.append(reorderer.scorer.second.weight.grad)
    assert not torch.allclose(*gradients)


@pytest.mark.parametrize("objective", ["soft", "hard", "samples", "exact"])
@pytest.mark.parametrize("normal_form", [False, True])
class TestDecoding:
    """In evaluation the objective does not matter."""

    def found(self, decoding, objective, normal_form):
        reorderer = make(
            3, sharpness=4.0, decoding=decoding, objective=objective, normal_form=normal_form
        ).eval()
        source, lengths, states = batch(5, 3, 1)
        return reorderer(source, lengths, states), twin_of(reorderer, source, lengths), lengths

    def test_greedy(self, objective, normal_form):
        found, twin, _ = self.found("greedy", objective, normal_form)
        assert list(map(nodes, found.derivations)) == list(map(nodes, twin.greedy_derivation()))

    def test_viterbi(self, objective, normal_form):
        found, twin, _ = self.found("viterbi", objective, normal_form)
        assert list(map(nodes, found.derivations)) == list(map(nodes, twin.best_derivation()))

    def test_permutation(self, objective, normal_form):
        found, twin, lengths = self.found("permutation", objective, normal_form)
        assert found.derivations is None
        assert torch.equal(found.order, twin.most_probable_order().order)
        assert all(
            is_separable(row[:length]) for row, length in zip(found.order.tolist(), lengths, strict=True)
        )

    def test_marginal(self, objective, normal_form):
        found, twin, _ = self.found("marginal", objective, normal_form)
        torch.testing.assert_close(found.matrix, twin.expected_matrix())
        assert (found.order, found.derivations) == (None, None)


class TestInversionPrior:
    @pytest.mark.parametrize("objective", ["soft", "hard", "exact", "samples"])
    def test_against_its_formula(self, objective):
        reorderer = make(inversion_prior=InversionPrior(0.3, 2.0), objective=objective, sharpness=3.0)
        source, lengths, states = batch(5, 3, 1)
        found = reorderer.train()(source, lengths, states).penalties["inversion_prior"]
        straight, inverted = twin_of(reorderer, source, lengths).rule_marginals().sum((0, 1))
        assert straight + inverted == pytest.approx(4 + 2)  # a tree has one node fewer than words
        rate = inverted / 6
        torch.testing.assert_close(found, -2 * (0.3 * rate.log() + 0.7 * (1 - rate).log()))

    def test_padding_changes_nothing(self):
        reorderer = make(inversion_prior=InversionPrior(0.3, 1.0)).train()
        source, lengths, states = batch(4, 6)
        whole = reorderer(source[:1], lengths[:1], states[:1]).penalties["inversion_prior"]
        cut = reorderer(source[:1, :4], lengths[:1], states[:1, :4]).penalties["inversion_prior"]
        torch.testing.assert_close(whole, cut)

    @pytest.mark.parametrize("rate", [0.0, 0.2, 1.0])
    def test_it_draws_the_rate_to_the_prior(self, rate):
        reorderer = make(inversion_prior=InversionPrior(rate, 1.0)).train()
        given = batch(6, 4)
        optimizer = torch.optim.Adam(reorderer.parameters(), lr=0.02)
        for _ in range(60):
            optimizer.zero_grad()
            reorderer(*given).penalties["inversion_prior"].backward()
            optimizer.step()
        straight, inverted = reorderer.distribution(*given[:2]).rule_marginals().sum((0, 1)).tolist()
        assert inverted / (straight + inverted) == pytest.approx(rate, abs=0.05)

    def test_sentences_without_splits_cost_nothing(self):
        reorderer = make(inversion_prior=InversionPrior(0.3, 1.0)).train()
        for lengths in ((1, 1), (1,)):
            penalty = reorderer(*batch(*lengths)).penalties["inversion_prior"]
            assert penalty.item() == 0

    def test_there_is_none_without_a_rate_or_in_evaluation(self):
        assert make().train()(*batch(3)).penalties == {}
        assert make(inversion_prior=InversionPrior(0.3, 1.0)).eval()(*batch(3)).penalties == {}


def test_without_scores_of_straight_rules_inversions_keep_their_difference():
    source, lengths, _ = batch(4, 2)
    scored = make().eval().distribution(source, lengths).scores
    free = make(score_straight_rules=False).eval().distribution(source, lengths).scores
    torch.testing.assert_close(free[..., 1], scored[..., 1] - scored[..., 0])
    assert (free[..., 0] == 0).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "exactly"}, "one of soft, hard, samples, exact"),
        ({"decoding": "beam"}, "one of greedy, viterbi, permutation, marginal"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"num_samples": 0}, "num_samples is 0"),
        ({"inversion_prior": InversionPrior(1.5, 1.0)}, "inversion_rate is 1.5"),
        ({"inversion_prior": InversionPrior(0.5, -1.0)}, "inversion_weight is -1.0"),
        ({"encoder": {"hidden_size": 7}}, "even"),
        ({"scorer_hidden_size": 0}, "hidden_size is 0"),
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_options(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.usefixtures("unchecked")
def test_lengths_that_do_not_fit():
    source, _, states = batch(3, 4)
    with pytest.raises(ValueError, match="lengths goes down to 0"):
        make()(source, torch.tensor([0, 4]), states)


def test_it_learns_to_reverse():
    """Trained by the exact objective on targets that are the source reversed, longer sentences come out reversed."""
    reorderer = make(objective="exact", encoder={"embedding_dim": 8}).train()
    optimizer = torch.optim.Adam(reorderer.parameters(), lr=0.02)
    for step in range(40):
        torch.manual_seed(step)
        source = torch.randint(4, VOCAB_SIZE, (8, 4))
        emissions = (source[:, :, None] == source.flip(1)[:, None]).double().clamp(min=0.05).log()
        distribution = reorderer(source, torch.full((8,), 4), torch.zeros(8, 4, 1).double()).distribution
        optimizer.zero_grad()
        (-distribution.log_likelihood(emissions).mean()).backward()
        optimizer.step()
    source, lengths, states = batch(6, 4)
    assert reorderer.eval()(source, lengths, states).order.tolist() == [
        [5, 4, 3, 2, 1, 0],
        [3, 2, 1, 0, 4, 5],
    ]


class TestInitialInversionRate:
    @pytest.mark.parametrize("rate", [0.05, 0.9])
    def test_it_multiplies_the_odds_of_inverted_rules(self, rate):
        source, lengths, _ = batch(2, 5)

        def odds(**options):
            distribution = make(sharpness=0.0, **options).distribution(source, lengths)  # biases alone
            straight, inverted = distribution.rule_marginals().sum((0, 1)).tolist()
            return inverted / straight

        assert odds(initial_inversion_rate=rate) / odds() == pytest.approx(rate / (1 - rate))

    def test_one_half_changes_nothing(self):
        assert torch.equal(make().scorer.second.bias, make(initial_inversion_rate=0.5).scorer.second.bias)

    @pytest.mark.parametrize("rate", [0.0, 1.0, -1.0])
    def test_wrong_rates_are_named(self, rate):
        with pytest.raises(ValueError, match=r"initial_inversion_rate is .*greater than 0 and less than 1"):
            make(initial_inversion_rate=rate)
