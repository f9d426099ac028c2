"""Which questions train, develop and test in each condition.

The numbers are in ``splits/geoquery.json``, so that everybody has the same splits (training is the rest):

- ``iid``: the standard 600 and 280 questions; Herzig and Berant's 60 of the 600 are for development.
- ``temp``: Herzig and Berant's split by template; no template of the test set is in the other two.
- ``len``: training on programs of up to 4 tokens; the longer ones are cut in two halves.
- ``len_all``: the same by the length of programs with ``all`` written.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_SPLITS = files("permalign.tasks").joinpath("splits", "geoquery.json")
QUESTIONS = 880
CONDITIONS = ("iid", "temp", "len", "len_all")
PARTS = ("train", "dev", "test")


@cache
def split_ids() -> Mapping[str, list[int]]:
    """The ids of each split, in ascending order.

    >>> [len(split_ids()[f"iid/{part}"]) for part in PARTS]
    [540, 60, 280]
    """
    held_out = json.loads(_SPLITS.read_text(encoding="utf-8"))
    found: dict[str, list[int]] = {}
    for condition in CONDITIONS:
        dev, test = held_out[condition]["dev"], held_out[condition]["test"]
        found[f"{condition}/train"] = sorted(set(range(QUESTIONS)).difference(dev, test))
        found[f"{condition}/dev"], found[f"{condition}/test"] = dev, test
    return found
