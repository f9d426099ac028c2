"""How to average the probabilities of several models (Ensemble) and rerank outputs (InverseModel)."""

import torch

from permalign import Ensemble, InverseModel, Transducer
from permalign.tasks import Example
from permalign.text.batching import Batches
from permalign.text.vocabulary import Vocabulary

PAIRS = {
    "she read it": "READ IT SHE",
    "it read": "READ IT",
    "she sang": "SANG SHE",
    "it sang": "SANG IT",
    "they read books": "READ BOOKS THEY",
    "they sang": "SANG THEY",
}
DIRECT = {
    "reorderer": {"kind": "separable", "objective": "exact"},
    "head": {"kind": "segments", "encoder": {"kind": "none"}, "max_segment_length": 1},
}
INVERSE = {"head": {"kind": "ssnt", "embedding_dim": 32, "hidden_size": 32}}

examples = [Example(tuple(source.split()), tuple(target.split()), source) for source, target in PAIRS.items()]
source = Vocabulary.build(example.source for example in examples)
target = Vocabulary.build(example.target for example in examples)


def trained(seed: int) -> InverseModel:
    """Train a transducer and its inverse on the same examples; they have no parameters in common."""
    torch.manual_seed(seed)
    model = InverseModel(Transducer(DIRECT, source, target), Transducer(INVERSE, target, source), weight=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(60):
        for batch in Batches(examples, source, target, max_tokens=100, seed=epoch):
            optimizer.zero_grad()
            model.loss(batch).total.backward()
            optimizer.step()
    return model


members = [trained(seed) for seed in range(2)]
ensemble = Ensemble(members)

sentence = "they read it"
for name, model in {"the first": members[0], "the second": members[1], "the ensemble": ensemble}.items():
    prediction = model.predict([sentence], beam=5, n_best=3)[0]
    print(f"{name}: {prediction.text} (log-probability {prediction.score:.2f})")
    for alternative in prediction.alternatives:
        print(f"    then: {alternative.text} ({alternative.score:.2f})")

(score,) = ensemble.score([sentence], ["READ IT THEY"])
print(f"\nlog p(READ IT THEY | {sentence}) is {score:.2f}: the log of the members' mean probability.")
