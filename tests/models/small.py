"""A small task and small models of every kind, for tests that train."""

from random import Random

import torch

from permalign import Transducer
from permalign.tasks.base import Example
from permalign.text.batching import Batches
from permalign.text.vocabulary import Vocabulary

LETTERS = "abcdef"
HEADS = ["tagging", "attention", "syntactic_attention", "ssnt", "swan", "segments"]
REORDERERS = {
    "none": {"kind": "none"},
    "local": {"kind": "local", "window_radius": 1},
    "sinkhorn": {"kind": "sinkhorn"},
    "soft": {"kind": "separable", "objective": "soft"},
    "hard": {"kind": "separable", "objective": "hard"},
    "samples": {"kind": "separable", "objective": "samples", "num_samples": 2},
    "exact": {"kind": "separable", "objective": "exact"},
    # embeddings without context need no single order to be right on average
    "labelled soft": {"kind": "labelled", "objective": "soft", "num_labels": 3, "decoding": "marginal"},
    "labelled hard": {"kind": "labelled", "objective": "hard", "num_labels": 3},
    "labelled samples": {"kind": "labelled", "objective": "samples", "num_samples": 2, "num_labels": 3},
    "labelled exact": {"kind": "labelled", "objective": "exact", "num_labels": 3},
    "labelled factorised": {
        "kind": "labelled",
        "objective": "exact",
        "num_labels": 3,
        "factorised_rules": True,
    },
    "labelled encoding": {
        "kind": "labelled",
        "objective": "exact",
        "num_labels": 3,
        "features": "encoding",
        "split_scores": True,
    },
}
HEADS_FOR = {  # exact sums need a tagging or segments head; labelled reorderers need not repeat all heads
    "exact": ["tagging", "segments"],
    "labelled soft": ["tagging", "ssnt"],
    "labelled samples": ["tagging", "swan"],
    "labelled exact": ["tagging", "segments"],
    "labelled factorised": ["tagging", "segments"],
    "labelled encoding": ["tagging", "segments"],
}
PAIRS = [
    (reorderer, head) for reorderer in REORDERERS for head in HEADS if head in HEADS_FOR.get(reorderer, HEADS)
] + [("exact", "phrases")]  # segments that up to three source words write together


def examples(count, seed=0, shuffled=False):
    """Letters to be written in reverse and in capitals; if shuffled, sources of one length swap outputs."""
    random = Random(seed)
    sources: dict[tuple[str, ...], None] = {}
    while len(sources) < count:
        sources[tuple(random.choices(LETTERS, k=random.randint(1, 4)))] = None
    outputs = {source: tuple(letter.upper() for letter in reversed(source)) for source in sources}
    if shuffled:
        for length in range(1, 5):
            same = [source for source in sources if len(source) == length]
            others = random.sample([outputs[source] for source in same], len(same))
            outputs |= zip(same, others, strict=True)
    return [Example(source, outputs[source], str(place)) for place, source in enumerate(sources)]


SOURCE, TARGET = Vocabulary(LETTERS), Vocabulary(LETTERS.upper())


def make(reorderer, head, seed=0, **options):
    """A small model without dropout."""
    torch.manual_seed(seed)
    encoder = {"hidden_size": 16, "dropout": 0.0}
    reorderer = {
        "embedding_dim": 16,
        "encoder": encoder,
        "scorer_hidden_size": 32,
        "dropout": 0.0,
        **REORDERERS[reorderer],
    }
    plain = reorderer.get("objective") == "exact" and head == "tagging"
    head = {
        **({"kind": "segments", "max_phrase_length": 3} if head == "phrases" else {"kind": head}),
        "embedding_dim": 16,
        "embedding_dropout": 0.0,
        "encoder": {"kind": "none"} if plain else encoder,
        "hidden_size": 32,
        "dropout": 0.0,
        "max_segment_length": 2,
        **options,
    }
    return Transducer({"reorderer": reorderer, "head": head}, SOURCE, TARGET)


def batches(some):
    return list(Batches(some, SOURCE, TARGET, 10_000, shuffle=False))


def train(model, some, steps=300, enough=0.05, rate=None):
    """Train until the mean of the last losses is small enough, and return it. Label grammars need a higher rate."""
    (batch,) = batches(some)
    rate = rate or (4e-2 if model.primary.options.reorderer.kind == "labelled" else 1e-2)
    optimiser = torch.optim.Adam(model.parameters(), rate)
    recent = [float("inf")]
    for _ in range(steps):
        loss = model.train().loss(batch).total
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
        recent = [*recent[-4:], loss.item()]
        if sum(recent) / len(recent) < enough:
            break
    return sum(recent[-5:]) / len(recent[-5:])
