"""Programs as trees, and a notation with brackets.

The notation is that of SCAN's programs, such as ``after ( twice ( jump ) , walk ( around , left ) )``, and of tokenised
FunQL, such as ``answer(city(loc_2(stateid('texas'))))``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

MAX_DEPTH = 200
"""The largest nesting depth that is accepted, because Python limits the depth of recursion."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Program:
    """A function applied to programs; a function without arguments is a constant.

    Programs of any depth can be compared, hashed and printed: none of these recurses.
    """

    function: str
    arguments: tuple["Program", ...] = ()

    def nodes(self) -> Iterator["Program"]:
        """Yield all nodes of the program in prefix order: every function before its arguments.

        >>> [node.function for node in Program("and", (Program("run"), Program("jump"))).nodes()]
        ['and', 'run', 'jump']
        """
        stack = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.arguments))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Program):
            return NotImplemented
        pairs = zip_longest(self._symbols(), other._symbols())
        return all(one == another for one, another in pairs)

    def __hash__(self) -> int:
        return hash(tuple(self._symbols()))

    def __repr__(self) -> str:
        pieces: list[str] = []
        stack: list[Program | str] = [self]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                pieces.append(item)
                continue
            pieces.append(f"Program(function={item.function!r}, arguments=(")
            parts = [part for argument in item.arguments for part in (argument, ", ")]
            parts[-1:] = ["," if len(item.arguments) == 1 else ""] if parts else []
            stack.extend(reversed([*parts, "))"]))
        return "".join(pieces)

    def _symbols(self) -> Iterator[tuple[str, int]]:
        """Yield what determines a program: every function with its number of arguments, in prefix order."""
        return ((node.function, len(node.arguments)) for node in self.nodes())

    @property
    def depth(self) -> int:
        """The depth of the tree; a constant has depth 1.

        >>> Program("and", (Program("run"), Program("twice", (Program("jump"),)))).depth
        3
        """
        depth, nodes = 0, [self]
        while nodes:
            depth += 1
            nodes = [argument for node in nodes for argument in node.arguments]
        return depth


def from_preorder(symbols: Sequence[tuple[str, int]]) -> Program:
    """Build a program from its functions and their numbers of arguments, in the order of `Program.nodes`.

    >>> " ".join(bracketed(from_preorder([("and", 2), ("run", 0), ("jump", 0)])))
    'and ( run , jump )'
    """
    stack: list[Program] = []
    for function, arity in reversed(symbols):
        if arity > len(stack):
            raise ValueError(
                f"{function!r} needs {arity} arguments, but only {len(stack)} programs follow it."
            )
        arguments = tuple(stack.pop() for _ in range(arity))
        stack.append(Program(function, arguments))
    if len(stack) != 1:
        raise ValueError(f"the symbols form {len(stack)} programs; expected exactly one.")
    return stack[0]


def bracketed(program: Program) -> list[str]:
    """Write a program as tokens, with its arguments in brackets and separated by commas.

    >>> " ".join(bracketed(Program("and", (Program("run"), Program("twice", (Program("jump"),))))))
    'and ( run , twice ( jump ) )'
    """
    tokens: list[str] = []
    stack: list[Program | str] = [program]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            tokens.append(item)
            continue
        tokens.append(item.function)
        if item.arguments:
            separators = ["(", *[","] * (len(item.arguments) - 1)]
            parts = [part for pair in zip(separators, item.arguments, strict=True) for part in pair]
            stack.extend(reversed([*parts, ")"]))
    return tokens


def read_bracketed(tokens: Sequence[str]) -> Program:
    """Parse the tokens that `bracketed` returns.

    Raises:
        ValueError: a bracket or a comma is misplaced; the message gives the position of the token.

    >>> read_bracketed("and ( run , jump )".split()) == Program("and", (Program("run"), Program("jump")))
    True
    >>> read_bracketed("and ( run , jump".split())
    Traceback (most recent call last):
        ...
    ValueError: the bracket opened by token 2 is never closed.
    """
    names: list[str] = []  # the functions whose brackets are open, the outermost first
    opened: list[int] = []  # the positions of these brackets, counted from 1
    arguments: list[list[Program]] = [
        []
    ]  # the programs read so far outside all brackets, and inside each of them
    expect_name = True
    for position, token in enumerate(tokens, start=1):
        if expect_name != (token not in {"(", ")", ","}):
            raise ValueError(
                f"token {position} is {token!r}, but {_expected(expect_name, bool(names))} was expected."
            )
        if expect_name:
            arguments[-1].append(Program(token))
            expect_name = False
        elif token == "(" and not arguments[-1][-1].arguments:
            if len(names) == MAX_DEPTH:
                raise ValueError(
                    f"token {position} opens bracket {MAX_DEPTH + 1} inside one another; at most {MAX_DEPTH} are "
                    "allowed."
                )
            names.append(arguments[-1].pop().function)
            opened.append(position)
            arguments.append([])
            expect_name = True
        elif token == "(":
            raise ValueError(f"token {position} opens a second bracket after the same function.")
        elif not names:
            raise ValueError(f"token {position} is {token!r}, but no bracket is open there.")
        elif token == ",":
            expect_name = True
        else:
            inner = tuple(arguments.pop())
            opened.pop()
            arguments[-1].append(Program(names.pop(), inner))
    if expect_name:
        raise ValueError(f"the program ends after token {len(tokens)}, but a name was expected.")
    if names:
        raise ValueError(f"the bracket opened by token {opened[-1]} is never closed.")
    return arguments[0][0]


def _expected(name: bool, inside: bool) -> str:
    return "a name" if name else "'(', ',' or ')'" if inside else "'(' or the end"
