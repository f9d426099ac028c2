import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from permalign.errors import DataError
from permalign.tasks.arithmetic import FILES, LENGTH_FILE, Arithmetic
from permalign.tasks.expression_sampler import DepthSampler
from permalign.tasks.expressions import DIGITS, Expression, read_infix, shape_depth, shapes, template_count

expressions = st.recursive(
    st.builds(Expression, st.sampled_from(DIGITS)),
    lambda inner: st.builds(Expression, st.sampled_from("+-*/"), inner, inner),
    max_leaves=15,
)


@pytest.fixture(scope="module")
def task():
    return Arithmetic(seed=1)


def template(tokens):
    return re.sub(r"\d", "d", "".join(tokens))


def shape(tokens):
    return re.sub(r"[-+*/]", "o", template(tokens))


def test_all_splits_are_generated_for_any_seed():
    task = Arithmetic(seed=2, depth=10)
    assert sum(len(task.examples(split)) for split in task.splits) == 39_755


def test_iid_is_twenty_thousand_different_templates(task):
    sizes = {part: len(task.examples(f"iid/{part}")) for part in ("train", "dev", "test")}
    assert sizes == {"train": 10_000, "dev": 5_000, "test": 5_000}
    found = [e for part in sizes for e in task.examples(f"iid/{part}")]
    assert len({template(e.source) for e in found}) == 20_000
    assert len({e.id for e in found}) == 20_000
    assert {e.meta["depth"] for e in found} <= {3, 4, 5, 6}
    assert Counter(e.meta["depth"] for e in found)[6] > 0.99 * 20_000


def test_digits_and_operators_are_uniform(task):
    counts = Counter(token for e in task.examples("iid/train") for token in e.source)
    for symbols in ("0123456789", "+-*/"):
        total = sum(counts[s] for s in symbols)
        assert all(abs(counts[s] / total * len(symbols) - 1) < 0.05 for s in symbols)


def test_len_trains_on_the_same_and_tests_all_deeper_shapes_five_times(task):
    assert task.examples("len/train") == task.examples("iid/train")
    assert task.examples("len/dev") == task.examples("iid/dev")
    found = task.examples("len/test")
    assert len({e.source for e in found}) == len(found) == 3_255
    counts = Counter(shape(e.source) for e in found)
    assert len(counts) == 651
    assert set(counts.values()) == {5}
    assert {e.meta["depth"] for e in found} == {7}
    assert (min(len(e.source) for e in found), max(len(e.source) for e in found)) == (17, 61)


def test_the_deeper_development_set_is_in_no_test_set():
    task = Arithmetic(seed=1, depth=8, max_length=60)
    found = task.examples("deep/dev")
    assert len({e.source for e in found}) == len(found) == 500
    assert {e.meta["depth"] for e in found} == {8}
    assert max(len(e.source) for e in found) <= 60
    tested = {e.source for split in task.splits if split.endswith("test") for e in task.examples(split)}
    assert not tested & {e.source for e in found}


def test_numbers_of_shapes_and_templates():
    assert [len(shapes(depth)) for depth in (3, 4, 5, 6, 7)] == [1, 2, 5, 26, 677]
    assert sum(shape_depth(form) == 7 for form in shapes(7)) == 651
    assert [template_count(depth) for depth in (3, 4, 5, 6)] == [1, 5, 101, 40_805]


def test_a_seed_gives_the_same_examples_on_every_machine(task):
    assert Arithmetic(seed=1).examples("iid/test") == task.examples("iid/test")
    assert Arithmetic(seed=2).examples("iid/test") != task.examples("iid/test")
    # Written down once: a change here changes everybody's data.
    first = [task.examples(split)[0] for split in ("iid/train", "iid/test", "len/test")]
    assert ["".join(e.source) for e in first] == EXPECTED


EXPECTED = ["(((9-7)+(7/1))*(1*2))", "(0+((7/7)*(5-0)))", "(0+(4*(7/(9*0))))"]


@pytest.mark.parametrize("depth", [3, 4, 5, 8, 20])
def test_any_depth_on_request(depth):
    task = Arithmetic(depth=depth, max_length=100)
    assert task.splits[-1] == f"depth-{depth}/test"
    found = task.examples(f"depth-{depth}/test")
    assert len({e.source for e in found}) == len(found) == {3: 10, 4: 400}.get(depth, 1_000)
    assert {e.meta["depth"] for e in found} == {depth}
    assert max(len(e.source) for e in found) <= 100


