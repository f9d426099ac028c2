"""Rows of a beam arranged by sentence."""

import torch

from permalign.heads.beam_slots import BeamSlots


def test_gather_undoes_scatter():
    slots = BeamSlots.of(torch.tensor([2, 0, 2, 2]), num_sentences=4)
    rows = torch.arange(8.0).view(4, 2)
    table = slots.scatter(rows, fill=-1.0)
    assert table.shape == (4, 3, 2)
    assert torch.equal(table[2], rows[[0, 2, 3]])
    assert (table[[1, 3]] == -1).all()
    assert torch.equal(slots.gather(table), rows)


def test_one_row_for_each_sentence():
    slots = BeamSlots.one_each(3, torch.device("cpu"))
    assert slots.sentences.tolist() == [0, 1, 2]
    assert slots.scatter(torch.ones(3, 5), fill=0.0).shape == (3, 1, 5)
