"""How to train a model on your own pairs, and draw the tree and the alignment of an output."""

from pathlib import Path
from tempfile import mkdtemp

import torch

from permalign import Transducer
from permalign.explain import explain, svg
from permalign.tasks import Example
from permalign.text.batching import Batches
from permalign.text.vocabulary import Vocabulary

PAIRS = {
    "the old dog": "DOG OLD THE",
    "the old cat": "CAT OLD THE",
    "the red dog": "DOG RED THE",
    "this old cat": "CAT OLD THIS",
    "this red dog": "DOG RED THIS",
    "the cat": "CAT THE",
    "this dog": "DOG THIS",
}

examples = [Example(tuple(source.split()), tuple(target.split()), source) for source, target in PAIRS.items()]
source = Vocabulary.build(example.source for example in examples)
target = Vocabulary.build(example.target for example in examples)

# A tagging head predicts one output word for each source word. The exact objective sums the likelihood over all orders
# that trees can produce. This requires that each prediction depends on a single word, so the head has no encoder.
options = {
    "reorderer": {
        "kind": "separable",
        "objective": "exact",
        "embedding_dim": 16,
        "encoder": {"hidden_size": 16},
    },
    "head": {"kind": "tagging", "embedding_dim": 16, "encoder": {"kind": "none"}},
}
torch.manual_seed(0)
model = Transducer(options, source, target)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(80):
    for batch in Batches(examples, source, target, max_tokens=100, seed=epoch):
        loss = model.loss(batch).total
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(f"The loss after the last epoch is {loss.item():.3f}.")

unseen = "this red cat"
(prediction,) = model.predict([unseen], explain=True)
print(f"\n{unseen} -> {prediction.text}\n{prediction.explanation.draw()}")

folder = Path(mkdtemp())
model.save_pretrained(folder / "model")
trace = explain(Transducer.from_pretrained(folder / "model"), unseen)
(folder / "tree.svg").write_text(svg(trace), encoding="utf-8")
print(f"\nThe model and a picture of the tree are in {folder}.")
