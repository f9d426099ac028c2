import json
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tasks.programs import TOY, all_readings, preferred, programs, strings

from permalign.tasks.geoquery import signatures
from permalign.tasks.grammar import END, MAX_TOKENS, Grammar, GrammarError, Rule
from permalign.tasks.grammar_of_programs import restrict_to_programs
from permalign.tasks.program import Program, from_preorder
from permalign.tasks.registry import get_task
from permalign.tasks.scan_language import program_grammar as scan_grammar

GRAMMARS = {
    "scan": scan_grammar(),
    "geoquery": signatures.program_grammar(),
    "geoquery with all": signatures.program_grammar(write_all=True),
    "toy": TOY,
}
each_grammar = pytest.mark.parametrize("grammar", GRAMMARS.values(), ids=GRAMMARS)


@each_grammar
@given(data=st.data())
def test_parsing_restores_a_linearized_program(grammar, data):
    program = data.draw(programs(grammar))
    assert grammar.read(grammar.linearize(program)) == program


@given(programs(GRAMMARS["geoquery"]))
def test_either_all_optional_constants_are_written_or_none(program):
    tokens = GRAMMARS["geoquery"].linearize(program)
    written = GRAMMARS["geoquery with all"].linearize(program)
    bare = [token for token in written if token != "all"]
    assert tokens in (bare, written)
    if tokens != bare:
        assert GRAMMARS["geoquery"].read(bare) != program


def test_constants_are_written_where_parsing_needs_them():
    nested = Program("state", (Program("state", (Program("all"),)),))
    plain = Program("state", (Program("all"),))
    grammar = GRAMMARS["geoquery"]
    assert grammar.linearize(Program("exclude", (plain, nested))) == ["exclude", "state", "state", "state"]
    assert "all" in grammar.linearize(Program("exclude", (nested, plain)))


@each_grammar
@given(data=st.data())
def test_every_sequence_of_allowed_tokens_becomes_a_program(grammar, data):
    longest = data.draw(st.integers(grammar.initial.shortest, 12))
    state, tokens = grammar.initial, []
    while True:
        allowed = state.allowed_within(longest - len(tokens))
        assert allowed <= state.allowed
        token = data.draw(st.sampled_from(sorted(allowed)))
        assert (token == END) <= state.complete
        if token == END:
            break
        tokens.append(token)
        state = state.advance(token)
        assert state.allowed == grammar.follow(tokens)
    assert len(tokens) <= longest
    program = grammar.read(tokens)
    assert grammar.read(grammar.linearize(program)) == program


@given(data=st.data())
def test_programs_can_be_completed_without_optional_constants(data):
    state = GRAMMARS["geoquery"].initial
    for remaining in range(10, -1, -1):
        allowed = state.allowed_within(remaining) - {"all"}
        token = data.draw(st.sampled_from(sorted(allowed)))
        if token == END:
            break
        state = state.advance(token)
    assert state.complete


@given(data=st.data())
def test_the_documented_parse_is_preferred_among_all_parses(data):
    tokens = TOY.linearize(data.draw(programs(TOY, depth=4)))
    readings = all_readings(TOY, [token for token in tokens if token != "all"])
    chosen = TOY.read([token for token in tokens if token != "all"])
    assert chosen == from_preorder(preferred(TOY, readings))


def test_allowed_tokens_agree_with_enumeration():
    programs_as_tokens = {s for n in range(8) for kind in TOY.start for s in strings(TOY, kind, n)}
    prefixes = {string[:n] for string in programs_as_tokens for n in range(len(string) + 1)}
    assert len(programs_as_tokens) > 1000
    for prefix in (p for length in range(3) for p in product(sorted(TOY.tokens), repeat=length)):
        if prefix not in prefixes:
            with pytest.raises(GrammarError):
                TOY.follow(prefix)
            continue
        longer = [s for s in prefixes if len(s) > len(prefix) and s[: len(prefix)] == prefix]
        ends = {END} if prefix in programs_as_tokens else set()
        assert TOY.follow(prefix) == {string[len(prefix)] for string in longer} | ends
        continuations = [s for s in programs_as_tokens if s[: len(prefix)] == prefix]
        assert TOY.state(prefix).shortest == min(map(len, continuations)) - len(prefix)


