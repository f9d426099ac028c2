"""Fully parenthesised arithmetic expressions in infix, prefix and postfix notation, and their shapes and templates.

The grammar is ``E -> digit | ( E op E )``. The *derivation depth* of an expression is the depth of its tree under the
grammar ``E -> N | ( E O E )``, ``N -> digit``, ``O -> op``: the nesting of parentheses plus 3. A *shape* is an
expression without its digits and operators, a *template* an expression without its digits.
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
"""The arrangement of parentheses in an expression: a pair of shapes, or None for a digit."""


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
        """The tokens in one of the notations; parentheses are written in all of them.

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
        ValueError: the text is not a fully parenthesised expression; the message gives the position.

    >>> read_infix("(1+(2*3))").depth
    5
    """
    operands: list[Expression] = []
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
                    f"character {position} opens parenthesis {MAX_DEPTH + 1} inside one another; at most {MAX_DEPTH} "
                    "are allowed."
                )
            operators.append("(")
        elif token in DIGITS:
            operands.append(Expression(token))
            expected = _after_operand(operators)
        elif kind == "operator":
            operators[-1] = token
            expected = "operand"
        else:
            right, left = operands.pop(), operands.pop()
            operands.append(Expression(operators.pop(), left, right))
            expected = _after_operand(operators)
    if expected != "end":
        raise ValueError(
            f"the expression ends after {len(text)} characters, but {_EXPECTED[expected]} was expected."
        )
    return operands[0]


_EXPECTED = {
    "operand": "a digit or '('",
    "operator": "an operator",
    "close": "')'",
    "end": "the end",
}


def _after_operand(operators: list[str]) -> str:
    """What must follow an operand, which depends on whether the innermost parenthesis already has an operator."""
    return "end" if not operators else "operator" if operators[-1] == "(" else "close"


def shapes(depth: int) -> list[Shape]:
    """All shapes of at most the given derivation depth, shallow ones first.

    There is 1 shape of depth 3; if there are n shapes of depth at most d, there are 1 + n² of depth at most d + 1. The
    sequence is 1, 2, 5, 26, 677, ...
    """
    all_shapes: list[Shape] = [None]
    for _ in range(depth - DEPTH_OF_A_DIGIT):
        all_shapes = [None, *((left, right) for left in all_shapes for right in all_shapes)]
    return sorted(all_shapes, key=shape_depth)


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
    """The number of templates of at most the given derivation depth.

    >>> template_count(6)
    40805
    """
    count = 1
    for _ in range(depth - DEPTH_OF_A_DIGIT):
        count = 1 + len(OPERATORS) * count**2
    return count


def fill_template(number: int, depth: int, generator: Random) -> Expression:
    """Fill a template with random digits; the template is given by its number among those of at most the given depth.

    Number 0 is a single digit; the other templates are numbered by operator, left operand and right operand.
    """
    if number == 0:
        return Expression(pick(DIGITS, generator))
    num_operands = template_count(depth - 1)
    number, right = divmod(number - 1, num_operands)
    operator, left = divmod(number, num_operands)
    first = fill_template(left, depth - 1, generator)
    return Expression(OPERATORS[operator], first, fill_template(right, depth - 1, generator))
