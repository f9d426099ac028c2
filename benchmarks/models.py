"""Whole models: the time of a training step, what it is spent on, and the time of predictions."""

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measuring import Measurement, best_seconds
from benchmarks.slow_twin import slow_twin
from permalign import MonotoneAlignment, SegmentalAlignment, SeparablePermutation, Transducer
from permalign.reorderers.base import Reordering
from permalign.tasks.base import Example
from permalign.text.batching import Batch, Batches
from permalign.text.vocabulary import Vocabulary

Options = dict[str, Any]


def random_batch(
    pairs: int, source_length: int, target_length: int, source_vocab_size: int, target_vocab_size: int
) -> tuple[Vocabulary, Vocabulary, Batch]:
    """Vocabularies (their sizes do not count special tokens) and one batch of random sentence pairs."""
    random = Random(0)
    source, target = (
        Vocabulary([f"{side}{number}" for number in range(size)])
        for side, size in (("s", source_vocab_size), ("t", target_vocab_size))
    )
    examples = [
        Example(
            tuple(random.choices(source.tokens[4:], k=source_length)),
            tuple(random.choices(target.tokens[4:], k=target_length)),
            str(number),
        )
        for number in range(pairs)
    ]
    (batch,) = Batches(examples, source, target, 10**9, shuffle=False)
    return source, target, batch


def training_step(model: Transducer, batch: Batch) -> Callable[[], None]:
    """A function that does one training step: forward, backward and Adam's update."""
    optimiser = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimiser.zero_grad()
        model.train().loss(batch).total.backward()
        optimiser.step()

    return step


def arithmetic_options(width: int = 256, hidden: int = 1024) -> Options:
    """The model of the paper's authors without dropout: expected permutations, and a linear layer on embeddings."""
    reorderer = {
        "kind": "separable",
        "objective": "soft",
        "embedding_dim": width,
        "encoder": {"hidden_size": width, "dropout": 0.0},
        "scorer_hidden_size": hidden,
        "dropout": 0.0,
    }
    return {
        "reorderer": reorderer,
        "head": {
            "kind": "tagging",
            "embedding_dim": width,
            "encoder": {"kind": "none"},
            "embedding_dropout": 0.0,
            "dropout": 0.0,
        },
    }


class _PaperReorderer(nn.Module):
    """The model's own reorderer, but with the paper's method in place of the kernels."""

    sums_over_orders = False

    def __init__(self, reorderer: nn.Module) -> None:
        super().__init__()
        self.reorderer = reorderer

    def forward(self, source: Tensor, lengths: Tensor, states: Tensor) -> Reordering:
        encoded = self.reorderer.source_encoder(source, lengths, add_boundaries=True)
        scorer = self.reorderer.scorer
        matrix = slow_twin(encoded, scorer.first, scorer.second).expected_matrix
        return Reordering(matrix @ states, matrix=matrix)


def arithmetic_step(pairs: int = 16, length: int = 25, options: Options | None = None) -> list[Measurement]:
    """A training step with our kernels and one with the paper's method, and the share of reordering in ours."""
    source, target, batch = random_batch(pairs, length, length, 16, 16)
    options = options or arithmetic_options()
    fast, slow = Transducer(options, source, target), Transducer(options, source, target)
    slow.reorderer = _PaperReorderer(slow.reorderer)
    states = torch.randn(pairs, length + 2, fast.reorderer.source_encoder.hidden_size, requires_grad=True)
    seconds = best_seconds(
        {
            "paper": (training_step(slow, batch), 2),
            "permalign": (training_step(fast, batch), 10),
            "reordering": (lambda: reorder(fast.reorderer.scorer, states), 10),
        }
    )
    return [
        Measurement(
            "arithmetic-step",
            f"training step of the arithmetic model, n={length}, B={pairs}: speedup over the paper's method",
            seconds["paper"] / seconds["permalign"],
            "x",
            "at least",
            30.0,
            {f"{name} seconds": value for name, value in seconds.items()},
        ),
        Measurement(
            "arithmetic-reordering",
            "training step of the arithmetic model: share of scoring splits and summing over reorderings",
            seconds["reordering"] / seconds["permalign"],
            "x",
            "at most",
            0.5,
        ),
    ]


def reorder(scorer: nn.Module, states: Tensor) -> None:
    """Scores and expected matrix of encoded sentences, forward and backward."""
    SeparablePermutation(scorer(states)).expected_matrix().square().sum().backward()


def translation_options(width: int = 256) -> Options:
    """Hard ReMoto on SSNT, as for English-Japanese."""
    return {
        "reorderer": {
            "kind": "separable",
            "objective": "hard",
            "embedding_dim": width,
            "encoder": {"hidden_size": width},
            "scorer_hidden_size": 512,
        },
        "head": {
            "kind": "ssnt",
            "embedding_dim": width,
            "encoder": {"hidden_size": width},
            "hidden_size": width,
        },
    }


