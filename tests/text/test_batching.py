import json
import subprocess
import sys
from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from permalign.tasks.base import Example
from permalign.text.batch_sampler import BucketSampler
from permalign.text.batching import Batches, hide_words, pad
from permalign.text.codec import PADDING_ID, UNKNOWN_ID
from permalign.text.vocabulary import Vocabulary

BUDGET = 60
SOURCE = TARGET = Vocabulary("abcde")
lengths = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=1, max_size=60)


def stream(sampler):
    while True:
        yield from sampler


@given(lengths, st.integers(0, 3), st.booleans())
def test_an_epoch_has_every_example_once_in_batches_of_limited_size(lengths, seed, shuffle):
    sampler = BucketSampler(lengths, BUDGET, seed=seed, shuffle=shuffle)
    for epoch in range(3):
        assert sampler.epoch == epoch
        batches = list(sampler)
        assert len(batches) == len(sampler)
        assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
        for batch in batches:
            width = max(lengths[index][0] for index in batch) + max(lengths[index][1] for index in batch)
            assert len(batch) * width <= BUDGET


@given(lengths, st.integers(0, 100), st.integers(0, 3))
def test_resuming_after_any_batch_gives_the_same_batches(lengths, steps, seed):
    sampler = BucketSampler(lengths, BUDGET, seed=seed)
    going_on = stream(sampler)
    list(islice(going_on, steps))
    saved = json.loads(json.dumps(sampler.state_dict()))
    resumed = BucketSampler(lengths, BUDGET, seed=99)
    resumed.load_state_dict(saved)
    assert list(islice(stream(resumed), 30)) == list(islice(going_on, 30))


def test_examples_of_a_batch_have_similar_lengths():
    generator = torch.Generator().manual_seed(0)
    lengths = [(int(n), int(n)) for n in torch.randint(1, 50, (2000,), generator=generator)]
    for batch in BucketSampler(lengths, 800):
        in_batch = [lengths[index][0] for index in batch]
        assert max(in_batch) - min(in_batch) <= 4


def test_epochs_and_seeds_differ_but_the_same_seed_gives_the_same_batches():
    lengths = [(n % 5 + 1, 2) for n in range(100)]
    sampler, same_sampler = BucketSampler(lengths, 40), BucketSampler(lengths, 40)
    first, second = list(sampler), list(sampler)
    assert first != second
    assert [list(same_sampler), list(same_sampler)] == [first, second]
    assert list(BucketSampler(lengths, 40, seed=1)) != first


def test_the_order_is_the_same_on_every_machine():
    program = (
        "import sys\n"
        "from permalign.text.batch_sampler import BucketSampler\n"
        "sampler = BucketSampler([(n % 7 + 1, n % 3) for n in range(40)], 30, seed=5)\n"
        "print(list(sampler), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    here = list(BucketSampler([(n % 7 + 1, n % 3) for n in range(40)], 30, seed=5))
    assert done.stdout == f"{here} False\n"


def test_without_shuffling_batches_go_from_short_to_long():
    sampler = BucketSampler([(3, 1), (1, 1), (2, 1)], 4, shuffle=False)
    assert list(sampler) == list(sampler) == [[1], [2], [0]]


def test_the_number_of_examples_can_be_limited():
    sampler = BucketSampler([(1, 1)] * 10, 1000, batch_size=4)
    assert sorted(map(len, sampler)) == [2, 4, 4]
    with pytest.raises(ValueError, match="batch_size is 0, but must be at least 1"):
        BucketSampler([(1, 1)], 1000, batch_size=0)


def test_an_example_that_is_too_long_for_a_batch_is_an_error():
    with pytest.raises(ValueError, match=r"example 1 has 40 \+ 21 tokens, more than the 60 of a batch"):
        BucketSampler([(1, 1), (40, 21)], 60)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fingerprint": "?"}, "belongs to other batches"),
        ({"epoch": "1"}, "must be whole numbers"),
        ({"epoch": -1}, "no batch 0 in epoch -1"),
        ({"offset": 3}, "no batch 3 in epoch 0; an epoch has 2 batches"),
    ],
)
def test_an_invalid_position_is_an_error(changes, words):
    sampler = BucketSampler([(1, 1)] * 4, 4)
    with pytest.raises(ValueError, match=words):
        sampler.load_state_dict({**sampler.state_dict(), **changes})
    assert sampler.state_dict()["offset"] == 0


@pytest.mark.parametrize("other", [{"max_tokens": 5}, {"lengths": [(1, 1)] * 5}, {"shuffle": False}])
def test_a_position_in_other_batches_is_an_error(other):
    saved = BucketSampler([(1, 1)] * 4, 4).state_dict()
    with pytest.raises(ValueError, match="belongs to other batches"):
        BucketSampler(**{"lengths": [(1, 1)] * 4, "max_tokens": 4, **other}).load_state_dict(saved)


