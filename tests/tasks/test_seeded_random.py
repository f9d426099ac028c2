import random
from collections import Counter

from permalign.tasks.seeded_random import pick, random_below, shuffled


def test_shuffling_is_what_the_standard_library_does_today():
    expected = list(range(100))
    random.Random(7).shuffle(expected)
    assert shuffled(range(100), random.Random(7)) == expected


def test_shuffling_leaves_the_original_alone():
    items = [3, 1, 2]
    assert sorted(shuffled(items, random.Random(0))) == [1, 2, 3]
    assert items == [3, 1, 2]


def test_every_item_is_as_likely():
    generator = random.Random(0)
    counts = Counter(pick("abc", generator) for _ in range(3000))
    assert all(900 < counts[letter] < 1100 for letter in "abc")
    assert {random_below(1, generator) for _ in range(9)} == {0}
