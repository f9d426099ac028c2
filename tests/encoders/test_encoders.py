"""What all encoders have in common, and each of them against a small reference."""

import pytest
import torch
from tests.structures.contract import seeded

from permalign.encoders import BiLstmEncoder, PrefixSumEncoder, TransformerEncoder, WindowEncoder
from permalign.encoders.transformer import sinusoids

MAKERS = {
    "bilstm": lambda: BiLstmEncoder(6, 8, num_layers=1, dropout=0.3),
    "bilstm of two layers": lambda: BiLstmEncoder(6, 8, num_layers=2, dropout=0.3),
    "transformer": lambda: TransformerEncoder(6, 8, num_layers=2, num_heads=2, dropout=0.3),
    "prefix_sum": lambda: PrefixSumEncoder(6, 8, num_sums=2, dropout=0.3),
    "window": lambda: WindowEncoder(6, 8, window_radius=2, dropout=0.3),
}


def vectors(*sizes):
    return torch.randn(*sizes, dtype=torch.float64, generator=seeded(3))


@pytest.fixture(params=MAKERS, ids=str)
def encoder(request):
    torch.manual_seed(0)
    return MAKERS[request.param]().double().eval()


def test_padding_and_the_rest_of_the_batch_change_nothing(encoder):
    embedded, lengths = vectors(3, 7, 6), torch.tensor([4, 7, 1])
    embedded[0, 4:] = 99.0
    states = encoder(embedded, lengths)
    assert states.shape == (3, 7, encoder.hidden_size)
    for row, length in enumerate(lengths.tolist()):
        alone = encoder(embedded[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(states[row, :length], alone[0])
        assert (states[row, length:] == 0).all()


def test_gradients_reach_every_parameter_and_no_padding(encoder):
    embedded = vectors(2, 5, 6).requires_grad_()
    states = encoder.train()(embedded, torch.tensor([3, 5]))
    (states * vectors(*states.shape)).sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())
    assert (embedded.grad[0, 3:] == 0).all()
    assert embedded.grad[0, :3].abs().sum() > 0


def test_two_hundred_words(encoder):
    states = encoder(vectors(1, 200, 6), torch.tensor([200]))
    assert states.isfinite().all()


def test_dropout_is_drawn_in_training_alone(encoder):
    embedded, lengths = vectors(2, 5, 6), torch.tensor([3, 5])
    assert torch.equal(encoder(embedded, lengths), encoder(embedded, lengths))
    encoder.train()
    assert not torch.equal(encoder(embedded, lengths), encoder(embedded, lengths))
    torch.manual_seed(1)
    once = encoder(embedded, lengths)
    torch.manual_seed(1)
    assert torch.equal(once, encoder(embedded, lengths))


def test_output_dropout_leaves_out_units_of_states_and_scales_the_others():
    torch.manual_seed(0)
    encoder = BiLstmEncoder(6, 64, output_dropout=0.25).double()
    embedded, lengths = vectors(4, 9, 6), torch.tensor([9, 9, 9, 9])
    states = encoder.eval()(embedded, lengths)
    dropped = encoder.train()(embedded, lengths)
    left_out = dropped == 0
    assert 0.2 < left_out.float().mean() < 0.3
    torch.testing.assert_close(dropped[~left_out], states[~left_out] / 0.75)


def lstm_of_one_direction(cell_weights, inputs):
    """An LSTM step by step: gates input, forget, cell, output."""
    from_input, from_hidden, bias_input, bias_hidden = cell_weights
    hidden = cell = inputs.new_zeros(from_hidden.shape[1])
    states = []
    for vector in inputs:
        gates = from_input @ vector + bias_input + from_hidden @ hidden + bias_hidden
        enter, forget, candidate, leave = gates.chunk(4)
        cell = forget.sigmoid() * cell + enter.sigmoid() * candidate.tanh()
        hidden = leave.sigmoid() * cell.tanh()
        states.append(hidden)
    return torch.stack(states)


def test_the_first_half_is_read_forward_and_the_second_backward():
    encoder, embedded = BiLstmEncoder(6, 8).double(), vectors(1, 5, 6)
    forward, backward = encoder.lstm.all_weights
    expected = torch.cat(
        [
            lstm_of_one_direction(forward, embedded[0]),
            lstm_of_one_direction(backward, embedded[0].flip(0)).flip(0),
        ],
        dim=-1,
    )
    torch.testing.assert_close(encoder(embedded, torch.tensor([5]))[0], expected)


def test_a_transformer_layer_against_its_formula():
    encoder, embedded = TransformerEncoder(6, 8, 1, 2).double().eval(), vectors(1, 5, 6)
    layer = encoder.layers.layers[0]
    states = encoder.project(embedded[0]) + sinusoids(5, 8)
    attention = layer.self_attn
    query, key, value = (layer.norm1(states) @ attention.in_proj_weight.T + attention.in_proj_bias).chunk(
        3, -1
    )
    mixed = [
        torch.softmax(query[:, part] @ key[:, part].T / 2, -1) @ value[:, part]
        for part in (slice(0, 4), slice(4, 8))  # a head has four units: divided by the root of 4
    ]
    states = states + attention.out_proj(torch.cat(mixed, -1))
    states = states + layer.linear2(torch.relu(layer.linear1(layer.norm2(states))))
    found = encoder(embedded, torch.tensor([5]))[0]
    torch.testing.assert_close(found, encoder.layers.norm(states))


def test_transformer_layers_begin_with_weights_of_their_own():
    first, second = TransformerEncoder(6, 8, 2, 2).layers.layers
    assert not torch.equal(first.linear1.weight, second.linear1.weight)


def test_a_transformer_knows_where_words_stand():
    encoder = TransformerEncoder(6, 8, 1, 2).double().eval()
    same_word = vectors(1, 1, 6).expand(1, 4, 6)
    states = encoder(same_word, torch.tensor([4]))[0]
    assert (states[0] - states[1]).abs().max() > 1e-3


@pytest.mark.usefixtures("unchecked")
class TestBadInput:
    @pytest.mark.parametrize("make", [BiLstmEncoder, lambda *sizes: TransformerEncoder(*sizes, 1, 2)])
    @pytest.mark.parametrize(
        ("sizes", "lengths"), [((2, 4, 5), [4, 4]), ((2, 4, 6), [5, 4]), ((2, 4, 6), [0, 4])]
    )
    def test_shapes(self, make, sizes, lengths):
        with pytest.raises(ValueError, match=r"embedded|lengths"):
            make(6, 6)(torch.zeros(sizes), torch.tensor(lengths))

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"hidden_size": 7}, "even"),
            ({"num_layers": 0}, "num_layers is 0"),
            ({"dropout": 1.0}, "dropout is 1.0"),
            ({"output_dropout": 1.5}, "dropout is 1.5"),
        ],
    )
    def test_options(self, options, message):
        with pytest.raises(ValueError, match=message):
            BiLstmEncoder(**({"input_size": 6, "hidden_size": 8} | options))

    def test_attention_heads_that_cannot_share_a_state(self):
        with pytest.raises(ValueError, match="multiple of num_heads"):
            TransformerEncoder(6, 8, num_layers=1, num_heads=3)


