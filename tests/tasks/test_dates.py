from collections import Counter
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from permalign.tasks.dates import FORMS, MONTHS, WEEKDAYS, Dates, iso_tokens


@pytest.fixture(scope="module")
def task():
    return Dates(seed=1)


def read(words):
    """The date that the words of any form stand for, read in another way than the one they were written in."""
    numbers = [int("".join(filter(str.isdigit, word))) for word in words if word[0].isdigit()]
    names = [word for word in words if any(month.startswith(word) for month in MONTHS)]
    year = next(number for number in numbers if number > 31)
    rest = [number for number in numbers if number != year]
    if names:
        (day,), month = rest, 1 + [month[:3] for month in MONTHS].index(names[0][:3])
    else:
        day, month = rest if "/" not in words else reversed(rest)
    return date(year, month, day)


@given(st.dates(date(1900, 1, 1), date(2099, 12, 31)), st.sampled_from(sorted(FORMS)))
def test_every_form_can_be_read_back(day, form):
    words = FORMS[form](day).split()
    assert read(words) == day
    weekdays = [word for word in words if word in WEEKDAYS]
    assert weekdays == ([f"{day:%A}".lower()] if "weekday" in form else [])


def test_targets_are_iso_dates(task):
    for split in task.splits:
        for example in task.examples(split):
            assert "".join(example.target) == read(example.source).isoformat()
            assert example.target == iso_tokens(read(example.source))


def test_every_date_of_a_condition_occurs_once(task):
    for condition in ("iid", "comb", "year"):
        targets = [
            e.target for part in ("train", "dev", "test") for e in task.examples(f"{condition}/{part}")
        ]
        assert len(set(targets)) == len(targets) == 3_500


def test_all_words_of_iid_and_comb_are_in_their_training_sets(task):
    for condition in ("iid", "comb"):
        for side in ("source", "target"):
            known = {word for e in task.examples(f"{condition}/train") for word in getattr(e, side)}
            for part in ("dev", "test"):
                assert known >= {
                    word for e in task.examples(f"{condition}/{part}") for word in getattr(e, side)
                }


def test_the_combinations_of_comb_are_not_in_training(task):
    def combinations(split):
        return {(e.meta["form"], e.target[2]) for e in task.examples(split)}

    train = combinations("comb/train")
    assert len(train) == 108
    for part in ("dev", "test"):
        assert len(combinations(f"comb/{part}")) == 36
        assert not train & combinations(f"comb/{part}")


def test_the_years_of_year_are_not_in_training(task):
    assert task.examples("year/train") == task.examples("iid/train")
    train = {e.target[0] for e in task.examples("year/train")}
    assert train == {str(year) for year in range(1950, 2050)}
    for part in ("dev", "test"):
        assert not train & {e.target[0] for e in task.examples(f"year/{part}")}


def test_forms_and_months_are_equally_frequent(task):
    counts = Counter(e.meta["form"] for e in task.examples("iid/train"))
    assert counts.keys() == FORMS.keys()
    assert all(120 < count < 220 for count in counts.values())


def test_a_seed_gives_the_same_examples_on_every_machine(task):
    assert Dates(seed=1).examples("comb/test") == task.examples("comb/test")
    assert Dates(seed=2).examples("comb/test") != task.examples("comb/test")
    # Written down once: a change here changes everybody's data.
    first = [" ".join(Dates().examples(split)[0].source) for split in ("iid/train", "comb/test", "year/test")]
    assert first == ["27 december 1990", "13 - 10 - 2009", "20 march 2086"]


def test_an_unknown_split_is_an_error(task):
    with pytest.raises(ValueError, match="dates has no split 'len/test'; choose one of iid/train"):
        task.examples("len/test")
