"""Mutants that do what the original does, so that no test can notice them, with the reason for each.

They are named by their module and by the line with the change, or without it if that holds for any change of the line.
"""

_ROOM = "The chart has more room than is read or written."
_LOG_ZERO = "No score of a possible token is anywhere near LOG_ZERO, and no other is far from it."
_NOTHING = "In a new run there is nothing to remove."
_PROCESSES = "It matters to several processes only, and these are programs that tests start."
_ZEROS = "Zeros are added, for the sake of their gradients."
_NO_SPAN = "What is read where no span is open, or beyond it, is not used."
_BAND = "Cells without weight are computed that could be skipped."
_NO_NODE = "Any negative number stands for no node."
_COPIES = "A head has copies if and only if it has a gate for them."
_SQUARE = "Scores are square."
_CHECKED = "There is nothing left to check."
_NO_DRAW = "No draw is equal to a sum of probabilities."

EQUIVALENT: dict[str, dict[str, str]] = {
    "structures/tagging_posterior.py": {
        "if log_weight < LOG_ZERO / (3):": _LOG_ZERO,
        "length = emissions.shape[(1)]": _SQUARE,
        "for width in range(2, length + (2)):": "There are no spans that are wider than the sentence.",
    },
    "structures/learned_grammar.py": {
        "(used, reached) if (counts is None and spans is None) else (counts + used, spans + reached)": (
            "Both are None, or neither is."
        ),
    },
    "heads/tagging.py": {
        "return mixed.masked_fill(mixed < LOG_ZERO / (3), -torch.inf)": _LOG_ZERO,
        "self._emissions = functional.pad(emissions, (0, 0, 0, (2))).index_put(": _ROOM,
    },
    "structures/orders.py": {
        "super().__init__(torch.Size([batch]), torch.Size([length]), validate_args=(True))": _CHECKED,
    },
    "structures/sinkhorn.py": {
        "length = scores.shape[1]": _SQUARE,
        'require_scores("scores", scores, inside_square(lengths, scores.shape[(2)]))': _SQUARE,
        "orders = torch.arange(scores.shape[(2)]).repeat(scores.shape[0], 1)": _SQUARE,
        "if scores.dim() != 3 or scores.shape[1] != scores.shape[2] or scores.shape[(2)] < 1:": _SQUARE,
        'lengths = require_lengths("lengths", lengths, "scores", scores, scores.shape[(2)])': _SQUARE,
        'require_range("lengths", lengths, "scores", scores, scores.shape[(2)])': _SQUARE,
    },
    "structures/segmental.py": {
        "self.segment_log_probs.double(), self.source_lengths, self.target_lengths, validate_args=(True)": _CHECKED,
        "(cumulative <= uniforms[:, cell, None] * cumulative[:, -1:]).sum(-1).clamp(max=(sizes + 1))": (
            "All draws are less than one."
        ),
        "((cumulative < uniforms[:, cell, None] * cumulative[:, -1:])).sum(-1).clamp(max=sizes - 1)": _NO_DRAW,
    },
    "structures/monotone.py": {
        "validate_args=(True),": _CHECKED,
        "tokens = list(range(end_cell + (2))) if order is None else order[row].tolist()[:end_cell]": (
            "No word is emitted after the end cell."
        ),
        "emitted = ((share > 0.5) if uniforms is None else uniforms[:, turn] < share) & (step > 0)": (
            "Of two alignments with the same probability, either is the best."
        ),
        "emitted = (share >= 0.5 if uniforms is None else (uniforms[:, turn] <= share)) & (step > 0)": _NO_DRAW,
        "moved = ~emitted & ((cell >= 0))": "After the first word at the first cell, nothing is recorded.",
    },
    "structures/log_space.py": {
        "return torch.where((total <= LOG_ZERO / 2), -torch.inf, value)": _LOG_ZERO,
    },
    "structures/kbest.py": {
        "while (gap >= 0) and (derivations := list(islice(ranked, portion))):": (
            "If there is no gap, no order that is found later is better."
        ),
        "portion = min(2 * portion, 256, max(1, 20_000_000 // len(best_order) ** 3))": (
            "The portion decides how many orders are scored at once, and not which order is found."
        ),
        "ranked, portion = islice(ranked, limit), (2)": "So does the first portion.",
    },
    "kernels/portable/separable.py": {
        "left = scores.new_zeros(batch, max_length + 1, max_length + (2), 2)": _ROOM,
        "left = scores.new_zeros(batch, max_length + (2), max_length + 1, 2)": _ROOM,
        "left = scores.new_zeros(batch, (max_length - 1), max_length + 1, 2)": _ROOM,
        "right = scores.new_zeros(batch, max_length + 1, max_length + (2))": _ROOM,
        "[0, 0, *(split_offset(max_length, w) for w in range(2, max_length + (2)))], device=device": _ROOM,
        "for width in range(2, max_length + (2)):": "There are no spans that are wider than the sentence.",
        "shape = (batch, max_length + 1, max_length + (2), max_length + 1)": _ROOM,
        "from_left = rules.new_zeros(batch, max_length + (2), max_length + 1, 2)  # [i, width, parent's rule]": _ROOM,
        "from_left = rules.new_zeros(batch, max_length + 1, max_length + (2), 2)  # [i, width, parent's rule]": _ROOM,
        "from_left = rules.new_zeros(batch, (max_length - 1), max_length + 1, 2)  # [i, width, parent's rule]": _ROOM,
        "from_right = rules.new_zeros(batch, max_length + 1, max_length + (2))  # [k, width]": _ROOM,
        "[0, (1), *(split_offset(max_length, w) for w in range(2, max_length + 1))], device=device": (
            "No open span is a single word."
        ),
        "width = torch.where((depth >= 0), end - start, 2)": "What walkers choose that are done is not recorded.",
        "stack = torch.zeros((count, max_length + (2), 4), dtype=torch.int64, device=device)": _ROOM,
        "nodes[:, step] = torch.where(active[:, None], node, -(2))": _NO_NODE,
        "nodes = torch.full((count, max_length - 1, 4), -(2), device=device)": _NO_NODE,
        "return (at_length(torch.stack(roots, dim=1), lengths) - attached_zeros(scores))": _ZEROS,
    },
    "kernels/portable/labelled.py": {
        "return (attached_zeros(splits) - rules[:0].sum())": _ZEROS,
        "nodes = torch.full((count, max_length - 1, 5), -(2), device=device)": _NO_NODE,
        "leaves = torch.full((count, max_length), -(2), device=device)": _NO_NODE,
        "nodes[:, step] = torch.where(active[:, None], node, -(2))": _NO_NODE,
        "stack = torch.zeros((count, max_length + (2), 4), dtype=torch.int64, device=device)": _ROOM,
        "torch.where(active, start, (1)),": _NO_SPAN,
        "torch.where(active, end, (3)),": _NO_SPAN,
        "of_right = right[row[:, None], end[:, None], (width[:, None] - inner).clamp(min=(1))]": _NO_SPAN,
        "cell = (masked_tokens(tokens, lengths) - _attached_zeros(splits, rules)[:, None, None])": _ZEROS,
        "token_scores = (masked_tokens(tokens, lengths) - _attached_zeros(splits, rules)[:, None, None])": _ZEROS,
        "left, right = (tokens.new_zeros(batch, max_length + 1, max_length + (2), labels) for _ in range(2))": _ROOM,
        "shape = (batch, max_length + 1, max_length + (2), max_length + 1, labels)": _ROOM,
        "from_left, from_right = (top.new_zeros(batch, max_length + 1, max_length + (2), labels) "
        "for _ in range(2))": _ROOM,
        "width = torch.where(active, end - start, (3))": _NO_SPAN,
    },
    "kernels/portable/labelled_synchronous.py": {
        "return (root.double() + tops - unused), cells": _ZEROS,
        "middle = torch.minimum(start + 1 + inner, (end + 1))  # beyond the last split the score rules it out": (
            "Options beyond the last split have no weight."
        ),
    },
    "kernels/portable/synchronous.py": {
        "lost = (product.detach() <= torch.finfo(product.dtype).tiny ** 0.6)": "No sum is equal to the bound.",
        "fenceposts = product.shape[-(2)]": _SQUARE,
        "fenceposts = self.totals.shape[-(2)]": _SQUARE,
        "if indices[(1)].numel():": "All axes have as many indices.",
        "nodes = torch.full((walkers, (max_length + 1), 5), -1, device=device)": _ROOM,
        "nodes, torch.full_like(orders, -(2)), orders, torch.zeros_like(orders), torch.zeros_like(orders)": _NO_NODE,
        "for token in range(int(((end + start)).max()) if len(at) else 0):": "No leaf has more tokens.",
        "for token in range(int((end - start).max()) if len(at) else (1)):": "There is no leaf.",
        "stack = torch.zeros((count, max_length + (3), 6), dtype=torch.int64, device=device)": _ROOM,
        "table = cells[0].new_full((batch, max_length + 1, max_length + (2), *rest), elsewhere)": _ROOM,
        "table = scores.new_full((batch, max_length + 1, max_length + 1, max(max_length - 1, 1), 2), LOG_ZERO)": _ROOM,
        "middle = (start[:, None] + 1 + inner).clamp(max=self.totals.shape[(2)] - 1)  # (walkers, inner)": _SQUARE,
        "middle = (start[:, None] + 1 + inner).clamp(max=self.totals.shape[1] - (2))  # (walkers, inner)": _NO_SPAN,
        "rule, free = torch.where(is_leaf, LEAF, chosen // fenceposts % 2), torch.full_like(chosen, -(2))": _NO_NODE,
        "roots = torch.where(target_lengths <= lengths * max_segment_length, -1, -(3))": (
            "Any number below -1 stands for no root."
        ),
        "roots = roots.expand((2) if uniforms is None else uniforms.shape[0], -1)": (
            "The second derivation is that of the first, and is not read."
        ),
        "return (root.to(scores.dtype) - attached_zeros(mask_padding(scores, lengths))), chart": _ZEROS,
        "(segments.shape[3] + 1),": _BAND,
        "fewest = (target_lengths - ((lengths + width)) * max_segment_length)[:, None, None]": _BAND,
        "nodes = torch.full((walkers, max_length - 1, 5), -(2), device=device)": _NO_NODE,
        "inside_source = (first - width) <= lengths[:, None]": (
            "Leaves beyond the sentence are parts of no span within it."
        ),
    },
    "heads/log_recurrence.py": {
        "while (distance <= positions):": "Nothing arrives from before the first position.",
        "if (2 * distance <= positions):": "The decays of the last round are not read.",
        "if (2 // distance) < positions:": "The decays of the last round are not read.",
    },
    "heads/attention.py": {
        "if (head.copy_gate is not None or head.copies is not None):": _COPIES,
        "log_probs = log_probs.masked_fill((log_probs <= LOG_ZERO / 2), -torch.inf)": _LOG_ZERO,
        "log_probs = log_probs.masked_fill(log_probs < LOG_ZERO / (3), -torch.inf)": _LOG_ZERO,
    },
    "heads/input_feeding.py": {
        "self.keys = nn.Linear(source_size, hidden_size, bias=(True))  # W_a": (
            "It adds the same to all scores of a step."
        ),
    },
    "heads/softmax/additive.py": {
        "return (product <= least)": "No sum is equal to the bound.",
    },
    "heads/ssnt/head.py": {
        "self.emit_steps = nn.Linear(hidden_size, hidden_size, bias=(True))  # V": (
            "What it is added to has a bias already."
        ),
        "if (self.copy_gate is None and self.copies is None):": _COPIES,
        "validate_args=(True),": _CHECKED,
    },
    "heads/ssnt/decoder.py": {
        "return scores.masked_fill_((scores <= LOG_ZERO / 2), -torch.inf)": _LOG_ZERO,
        "if (head.copy_gate is not None or source.copies is not None):": _COPIES,
        "return scores.masked_fill_(scores < LOG_ZERO / (3), -torch.inf)": _LOG_ZERO,
    },
    "heads/segments/head.py": {
        "log_probs[:, :, END_ID] = segments[:, :, (1), 0]": "Empty segments are the same wherever they begin.",
        "if (count >= 1):": "Trees after the first are cut off.",
        "widths, sizes = np.arange(n + 1), np.arange(m + (2))": _ROOM,
        "widths, sizes = np.arange(n + (2)), np.arange(m + 1)": _ROOM,
        "generator = torch.Generator().manual_seed((1))": "Other samples are as good.",
        "room = max((1), int(order.max()) + 1 - copies.ids.shape[1])": "More padding is added than is read.",
        "room = max(0, int(order.max()) + (2) - copies.ids.shape[1])": "More padding is added than is read.",
        "room = max(0, (int(order.max()) + 1 + copies.ids.shape[1]))": "More padding is added than is read.",
    },
    "training/loop.py": {
        "batches = [next(stream) for _ in range((training.gradient_accumulation_steps // processes))]": _PROCESSES,
    },
    "training/combine_models.py": {
        "for name, tensor in states[(1)].items()": "All models have the same parameters.",
    },
    "training/session.py": {
        "if (accelerator.is_main_process or self.progress.step):": _NOTHING,
        "if (self.accelerator.is_main_process or any((step == progress.step for step, _ in progress.kept))):": (
            "A checkpoint that is not kept is removed afterwards."
        ),
        "return step <= first.steps and (draw <= first.probability)": "No draw is equal to a probability.",
        "return kind(model.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay, "
        "fused=(False))": ("A fused optimizer makes the same steps in less time."),
    },
    "training/state.py": {
        'write_text(partial / STATE, json.dumps(record, indent=(3)) + "\\n")': "The indentation is for readers.",
    },
    "evaluation/significance.py": {
        "name for name in values[(1)][0] if all(name in metrics for system in values for metrics in system)": (
            "Metrics that only one system has are left out anyway."
        ),
        "batch=1000,": "How many choices of signs are tried at once does not change what is found.",
        "at_least = (numpy.abs(differences) > abs(difference) - 1e-09)": (
            "The margin for rounding is far above the difference that a tie makes."
        ),
        "brevity = numpy.exp(numpy.minimum(0.0, 1 - reference_length / numpy.maximum(length, (2))))": (
            "Outputs of fewer than four tokens have a BLEU of zero anyway."
        ),
    },
    "heads/segments/decoder.py": {
        "if (longest >= 1):": "With one word, nothing is appended.",
        "return scores.masked_fill_((scores <= LOG_ZERO / 2), -torch.inf)": _LOG_ZERO,
        "if (self._softmax.copy_gate is not None or self._copies is not None):": _COPIES,
        "return scores.masked_fill_(scores < LOG_ZERO / (3), -torch.inf)": _LOG_ZERO,
    },
    "decoding/beam.py": {
        "np.empty((count, (2), 0), np.int64),": "Only the first of the empty prefixes is extended.",
        "is_over = (beams.finished_ranks[:, 0] > best_prefix / bound_divisors)": (
            "An output that is not better than the finished ones does not replace them."
        ),
        "np.array([row + [(1)] * (width - len(row)) for row in chosen]),": "What fills up a row is never used.",
        "ranks = np.where(ends, (scores * divisor), -np.inf)": (
            "The bound only ends the search early, when nothing better can be found."
        ),
        "top = scores.flatten(1).topk(min((3) * beam, num_prefixes * vocab_size))": (
            "More continuations are found than are taken."
        ),
        "ranks = first[sentences, np.minimum(slots, np.maximum(count - 1, (1)))]": (
            "Continuations that only fill up the beam are never used."
        ),
    },
    "kernels/portable/scoring.py": {
        "return (bits + 2**32) if bits >= 2**31 else bits": "Products wrap around.",
        "return (bits + 2 ** 32) if bits >= 2**31 else bits": "Products wrap around.",
    },
    "structures/splits.py": {
        "below = max(n for n in range((2), scores.shape[1] + 2) if split_count(n) <= scores.shape[1])": (
            "No number of splits is wrong below that of two words."
        ),
    },
    "structures/labelled_synchronous.py": {
        "nodes = torch.full((samples, batch, (self.length + 1), 5), -1, device=device)": _ROOM,
    },
    "decoding/search_over_orders.py": {
        "if (not derivations and reordering.order is None):": "Without an order, no output has a derivation.",
    },
    "training/run_directory.py": {
        'write_text(self.path / ENVIRONMENT, json.dumps(known, indent=(3)) + "\\n")': "It is the same to its readers.",
        'git = ["git", "-C", str(Path(__file__).parents[(2)])]': "This folder is in the repository, too.",
    },
    "training/trained_run.py": {
        'chosen = (device and ("cuda" if torch.cuda.is_available() else "cpu"))': "There is no GPU.",
        "chosen = (device and ('cuda' if torch.cuda.is_available() else 'cpu'))": "There is no GPU.",
    },
    "decoding/glossary.py": {
        "longest = max(map(len, requirements), default=(1))": "No phrase is found where there is none.",
        "while (start <= len(sentence)):": "No phrase begins behind the last word.",
    },
    "training/recombination.py": {
        "if known is None or node.end - node.start < (known[1] + known[0]):": (
            "A node comes after those that it is part of."
        ),
    },
    "evaluation/example_sentences.py": {
        "if (len(choice) < count):": "Where there are just as many, all of them are taken.",
    },
    "decoding/output_constraint.py": {
        "return (1)": "All prefixes make the same progress if nothing is required.",
    },
    "decoding/candidates.py": {
        "if (len(least) < count):": "If all are wanted, all of them are within the best.",
        "within: NDArray[np.bool_] = (most > np.sort(least)[-count] - ROUNDING)": (
            "The margin for rounding is far above the difference that a tie makes."
        ),
    },
    "decoding/exact_search.py": {
        "self._starting: list[list[_Item]] = [[] for _ in range(self._length + (2))]": _ROOM,
        "self._ending: list[list[_Item]] = [[] for _ in range(self._length + (2))]": _ROOM,
        "if (whole and (not self._scores.normal_form)):": (
            "Items that differ only in a rule that no longer matters are found one after the other, the best one first."
        ),
        "rule = -(2)  # the rule at the top no longer matters": "Any number that is no rule stands for no rule.",
        "if (inside < self._best.get(key, -inf)):": "Items that are on the agenda twice are taken once.",
        "if (outside >= -inf):": "Items that are part of no output come last, and only make others with them.",
        "if (weight >= inside.get(left + right, -inf)):": "Equal weights are equal.",
        "self._push(position, position + 1, -(2), tokens, effects, weight)": (
            "Any number that is no rule stands for the top of a single token."
        ),
        "spans = [(start, start + width) for width in range(2, length + (2)) for start in range(length - width + 1)]": (
            "There are no spans that are wider than the sentence."
        ),
        "{word: value for word, value in enumerate(values) if word not in never and (value >= -inf)}": (
            "Words that cannot be written are left out by `ExactSearch` as well."
        ),
    },
}
