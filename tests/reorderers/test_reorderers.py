"""What all reorderers have in common; then the identity, local and Sinkhorn reorderers."""

from itertools import permutations

import pytest
import torch
from tests.reorderers.contract import HIDDEN_SIZE, STATE_SIZE, alone, batch, source_encoder

from permalign.reorderers import (
    IdentityReorderer,
    LocalReorderer,
    SeparableReorderer,
    SinkhornReorderer,
)


def make_separable(encoder=None, **options):
    defaults = {"scorer_hidden_size": 4 * HIDDEN_SIZE, "objective": "hard", "decoding": "greedy"}
    return SeparableReorderer(encoder or source_encoder(), **(defaults | options))


def make_sinkhorn(encoder=None, **options):
    return SinkhornReorderer(encoder or source_encoder(), **({"num_iterations": 32} | options))


MAKERS = {
    "none": IdentityReorderer,
    "local": lambda: LocalReorderer(STATE_SIZE, window_radius=3),
    "sinkhorn": lambda: make_sinkhorn(source_encoder(dropout=0.2)),
    "sinkhorn, Hungarian": lambda: make_sinkhorn(hungarian=True),
    "sinkhorn on a Transformer": lambda: make_sinkhorn(source_encoder(kind="transformer")),
    "separable on a Transformer": lambda: make_separable(source_encoder(kind="transformer", num_layers=2)),
    "separable on prefix sums": lambda: make_separable(
        source_encoder(kind="prefix_sum", num_sums=1), score_straight_rules=False
    ),
    **{
        f"separable, {objective}": lambda objective=objective: make_separable(
            source_encoder(dropout=0.2), objective=objective, dropout=0.2
        )
        for objective in ("soft", "hard", "exact", "samples")
    },
    **{
        f"separable by {decoding}, {form}": lambda decoding=decoding, form=form: make_separable(
            decoding=decoding, normal_form=form == "normal form"
        )
        for decoding in ("greedy", "viterbi", "permutation", "marginal")
        for form in ("any tree", "normal form")
    },
}


@pytest.fixture(params=MAKERS, ids=str)
def reorderer(request):
    torch.manual_seed(0)
    return MAKERS[request.param]().double().eval()


def test_padding_and_the_rest_of_the_batch_change_nothing(reorderer):
    given = batch(4, 6, 1, 3)
    given[0][0, 4:] = 7  # not the id of padding
    found = reorderer(*given)
    for row, length in enumerate(given[1].tolist()):
        own = reorderer(*alone(given, row))
        torch.testing.assert_close(found.states[row, :length], own.states[0], rtol=0, atol=1e-10)
        if found.order is not None:
            assert found.order[row, :length].tolist() == own.order[0].tolist()
            assert found.order[row, length:].tolist() == list(range(length, 6))
        if found.derivations is not None:
            assert found.derivations[row].tree == own.derivations[0].tree


def test_matrix_order_and_states_agree(reorderer):
    source, lengths, states = batch(4, 6, 1)
    found = reorderer(source, lengths, states)
    if found.matrix is not None:
        torch.testing.assert_close(found.states, found.matrix @ states)
        sums = torch.ones(3, 6, dtype=torch.float64)
        torch.testing.assert_close(found.matrix.sum(1), sums)
        torch.testing.assert_close(found.matrix.sum(2), sums, rtol=0, atol=1e-3)
    if found.order is not None:
        for row, order in enumerate(found.order.tolist()):
            assert torch.equal(found.states[row], states[row, order])
            assert sorted(order) == list(range(6))
            assert found.matrix is None or found.matrix[row].argmax(1).tolist() == order
    if found.derivations is not None:
        for row, derivation in enumerate(found.derivations):
            assert tuple(found.order[row, : lengths[row]].tolist()) == derivation.order


def test_gradients_reach_every_parameter(reorderer):
    source, lengths, states = batch(4, 6, 3)
    states.requires_grad_()
    found = reorderer.train()(source, lengths, states)
    total = (found.states * torch.randn_like(found.states)).sum()
    if reorderer.sums_over_orders:
        emissions = torch.randn(3, 6, 6, dtype=torch.float64)
        total = total + found.distribution.log_likelihood(emissions).sum()
    total.backward()
    assert states.grad.abs().sum() > 0
    assert {n for n, p in reorderer.named_parameters() if p.grad is None or not p.grad.abs().sum()} == set()


