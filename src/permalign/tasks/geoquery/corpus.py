"""Read the corpus files of GeoQuery, one for each language.

A file consists of blocks, separated by empty lines, with the fields ``id:``, ``nl:`` (the question), ``mrl:`` (its
program) and ``productions:``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from permalign.errors import DataError, excerpt
from permalign.tasks.file_readers import Line, read_text
from permalign.tasks.geoquery.funql import mask, read_funql, template, write_funql
from permalign.tasks.geoquery.signatures import program_grammar
from permalign.tasks.program import Program

_FIELDS = ("id", "nl", "mrl", "productions")


@dataclass(frozen=True, slots=True)
class Question:
    """One question of the corpus.

    Attributes:
        id: the number of the question, the same in every language.
        text: the question, with its tokens separated by spaces.
        funql: the FunQL program of the question, with normalised spaces.
        program: the tokens of the masked program, without brackets and without `answer` and `all`.
        program_all: the tokens of the masked program, without brackets and `answer`, but with every `all`.
        entities: the entities that are masked in the program, in order.
        template: the FunQL program with the names of entities left out.
    """

    id: int
    text: str
    funql: str
    program: tuple[str, ...]
    program_all: tuple[str, ...]
    entities: tuple[Program, ...]
    template: str


def read_corpus(path: Path) -> list[Question]:
    """Read all questions of a file, in order.

    Raises:
        DataError: a block lacks a field, an id occurs twice, or a program cannot be parsed or is not well typed.
    """
    questions: dict[int, Question] = {}
    for block in _blocks(path):
        question = _question(path, block)
        if question.id in questions:
            raise DataError(f"id {question.id} occurs twice.", path, block[0].number)
        questions[question.id] = question
    if not questions:
        raise DataError(
            "the file is empty; expected blocks of `id:`, `nl:`, `mrl:` and `productions:`.", path, 1
        )
    return list(questions.values())


def _blocks(path: Path) -> Iterator[list[Line]]:
    """Yield the blocks of a file, each as a list of its lines."""
    block: list[Line] = []
    for line in read_text(path, blank="keep").lines:
        if line.text.strip():
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _question(path: Path, block: list[Line]) -> Question:
    values = {}
    for index, field in enumerate(_FIELDS):
        line = block[min(index, len(block) - 1)]
        if index >= len(block) or not line.text.startswith(field + ":"):
            raise DataError(
                f"expected a line `{field}:...` as line {index + 1} of a block.", path, line.number
            )
        values[field] = line.text.removeprefix(field + ":").strip()
    for line in block[len(_FIELDS) :]:
        if not line.text.startswith("*n:"):
            raise DataError("expected a production, `*n:...`, or an empty line.", path, line.number)
    if not values["id"].isdecimal():
        raise DataError(f"the id is {excerpt(values['id'])}; expected a number.", path, block[0].number)
    if not values["nl"]:
        raise DataError("the question is empty.", path, block[1].number)
    try:
        return _parse(int(values["id"]), values["nl"], values["mrl"])
    except ValueError as error:
        raise DataError(f"cannot parse {excerpt(values['mrl'])}: {error}", path, block[2].number) from None


def _parse(number: int, text: str, funql: str) -> Question:
    tree = read_funql(funql)
    masked, entities = mask(tree)
    return Question(
        number,
        text,
        write_funql(tree),
        tuple(program_grammar().linearize(masked)),
        tuple(program_grammar(write_all=True).linearize(masked)),
        tuple(entities),
        template(tree),
    )
