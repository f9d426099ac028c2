import torch
from tests.structures.contract import seeded

from permalign.heads.lstm_gates import lstm_state


def test_a_step_is_that_of_torchs_cell():
    cell = torch.nn.LSTMCell(3, 4).double()
    inputs, hidden, memory = (
        torch.randn(5, size, dtype=torch.float64, generator=seeded(size + place))
        for place, size in enumerate((3, 4, 4))
    )
    gates = inputs @ cell.weight_ih.T + cell.bias_ih + hidden @ cell.weight_hh.T + cell.bias_hh
    before = memory.clone()
    with torch.no_grad():
        torch.testing.assert_close(lstm_state(gates.detach(), memory), cell(inputs, (hidden, memory)))
    assert torch.equal(memory, before)
