"""A typed grammar of programs: it writes programs without brackets, parses them, and tells which tokens may follow.

A `Rule` gives the result type of a function and the types of its arguments; a function may have several rules
(``loc_2`` of a state can be a city, a river or a place). A program is written as the sequence of its functions in
prefix order, without brackets. Some constants may be left out (GeoQuery's ``all``: ``river`` stands for
``river(all)``); parsing restores them.

**States.** After some tokens of a program, its remaining arguments must still be written: a sequence of types. Since
functions have several rules, there may be several such sequences. A `State` represents this set of sequences as a trie:
for each type that may come next, it has the state that follows. Sequences with a common beginning share it
(``X A | X B = X (A | B)``), so the trie has one branch per type, and does not grow with the number of ways in which
rules can be chosen for the tokens. States are interned and cache their successors, so that a repeated step is a
dictionary look-up; a new step costs time proportional to the number of branches.

**Parsing.** If several programs have the same tokens, their nodes are compared in prefix order, including constants
that were left out. At the first difference, a program with a constant that was left out is preferred, or else the one
with fewer arguments; so arguments end as early as possible. `Grammar.linearize` leaves out constants only if parsing
restores the program, and otherwise writes all of them, so `Grammar.read` always inverts it.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from permalign.errors import excerpt
from permalign.tasks.program import Program, from_preorder

MAX_TOKENS = 250
"""How many tokens a program may have, so that parsing takes no more than about a second."""

END: Final = "</s>"
"""The token that stands for the end of the program among the tokens that may follow."""


class Rule(NamedTuple):
    """A function, the type of its result and the types of its arguments."""

    function: str
    result: str
    arguments: tuple[str, ...] = ()


class GrammarError(ValueError):
    """Tokens or a tree are not a program of the grammar; the message gives the position and what was expected."""


class State:
    """What may follow the tokens that were read so far. States are created by a `Grammar`, and are immutable.

    Attributes:
        complete: whether the tokens so far are a complete program.
        allowed: the tokens that may come next, including `END` if the program is complete. After each of them, the
            program can still be completed.
        shortest: the smallest number of further tokens that complete the program.
    """

    complete: bool
    allowed: frozenset[str]
    shortest: int

    def __init__(self, grammar: "Grammar", finished: bool, branches: dict[str, "State"]) -> None:
        self._grammar = grammar
        self._finished = finished  # whether the program may end here
        self._branches = branches  # for each type that may come next, the state after it
        self._next: dict[str, State] = {}
        self._cost: dict[str, int] | None = None
        self._length_limit, self._known_lengths = -1, 0  # the lengths up to a limit, as a bit mask
        skippable = [state for kind, state in branches.items() if kind in grammar._skippable]
        # Where a constant that may be left out is expected, the tokens after it are allowed as well.
        self._alternatives: tuple[State, ...] = (
            self,
            *(state for skipped in skippable for state in skipped._alternatives),
        )
        self.complete = finished or any(state.complete for state in skippable)
        kinds = {kind for state in self._alternatives for kind in state._branches}
        tokens = {token for kind in kinds for token in grammar._tokens_of[kind]}
        self.allowed = frozenset(tokens | {END} if self.complete else tokens)
        lengths = [grammar._shortest[kind] + state.shortest for kind, state in branches.items()]
        self.shortest = 0 if finished else min(lengths)

    def advance(self, token: str) -> "State":
        """The state after one more token; raises a `GrammarError` if the token is not allowed."""
        state = self._next.get(token)
        if state is None:
            if token not in self.allowed or token == END:
                raise GrammarError(f"{excerpt(token)} is not allowed here; expected {_listed(self.allowed)}.")
            state = self._next[token] = self._grammar._after_token(self._alternatives, token)
        return state

    def allowed_within(self, tokens: int) -> frozenset[str]:
        """The next tokens with which the program can be completed in at most ``tokens`` tokens, including the next one.

        A decoder that may write n tokens starts with ``allowed_within(n)`` and continues with ``n - 1``; it can always
        complete the program. With 0, only `END` is allowed, which does not count as a token.

        Raises:
            ValueError: the program cannot be completed in so few tokens.
        """
        if tokens < self.shortest:
            raise ValueError(f"{tokens} tokens are too few: the shortest program needs {self.shortest} more.")
        if self._cost is None:
            self._cost = {token: 1 + self.advance(token).shortest for token in self.allowed - {END}}
        fitting = frozenset(token for token, cost in self._cost.items() if cost <= tokens)
        return fitting | {END} if self.complete else fitting

    def allowed_exactly(self, tokens: int) -> frozenset[str]:
        """The next tokens with which the program can be completed in exactly ``tokens`` tokens, including the next one.

        The set is empty if no program has that length. With 0, it contains `END` if the program is complete.
        """
        if tokens <= 0:
            return frozenset({END} if self.complete and tokens == 0 else ())
        return frozenset(
            token
            for token in self.allowed - {END}
            if self.advance(token)._lengths(tokens) >> (tokens - 1) & 1
        )

    def _lengths(self, limit: int) -> int:
        """A bit mask: bit n is set if the program can be completed in n more tokens, for n up to ``limit`` or more."""
        limit = max(limit, 32)
        waiting = [self]
        while waiting:  # not recursive, because as many states may follow one another as a program has tokens
            state = waiting[-1]
            if state._knows_lengths(limit):
                waiting.pop()
            elif missing := [one for one in state._branches.values() if not one._knows_lengths(limit)]:
                waiting += missing
            else:
                bits = int(state._finished)
                for kind, one in state._branches.items():
                    bits |= _sums(state._grammar._lengths_of(kind, limit), one._known_lengths, limit)
                state._length_limit, state._known_lengths = limit, bits
        return self._known_lengths

    def _knows_lengths(self, limit: int) -> bool:
        return self._length_limit >= limit


class Grammar:
    """The grammar of all programs whose result has one of the start types.

    States are cached for the lifetime of the grammar; GeoQuery's programs need at most 200 of them.

    Args:
        start: the types of complete programs.
        rules: the rules, in any order.
        optional: constants (functions without arguments) that may be left out when a program is written.

    >>> noun = [Rule("river", "River", ("All",)), Rule("river", "River", ("River",)), Rule("all", "All")]
    >>> both = [Rule("exclude", "River", ("River", "River")), Rule("mississippi", "River")]
    >>> grammar = Grammar(["River"], noun + both, optional=["all"])
    >>> tokens = ["exclude", "river", "mississippi"]
    >>> from permalign.tasks.program import bracketed
    >>> "".join(bracketed(grammar.read(tokens)))
    'exclude(river(all),mississippi)'
    >>> grammar.linearize(grammar.read(tokens)) == tokens
    True
    >>> sorted(grammar.follow(["exclude", "mississippi"]))
    ['exclude', 'mississippi', 'river']
    >>> sorted(grammar.follow(["exclude", "mississippi", "mississippi"]))
    ['</s>']
    """

    def __init__(self, start: Iterable[str], rules: Iterable[Rule], optional: Iterable[str] = ()) -> None:
        self.start = tuple(start)
        self.rules = tuple(dict.fromkeys(rules))
        self.optional = frozenset(optional)
        self._rules_of: dict[str, list[Rule]] = {}  # by function
        self._tokens_of: dict[str, set[str]] = {}  # by result type
        for rule in self.rules:
            self._rules_of.setdefault(rule.function, []).append(rule)
            self._tokens_of.setdefault(rule.result, set()).add(rule.function)
        self._check_optional()
        self._skippable = {rule.result for rule in self.rules if rule.function in self.optional}
        self._shortest = self._shortest_lengths()
        self._states: dict[tuple[bool, frozenset[tuple[str, State]]], State] = {}
        self._unions: dict[tuple[State, State], State] = {}
        self._length_sets: dict[int, dict[str, int]] = {}
        finished = self._state(True, {})
        self.initial = self._state(False, dict.fromkeys(self.start, finished))

    def restricted_to(self, tokens: Iterable[str]) -> "Grammar":
        """The grammar of the programs that consist of the given tokens and of optional constants.

        Raises:
            ValueError: there is no such program.
        """
        known = {*tokens} | self.optional
        rules = [rule for rule in self.rules if rule.function in known]
        finite: set[str] = set()  # the types that have at least one program
        while more := {rule.result for rule in rules if finite.issuperset(rule.arguments)} - finite:
            finite |= more
        rules = [rule for rule in rules if finite.issuperset(rule.arguments)]
        start = [kind for kind in self.start if kind in finite]
        if not start:
            raise ValueError("no program can be written with these tokens; are they from another vocabulary?")
        return Grammar(start, rules, self.optional)

    @property
    def tokens(self) -> frozenset[str]:
        """All tokens that occur in programs."""
        return frozenset(self._rules_of)

    def follow(self, prefix: Sequence[str]) -> frozenset[str]:
        """The tokens that may follow a prefix, including `END` if it is a complete program.

        In a decoder, it is faster to keep the state and to use `State.advance`.
        """
        return self.state(prefix).allowed

    def state(self, prefix: Sequence[str]) -> State:
        """The state after some tokens; raises a `GrammarError` that gives the first token that is not allowed.

        The same error is raised for more than `MAX_TOKENS` tokens.
        """
        if len(prefix) > MAX_TOKENS:
            raise GrammarError(f"there are {len(prefix)} tokens; a program has at most {MAX_TOKENS}.")
        state = self.initial
        for position, token in enumerate(prefix, start=1):
            try:
                state = state.advance(token)
            except GrammarError as error:
                raise GrammarError(f"token {position}: {error}") from None
        return state

    def linearize(self, program: Program) -> list[str]:
        """Write a program as tokens, from which `read` restores it.

        Raises:
            GrammarError: the program is not well typed, or its tokens would be parsed as a different program (which is
                possible if a function may have different numbers of arguments).
        """
        nodes = [(node.function, len(node.arguments)) for node in program.nodes()]
        self._check_types(nodes)
        functions = [function for function, _ in nodes]
        for tokens in ([function for function in functions if function not in self.optional], functions):
            if self._accepts(self.initial, tokens) and self._read(tokens) == nodes:
                return tokens
        raise GrammarError(f"the tokens {excerpt(' '.join(functions))} are parsed as another program.")

    def read(self, tokens: Sequence[str]) -> Program:
        """Parse tokens; if several programs have these tokens, the module's docstring says which one is returned.

        Raises:
            GrammarError: the tokens are not a program. The message gives the position (from 1) of the first token that
                is not allowed, and the tokens that are.
        """
        state = self.state(tokens)
        if not state.complete:
            raise GrammarError(
                f"the program stops after {len(tokens)} tokens; expected {_listed(state.allowed)} next."
            )
        return from_preorder(self._read(tokens))

    def _accepts(self, state: State, tokens: Sequence[str]) -> bool:
        for token in tokens:
            if token not in state.allowed or token == END:
                return False
            state = state.advance(token)
        return state.complete

    def _read(self, tokens: Sequence[str]) -> list[tuple[str, int]]:
        """The nodes of the preferred program, each with its number of arguments; the tokens must be a program."""
        state, position = self.initial, 0
        nodes: list[tuple[str, int]] = []
        while position < len(tokens) or state._branches:
            choices = [(function, 0, position) for function in sorted(self.optional)]
            if position < len(tokens):
                function = tokens[position]
                arities = sorted({len(rule.arguments) for rule in self._rules_of[function]})
                choices += [(function, arity, position + 1) for arity in arities]
            possible = [
                ((function, arity), after, following)
                for function, arity, after in choices
                if (following := self._after_node((state,), function, arity))
            ]
            # The tokens are a program, so at least one choice leads to its end, and the last one need not be tried.
            fitting = (choice for choice in possible[:-1] if self._accepts(choice[2], tokens[choice[1] :]))
            node, position, state = next(fitting, possible[-1])
            nodes.append(node)
        return nodes

    def _check_types(self, nodes: Sequence[tuple[str, int]]) -> None:
        state: State | None = self.initial
        for position, (function, arity) in enumerate(nodes, start=1):
            state = self._after_node((state,), function, arity) if state else None
            if state is None:
                if function not in self._rules_of:
                    raise GrammarError(f"unknown function {excerpt(function)}.")
                arguments = "1 argument" if arity == 1 else f"{arity} arguments"
                raise GrammarError(
                    f"{function!r} with {arguments} is not allowed there (function {position})."
                )

    def _after_token(self, states: Iterable[State], token: str) -> State:
        state = self._after_node(states, token)
        if state is None:
            raise AssertionError(f"{token!r} was allowed, but there is no state after it")
        return state

    def _after_node(self, states: Iterable[State], function: str, arity: int | None = None) -> State | None:
        """The state after a function with ``arity`` arguments (None for any number) in any of the given states."""
        after: State | None = None
        for state in states:
            for rule in self._rules_of.get(function, ()):
                if rule.result in state._branches and arity in {None, len(rule.arguments)}:
                    reached = state._branches[rule.result]
                    for argument in reversed(rule.arguments):
                        reached = self._state(False, {argument: reached})
                    after = reached if after is None else self._union(after, reached)
        return after

    def _union(self, first: State, second: State) -> State:
        """The state in which everything may follow that may follow in one of the two states."""
        waiting = [(first, second)]
        while waiting:  # not recursive, because as many states may follow one another as a program has tokens
            one, other = waiting[-1]
            common = one._branches.keys() & other._branches.keys()
            pairs = {kind: (one._branches[kind], other._branches[kind]) for kind in common}
            if (one, other) in self._unions:
                waiting.pop()
            elif one is other:
                self._unions[one, other] = one
            elif missing := [pair for pair in pairs.values() if pair not in self._unions]:
                waiting += missing
            else:
                merged = {kind: self._unions[pair] for kind, pair in pairs.items()}
                branches = {**one._branches, **other._branches, **merged}
                self._unions[one, other] = self._state(one._finished or other._finished, branches)
        return self._unions[first, second]

    def _state(self, finished: bool, branches: dict[str, State]) -> State:
        """The state with the given branches; it is created only once."""
        key = (finished, frozenset(branches.items()))
        if key not in self._states:
            self._states[key] = State(self, finished, branches)
        return self._states[key]

    def _lengths_of(self, kind: str, limit: int) -> int:
        """A bit mask: bit n is set if a program of this type has n tokens, for n up to ``limit``."""
        if limit not in self._length_sets:
            lengths = dict.fromkeys(self._tokens_of, 0)
            previous: dict[str, int] = {}
            while lengths != previous:
                previous = dict(lengths)
                for rule in self.rules:
                    # Bit 0: the function is left out; bit 1: it is written as one token.
                    rule_lengths = 0b01 if rule.function in self.optional else 0b10
                    for argument in rule.arguments:
                        rule_lengths = _sums(rule_lengths, lengths[argument], limit)
                    if rule.function in self.optional:
                        rule_lengths |= 0b10
                    lengths[rule.result] |= rule_lengths
            self._length_sets[limit] = lengths
        return self._length_sets[limit][kind]

    def _check_optional(self) -> None:
        for function in self.optional:
            if any(rule.arguments for rule in self._rules_of.get(function, ())):
                raise ValueError(f"{function!r} takes arguments; only a constant may be optional.")
        if END in self._rules_of:
            raise ValueError(f"{END!r} marks the end of a program and cannot name a function.")

    def _shortest_lengths(self) -> dict[str, int]:
        """The smallest number of tokens of any program of each type, by fixed-point iteration.

        Raises:
            ValueError: a type has no finite program, so that a decoder could not complete every program.
        """
        shortest: dict[str, int] = {}
        changed = True
        while changed:
            changed = False
            for rule in self.rules:
                if all(kind in shortest for kind in rule.arguments):
                    own_length = 0 if rule.function in self.optional else 1
                    length = own_length + sum(shortest[kind] for kind in rule.arguments)
                    if length < shortest.get(rule.result, length + 1):
                        shortest[rule.result] = length
                        changed = True
        used = {*self.start, *(kind for rule in self.rules for kind in rule.arguments)}
        if infinite := sorted(used - shortest.keys()):
            raise ValueError(f"no finite program has type {_listed(infinite)}; add a rule that terminates.")
        return shortest


def _sums(first: int, second: int, limit: int) -> int:
    """All sums of a number from each of two sets, up to ``limit``; sets of numbers are bit masks."""
    sums, shift = 0, 0
    while first:
        if first & 1:
            sums |= second << shift
        first >>= 1
        shift += 1
    return sums & ((1 << (limit + 1)) - 1)


def _listed(names: Iterable[str], max_length: int = 8) -> str:
    quoted = [repr(name) if name != END else "the end" for name in sorted(names)]
    remaining = [f"{len(quoted) - max_length} others"] if len(quoted) > max_length else []
    return " or ".join(filter(None, [", ".join(quoted[:max_length]), *remaining]))