def test_what_the_caller_gave_is_not_changed(reorderer):
    given = batch(4, 6, 1)
    before = [tensor.clone() for tensor in given]
    reorderer(*given)
    reorderer.train()(*given)
    assert all(torch.equal(*pair) for pair in zip(before, given, strict=True))


def test_sentences_of_one_word(reorderer):
    given = batch(1, 1)
    assert reorderer(*given).states.shape == given[2].shape
    given[2].requires_grad_()
    reorderer.train()(*given).states.sum().backward()
    assert given[2].grad.isfinite().all()


def test_evaluation_is_deterministic_and_float32_works(reorderer):
    source, lengths, states = batch(5, 3)
    states, reorderer = states.float(), reorderer.float()
    once, again = reorderer(source, lengths, states), reorderer(source, lengths, states)
    assert once.states.dtype == torch.float32
    assert torch.equal(once.states, again.states)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * ("permutation" in name)) for name in MAKERS]
)
def test_two_hundred_words(name):
    torch.manual_seed(0)
    source, lengths, states = batch(200)
    assert MAKERS[name]().double().eval()(source, lengths, states).states.isfinite().all()


class TestIdentity:
    def test_nothing_moves(self):
        source, lengths, states = batch(4, 6)
        found = IdentityReorderer()(source, lengths, states)
        assert found.states is states
        assert found.order.tolist() == [list(range(6))] * 2


class TestLocal:
    @pytest.mark.parametrize("radius", [1, 3])
    def test_against_its_formula(self, radius):
        torch.manual_seed(0)
        reorderer = LocalReorderer(STATE_SIZE, radius).double()
        source, lengths, states = batch(2, 6)
        found = reorderer(source, lengths, states).states
        for row, length in enumerate(lengths.tolist()):
            for place in range(length):
                window = [
                    states[row, near] if 0 <= near < length else torch.zeros(STATE_SIZE, dtype=torch.float64)
                    for near in range(place - radius, place + radius + 1)
                ]
                gates = torch.sigmoid(reorderer.gates(torch.cat(window)))
                mixed = torch.tanh(sum(gate * state for gate, state in zip(gates, window, strict=True)))
                torch.testing.assert_close(found[row, place], mixed)

    def test_states_of_another_size(self):
        source, lengths, states = batch(2, 6)
        with pytest.raises(ValueError, match=f"Build it with input_size={STATE_SIZE}"):
            LocalReorderer(STATE_SIZE + 1, 3)(source, lengths, states)


class TestSinkhorn:
    def test_against_its_formula(self):
        torch.manual_seed(0)
        reorderer = make_sinkhorn(temperature=0.5, num_iterations=3).double().eval()
        source, lengths, states = batch(5)
        read = reorderer.source_encoder(source, lengths)[0].detach()
        scores = [
            [(reorderer.query(position) @ reorderer.key(token)) / 0.5 for token in read] for position in read
        ]
        matrix = torch.stack([torch.stack(row) for row in scores]).exp()
        for _ in range(3):
            matrix = matrix / matrix.sum(1, keepdim=True)
            matrix = matrix / matrix.sum(0)
        found = reorderer(source, lengths, states)
        torch.testing.assert_close(found.matrix[0], matrix)
        assert found.order is None

    def test_hungarian_finds_the_best_of_all_orders(self):
        torch.manual_seed(0)
        reorderer = make_sinkhorn(hungarian=True).double().eval()
        source, lengths, states = batch(5)
        scores = reorderer.scores(source, lengths)[0]
        best = max(permutations(range(5)), key=lambda order: scores[range(5), order].sum())
        assert tuple(reorderer(source, lengths, states).order[0].tolist()) == best

    def test_there_is_noise_in_training_alone(self):
        reorderer = make_sinkhorn(hungarian=True).double().train()
        given = batch(5)
        first, second = reorderer(*given), reorderer(*given)
        assert not torch.equal(first.matrix, second.matrix)
        assert first.order is None

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"temperature": 0.0}, "temperature"),
            ({"num_iterations": 0}, "num_iterations is 0"),
        ],
    )
    def test_options(self, options, message):
        with pytest.raises(ValueError, match=message):
            make_sinkhorn(**options)
