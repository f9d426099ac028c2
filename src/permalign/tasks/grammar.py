"""A typed grammar of programs: linearise them without brackets, parse them, and list the tokens that may follow.

A `Rule` gives a function's result type and the types of its arguments; a function may have several rules
(``loc_2`` of a state can be a city, a river or a place). A program is written as its functions in prefix
order, without brackets. Some constants may be left out (GeoQuery's ``all``: ``river`` stands for
``river(all)``); the types and the rule for parsing below restore them.

**How it works.** After a prefix of tokens, what must follow is a sequence of types, one for each argument not yet
read; since functions have several rules, it is one of a set of such sequences. A `State` holds the set as a
trie: for each type that may come next, the state after it. Since ``X A | X B = X (A | B)``, sets are merged
exactly, so the trie has one branch for each type and does not grow with the number of ways to type the
prefix. States are interned and cache their successors: a repeated step is a dictionary look-up, and a new one costs
about as much as the trie has branches.

**Parsing.** If several programs have the same tokens, compare their nodes in prefix order, constants that were left out
included. At the first difference, the program with the constant that was left out wins, else the one with fewer
arguments: a noun is closed as early as the rest allows. `Grammar.linearise` leaves out constants only if parsing
restores the program, and otherwise writes them all, so `Grammar.read` always inverts it.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from permalign.errors import excerpt
from permalign.tasks.program import Program, from_preorder

END: Final = "</s>"
"""The end of the program, among the tokens that may follow."""


class Rule(NamedTuple):
    """A function, the type of its result and the types of its arguments."""

    function: str
    result: str
    arguments: tuple[str, ...] = ()


class GrammarError(ValueError):
    """Tokens or a tree that are not a program of the grammar; the message says where, and what was expected."""


class State:
    """What may follow the tokens read so far. States are created by a `Grammar` and are immutable.

    Attributes:
        complete: whether the tokens so far are a program.
        allowed: the tokens that may come next, including `END` if the program is complete. Each of them can be
            continued to a program.
        shortest: the smallest number of tokens that complete the program.
    """

    complete: bool
    allowed: frozenset[str]
    shortest: int

    def __init__(self, grammar: "Grammar", finished: bool, rests: dict[str, "State"]) -> None:
        self._grammar = grammar
        self._finished = finished  # whether nothing need follow
        self._rests = rests  # for each type that may come next, what may follow it
        self._next: dict[str, State] = {}
        self._cost: dict[str, int] | None = None
        self._reach: tuple[int, int] | None = None
        skippable = [rest for kind, rest in rests.items() if kind in grammar._skippable]
        # A constant may have been left out: where its type is expected, so is whatever follows it.
        self._settled: tuple[State, ...] = (self, *(state for rest in skippable for state in rest._settled))
        self.complete = finished or any(rest.complete for rest in skippable)
        kinds = {kind for state in self._settled for kind in state._rests}
        tokens = {token for kind in kinds for token in grammar._tokens_of[kind]}
        self.allowed = frozenset(tokens | {END} if self.complete else tokens)
        lengths = [grammar._shortest[kind] + rest.shortest for kind, rest in rests.items()]
        self.shortest = 0 if finished else min(lengths)

    def advance(self, token: str) -> "State":
        """The state after one more token; a `GrammarError` if the token is not allowed here."""
        state = self._next.get(token)
        if state is None:
            if token not in self.allowed or token == END:
                raise GrammarError(f"{excerpt(token)} is not allowed here; expected {_listed(self.allowed)}.")
            state = self._next[token] = self._grammar._after_token(self._settled, token)
        return state

    def allowed_within(self, tokens: int) -> frozenset[str]:
        """The tokens after which a program can still be finished in ``tokens`` tokens, counting this one.

        A decoder that may write n tokens starts with ``allowed_within(n)``, continues with ``n - 1`` and never gets
        stuck; at 0 only `END` is allowed, which does not count as a token.

        Raises:
            ValueError: no program is that short.
        """
        if tokens < self.shortest:
            raise ValueError(f"{tokens} tokens are too few: the shortest program needs {self.shortest} more.")
        if self._cost is None:
            self._cost = {token: 1 + self.advance(token).shortest for token in self.allowed - {END}}
        fitting = frozenset(token for token, cost in self._cost.items() if cost <= tokens)
        return fitting | {END} if self.complete else fitting

    def allowed_exactly(self, tokens: int) -> frozenset[str]:
        """The tokens after which a program can still be finished in exactly ``tokens`` tokens, counting this one.

        Empty if no program has that length; with nothing left, `END` if the program is complete.
        """
        if tokens <= 0:
            return frozenset({END} if self.complete and tokens == 0 else ())
        return frozenset(
            token
            for token in self.allowed - {END}
            if self.advance(token)._lengths(tokens) >> (tokens - 1) & 1
        )

    def _lengths(self, most: int) -> int:
        """Bit n is set if a program can be finished in n more tokens, for n up to at least ``most``."""
        if self._reach is None or self._reach[0] < most:
            most = max(most, 32)
            self._reach = most, int(self._finished)
            for kind, rest in self._rests.items():
                ways = _sums(self._grammar._lengths_of(kind, most), rest._lengths(most), most)
                self._reach = most, self._reach[1] | ways
        return self._reach[1]


class Grammar:
    """Programs whose result has one of the start types.

    States are kept for the lifetime of the grammar; GeoQuery's programs need at most 200.

    Args:
        start: the types of complete programs.
        rules: the rules, in any order.
        optional: constants (functions without arguments) that may be left out of linearised programs.

    >>> noun = [Rule("river", "River", ("All",)), Rule("river", "River", ("River",)), Rule("all", "All")]
    >>> both = [Rule("exclude", "River", ("River", "River")), Rule("mississippi", "River")]
    >>> grammar = Grammar(["River"], noun + both, optional=["all"])
    >>> tokens = ["exclude", "river", "mississippi"]
    >>> from permalign.tasks.program import bracketed
    >>> "".join(bracketed(grammar.read(tokens)))
    'exclude(river(all),mississippi)'
    >>> grammar.linearise(grammar.read(tokens)) == tokens
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
        """The grammar of the programs that have only these tokens; optional constants need not be among them.

        Raises:
            ValueError: there are none.
        """
        known = {*tokens} | self.optional
        rules = [rule for rule in self.rules if rule.function in known]
        finite: set[str] = set()  # types that have a program
        while more := {rule.result for rule in rules if finite.issuperset(rule.arguments)} - finite:
            finite |= more
        rules = [rule for rule in rules if finite.issuperset(rule.arguments)]
        start = [kind for kind in self.start if kind in finite]
        if not start:
            raise ValueError("no program can be written with these tokens; are they from another vocabulary?")
        return Grammar(start, rules, self.optional)

    @property
    def tokens(self) -> frozenset[str]:
        """All tokens of programs."""
        return frozenset(self._rules_of)

    def follow(self, prefix: Sequence[str]) -> frozenset[str]:
        """The tokens that may follow a prefix, including `END` if it is a complete program.

        A decoder is faster if it keeps states and uses `State.advance`.
        """
        return self.state(prefix).allowed

    def state(self, prefix: Sequence[str]) -> State:
        """The state after these tokens; a `GrammarError` names the first token that is not allowed."""
        state = self.initial
        for position, token in enumerate(prefix, start=1):
            try:
                state = state.advance(token)
            except GrammarError as error:
                raise GrammarError(f"token {position}: {error}") from None
        return state

    def linearise(self, program: Program) -> list[str]:
        """The tokens of a program, from which `read` restores it.

        Raises:
            GrammarError: the program is not well typed, or its tokens are read as another program (possible if
                functions take varying numbers of arguments).
        """
        nodes = [(node.function, len(node.arguments)) for node in program.nodes()]
        self._check_types(nodes)
        written = [function for function, _ in nodes]
        for tokens in ([function for function in written if function not in self.optional], written):
            if self._accepts(self.initial, tokens) and self._read(tokens) == nodes:
                return tokens
        raise GrammarError(f"the tokens {excerpt(' '.join(written))} are read as another program.")

    def read(self, tokens: Sequence[str]) -> Program:
        """Parse tokens; see the module's docstring for the choice among several programs.

        Raises:
            GrammarError: the tokens are not a program. The message gives the position (from 1) of the first token that
                is not allowed, and what is.
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
        """The nodes of the preferred program, each with its number of arguments; the tokens must be parseable."""
        state, position = self.initial, 0
        nodes: list[tuple[str, int]] = []
        while position < len(tokens) or state._rests:
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
            # Since the tokens are parseable, some choice leads to the end; so the last one need not be tried.
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
            raise AssertionError(f"{token!r} was allowed but leads nowhere")
        return state

    def _after_node(self, states: Iterable[State], function: str, arity: int | None = None) -> State | None:
        """The state after a function with this number of arguments (or any) in any of the given states."""
        after: State | None = None
        for state in states:
            for rule in self._rules_of.get(function, ()):
                if rule.result in state._rests and arity in {None, len(rule.arguments)}:
                    reached = state._rests[rule.result]
                    for argument in reversed(rule.arguments):
                        reached = self._state(False, {argument: reached})
                    after = reached if after is None else self._union(after, reached)
        return after

    def _union(self, first: State, second: State) -> State:
        if first is second:
            return first
        if (first, second) not in self._unions:
            rests = dict(first._rests)
            for kind, rest in second._rests.items():
                rests[kind] = self._union(rests[kind], rest) if kind in rests else rest
            self._unions[first, second] = self._state(first._finished or second._finished, rests)
        return self._unions[first, second]

    def _state(self, finished: bool, rests: dict[str, State]) -> State:
        """The interned state with these contents."""
        key = (finished, frozenset(rests.items()))
        if key not in self._states:
            self._states[key] = State(self, finished, rests)
        return self._states[key]

    def _lengths_of(self, kind: str, most: int) -> int:
        """Bit n is set if a program of this type has n tokens, for n up to ``most``."""
        if most not in self._length_sets:
            lengths = dict.fromkeys(self._tokens_of, 0)
            before: dict[str, int] = {}
            while lengths != before:
                before = dict(lengths)
                for rule in self.rules:
                    ways = 1 if rule.function in self.optional else 2  # no token, or one
                    for argument in rule.arguments:
                        ways = _sums(ways, lengths[argument], most)
                    if rule.function in self.optional:
                        ways |= 2  # or written
                    lengths[rule.result] |= ways
            self._length_sets[most] = lengths
        return self._length_sets[most][kind]

    def _check_optional(self) -> None:
        for function in self.optional:
            if any(rule.arguments for rule in self._rules_of.get(function, ())):
                raise ValueError(f"{function!r} takes arguments; only a constant may be optional.")
        if END in self._rules_of:
            raise ValueError(f"{END!r} marks the end of a program and cannot name a function.")

    def _shortest_lengths(self) -> dict[str, int]:
        """The smallest number of tokens of any program of each type, by fixed-point iteration.

        Raises:
            ValueError: a type has no finite program, so a decoder could be led into a dead end.
        """
        shortest: dict[str, int] = {}
        changed = True
        while changed:
            changed = False
            for rule in self.rules:
                if all(kind in shortest for kind in rule.arguments):
                    own = 0 if rule.function in self.optional else 1
                    length = own + sum(shortest[kind] for kind in rule.arguments)
                    if length < shortest.get(rule.result, length + 1):
                        shortest[rule.result] = length
                        changed = True
        used = {*self.start, *(kind for rule in self.rules for kind in rule.arguments)}
        if infinite := sorted(used - shortest.keys()):
            raise ValueError(f"no finite program has type {_listed(infinite)}; add a rule that terminates.")
        return shortest


def _sums(first: int, second: int, most: int) -> int:
    """The sums up to ``most`` of one number from each set; sets are bit masks."""
    sums, shift = 0, 0
    while first:
        if first & 1:
            sums |= second << shift
        first >>= 1
        shift += 1
    return sums & ((1 << (most + 1)) - 1)


def _listed(names: Iterable[str], max_length: int = 8) -> str:
    quoted = [repr(name) if name != END else "the end" for name in sorted(names)]
    others = [f"{len(quoted) - max_length} others"] if len(quoted) > max_length else []
    return " or ".join(filter(None, [", ".join(quoted[:max_length]), *others]))
