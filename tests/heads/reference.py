"""The parts of an attention decoder written out for a single sentence, from the parameters of a head."""

import copy

import torch

from permalign.heads.input_feeding import InputFeedingContext
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


def output_states(context, tokens, cells):
    """Compute the states of the output before the first token and after every token, for one sentence."""
    if isinstance(context, InputFeedingContext):
        return fed_states(context, tokens, cells, context.key_scale)
    blind = copy.copy(context)
    blind._modules = context._modules | {"attention": NoAttention()}
    return attended(context.attention, blind(torch.tensor([tokens], dtype=torch.int64))[0], cells)


def fed_states(network, tokens, cells, scale):
    """Run an LSTM with attention and input feeding token by token."""
    ends = cells.mean(0, keepdim=True) if network.order_free else cells
    states, attended, rows = first_states(network.stack, ends), cells.new_zeros(network.hidden_size), []
    for before in [BEGIN_ID, *tokens]:
        inputs = torch.cat([network.embeddings.weight[before], attended])
        for layer, cell in enumerate(network.stack.cells):
            states[layer] = lstm_cell(cell, inputs, *states[layer])
            inputs = states[layer][0]
        query = inputs
        weights = softmax([scale * query @ (network.keys.weight @ cell) for cell in cells])
        context = sum(weight * cell for weight, cell in zip(weights, cells, strict=True))
        both = torch.cat([network.values.weight, network.combine.weight], dim=1)  # W [context ; query]
        attended = (both @ torch.cat([context, query]) + network.combine.bias).tanh()
        rows.append(attended)
    return torch.stack(rows)


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
