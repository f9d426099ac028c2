"""A distribution over the orders of a sentence, without a model: what it can compute, and how to train it."""

import torch

from permalign import SeparablePermutation

WORDS = ["the", "girl", "saw", "the", "hedgehog"]
VERB_LAST = torch.tensor([[0, 1, 3, 4, 2]])  # order[position] = token: the girl the hedgehog saw

# Five words have (5^3 - 5) / 6 = 20 splits, and each can be straight or inverted. These scores are the parameters; in a
# model a network computes them from the sentence.
scores = torch.zeros(1, 20, 2, requires_grad=True)
optimizer = torch.optim.Adam([scores], lr=0.3)

for step in range(30):
    distribution = SeparablePermutation(scores)
    loss = -distribution.log_prob(VERB_LAST).sum()  # summed over all trees that produce this order
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step}: the order has probability {(-loss).exp().item():.3f}")

distribution = SeparablePermutation(scores.detach())

(best,) = distribution.best_derivation()
print("\nThe most probable tree, and the order that it produces:")
print(best.draw(WORDS))
print(" ".join(best.reorder(WORDS)))

print("\nThe probability that each word (column) ends up at each position (row):")
print(distribution.expected_matrix()[0].round(decimals=2))

print("\nThree exact samples:")
for order in distribution.sample((3,), generator=torch.Generator().manual_seed(0))[:, 0].tolist():
    print(" ".join(WORDS[token] for token in order))

probable = distribution.most_probable_order()
print(f"\nThe most probable order has log-probability {probable.log_prob.item():.3f}.")
print(f"No other order can exceed its probability by more than {probable.gap.item():.3f}.")
print(f"The entropy of trees is {distribution.entropy().item():.3f} nats.")