def test_arguments_end_early_in_an_ambiguous_program():
    readings = all_readings(TOY, ["less", "city", "city", "city"])
    assert len(readings) == 2
    assert TOY.linearize(TOY.read(["less", "city", "city", "city"])) == ["less", "city", "city", "city"]
    first, second = TOY.read(["less", "city", "city", "city"]).arguments
    assert first == Program("city", (Program("all"),))
    assert second == Program("city", (first,))


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        ([], r"stops after 0 tokens; expected 'after', 'and', .* or 1 others next"),
        (["after", "walk"], r"stops after 2 tokens; expected 'around', 'jump', .*"),
        (["after", "left"], r"^token 2: 'left' is not allowed here; expected 'jump', 'look', .*"),
        (["turn"], r"stops after 1 tokens; expected 'around', 'left', 'opposite', 'right' next"),
        (["walk", "left", "left"], r"^token 3: 'left' is not allowed here; expected the end\.$"),
        (["walk", END], r"^token 2: '</s>' is not allowed here"),
        (["fly"], r"^token 1: 'fly' is not allowed here"),
    ],
)
def test_parse_errors_give_the_position_and_what_was_expected(tokens, words):
    with pytest.raises(GrammarError, match=words):
        GRAMMARS["scan"].read(tokens)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (Program("fly"), "unknown function 'fly'"),
        (Program("walk", (Program("walk"),)), r"'walk' with 0 arguments is not allowed there \(function 2\)"),
        (
            Program("twice", (Program("walk"), Program("run"))),
            "'twice' with 2 arguments is not allowed there",
        ),
        (Program("turn"), "'turn' with 0 arguments is not allowed there"),
    ],
)
def test_a_program_that_is_not_well_typed_cannot_be_linearized(program, words):
    with pytest.raises(GrammarError, match=words):
        GRAMMARS["scan"].linearize(program)


def test_a_program_that_would_be_parsed_as_another_is_an_error():
    grammar = Grammar(["A"], [Rule("f", "A", ("A", "A")), Rule("g", "A", ("A",)), Rule("g", "A")])
    g = Program("g")
    gg = Program("g", (g,))
    assert grammar.linearize(Program("f", (g, gg))) == ["f", "g", "g", "g"]
    with pytest.raises(GrammarError, match="'f g g g' are parsed as another program"):
        grammar.linearize(Program("f", (gg, g)))


@pytest.mark.parametrize(
    ("start", "rules", "optional", "words"),
    [
        (["A"], [Rule("f", "A", ("A",))], [], "no finite program has type 'A'"),
        (["A"], [Rule("f", "A"), Rule("g", "A", ("B",))], [], "no finite program has type 'B'"),
        (["A"], [Rule("f", "A"), Rule("f", "A", ("A",))], ["f"], "'f' takes arguments"),
        (["A"], [Rule(END, "A")], [], "cannot name a function"),
    ],
)
def test_a_grammar_with_programs_that_cannot_be_completed_is_an_error(start, rules, optional, words):
    with pytest.raises(ValueError, match=words):
        Grammar(start, rules, optional)


def test_a_limit_that_is_too_short_is_an_error():
    with pytest.raises(ValueError, match="0 tokens are too few: the shortest program needs 1 more"):
        GRAMMARS["scan"].initial.allowed_within(0)


def test_the_programs_of_geoquery_need_few_states(data_dir):
    grammar = Grammar(signatures.ANSWERS, signatures.rules(), optional=["all"])
    with (data_dir / "geoquery/expected/geoquery.jsonl").open(encoding="utf-8") as stream:
        for line in stream:
            grammar.read(json.loads(line)["program"].split())
    assert len(grammar._states) <= 200


def test_deep_nesting_is_read_back():
    grammar = Grammar(signatures.ANSWERS, signatures.rules(), optional=["all"])
    tokens = ["exclude"] * 60 + ["state"] * 61
    assert grammar.linearize(grammar.read(tokens)) == tokens


