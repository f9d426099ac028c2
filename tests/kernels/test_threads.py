"""Sentences are computed by several threads, and nobody sees a result before all of it is there."""

import multiprocessing
import os
import threading
import time

import pytest
import torch
from tests.structures.contract import seeded

from permalign import SeparablePermutation
from permalign.kernels.threads import for_each_sentence


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_the_caller_waits_for_the_sentences_of_other_threads(two_threads):
    done, both_have_one, caller = [], threading.Barrier(2), threading.current_thread()

    def kernel(item):
        both_have_one.wait()
        if threading.current_thread() is not caller:
            time.sleep(0.2)  # long after the caller has finished its own
        done.append(item)

    for_each_sentence(kernel, 2)
    assert sorted(done) == [0, 1]


def test_an_error_in_another_thread_reaches_the_caller(two_threads):
    both_have_one, caller = threading.Barrier(2), threading.current_thread()

    def kernel(item):
        both_have_one.wait()
        if threading.current_thread() is not caller:
            raise ValueError("of the other thread")

    with pytest.raises(ValueError, match="of the other thread"):
        for_each_sentence(kernel, 2)


def scores(batch=8, words=9):
    return torch.randn(batch, (words**3 - words) // 6, 2, generator=seeded(batch))


def answers(given):
    """What a distribution says about a batch, with gradients, as bytes."""
    leaf = given.clone().requires_grad_()
    distribution = SeparablePermutation(leaf)
    matrix = distribution.expected_matrix()
    (distribution.log_partition().sum() + matrix.square().sum()).backward()
    return b"".join(part.detach().numpy().tobytes() for part in (matrix, leaf.grad))


def test_four_python_threads_get_the_answers_of_one(two_threads):
    given = scores()
    expected, found = answers(given), []
    threads = [threading.Thread(target=lambda: found.append(answers(given))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_four_python_threads_share_one_distribution(two_threads):
    distribution, found = SeparablePermutation(scores()), []
    expected = SeparablePermutation(scores()).expected_matrix()
    threads = [
        threading.Thread(target=lambda: found.append(distribution.expected_matrix())) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(torch.equal(matrix, expected) for matrix in found)


def test_results_do_not_depend_on_the_company_in_the_batch(two_threads):
    given = scores()
    together = SeparablePermutation(given)
    for index in range(len(given)):
        alone = SeparablePermutation(given[index : index + 1])
        assert torch.equal(together.expected_matrix()[index], alone.expected_matrix()[0])
        assert torch.equal(together.log_partition()[index], alone.log_partition()[0])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_forked_after_kernels_ran_gets_the_same_answers(two_threads):
    given = scores()
    expected = answers(given)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child():
        torch.set_num_threads(1)  # torch's own threads do not survive a fork while gradients are computed
        matrix = SeparablePermutation(given).expected_matrix()
        sender.send(matrix.numpy().tobytes())
        os._exit(0)

    process = context.Process(target=child)
    process.start()
    assert receiver.poll(60)
    assert expected.startswith(receiver.recv())
    process.join()


class Permuted(torch.utils.data.Dataset):
    """A dataset whose items are computed by the kernels, in the workers of a DataLoader."""

    def __init__(self, given):
        self.given = given

    def __len__(self):
        return len(self.given)

    def __getitem__(self, index):
        return SeparablePermutation(self.given[index : index + 1]).expected_matrix()[0]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_of_a_data_loader_compute_the_same(method):
    given = scores(4, 6)
    expected = SeparablePermutation(given).expected_matrix()
    loader = torch.utils.data.DataLoader(
        Permuted(given), batch_size=2, num_workers=2, multiprocessing_context=method
    )
    assert torch.equal(torch.cat(list(loader)), expected)
