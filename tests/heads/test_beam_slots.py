"""Rows of a beam arranged by sentence."""

import torch

from permalign.heads.beam_slots import BeamSlots


def test_gather_undoes_scatter():
    slots, kept = BeamSlots.of(torch.tensor([2, 0, 2, 2]), num_sentences=4)
    assert kept.tolist() == [0, 2]
    rows = torch.arange(8.0).view(4, 2)
    table = slots.scatter(rows, fill=-1.0)
    assert table.shape == (2, 3, 2)
    assert torch.equal(table[1], rows[[0, 2, 3]])
    assert (table[0, 1:] == -1).all()
    assert torch.equal(slots.gather(table), rows)
    assert torch.equal(slots.pick(table, torch.tensor([3, 0, 3])), rows[[3, 0, 3]])


def test_rows_in_the_order_of_a_table_are_not_moved():
    slots, kept = BeamSlots.of(torch.tensor([1, 1, 3, 3]), num_sentences=4)
    assert slots.in_order
    assert kept.tolist() == [1, 3]
    assert slots.sentences.tolist() == [0, 0, 1, 1]
    rows = torch.arange(8.0).view(4, 2)
    table = slots.scatter(rows, fill=-1.0)
    assert torch.equal(table, rows.view(2, 2, 2))
    assert torch.equal(slots.gather(table), rows)
    assert torch.equal(slots.pick(table, torch.tensor([3, 0, 3])), rows[[3, 0, 3]])


def test_all_sentences_are_kept_if_all_have_rows():
    slots, kept = BeamSlots.of(torch.tensor([1, 0]), num_sentences=2)
    assert kept is None
    assert not slots.in_order


def test_one_row_for_each_sentence():
    slots = BeamSlots.one_each(3, torch.device("cpu"))
    assert slots.sentences.tolist() == [0, 1, 2]
    assert slots.scatter(torch.ones(3, 5), fill=0.0).shape == (3, 1, 5)