def translation_step(
    pairs: int = 64, length: int = 9, target_length: int = 12, vocab_size: int = 8_800, width: int = 256
) -> list[Measurement]:
    """A training step on a batch of the size of English-Japanese, and the shares of its parts."""
    source, target, batch = random_batch(pairs, length, target_length, vocab_size, vocab_size)
    model = Transducer(translation_options(width), source, target)
    step = training_step(model, batch)
    states = torch.randn(pairs, length, width, requires_grad=True)

    def head_alone() -> None:
        model.train()
        arguments = (batch.source_lengths, batch.target, batch.target_lengths)
        (-model.head.log_likelihood(states, *arguments).mean()).backward()

    def reorderer_alone() -> None:
        model.train()
        model.reorderer(batch.source, batch.source_lengths, states).states.sum().backward()

    def update_alone() -> None:
        optimiser.step()

    optimiser = torch.optim.Adam(model.parameters())
    step()
    seconds = best_seconds(
        {
            "step": (step, 5),
            "head": (head_alone, 5),
            "reorderer": (reorderer_alone, 5),
            "adam": (update_alone, 5),
        }
    )
    what = "training step of ReMoto on SSNT"
    size = f"n={length}, m={target_length}, B={pairs}, V={vocab_size:,}"
    parts = {"head": "the head", "reorderer": "the reorderer", "adam": "Adam's update"}
    return [
        Measurement("translation-step", f"{what}, {size}", seconds["step"], "s", "at most", 0.4, seconds),
        *(
            Measurement(
                f"translation-{name}", f"{what}: share of {part}", seconds[name] / seconds["step"], "x"
            )
            for name, part in parts.items()
        ),
    ]


def alignment_shares(
    pairs: int = 32, length: int = 9, target_length: int = 20, vocab_size: int = 150, width: int = 256
) -> list[Measurement]:
    """The shares of the sums over alignments in training steps of SSNT and SWAN, on a batch of GeoQuery's size."""
    source, target, batch = random_batch(pairs, length, target_length, vocab_size, vocab_size)
    longest = -(-target_length // length)  # the shortest L with which all segments together are long enough
    emit, words = torch.randn(2, pairs, length + 1, target_length + 1, requires_grad=True)
    segments = torch.randn(pairs, length, target_length + 1, longest + 1, requires_grad=True)
    alignments = {
        "ssnt": lambda: MonotoneAlignment(emit, words - 10, validate_args=False),
        "swan": lambda: SegmentalAlignment(segments - 10, validate_args=False),
    }
    calls: dict[str, tuple[Callable[[], None], int]] = {}
    for kind, alignment in alignments.items():
        options = translation_options(width)
        options["reorderer"] = {"kind": "none"}
        options["head"]["kind"] = kind
        if kind == "swan":
            options["head"]["max_segment_length"] = longest
        calls[kind] = training_step(Transducer(options, source, target), batch), 5
        calls[f"{kind} alignments"] = (
            (lambda alignment=alignment: alignment().log_likelihood().sum().backward()),
            20,
        )
    seconds = best_seconds(calls)
    size = f"n={length}, m={target_length}, B={pairs}, V={vocab_size:,}"
    return [
        Measurement(
            f"{kind}-alignments",
            f"training step of {kind.upper()}, {size}: share of the sum over alignments",
            seconds[f"{kind} alignments"] / seconds[kind],
            "x",
            details={f"{name} seconds": seconds[name] for name in (kind, f"{kind} alignments")},
        )
        for kind in alignments
    ]


def predictions(
    sentences: int = 512, length: int = 9, vocab_size: int = 50, width: int = 256
) -> list[Measurement]:
    """Predictions for sentences of the size of GeoQuery's with beam 5: many at once, and a single one."""
    source, target, batch = random_batch(sentences, length, 1, 200, vocab_size)
    torch.manual_seed(0)
    model = Transducer(translation_options(width), source, target).eval()
    inputs = [example.source for example in batch.examples]
    seconds = best_seconds(
        {
            "batch": (lambda: model.predict(inputs, beam=5, max_length=8), 3),
            "single": (lambda: model.predict(inputs[:1], beam=5, max_length=8), 10),
        }
    )
    what = f"SSNT with beam 5, n={length}, outputs of at most 8 words"
    return [
        Measurement(
            "predictions",
            f"{what}: predictions per second",
            sentences / seconds["batch"],
            "/s",
            "at least",
            2000.0,
        ),
        Measurement(
            "single-prediction",
            f"{what}: time of a single prediction",
            1e3 * seconds["single"],
            "ms",
            "at most",
            8.0,
        ),
    ]