def test_sums_count_at_any_length():
    torch.manual_seed(0)
    encoder = PrefixSumEncoder(6, 8, num_sums=1).double()
    word = vectors(1, 1, 6)
    states = encoder(word.expand(1, 50, 6), torch.tensor([50]))[0]
    from_left, from_right = encoder.summand(word)[0, 0]
    count = torch.arange(1, 51)
    torch.testing.assert_close(states[:, 3], count * from_left)
    torch.testing.assert_close(states[:, 7], (51 - count) * from_right)
    assert (states[:, :3] == states[0, :3]).all()  # the rest is the word's own


@pytest.mark.parametrize(("hidden_size", "num_sums"), [(7, 1), (8, 4), (8, 0)])
def test_sums_need_room(hidden_size, num_sums):
    with pytest.raises(ValueError, match="sums"):
        PrefixSumEncoder(6, hidden_size, num_sums)


def test_windows_see_neighbours_alone():
    torch.manual_seed(0)
    encoder = WindowEncoder(6, 8, window_radius=2).double()
    embedded, lengths = vectors(1, 9, 6), torch.tensor([9])
    before = encoder(embedded, lengths)[0]
    embedded[0, 4] += 1.0
    changed = (encoder(embedded, lengths)[0] != before).any(-1)
    assert changed.tolist() == [abs(place - 4) <= 2 for place in range(9)]


def test_windows_need_an_even_size():
    with pytest.raises(ValueError, match="even"):
        WindowEncoder(6, 7, window_radius=1)
