"""FunQL, the query language of GeoQuery: parse programs, write them as text, mask and restore their entities."""

import re
from collections.abc import Iterator, Sequence

from permalign.errors import excerpt
from permalign.tasks.geoquery.signatures import ENTITIES, MASK
from permalign.tasks.program import Program, bracketed, read_bracketed

_TOKEN = re.compile(r"\s*(?:(?P<token>[A-Za-z0-9_]+|'[^']*'|[(),])|(?P<other>\S))")
ANSWER = "answer"


def read_funql(text: str) -> Program:
    """Parse a FunQL program; quoted names become constants that keep their quotes.

    Raises:
        ValueError: the text is not FunQL; the message gives the position of the error.

    >>> read_funql("answer(len(riverid('red')))").arguments[0].arguments[0].arguments[0].function
    "'red'"
    """
    tokens = []
    for match in _TOKEN.finditer(text.rstrip()):
        if match["other"]:
            raise ValueError(f"character {match.start('other') + 1}, {match['other']!r}, is not FunQL.")
        tokens.append(match["token"])
    return read_bracketed(tokens)


def write_funql(program: Program) -> str:
    """Write a program as text, in the format of the corpus.

    >>> write_funql(read_funql("answer(size(cityid('austin',_)))"))
    "answer(size(cityid('austin', _)))"
    """
    return "".join(", " if token == "," else token for token in bracketed(program))


def mask(program: Program) -> tuple[Program, list[Program]]:
    """Remove ``answer`` from a program and mask its entities; returns the masked program and the entities, in order.

    >>> masked, entities = mask(read_funql("answer(len(riverid('red')))"))
    >>> write_funql(masked), [write_funql(entity) for entity in entities]
    ('len(riverid_ENTITY)', ["riverid('red')"])
    """
    if program.function != ANSWER or len(program.arguments) != 1:
        raise ValueError(
            f"expected a program {ANSWER}(...) with one argument, found {excerpt(write_funql(program))}."
        )
    entities: list[Program] = []
    return _masked(program.arguments[0], entities), entities


def _masked(program: Program, entities: list[Program]) -> Program:
    if program.function in ENTITIES and program.arguments:
        entities.append(_entity(program))
        return Program(program.function + MASK)
    return Program(program.function, tuple(_masked(argument, entities) for argument in program.arguments))


def _entity(program: Program) -> Program:
    """Check that a program names an entity (by a quoted name, and for a city also by its state), and return it."""
    names = [argument.function for argument in program.arguments]
    well_formed = len(names) == (2 if program.function == "cityid" else 1) and names[0].startswith("'")
    if not well_formed or any(argument.arguments for argument in program.arguments):
        raise ValueError(
            f"{excerpt(write_funql(program))} does not name an entity; expected {program.function}('name'"
            f"{', state' if program.function == 'cityid' else ''})."
        )
    return program


def unmask(masked: Program, entities: Sequence[Program]) -> Program:
    """Restore a complete program with ``answer``; each mask is replaced by the next entity of its type.

    Raises:
        ValueError: the program has more masks of a type than there are entities of that type.

    >>> entity = Program("riverid", (Program("'red'"),))
    >>> write_funql(unmask(Program("len", (Program("riverid_ENTITY"),)), [entity]))
    "answer(len(riverid('red')))"
    """
    remaining = {function: iter([e for e in entities if e.function == function]) for function in ENTITIES}
    return Program(ANSWER, (_restored(masked, remaining),))


def _restored(program: Program, remaining: dict[str, Iterator[Program]]) -> Program:
    if program.function.endswith(MASK):
        function = program.function.removesuffix(MASK)
        entity = next(remaining[function], None)
        if entity is None:
            raise ValueError(f"the program needs more entities of type {function!r} than the question has.")
        return entity
    return Program(program.function, tuple(_restored(argument, remaining) for argument in program.arguments))


def template(program: Program) -> str:
    """The template of a program: its text with the name of every entity replaced by ``_`` (Herzig and Berant, 2021).

    >>> template(read_funql("answer(size(cityid('austin', 'tx')))"))
    'answer(size(cityid(_)))'
    """
    return write_funql(_without_names(program))


def _without_names(program: Program) -> Program:
    if program.function in ENTITIES:
        return Program(program.function, (Program("_"),))
    return Program(program.function, tuple(_without_names(argument) for argument in program.arguments))
