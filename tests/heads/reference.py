"""The parts of an attention decoder written out for a single sentence, from the parameters of a head."""

import torch

from permalign.heads.source_attention import NoAttention
from permalign.text.codec import BEGIN_ID, PADDING_ID


def lstm_cell(cell, inputs, hidden, memory):
    gates = cell.weight_ih @ inputs + cell.bias_ih + cell.weight_hh @ hidden + cell.bias_hh
    enter, forget, new, leave = gates.chunk(4)
    memory = forget.sigmoid() * memory + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * memory.tanh(), memory


def first_states(stack, source):
    parts = (stack.bridge.weight @ torch.cat([source[0], source[-1]]) + stack.bridge.bias).tanh()
    return [tuple(layer.chunk(2)) for layer in parts.chunk(len(stack.cells))]


def softmax(scores):
    weights = [score.exp() for score in scores]
    return [weight / sum(weights) for weight in weights]


def token_log_prob(head, feature, token):
    logits = head.softmax.linear.weight @ feature + head.softmax.linear.bias
    written = [logits[other].exp() for other in range(head.vocab_size) if other not in (PADDING_ID, BEGIN_ID)]
    return logits[token] - sum(written).log()


def attended(attention, steps, cells):
    """Compute the states of the output after attention by definition: one step and one cell at a time."""
    if isinstance(attention, NoAttention):
        return steps
    rows = []
    for step in steps:
        weights = softmax([attention.key_scale * step @ (attention.keys.weight @ cell) for cell in cells])
        context = sum(weight * cell for weight, cell in zip(weights, cells, strict=True))
        rows.append((attention.values.weight @ context + attention.combine(step)).tanh())
    return torch.stack(rows)