def test_programs_that_take_long_to_read_are_refused():
    grammar = GRAMMARS["geoquery"]
    longest = ["exclude"] * (MAX_TOKENS // 2 - 1) + ["state"] * (MAX_TOKENS // 2)
    assert grammar.linearize(grammar.read(longest)) == longest
    for read in (grammar.read, grammar.state, grammar.follow):
        with pytest.raises(GrammarError, match=f"there are 20001 tokens; a program has at most {MAX_TOKENS}"):
            read(["exclude"] * 10_000 + ["state"] * 10_001)


def test_states_know_what_may_follow_however_many_types_are_pending():
    state = GRAMMARS["geoquery"].initial
    for _ in range(1_100):
        state = state.advance("exclude")
    assert state.shortest == 1_101
    assert "state" in state.allowed_exactly(1_101)
    assert "exclude" not in state.allowed_exactly(1_101)
    for _ in range(1_101):
        state = state.advance("state")
    assert state.complete


def outputs_of_length(grammar, length):
    """Every program with a given number of tokens, found by following all allowed tokens."""
    states = [((), grammar.initial)]
    for _ in range(length):
        states = [
            ((*tokens, token), state.advance(token))
            for tokens, state in states
            for token in state.allowed - {END}
        ]
    return {tokens for tokens, state in states if state.complete}


def test_programs_of_an_exact_length_agree_with_enumeration():
    rules = [Rule("all", "All"), Rule("a", "X", ("All",)), Rule("b", "X", ("X", "Y")), Rule("c", "Y", ("X",))]
    grammar = Grammar(["X"], rules, optional=["all"])
    for length in range(1, 7):
        walked = [((), grammar.initial)]
        for remaining in range(length, 0, -1):
            walked = [
                ((*tokens, token), state.advance(token))
                for tokens, state in walked
                for token in state.allowed_exactly(remaining)
            ]
        expected = outputs_of_length(grammar, length)
        assert {tokens for tokens, _ in walked} == expected
        assert all(state.allowed_exactly(0) == {END} for _, state in walked)


def test_a_restricted_grammar_has_exactly_the_programs_of_its_tokens():
    rules = [
        Rule("a", "X"),
        Rule("b", "X", ("X",)),
        Rule("c", "X", ("Y",)),
        Rule("d", "Y"),
        Rule("e", "Y", ("Y",)),
    ]
    grammar = Grammar(["X", "Y"], rules)
    for tokens in ("ab", "abde", "de", "ace", "abcde"):
        restricted = grammar.restricted_to(tokens)
        for length in range(1, 5):
            expected = {output for output in outputs_of_length(grammar, length) if set(output) <= set(tokens)}
            assert outputs_of_length(restricted, length) == expected
    with pytest.raises(ValueError, match="no program can be written"):
        grammar.restricted_to("be")


def rules_of_all_typings(grammar, program):
    """The rules of every way in which a program is well typed, and the start types, by enumeration."""
    nodes = list(program.nodes())
    choices = [[rule for rule in grammar.rules if rule.function == node.function] for node in nodes]
    used, start = set(), set()
    for rules in product(*choices):
        pending, fits = [], rules[0].result in grammar.start
        for index, (node, rule) in enumerate(zip(nodes, rules, strict=True)):
            expected = pending.pop() if index else rule.result
            fits = fits and rule.result == expected and len(rule.arguments) == len(node.arguments)
            if not fits:
                break
            pending += reversed(rule.arguments)
        if fits:
            used |= {*rules}
            start.add(rules[0].result)
    return used, start


@given(data=st.data())
def test_a_grammar_restricted_to_programs_has_the_rules_of_all_their_typings(data):
    drawn = data.draw(st.lists(programs(TOY, depth=2), min_size=1, max_size=3))
    restricted = restrict_to_programs(TOY, map(TOY.linearize, drawn))
    enumerated = [rules_of_all_typings(TOY, program) for program in drawn]
    assert {*restricted.rules} == set().union(*(used for used, _ in enumerated))
    assert {*restricted.start} == set().union(*(start for _, start in enumerated))
    assert all(restricted.read(TOY.linearize(program)) == program for program in drawn)


def test_a_grammar_cannot_be_restricted_to_no_programs():
    with pytest.raises(ValueError, match="there are no programs"):
        restrict_to_programs(TOY, [])


@pytest.mark.parametrize(("condition", "unreadable"), [("iid", 7), ("temp", 27)])
def test_some_test_programs_are_not_in_the_grammar_of_the_training_programs(condition, unreadable, data_dir):
    task = get_task("geoquery", data_dir=data_dir)
    trained = restrict_to_programs(
        task.grammar, (example.target for example in task.examples(f"{condition}/train"))
    )
    counts = {}
    for part in ("train", "test"):
        counts[part] = 0
        for example in task.examples(f"{condition}/{part}"):
            try:
                trained.read(example.target)
            except GrammarError:
                counts[part] += 1
    assert counts == {"train": 0, "test": unreadable}