def test_batches_contain_the_ids_and_lengths_of_their_examples():
    examples = [Example(tuple("abcdefgh"[: n % 4 + 1]), tuple("xyz"[: n % 3 + 1]), str(n)) for n in range(25)]
    source = Vocabulary.build(example.source for example in examples)
    target = Vocabulary.build(example.target for example in examples)
    batches = Batches(examples, source, target, max_tokens=30, seed=3)
    seen = []
    for batch in batches:
        assert batch.source.shape == (len(batch), batch.source_lengths.max())
        assert batch.target.dtype == batch.target_lengths.dtype == torch.long
        for row, (example, index) in enumerate(zip(batch.examples, batch.indices, strict=True)):
            assert examples[index] is example
            assert source.decode(batch.source[row].tolist()) == example.source
            assert target.decode(batch.target[row].tolist()) == example.target
            assert batch.source_lengths[row] == len(example.source)
            assert batch.target_lengths[row] == len(example.target)
            seen.append(index)
    assert sorted(seen) == list(range(25))
    assert batches.sampler.epoch == 1


def test_rows_are_selected_and_sides_swapped():
    words = Vocabulary("abc")
    examples = [Example(("a",), ("b", "c"), "0"), Example(("b", "a"), ("c",), "1"), Example(("c",), (), "2")]
    (batch,) = Batches(examples, words, words, 100, shuffle=False)
    chosen = batch.source_lengths == 1
    selected = batch.select(chosen)
    assert torch.equal(selected.source, batch.source[chosen])
    assert torch.equal(selected.target_lengths, batch.target_lengths[chosen])
    swapped = selected.swap_sides()
    assert torch.equal(swapped.source, selected.target)
    assert torch.equal(swapped.target_lengths, selected.source_lengths)
    assert torch.equal(swapped.swap_sides().source, selected.source)


def test_a_batch_moves_between_devices():
    (batch,) = Batches([Example(("a",), ("b",), "0")], Vocabulary("a"), Vocabulary("b"), max_tokens=9)
    moved = batch.to("meta")
    assert {moved.source.device.type, moved.target_lengths.device.type} == {"meta"}
    assert batch.source.device.type == "cpu"
    assert moved.examples == batch.examples


def test_padding_of_an_empty_list():
    padded, lengths = pad([[], []])
    assert padded.shape == (2, 0)
    assert lengths.tolist() == [0, 0]
    assert pad([])[0].shape == (0, 0)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_the_workers_of_a_loader_make_the_same_batches(method):
    def make():
        return Batches(examples, SOURCE, TARGET, BUDGET, seed=3)

    words = [chr(ord("a") + index % 5) for index in range(30)]
    examples = [Example((word,) * (1 + index % 4), (word,), str(index)) for index, word in enumerate(words)]
    alone, batches = make(), make()
    loader = torch.utils.data.DataLoader(
        batches, sampler=batches.sampler, batch_size=None, num_workers=2, multiprocessing_context=method
    )
    assert len(loader) == len(alone)
    for _ in range(2):  # every epoch has an order of its own
        pairs = list(zip(loader, alone, strict=True))
        assert all(torch.equal(loaded.source, made.source) for loaded, made in pairs)
        assert all(loaded.examples == made.examples for loaded, made in pairs)


def test_a_loader_without_the_sampler_is_told_what_to_pass():
    batches = Batches([Example(("a",), ("b",), "0")], SOURCE, TARGET, BUDGET)
    with pytest.raises(TypeError, match=r"sampler=batches\.sampler and batch_size=None"):
        next(iter(torch.utils.data.DataLoader(batches)))


def test_a_share_of_the_words_is_hidden_but_no_padding():
    words = [tuple("abcde") * 8, tuple("edcba") * 4]
    examples = [Example(source, ("a",), str(number)) for number, source in enumerate(words * 50)]
    (batch,) = Batches(examples, SOURCE, TARGET, 100_000, shuffle=False)
    before = batch.source.clone()
    torch.manual_seed(0)
    hidden = hide_words(batch, 0.3)
    torch.manual_seed(0)
    again = hide_words(batch, 0.3)
    assert torch.equal(hidden.source, again.source)
    assert torch.equal(batch.source, before)
    assert torch.equal(hidden.source == PADDING_ID, before == PADDING_ID)
    changed = hidden.source != before
    assert (hidden.source[changed] == UNKNOWN_ID).all()
    assert changed.sum() / (before != PADDING_ID).sum() == pytest.approx(0.3, abs=0.03)
    assert torch.equal(hide_words(batch, 0.0).source, before)
