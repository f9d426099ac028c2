"""Fully parenthesised arithmetic expressions in infix, prefix and postfix notation, and templates of them.

``E -> digit | ( E op E )``. The *derivation depth* is that of the tree with ``E -> N | ( E O E )``,
``N -> digit``, ``O -> op``: the depth of the parentheses plus 3. A *shape* leaves out digits and operators, a
*template* only the digits.
"""

from dataclasses import dataclass
from random import Random
from typing import Literal

from permalign.tasks.program import MAX_DEPTH
from permalign.tasks.seeded_random import pick

Notation = Literal["infix", "prefix", "postfix"]
DIGITS = "0123456789"
OPERATORS = "+-*/"
DEPTH_OF_A_DIGIT = 3
"""The derivation depth of an expression without parentheses."""

Shape = None | tuple["Shape", "Shape"]
"""The parentheses of an expression; a digit is None."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A digit, or an operator between two expressions."""

    symbol: str
    left: "Expression | None" = None
    right: "Expression | None" = None

    @property
    def depth(self) -> int:
        """The derivation depth."""
        if self.left is None or self.right is None:
            return DEPTH_OF_A_DIGIT
        return 1 + max(self.left.depth, self.right.depth)

    def tokens(self, notation: Notation) -> tuple[str, ...]:
        """The tokens in one of the notations; the parentheses stay in place in all of them.

        >>> sum_ = Expression("+", Expression("1"), Expression("*", Expression("2"), Expression("3")))
        >>> "".join(sum_.tokens("infix")), "".join(sum_.tokens("prefix")), "".join(sum_.tokens("postfix"))
        ('(1+(2*3))', '(+1(*23))', '(1(23*)+)')
        """
        if self.left is None or self.right is None:
            return (self.symbol,)
        left, right = self.left.tokens(notation), self.right.tokens(notation)
        if notation == "prefix":
            return ("(", self.symbol, *left, *right, ")")
        if notation == "postfix":
            return ("(", *left, *right, self.symbol, ")")
        return ("(", *left, self.symbol, *right, ")")


def read_infix(text: str) -> Expression:
    """Parse an expression in infix notation; each character is a token.

    Raises:
        ValueError: the expression is not fully parenthesised, or has other characters; the message says where.

    >>> read_infix("(1+(2*3))").depth
    5
    """
    finished: list[Expression] = []
    operators: list[str] = []
    expected = "operand"
    for position, token in enumerate(text, start=1):
        kind = "operand" if token in DIGITS + "(" else "operator" if token in OPERATORS else "close"
        if token not in DIGITS + OPERATORS + "()":
            raise ValueError(f"character {position}, {token!r}, is not a digit, operator or parenthesis.")
        if kind != expected:
            raise ValueError(f"character {position} is {token!r}, but {_EXPECTED[expected]} was expected.")
        if token == "(":
            if len(operators) == MAX_DEPTH:
                raise ValueError(
                    f"character {position} opens parenthesis {MAX_DEPTH + 1} inside one another."
                )
            operators.append("(")
        elif token in DIGITS:
            finished.append(Expression(token))
            expected = _after_operand(operators)
        elif kind == "operator":
            operators[-1] = token
            expected = "operand"
        else:
            right, left = finished.pop(), finished.pop()
            finished.append(Expression(operators.pop(), left, right))
            expected = _after_operand(operators)
    if expected != "end":
        raise ValueError(f"the expression ends after {len(text)} characters, before {_EXPECTED[expected]}.")
    return finished[0]


_EXPECTED = {
    "operand": "a digit or '('",
    "operator": "an operator",
    "close": "')'",
    "end": "the end",
}


def _after_operand(operators: list[str]) -> str:
    """What must follow an operand, depending on whether the innermost parenthesis already has its operator."""
    return "end" if not operators else "operator" if operators[-1] == "(" else "close"


def shapes(depth: int) -> list[Shape]:
    """All shapes of at most this derivation depth, shallow ones first.

    There is 1 of depth 3, and with n of depth d there are 1 + n² of depth d + 1: 1, 2, 5, 26, 677, ...
    """
    found: list[Shape] = [None]
    for _ in range(depth - DEPTH_OF_A_DIGIT):
        found = [None, *((left, right) for left in found for right in found)]
    return sorted(found, key=shape_depth)


def shape_depth(shape: Shape) -> int:
    """The derivation depth of a shape."""
    return DEPTH_OF_A_DIGIT if shape is None else 1 + max(shape_depth(shape[0]), shape_depth(shape[1]))


def fill(shape: Shape, generator: Random) -> Expression:
    """Fill a shape with random digits and operators."""
    if shape is None:
        return Expression(pick(DIGITS, generator))
    left = fill(shape[0], generator)
    operator = pick(OPERATORS, generator)
    return Expression(operator, left, fill(shape[1], generator))


def template_count(depth: int) -> int:
    """The number of templates (expressions with masked digits) of at most this derivation depth.

    >>> template_count(6)
    40805
    """
    count = 1
    for _ in range(depth - DEPTH_OF_A_DIGIT):
        count = 1 + len(OPERATORS) * count**2
    return count


def fill_template(number: int, depth: int, generator: Random) -> Expression:
    """Template ``number`` of those of at most this derivation depth, with random digits.

    Number 0 is the single digit; the others are numbered by operator, left and right part.
    """
    if number == 0:
        return Expression(pick(DIGITS, generator))
    parts = template_count(depth - 1)
    number, right = divmod(number - 1, parts)
    operator, left = divmod(number, parts)
    first = fill_template(left, depth - 1, generator)
    return Expression(OPERATORS[operator], first, fill_template(right, depth - 1, generator))
