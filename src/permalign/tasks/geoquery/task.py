"""The task GeoQuery: questions about the geography of the United States, in several languages, to FunQL programs."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Literal, cast

from permalign.errors import DataError
from permalign.tasks.base import Example, Task
from permalign.tasks.data_folder import dataset_file
from permalign.tasks.geoquery.corpus import Question, read_corpus
from permalign.tasks.geoquery.entities import entities_of
from permalign.tasks.geoquery.executor import Denotation, Executor
from permalign.tasks.geoquery.funql import read_funql, unmask, write_funql
from permalign.tasks.geoquery.generalization import generalize
from permalign.tasks.geoquery.geobase import read_geobase
from permalign.tasks.geoquery.name_list import read_name_list
from permalign.tasks.geoquery.signatures import program_grammar
from permalign.tasks.geoquery.splits import CONDITIONS, PARTS, QUESTIONS, TUNING, split_ids, tuning_ids
from permalign.tasks.geoquery.world import World, build_world
from permalign.tasks.grammar import Grammar
from permalign.tasks.program import MAX_DEPTH, Program, bracketed


class GeoQuery(Task):
    """Questions to FunQL programs, which are written without brackets and with their entities masked.

    Args:
        language: the language of the questions: any LANGUAGE with a file ``geoquery/geoFunql-LANGUAGE.corpus``.
        write_all: whether programs contain the constant ``all``, which is otherwise left out (the lengths in the
            condition ``len_all`` are those of programs that contain it).
        names: where the names for entity linking come from: the database Geobase, whose names are English, or the
            published list of the language, ``geoquery/geoFunql-LANGUAGE.init.corpus`` (see `name_list`).
        fold_umlauts: whether to write umlauts in questions as plain vowels. The German questions write the same words
            in several ways (flüsse, fluesse).
        data_dir: the folder that contains the folders ``geoquery`` and, to execute programs, ``geobase``.
    """

    name = "geoquery"
    description = "questions about US geography to FunQL, in several languages; IID, TEMP and LEN"
    metric = "exact match, execution accuracy"

    def __init__(
        self,
        language: str = "en",
        write_all: bool = False,
        names: Literal["geobase", "list"] = "geobase",
        fold_umlauts: bool = False,
        data_dir: str | Path | None = None,
    ) -> None:
        if names not in {"geobase", "list"}:
            raise ValueError(f"names is {names!r}; expected 'geobase' or 'list'.")
        self.language = language
        self.write_all = write_all
        self.names = names
        self.fold_umlauts = fold_umlauts
        self.data_dir = data_dir

    @property
    def splits(self) -> tuple[str, ...]:  # noqa: D102
        tuning = (f"{condition}/{part}" for condition in TUNING for part in ("train", "dev"))
        return (*(f"{condition}/{part}" for condition in CONDITIONS for part in PARTS), *tuning)

    @property
    def grammar(self) -> Grammar:  # noqa: D102
        return program_grammar(self.write_all)

    def generalize_grammar(self, grammar: Grammar) -> Grammar:
        """Extend a grammar by the uses of its functions with other types; see `generalize`."""
        return generalize(grammar)

    @cached_property
    def entities(self) -> Mapping[str, str]:
        """The entities by their names, from Geobase (see `entities_of`) or from the list of the language."""
        if self.names == "geobase":
            return entities_of(self._world)
        entities = read_name_list(
            dataset_file("geoquery", f"geoFunql-{self.language}.init.corpus", self.data_dir)
        )
        if not self.fold_umlauts:
            return entities
        kinds: dict[str, set[str]] = {}
        for name, kind in entities.items():
            kinds.setdefault(fold_umlauts(name), set()).update(kind.split("/"))
        return {name: "/".join(sorted(functions)) for name, functions in kinds.items()}

    def examples(self, split: str) -> Sequence[Example]:  # noqa: D102
        if split not in self.splits:
            raise self.unknown_split(split)
        ids = self._tuning_ids if split.partition("/")[0] in TUNING else split_ids()
        return [self._examples[number] for number in ids[split]]

    def answer(self, example: Example, output: Sequence[str]) -> str:
        """The complete FunQL program of an output, in which the entities of the question replace the masks.

        Raises:
            ValueError: the output is not a program, has more masks than the question has entities, or is too deep.
        """
        return write_funql(self._full_program(output, example))

    def execute(self, output: Sequence[str], example: Example) -> Denotation:
        """Execute an output on the facts of Geobase; returns the entities or numbers that answer the question.

        Raises:
            ValueError: the output is not a program (see `answer`), or the program cannot be executed.
            DataError: the file of Geobase does not exist.
        """
        return self._executor(self._full_program(output, example))

    def gives_same_answer(self, example: Example, output: Sequence[str]) -> bool:
        """Whether executing the output gives the same answer as executing the target (execution accuracy).

        An output that cannot be executed is wrong, even if the target's answer is empty.
        """
        expected = self.execute(example.target, example)
        try:
            return self.execute(output, example) == expected
        except ValueError:
            return False

    def _full_program(self, output: Sequence[str], example: Example) -> Program:
        masked = self.grammar.read(output)
        if masked.depth > MAX_DEPTH:
            raise ValueError(
                f"the program is nested {masked.depth} levels deep; at most {MAX_DEPTH} are allowed."
            )
        return unmask(
            masked, [read_funql(entity) for entity in cast(Sequence[str], example.meta["entities"])]
        )

    @cached_property
    def _executor(self) -> Executor:
        return Executor(self._world)

    @cached_property
    def _world(self) -> World:
        return build_world(read_geobase(dataset_file("geobase", "geobase", self.data_dir)))

    @cached_property
    def _tuning_ids(self) -> Mapping[str, list[int]]:
        return tuning_ids(
            {number: str(example.meta["template"]) for number, example in self._examples.items()}
        )

    @cached_property
    def _examples(self) -> dict[int, Example]:
        path = dataset_file("geoquery", f"geoFunql-{self.language}.corpus", self.data_dir)
        examples = {question.id: self._example(question) for question in read_corpus(path)}
        if missing := set(range(QUESTIONS)) - examples.keys():
            raise DataError(f"question {min(missing)} is missing; expected ids 0 to {QUESTIONS - 1}.", path)
        if extra := examples.keys() - set(range(QUESTIONS)):
            raise DataError(f"unknown question id {max(extra)}; expected ids 0 to {QUESTIONS - 1}.", path)
        return examples

    def _example(self, question: Question) -> Example:
        meta = {
            "funql": question.funql,
            "template": question.template,
            "entities": tuple("".join(bracketed(entity)) for entity in question.entities),
        }
        target = question.program_all if self.write_all else question.program
        text = fold_umlauts(question.text) if self.fold_umlauts else question.text
        return Example(tuple(text.split()), target, str(question.id), meta)


def fold_umlauts(text: str) -> str:
    """Write umlauts, and the two letters that stand for them, as plain vowels, and ``ß`` as ``ss``.

    >>> fold_umlauts("größte städte und fluesse")
    'grosste stadte und flusse'
    """
    for umlaut, vowel in (
        ("ä", "a"),
        ("ae", "a"),
        ("ö", "o"),
        ("oe", "o"),
        ("ü", "u"),
        ("ue", "u"),
        ("ß", "ss"),
    ):
        text = text.replace(umlaut, vowel)
    return text
