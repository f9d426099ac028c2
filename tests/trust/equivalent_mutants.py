"""Mutants that do what the original does, so that no test can notice them, with the reason for each.

They are named by their module and by the line with the change, or without it if that holds for any change of the line.
"""

EQUIVALENT: dict[str, dict[str, str]] = {
    "structures/kbest.py": {
        "portion = min(2 * portion, 256, max(1, 20_000_000 // len(best_order) ** 3))": (
            "The portion decides how many orders are scored at once, and not which order is found."
        ),
    },
    "kernels/portable/labelled.py": {
        "width = torch.where(active, end - start, (3))": "The width where nothing is open is not used.",
    },
    "heads/segments/decoder.py": {
        "return scores.masked_fill_(scores < LOG_ZERO / (3), -torch.inf)": (
            "No score of a possible token is anywhere near LOG_ZERO, and no other is far from it."
        ),
    },
    "decoding/exact_search.py": {
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
