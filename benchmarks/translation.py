"""Training steps of translation models: with and without what makes them fast, and beside JoeyNMT."""

import sys
from collections.abc import Callable
from importlib.util import find_spec
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, nll_loss, pad

from benchmarks.measuring import Measurement, best_seconds
from benchmarks.models import Options, random_batch, translation_options
from permalign import Transducer, products
from permalign.heads import AttentionHead
from permalign.text.batching import Batch
from permalign.text.codec import BEGIN_ID, PADDING_ID

NUM_NEGATIVES = 500


def seq2seq_options(width: int = 256) -> Options:
    """Seq2Seq, as for English-Japanese."""
    encoder = {"hidden_size": width}
    return {
        "reorderer": {"kind": "none"},
        "head": {"kind": "attention", "embedding_dim": width, "encoder": encoder, "hidden_size": width},
    }


def update_step(parameters: nn.Module, loss: Callable[[], Tensor], fused: bool) -> Callable[[], None]:
    """A function that does one training step with clipped gradients, and with a fused or a plain Adam."""
    optimizer = torch.optim.Adam(parameters.parameters(), fused=fused)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        nn.utils.clip_grad_norm_(parameters.parameters(), 5.0)
        optimizer.step()

    return step


def steps(
    pairs: int = 64,
    length: int = 7,
    target_length: int = 11,
    vocab_size: int = 4_900,
    width: int = 256,
    times: int = 5,
) -> list[Measurement]:
    """Steps of Seq2Seq and of Hard-ReMoto on a batch of the size of English-Japanese."""
    source, target, batch = random_batch(pairs, length, target_length, vocab_size, vocab_size)
    calls: dict[str, Callable[[], None]] = {}
    for name, options in {
        "Seq2Seq": seq2seq_options(width),
        "Hard-ReMoto": translation_options(width),
    }.items():
        for negatives in (None, NUM_NEGATIVES):
            options["head"]["num_negatives"] = negatives
            model = Transducer(options, source, target).train()
            sampled = " sampled" if negatives else ""
            calls[f"{name}{sampled}"] = update_step(model, _loss(model, batch), fused=True)
            if not negatives:
                before = _one_step_at_a_time(Transducer(options, source, target).train())
                step = update_step(before, _loss(before, batch), fused=False)
                calls[f"{name} before"] = _without_onednn(step)
    if find_spec("joeynmt"):
        calls["JoeyNMT"] = joeynmt_step(batch, vocab_size + 4, width)
    for call in calls.values():
        call()
    seconds = best_seconds({name: (call, times) for name, call in calls.items()})
    return _ratios(seconds, f"m={target_length}, B={pairs}, V={vocab_size:,}")


def _ratios(seconds: dict[str, float], size: str) -> list[Measurement]:
    details = {f"{name} seconds": value for name, value in seconds.items()}

    def speedup(name: str, what: str, fast: str, slow: str, target: float | None = None) -> Measurement:
        goal = "none" if target is None else "at least"
        return Measurement(name, what, seconds[slow] / seconds[fast], "x", goal, target, details)

    words = f"{NUM_NEGATIVES} sampled words"
    rows = [
        speedup(
            "seq2seq-fused",
            f"training step of Seq2Seq, {size}: speedup of oneDNN and the fused recurrence and Adam",
            "Seq2Seq",
            "Seq2Seq before",
        ),
        speedup(
            "seq2seq-sampled",
            f"training step of Seq2Seq, {size}: the same with {words}",
            "Seq2Seq sampled",
            "Seq2Seq before",
        ),
        speedup(
            "hard-fused",
            f"training step of Hard-ReMoto, {size}: speedup of oneDNN and the fused Adam",
            "Hard-ReMoto",
            "Hard-ReMoto before",
        ),
        speedup(
            "hard-sampled",
            f"training step of Hard-ReMoto, {size}: the same with {words}",
            "Hard-ReMoto sampled",
            "Hard-ReMoto before",
            2.0,
        ),
    ]
    if "JoeyNMT" in seconds:
        rows += [
            speedup(
                "joeynmt",
                f"training step of Seq2Seq, {size}: speedup over JoeyNMT",
                "Seq2Seq",
                "JoeyNMT",
                3.0,
            ),
            speedup(
                "joeynmt-sampled",
                f"training step of Seq2Seq, {size}: speedup over JoeyNMT, ours with {words}",
                "Seq2Seq sampled",
                "JoeyNMT",
            ),
        ]
    return rows


def _loss(model: Transducer, batch: Batch) -> Callable[[], Tensor]:
    return lambda: model.loss(batch).total


def _one_step_at_a_time(model: Transducer) -> Transducer:
    """Let a decoder with attention run one step after the other, each recorded for automatic differentiation."""
    if isinstance(model.head, AttentionHead):
        model.head.fused = False
    return model


def _without_onednn(step: Callable[[], None]) -> Callable[[], None]:
    """Leave all products of a step to torch."""

    def plain() -> None:
        with patch.object(products, "LEAST_MULTIPLICATIONS", sys.maxsize):
            step()

    return plain


def joeynmt_step(batch: Batch, vocab_size: int, width: int) -> Callable[[], None]:
    """A step of JoeyNMT's recurrent model with the sizes of ours; its encoder's size counts one direction."""
    from joeynmt.decoders import RecurrentDecoder
    from joeynmt.encoders import RecurrentEncoder

    encoder = RecurrentEncoder("lstm", hidden_size=width // 2, emb_size=width, emb_dropout=0.1)
    decoder = RecurrentDecoder(
        "lstm", width, width, encoder, "luong", vocab_size=vocab_size, emb_dropout=0.1, hidden_dropout=0.1
    )
    words = [nn.Embedding(vocab_size, width) for _ in range(2)]
    inputs = pad(batch.target, (1, 0), value=BEGIN_ID)
    outputs = pad(batch.target, (0, 1))  # END is one more word, as costly as any other
    mask = (batch.source != PADDING_ID)[:, None]

    def loss() -> Tensor:
        output, hidden = encoder(words[0](batch.source), batch.source_lengths, mask)
        logits, *_ = decoder(words[1](inputs), output, hidden, mask, unroll_steps=inputs.shape[1])
        return nll_loss(log_softmax(logits.flatten(0, 1), -1), outputs.flatten(), reduction="sum") / len(
            batch
        )

    return update_step(nn.ModuleList([encoder, decoder, *words]).train(), loss, fused=False)
