"""Mutants that do what the original does, so that no test can notice them, with the reason for each.

They are named by their module and by the line with the change, or without it if that holds for any change of the line.
"""

EQUIVALENT: dict[str, dict[str, str]] = {
    "structures/kbest.py": {
        "portion = min(2 * portion, 256, max(1, 20_000_000 // len(best_order) ** 3))": (
            "The portion decides how many orders are scored at once, and not which order is found."
        ),
    },
}
