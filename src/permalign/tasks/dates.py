"""The task dates: dates as people write them, in several forms, to ISO dates. Generated from a seed."""

from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import date
from functools import cached_property
from itertools import product
from random import Random

from permalign.tasks.base import Example, Task
from permalign.tasks.partitions import PARTS
from permalign.tasks.seeded_random import pick, random_below

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

FORMS: dict[str, Callable[[date], str]] = {
    "day month year": lambda day: f"{day.day} {_month(day)} {day.year}",
    "day short-month year": lambda day: f"{day.day} {_month(day)[:3]} {day.year}",
    "weekday day month year": lambda day: f"{_weekday(day)} , {day.day} {_month(day)} {day.year}",
    "the ordinal of month year": lambda day: f"the {_ordinal(day)} of {_month(day)} {day.year}",
    "month ordinal year": lambda day: f"{_month(day)} {_ordinal(day)} , {day.year}",
    "month day year": lambda day: f"{_month(day)} {day.day} , {day.year}",
    "short-month day year": lambda day: f"{_month(day)[:3]} {day.day} , {day.year}",
    "weekday month day year": lambda day: f"{_weekday(day)} , {_month(day)} {day.day} , {day.year}",
    "day.month.year": lambda day: f"{day.day} . {day.month} . {day.year}",
    "month/day/year": lambda day: f"{day.month} / {day.day} / {day.year}",
    "day-month-year": lambda day: f"{day.day} - {day.month} - {day.year}",
    "year/month/day": lambda day: f"{day.year} / {day.month} / {day.day}",
}
"""The written forms of a date by name; tokens are separated by spaces."""

Combination = tuple[str, int]
"""A form and a month."""

_SIZES = {"train": 2_000, "dev": 500, "test": 1_000}
_YEARS = range(1950, 2050)
_OTHER_YEARS = (*range(1900, 1950), *range(2050, 2100))
_COMBINATIONS = tuple(product(FORMS, range(1, 13)))


class Dates(Task):
    """Written dates to ISO dates, such as ``march 12 , 2021`` to ``2021 - 03 - 12``.

    Every date occurs once, in one of twelve written forms. IID: dates of the years 1950 to 2049, divided at random into
    2,000, 500 and 1,000. COMB: every month is kept out of the training set in a quarter of the forms. The development
    and test sets have it in these forms only, so all words are known, but not together. YEAR: the training set is that
    of IID, and the development and test sets have the years 1900 to 1949 and 2050 to 2099, which a model has to copy.

    >>> example = Dates().examples("comb/test")[0]
    >>> " ".join(example.source), " ".join(example.target), example.meta["form"]
    ('13 - 10 - 2009', '2009 - 10 - 13', 'day-month-year')

    Args:
        seed: the seed of all generated data.
    """

    name = "dates"
    description = (
        "written dates to ISO dates, generated from a seed; IID, unseen combinations and unseen years"
    )

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    @property
    def splits(self) -> tuple[str, ...]:  # noqa: D102
        return tuple(f"{condition}/{part}" for condition, part in product(("iid", "comb", "year"), PARTS))

    def examples(self, split: str) -> Sequence[Example]:  # noqa: D102
        if split not in self.splits:
            raise self.unknown_split(split)
        return (
            self._iid["iid/train"] if split == "year/train" else (self._iid | self._comb | self._year)[split]
        )

    @cached_property
    def _iid(self) -> dict[str, list[Example]]:
        dates = _Calendar(_YEARS, Random(f"dates iid {self.seed}"))
        return {
            f"iid/{part}": dates.draw(size, _COMBINATIONS, f"iid-{part}") for part, size in _SIZES.items()
        }

    @cached_property
    def _comb(self) -> dict[str, list[Example]]:
        dates = _Calendar(_YEARS, Random(f"dates comb {self.seed}"))
        seen = [combination for combination in _COMBINATIONS if not _is_unseen(*combination)]
        unseen = [combination for combination in _COMBINATIONS if _is_unseen(*combination)]
        return {
            f"comb/{part}": dates.draw(size, seen if part == "train" else unseen, f"comb-{part}")
            for part, size in _SIZES.items()
        }

    @cached_property
    def _year(self) -> dict[str, list[Example]]:
        dates = _Calendar(_OTHER_YEARS, Random(f"dates year {self.seed}"))
        return {
            f"year/{part}": dates.draw(_SIZES[part], _COMBINATIONS, f"year-{part}")
            for part in ("dev", "test")
        }


class _Calendar:
    """Draws dates of some years at random, each of them at most once."""

    def __init__(self, years: Sequence[int], generator: Random) -> None:
        self._years = years
        self._generator = generator
        self._drawn: set[date] = set()

    def draw(self, count: int, combinations: Sequence[Combination], name: str) -> list[Example]:
        """Draw examples whose form and month are one of the combinations; their ids begin with ``name``."""
        return [self._example(*pick(combinations, self._generator), f"{name}-{i}") for i in range(count)]

    def _example(self, form: str, month: int, name: str) -> Example:
        day = self._new_date(month)
        return Example(tuple(FORMS[form](day).split()), iso_tokens(day), name, {"form": form})

    def _new_date(self, month: int) -> date:
        while True:
            year = pick(self._years, self._generator)
            day = date(year, month, 1 + random_below(monthrange(year, month)[1], self._generator))
            if day not in self._drawn:
                self._drawn.add(day)
                return day


def _is_unseen(form: str, month: int) -> bool:
    """Whether a combination is kept out of the training set of COMB: every month from a quarter of the forms."""
    return (tuple(FORMS).index(form) + month) % 4 == 0


def iso_tokens(day: date) -> tuple[str, ...]:
    """The tokens of a date in ISO 8601.

    >>> " ".join(iso_tokens(date(2021, 3, 12)))
    '2021 - 03 - 12'
    """
    return tuple(day.isoformat().replace("-", " - ").split())


def _month(day: date) -> str:
    return MONTHS[day.month - 1]


def _weekday(day: date) -> str:
    return WEEKDAYS[day.weekday()]


def _ordinal(day: date) -> str:
    """The day of the month as an ordinal number, such as ``1st`` or ``12th``."""
    last = 0 if day.day in (11, 12, 13) else day.day % 10
    return f"{day.day}{dict(enumerate(('st', 'nd', 'rd'), start=1)).get(last, 'th')}"
