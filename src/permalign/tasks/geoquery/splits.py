"""The training, development and test questions of each condition.

Their ids are in ``splits/geoquery.json``, so that everybody has the same splits (the rest is for training):

- ``iid``: the standard 600 and 280 questions; Herzig and Berant's 60 of the 600 are for development.
- ``temp``: Herzig and Berant's split by template; no template of the test set is in the other two.
- ``len``: training on programs of up to 4 tokens; the longer ones are divided into dev and test.
- ``len_all``: the same, where lengths are those of programs with every ``all`` written.

The development set of ``temp`` has the templates of its training set, so it cannot tell which models generalise to new
templates. ``temp_tune`` can: it has the training and development questions of ``temp``, with some templates held out.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from itertools import chain
from random import Random

from permalign.tasks.seeded_random import shuffled

_SPLITS = files("permalign.tasks").joinpath("splits", "geoquery.json")
QUESTIONS = 880
CONDITIONS = ("iid", "temp", "len", "len_all")
PARTS = ("train", "dev", "test")
TUNING = ("temp_tune/train", "temp_tune/dev")
HELD_OUT, OF_A_TEMPLATE = 120, 6


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


def tuning_ids(templates: Mapping[int, str]) -> Mapping[str, list[int]]:
    """The ids of `TUNING`; dev has about `HELD_OUT` questions, at most `OF_A_TEMPLATE` of any template.

    Args:
        templates: the template of each question, by id.
    """
    questions = defaultdict(list)
    for number in sorted(split_ids()["temp/train"] + split_ids()["temp/dev"]):
        questions[templates[number]].append(number)
    dev: list[int] = []
    for template in shuffled(sorted(questions), Random("temp_tune")):
        if len(dev) >= HELD_OUT:
            break
        dev += questions.pop(template)[:OF_A_TEMPLATE]
    return dict(zip(TUNING, (sorted(chain(*questions.values())), sorted(dev)), strict=True))
