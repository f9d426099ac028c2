"""The training, development and test questions of each condition.

The ids of the development and test questions are in ``splits/geoquery.json``, so that everybody has the same splits;
all other questions are for training.

- ``iid``: the standard split into 600 questions for training and 280 for testing. Of the 600, the 60 questions that
  Herzig and Berant chose are for development.
- ``temp``: Herzig and Berant's split by template. No template of the test set occurs in the other two sets.
- ``len``: programs of up to 4 tokens are for training, and longer ones are divided into dev and test.
- ``len_all``: the same split for programs that contain the constant ``all``, which counts as a token.
- ``herzig_len``: Herzig and Berant's split by length (2021): the 280 longest programs are for testing.
- ``csl_template_1`` to ``3``, ``csl_tmcd_1`` to ``3``, ``csl_length``: the splits of Qiu et al. (2022) by template, by
  target maximum compound divergence (TMCD) and by length. Their results are means over the three splits of a kind.
  Their development sets are like their test sets: that of a split by template has templates of its test set.
- ``nqg_template``, ``nqg_tmcd``, ``nqg_length``: the splits of Shaw et al. (2021), which have no development sets. 44
  questions of each training set, drawn at random, are for development.

A result on the split of a paper is comparable with the results of that paper on this split, and on no other.

The development set of ``temp`` has the same templates as its training set, so it cannot show which models generalise to
new templates. ``temp_tune``, ``temp_tune_2`` and ``temp_tune_3`` can: each holds out other templates of these two sets
for development.
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
PUBLIC_CONDITIONS = (
    "herzig_len",
    *(f"csl_{kind}_{number}" for kind in ("template", "tmcd") for number in (1, 2, 3)),
    "csl_length",
    *(f"nqg_{kind}" for kind in ("template", "tmcd", "length")),
)
"""The splits of other papers than ReMoto's."""
CONDITIONS = ("iid", "temp", "len", "len_all", *PUBLIC_CONDITIONS)
PARTS = ("train", "dev", "test")
TUNING = ("temp_tune", "temp_tune_2", "temp_tune_3")
"""Conditions that have only training and development sets."""
_TUNING_DEV_SIZE, _MAX_PER_TEMPLATE = 120, 6


@cache
def split_ids() -> Mapping[str, list[int]]:
    """The ids of the questions in each split, in ascending order.

    >>> [len(split_ids()[f"iid/{part}"]) for part in PARTS]
    [540, 60, 280]
    """
    held_out = json.loads(_SPLITS.read_text(encoding="utf-8"))
    ids: dict[str, list[int]] = {}
    for condition in CONDITIONS:
        dev, test = held_out[condition]["dev"], held_out[condition]["test"]
        ids[f"{condition}/train"] = sorted(set(range(QUESTIONS)).difference(dev, test))
        ids[f"{condition}/dev"], ids[f"{condition}/test"] = dev, test
    return ids


def tuning_ids(templates: Mapping[int, str]) -> Mapping[str, list[int]]:
    """The ids of the splits ``temp_tune``, ``temp_tune_2`` and ``temp_tune_3``.

    Each dev set has about 120 questions, with at most 6 of the same template, and no template of another dev set.

    Args:
        templates: the template of each question, by the id of the question.
    """
    questions = defaultdict(list)
    for number in sorted(split_ids()["temp/train"] + split_ids()["temp/dev"]):
        questions[templates[number]].append(number)
    order = iter(shuffled(sorted(questions), Random("temp_tune")))
    ids: dict[str, list[int]] = {}
    for condition in TUNING:
        dev: list[int] = []
        held_out: set[str] = set()
        while len(dev) < _TUNING_DEV_SIZE:
            template = next(order)
            held_out.add(template)
            dev += questions[template][:_MAX_PER_TEMPLATE]
        train = (numbers for template, numbers in questions.items() if template not in held_out)
        ids[f"{condition}/train"], ids[f"{condition}/dev"] = sorted(chain(*train)), sorted(dev)
    return ids