def test_the_sampler_draws_shapes_of_the_same_size_equally_often():
    generator = random.Random(0)
    sampler = DepthSampler(depth=6, max_length=17)  # three nested parentheses, at most four operators
    drawn = Counter(shape(sampler.draw(generator).tokens("infix")) for _ in range(20_000))
    expected = Counter()
    for form in shapes(6):
        text = _written(form)
        operators = text.count("o")
        if shape_depth(form) == 6 and operators <= 4:
            expected[text] = (2 / 5) ** operators * (3 / 5) ** (operators + 1)
    assert drawn.keys() == expected.keys()
    total = sum(expected.values())
    for text, weight in expected.items():
        assert drawn[text] / 20_000 == pytest.approx(weight / total, rel=0.15)


def _written(form):
    return "d" if form is None else f"({_written(form[0])}o{_written(form[1])})"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depth": 2}, "depth is 2, but must be at least 3"),
        ({"depth": 204, "max_length": 5_000}, "depth is 204, but must be at most 203"),
        ({"depth": 20, "max_length": 60}, "max_length is 60, but depth 20 takes at least 69 tokens"),
        ({"notation": "infix"}, "notation is 'infix'; expected 'postfix' or 'prefix'"),
    ],
)
def test_impossible_options_are_errors(options, words):
    with pytest.raises(ValueError, match=words):
        Arithmetic(**options)


def test_an_unknown_split_is_an_error():
    with pytest.raises(ValueError, match="arithmetic has no split 'depth-9/test'; choose one of iid/train"):
        Arithmetic(depth=8).examples("depth-9/test")


@given(expressions)
def test_parsing_restores_a_written_expression(expression):
    assert read_infix("".join(expression.tokens("infix"))) == expression


@given(expressions)
def test_other_notations_are_permutations_that_keep_the_parentheses(expression):
    infix = expression.tokens("infix")
    for notation in ("prefix", "postfix"):
        tokens = expression.tokens(notation)
        assert Counter(tokens) == Counter(infix)
        digits = [token for token in tokens if token in DIGITS]
        assert digits == [token for token in infix if token in DIGITS]


def test_generated_and_published_notations_agree(data_dir):
    postfix = Arithmetic(published=True, data_dir=data_dir)
    prefix = Arithmetic(notation="prefix", published=True, data_dir=data_dir)
    for part, name in FILES.items():
        lines = (data_dir / "arithmetic" / name).read_text().splitlines()
        examples = zip(postfix.examples(f"iid/{part}"), prefix.examples(f"iid/{part}"), strict=True)
        made = ["\t".join("".join(x) for x in (a.source, b.target, a.target)) for a, b in examples]
        assert made == lines
    assert postfix.notes
    assert len(postfix.examples("len/test")) == 3_255


def test_the_length_file_of_the_authors_is_read_where_it_lies_beside_the_others(tmp_path):
    folder = tmp_path / "arithmetic"
    folder.mkdir()
    for name in (*FILES.values(), LENGTH_FILE):
        (folder / name).write_text("(1+2)\t(+12)\t(12+)\n" if name == LENGTH_FILE else "1\t1\t1\n")
    task = Arithmetic(published=True, data_dir=tmp_path)
    assert task.notes == ()
    assert ["".join(example.target) for example in task.examples("len/test")] == ["(12+)"]
    assert len(Arithmetic(data_dir=tmp_path).examples("len/test")) == 3_255


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"(1+2)\t(+12)\n", "line 1: expected 3 tab-separated columns, found 2"),
        (b"1\t1\t1\n(1+2)\t(+12)\t(+12)\n", r"line 2: '\(\+12\)' should be '\(12\+\)'"),
        (b"(1+2\t(+12)\t(12+)\n", "line 1: .* is not an infix expression: the expression ends after 4 char"),
        (b"(1+2))\t\t\n", r"line 1: .*character 6 is '\)', but the end was expected"),
        (b"(1+)\t\t\n", "line 1: .*but a digit or"),
        (b"(12)\t\t\n", "line 1: .*character 3 is '2', but an operator was expected"),
        (b"(1+2+3)\t\t\n", r"line 1: .*character 5 is '\+', but '\)' was expected"),
        (b"(1%2)\t\t\n", "line 1: .*'%', is not a digit"),
        (b"(" * 300_000 + b"\t\t\n", "line 1: '[(]{77}...' is not an infix expression: .*inside one another"),
        (b"1\t1\t1\n\n", "line 2: the line is empty"),
        (b"1\r1\t1\t1\n", "line 1: .*carriage return"),
        (b"\x001\t1\t1\n", "line 1: .*zero bytes"),
        (b"1\t1\t1\n\xff\t1\t1\n", "line 2: byte 1"),
        (b"1" * 10_000_000, "line 1: the line is longer"),
    ],
)
def test_malformed_files_are_errors_with_their_line(tmp_path, content, words):
    folder = tmp_path / "arithmetic"
    folder.mkdir()
    for name in FILES.values():
        (folder / name).write_bytes(content)
    with pytest.raises(DataError, match=f"train_10k.tsv, {words}"):
        Arithmetic(published=True, data_dir=tmp_path).examples("iid/train")
