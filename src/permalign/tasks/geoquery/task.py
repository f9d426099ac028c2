"""GeoQuery: questions about the geography of the United States, in several languages, to FunQL."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import cast

from permalign.errors import DataError
from permalign.tasks.base import Example, Task
from permalign.tasks.data_folder import dataset_file
from permalign.tasks.geoquery.corpus import Question, read_corpus
from permalign.tasks.geoquery.entities import entities_of
from permalign.tasks.geoquery.executor import Denotation, Executor
from permalign.tasks.geoquery.funql import read_funql, unmask, write_funql
from permalign.tasks.geoquery.geobase import read_geobase
from permalign.tasks.geoquery.signatures import program_grammar
from permalign.tasks.geoquery.splits import CONDITIONS, PARTS, QUESTIONS, TUNING, split_ids, tuning_ids
from permalign.tasks.geoquery.world import World, world_of
from permalign.tasks.grammar import Grammar
from permalign.tasks.program import MAX_DEPTH, Program, bracketed


class GeoQuery(Task):
    """Questions in, programs without brackets out, their entities masked.

    Args:
        language: whichever has its file ``geoquery/geoFunql-LANGUAGE.corpus``.
        write_all: write every ``all`` in the programs (the ``len_all`` condition is made for that).
        data_dir: the folder that holds ``geoquery`` and, to execute programs, ``geobase``.
    """

    name = "geoquery"
    description = "questions about US geography to FunQL, in several languages; IID, TEMP and LEN"
    metric = "exact match, execution accuracy"

    def __init__(
        self, language: str = "en", write_all: bool = False, data_dir: str | Path | None = None
    ) -> None:
        self.language = language
        self.write_all = write_all
        self.data_dir = data_dir

    @property
    def splits(self) -> tuple[str, ...]:  # noqa: D102
        return (*(f"{condition}/{part}" for condition in CONDITIONS for part in PARTS), *TUNING)

    @property
    def grammar(self) -> Grammar:  # noqa: D102
        return program_grammar(self.write_all)

    @cached_property
    def entities(self) -> Mapping[str, str]:
        """The entities of Geobase by their English names; see `entities_of`."""
        return entities_of(self._world)

    def examples(self, split: str) -> Sequence[Example]:  # noqa: D102
        if split not in self.splits:
            raise self.unknown_split(split)
        ids = self._tuning_ids if split in TUNING else split_ids()
        return [self._examples[number] for number in ids[split]]

    def answer(self, example: Example, output: Sequence[str]) -> str:
        """The full FunQL, with the question's own entities in the place of the masks.

        Raises:
            ValueError: the output cannot be read, masks more entities than the question has, or is too deep.
        """
        return write_funql(self._full_program(output, example))

    def execute(self, output: Sequence[str], example: Example) -> Denotation:
        """What an output answers to the question, by the facts of Geobase.

        Raises:
            ValueError: the output stands for no program (see `answer`), or for one without meaning.
            DataError: Geobase is not there.
        """
        return self._executor(self._full_program(output, example))

    def gives_same_answer(self, example: Example, output: Sequence[str]) -> bool:
        """Whether the output answers what the question's own program does (execution accuracy).

        An output that stands for no program answers nothing, which is not the same as an empty answer.
        """
        expected = self.execute(example.target, example)
        try:
            return self.execute(output, example) == expected
        except ValueError:
            return False

    def _full_program(self, output: Sequence[str], example: Example) -> Program:
        masked = self.grammar.read(output)
        if masked.depth > MAX_DEPTH:
            raise ValueError(f"the program is nested {masked.depth} deep; at most {MAX_DEPTH} is allowed.")
        return unmask(
            masked, [read_funql(entity) for entity in cast(Sequence[str], example.meta["entities"])]
        )

    @cached_property
    def _executor(self) -> Executor:
        return Executor(self._world)

    @cached_property
    def _world(self) -> World:
        return world_of(read_geobase(dataset_file("geobase", "geobase", self.data_dir)))

    @cached_property
    def _tuning_ids(self) -> Mapping[str, list[int]]:
        return tuning_ids(
            {number: str(example.meta["template"]) for number, example in self._examples.items()}
        )

    @cached_property
    def _examples(self) -> dict[int, Example]:
        path = dataset_file("geoquery", f"geoFunql-{self.language}.corpus", self.data_dir)
        found = {question.id: self._example(question) for question in read_corpus(path)}
        if missing := set(range(QUESTIONS)) - found.keys():
            raise DataError(f"question {min(missing)} is missing; expected ids 0 to {QUESTIONS - 1}.", path)
        if extra := found.keys() - set(range(QUESTIONS)):
            raise DataError(f"there is no question {max(extra)}; expected ids 0 to {QUESTIONS - 1}.", path)
        return found

    def _example(self, question: Question) -> Example:
        meta = {
            "funql": question.funql,
            "template": question.template,
            "entities": tuple("".join(bracketed(entity)) for entity in question.entities),
        }
        target = question.program_all if self.write_all else question.program
        return Example(tuple(question.text.split()), target, str(question.id), meta)
