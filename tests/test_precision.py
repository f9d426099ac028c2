"""Mixed precision lowers layers that are made for it, and leaves exact inference alone."""

import pytest
import torch
from tests.models.small import examples

from permalign import LabelledPermutation, SeparablePermutation, build_model
from permalign.precision import in_low_precision, limit_autocast, low_precision_dtype
from permalign.text.batching import Batches
from permalign.text.vocabulary import Vocabulary

REORDERERS = [
    {"kind": "none"},
    {"kind": "local"},
    {"kind": "sinkhorn"},
    {"kind": "separable", "objective": "soft"},
    {"kind": "separable", "objective": "hard"},
    {"kind": "separable", "objective": "exact"},
    {"kind": "labelled", "objective": "exact"},
]
HEADS = ["tagging", "attention", "syntactic_attention", "ssnt", "swan", "segments"]
ENCODERS = ["none", "bilstm", "transformer", "window", "prefix_sum"]


def models():
    """Every reorderer with every head that it works with, and every encoder."""
    for reorderer in REORDERERS:
        exact = reorderer.get("objective") == "exact"
        for head in ("tagging", "segments") if exact else HEADS:
            encoder = "none" if exact and head == "tagging" else "bilstm"
            yield pytest.param(reorderer, head, encoder, id=f"{'-'.join(reorderer.values())}-{head}")
    for encoder in ENCODERS:
        yield pytest.param({"kind": "none"}, "ssnt", encoder, id=encoder)


@pytest.fixture(scope="module")
def data():
    pairs = examples(12)
    source, target = (
        Vocabulary.build(getattr(pair, side) for pair in pairs) for side in ("source", "target")
    )
    return source, target, next(iter(Batches(pairs, source, target, max_tokens=500, seed=0)))


@pytest.mark.parametrize(("reorderer", "head", "encoder"), list(models()))
def test_every_model_trains_and_predicts_in_bfloat16(data, reorderer, head, encoder):
    source, target, batch = data
    small = {"embedding_dim": 8, "encoder": {"kind": "bilstm", "hidden_size": 16}}
    options = {
        "reorderer": {**reorderer, **small},
        "head": {
            "kind": head,
            "embedding_dim": 8,
            "hidden_size": 8,
            "encoder": {"kind": encoder, "hidden_size": 16},
        },
    }
    torch.manual_seed(0)
    model = build_model(options, source, target).eval()
    torch.manual_seed(1)
    full = model.loss(batch).total
    torch.manual_seed(1)
    with torch.autocast("cpu", torch.bfloat16):
        lowered = model.loss(batch).total
        model.predict([list(source.tokens[-3:])], beam=2)
    lowered.backward()
    assert lowered.dtype == torch.float32
    assert lowered.item() == pytest.approx(full.item(), rel=0.03)
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    assert low_precision_dtype() is None


def test_softmaxes_are_computed_in_low_precision(data):
    source, target, batch = data
    model = build_model({"head": {"kind": "ssnt"}}, source, target).eval()
    with torch.autocast("cpu", torch.bfloat16):
        lowered = model.loss(batch).total
    assert lowered.item() != model.loss(batch).total.item()


def test_encoders_are_called_in_low_precision_and_answer_in_float32(data):
    source, target, batch = data
    model = build_model({"head": {"kind": "ssnt", "encoder": {"kind": "window"}}}, source, target).eval()
    inside, outside = [], []
    encoder = model.head.encoder
    layer = next(module for module in encoder.modules() if isinstance(module, torch.nn.Linear))
    layer.register_forward_hook(lambda module, inputs, output: inside.append(output.dtype))
    emit = model.head.emit_cells
    emit.register_forward_hook(lambda module, inputs, output: outside.extend([inputs[0].dtype, output.dtype]))
    with torch.autocast("cpu", torch.bfloat16):
        model.loss(batch)
    assert inside == [torch.bfloat16]
    assert outside == [torch.float32, torch.float32]


def test_distributions_ignore_autocast():
    torch.manual_seed(0)
    scores, emissions = torch.randn(2, 20, 2), torch.randn(2, 5, 5)
    labelled = LabelledPermutation(torch.randn(2, 3, 3, 3), torch.randn(2, 5, 3))
    for distribution in (SeparablePermutation(scores, normal_form=True), labelled):
        expected = distribution.log_likelihood(emissions), distribution.expected_matrix()
        with torch.autocast("cpu", torch.bfloat16):
            actual = distribution.log_likelihood(emissions), distribution.expected_matrix()
        for one, other in zip(actual, expected, strict=True):
            assert torch.equal(one, other)


def test_nothing_changes_without_autocast():
    class Module:
        device = torch.device("cpu")

        @limit_autocast
        def forward(self, x):
            return in_low_precision(torch.nn.functional.linear, x, x)

    x = torch.randn(3, 3, dtype=torch.float64)
    assert torch.equal(Module().forward(x), x @ x.T)
