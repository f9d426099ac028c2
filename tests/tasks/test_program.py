import pytest
from hypothesis import given
from hypothesis import strategies as st

from permalign.tasks.program import MAX_DEPTH, Program, bracketed, from_preorder, read_bracketed

names = st.sampled_from(["jump", "after", "'new york'", "_"])
trees = st.recursive(
    st.builds(Program, names),
    lambda inner: st.builds(Program, names, st.lists(inner, min_size=1, max_size=3).map(tuple)),
    max_leaves=12,
)


@given(trees)
def test_parsing_restores_a_program_with_brackets(program):
    assert read_bracketed(bracketed(program)) == program


@given(trees)
def test_a_program_is_rebuilt_from_its_nodes(program):
    assert from_preorder([(node.function, len(node.arguments)) for node in program.nodes()]) == program


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "ends after token 0, but a name was expected"),
        ("(", r"token 1 is '\(', but a name was expected"),
        ("and ( run , jump", "bracket opened by token 2 is never closed"),
        ("and ( run , twice ( jump )", "bracket opened by token 2 is never closed"),
        ("and ( run", "bracket opened by token 2 is never closed"),
        ("and ( run ,", "ends after token 4, but a name was expected"),
        ("and ( )", r"token 3 is '\)', but a name was expected"),
        ("and ( , run )", "token 3 is ',', but a name was expected"),
        ("run )", "token 2 is '\\)', but no bracket is open"),
        ("run , jump", "token 2 is ',', but no bracket is open"),
        ("run jump", r"token 2 is 'jump', but '\(' or the end was expected"),
        ("and ( run jump )", r"token 4 is 'jump', but '\(', ',' or '\)' was expected"),
        ("and ( run ) ( jump )", "token 5 opens a second bracket"),
        ("f ( " * (MAX_DEPTH + 1), f"opens bracket {MAX_DEPTH + 1} inside one another"),
    ],
)
def test_misplaced_brackets_are_errors(text, words):
    with pytest.raises(ValueError, match=words):
        read_bracketed(text.split())


@pytest.mark.parametrize("symbols", [[("and", 2), ("run", 0)], [("run", 0), ("run", 0)], []])
def test_nodes_that_are_not_one_program_are_an_error(symbols):
    with pytest.raises(ValueError, match="program"):
        from_preorder(symbols)


@given(trees, trees)
def test_programs_are_equal_if_they_are_written_the_same(one, other):
    assert (one == other) == (bracketed(one) == bracketed(other))
    assert one != other or hash(one) == hash(other)
    assert one != bracketed(one)


@given(trees)
def test_a_program_is_printed_as_python_writes_it(program):
    assert eval(repr(program)) == program


def test_deep_programs_are_compared_and_written():
    def deep(leaf):
        return from_preorder([("next_to_2", 1)] * 10_000 + [(leaf, 0)])

    assert deep("all") == deep("all")
    assert deep("all") != deep("none")
    assert hash(deep("all")) == hash(deep("all"))
    assert len(bracketed(deep("all"))) == 30_001
    assert repr(deep("all")).count("Program") == 10_001
    with pytest.raises(ValueError, match=f"opens bracket {MAX_DEPTH + 1}"):
        read_bracketed(bracketed(deep("all")))
