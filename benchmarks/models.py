"""Whole models: a training step against the paper's method, how its time is spent, and how fast answers come."""

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.measuring import Measurement, best_seconds
from benchmarks.slow_twin import slow_twin
from permalign import SeparablePermutation, Transducer
from permalign.reorderers.base import Reordering
from permalign.tasks.base import Example
from permalign.text.batching import Batch, Batches
from permalign.text.vocabulary import Vocabulary

Options = dict[str, Any]


def random_batch(
    pairs: int, source_words: int, target_words: int, source_types: int, target_types: int
) -> tuple[Vocabulary, Vocabulary, Batch]:
    """Vocabularies and one batch of random pairs of equal lengths."""
    random = Random(0)
    source, target = (
        Vocabulary([f"{side}{number}" for number in range(types)])
        for side, types in (("s", source_types), ("t", target_types))
    )
    examples = [
        Example(
            tuple(random.choices(source.tokens[4:], k=source_words)),
            tuple(random.choices(target.tokens[4:], k=target_words)),
            str(place),
        )
        for place in range(pairs)
    ]
    (batch,) = Batches(examples, source, target, 10**9, shuffle=False)
    return source, target, batch


def training_step(model: Transducer, batch: Batch) -> Callable[[], None]:
    """Forward, backward and Adam."""
    optimiser = torch.optim.Adam(model.parameters())

    def step() -> None:
        optimiser.zero_grad()
        model.train().loss(batch).total.backward()
        optimiser.step()

    return step


def arithmetic_options(width: int = 256, hidden: int = 1024) -> Options:
    """The authors' model, without dropout: one linear layer on reordered embeddings, expected permutations."""
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


class _AsThePaper(nn.Module):
    """The model's own reorderer, with the paper's method in place of the kernels."""

    sums_over_orders = False

    def __init__(self, reorderer: nn.Module) -> None:
        super().__init__()
        self.reorderer = reorderer

    def forward(self, source: Tensor, lengths: Tensor, states: Tensor) -> Reordering:
        read = self.reorderer.source_encoder(source, lengths, add_boundaries=True)
        scorer = self.reorderer.scorer
        matrix = slow_twin(read, scorer.first, scorer.second).expected_matrix
        return Reordering(matrix @ states, matrix=matrix)


def arithmetic_step(pairs: int = 16, words: int = 25, options: Options | None = None) -> list[Measurement]:
    """A training step with our kernels against one with the paper's method; the reorderer's share of ours."""
    source, target, batch = random_batch(pairs, words, words, 16, 16)
    options = options or arithmetic_options()
    fast, slow = Transducer(options, source, target), Transducer(options, source, target)
    slow.reorderer = _AsThePaper(slow.reorderer)
    states = torch.randn(pairs, words + 2, fast.reorderer.source_encoder.hidden_size, requires_grad=True)
    seconds = best_seconds(
        {
            "slow": (training_step(slow, batch), 2),
            "fast": (training_step(fast, batch), 10),
            "reordering": (lambda: reorder(fast.reorderer.scorer, states), 10),
        }
    )
    return [
        Measurement(
            "arithmetic step",
            f"a training step of the arithmetic model, {pairs} x {words} words, against the paper's method",
            seconds["slow"] / seconds["fast"],
            "x",
            "at least",
            30.0,
            seconds,
        ),
        Measurement(
            "reorderer's share",
            "of that step, spent in scoring splits and summing over reorderings",
            seconds["reordering"] / seconds["fast"],
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
    pairs: int = 64, source_words: int = 9, target_words: int = 12, types: int = 8_800, width: int = 256
) -> list[Measurement]:
    """A training step on a batch of English-Japanese size, and where its time goes."""
    source, target, batch = random_batch(pairs, source_words, target_words, types, types)
    model = Transducer(translation_options(width), source, target)
    step = training_step(model, batch)
    states = torch.randn(pairs, source_words, width, requires_grad=True)

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
    what = f"a ReMoto-SSNT training step, {pairs} pairs of {source_words} and {target_words} words, V = {types:,}"
    parts = {"head": "the head", "reorderer": "the reorderer", "adam": "Adam's update"}
    shares = {what: seconds[name] / seconds["step"] for name, what in parts.items()}
    return [
        Measurement("translation step", what, seconds["step"], "s", "at most", 0.4, seconds),
        *(
            Measurement(f"its {name}", f"of that step, spent in {name}", share, "x")
            for name, share in shares.items()
        ),
    ]


def answers(sentences: int = 512, words: int = 9, types: int = 50, width: int = 256) -> list[Measurement]:
    """Predictions of GeoQuery's size, beam 5: many at once, and one alone."""
    source, target, batch = random_batch(sentences, words, 1, 200, types)
    torch.manual_seed(0)
    model = Transducer(translation_options(width), source, target).eval()
    inputs = [example.source for example in batch.examples]
    seconds = best_seconds(
        {
            "batch": (lambda: model.predict(inputs, beam=5, max_length=8), 3),
            "single": (lambda: model.predict(inputs[:1], beam=5, max_length=8), 10),
        }
    )
    return [
        Measurement(
            "answers",
            f"sentences of {words} words answered in a second, SSNT with beam 5, outputs of up to 8 words",
            sentences / seconds["batch"],
            "/s",
            "at least",
            200.0,
        ),
        Measurement("one answer", "one such sentence alone", 1e3 * seconds["single"], "ms", "at most", 50.0),
    ]
