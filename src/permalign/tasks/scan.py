"""The task SCAN-SP: the commands of SCAN, with programs instead of actions as targets."""

from collections.abc import Sequence
from functools import cache, cached_property
from pathlib import Path
from random import Random

from permalign.errors import DataError, excerpt
from permalign.tasks.base import Example, Task
from permalign.tasks.data_folder import data_root, dataset_file
from permalign.tasks.file_readers import read_text
from permalign.tasks.grammar import Grammar
from permalign.tasks.program import bracketed
from permalign.tasks.scan_language import commands, execute, program_grammar
from permalign.tasks.seeded_random import shuffled

TRAIN_FILE, TEST_FILE = "tasks_train_simple.txt", "tasks_test_simple.txt"
_TEST_SIZE = 4_182
_MAX_TRAIN_LENGTH = 5
_PARTS = ("train", "dev", "test")


class ScanSP(Task):
    """Commands to programs, which are written without brackets.

    All commands are generated from the grammar; the files of SCAN are needed only for its published split. IID is
    SCAN's simple split if the files exist, and otherwise a random split of the same size; a random fifth of the
    training commands is used for development. LEN trains on commands of up to 5 words, and divides the longer ones into
    dev and test, independently of the seed.

    Args:
        data_dir: the data folder, which may contain ``scan/tasks_train_simple.txt`` and ``scan/tasks_test_simple.txt``.
        seed: the seed of the IID development set and, if the files do not exist, of the IID test set.
    """

    name = "scan-sp"
    description = "SCAN commands to programs, generated from the grammar; IID and LEN"

    def __init__(self, data_dir: str | Path | None = None, seed: int = 0) -> None:
        self.data_dir = data_dir
        self.seed = seed

    @property
    def grammar(self) -> Grammar:  # noqa: D102
        return program_grammar()

    @property
    def splits(self) -> tuple[str, ...]:  # noqa: D102
        return tuple(f"{condition}/{part}" for condition in ("iid", "len") for part in _PARTS)

    @property
    def notes(self) -> tuple[str, ...]:  # noqa: D102
        if self._has_files:
            return ()
        folder = data_root(self.data_dir) / "scan"
        return (
            f"IID is a random split with seed {self.seed}: it has the sizes of SCAN's simple split, but not the same "
            f"commands. For the published split, place {TRAIN_FILE} and {TEST_FILE} in {folder} or run "
            "`permalign data fetch scan`.",
        )

    def examples(self, split: str) -> Sequence[Example]:  # noqa: D102
        if split not in self.splits:
            raise self.unknown_split(split)
        return [all_examples()[command] for command in self._commands_of[split]]

    def answer(self, example: Example, output: Sequence[str]) -> str:
        """The program that an output stands for, with its brackets."""
        return " ".join(bracketed(program_grammar().read(output)))

    def execute(self, output: Sequence[str], example: Example) -> tuple[str, ...]:
        """Execute an output; returns its actions, and raises a `GrammarError` if it is not a program."""
        return execute(program_grammar().read(output))

    @cached_property
    def _commands_of(self) -> dict[str, list[str]]:
        generator = Random(self.seed)
        if self._has_files:
            train, test = self._published_split()
        else:
            order = shuffled(list(all_examples()), generator)
            train, test = order[_TEST_SIZE:], order[:_TEST_SIZE]
        order = shuffled(train, generator)
        development = set(order[: len(order) // 5])
        lengths = {command: len(example.source) for command, example in all_examples().items()}
        short = [command for command, length in lengths.items() if length <= _MAX_TRAIN_LENGTH]
        long = [command for command, length in lengths.items() if length > _MAX_TRAIN_LENGTH]
        long = shuffled(long, Random(0))
        return {
            "iid/train": [command for command in train if command not in development],
            "iid/dev": [command for command in train if command in development],
            "iid/test": test,
            "len/train": short,
            "len/dev": long[: len(long) // 2],
            "len/test": long[len(long) // 2 :],
        }

    @property
    def _has_files(self) -> bool:
        folder = data_root(self.data_dir) / "scan"
        return any((folder / name).is_file() for name in (TRAIN_FILE, TEST_FILE))

    def _published_split(self) -> tuple[list[str], list[str]]:
        seen: set[str] = set()
        train = self._read(dataset_file("scan", TRAIN_FILE, self.data_dir), seen)
        test = self._read(dataset_file("scan", TEST_FILE, self.data_dir), seen)
        if len(seen) != len(all_examples()):
            missing = min(all_examples().keys() - seen)
            raise DataError(
                f"{TRAIN_FILE} and {TEST_FILE} hold {len(seen):,} of the {len(all_examples()):,} commands "
                f"({missing!r} is missing). Download them again with `permalign data fetch scan`.",
                dataset_file("scan", TEST_FILE, self.data_dir),
            )
        return train, test

    def _read(self, path: Path, seen: set[str]) -> list[str]:
        """Read the commands of a file, and check that the grammar has each of them, with the same actions."""
        commands_read = []
        for number, text in read_text(path).lines:
            command, separator, actions = text.removeprefix("IN: ").partition(" OUT: ")
            if not text.startswith("IN: ") or not separator:
                raise DataError("expected `IN: <command> OUT: <actions>`.", path, number)
            example = all_examples().get(command)
            if example is None:
                raise DataError(f"{excerpt(command)} is not a command of SCAN.", path, number)
            expected = " ".join(self.execute(example.target, example))
            if actions.rstrip() != expected:
                raise DataError(f"the actions of {command!r} should be {expected!r}.", path, number)
            if command in seen:
                raise DataError(f"{command!r} occurs twice in the training and test files.", path, number)
            seen.add(command)
            commands_read.append(command)
        return commands_read


@cache
def all_examples() -> dict[str, Example]:
    """The example of every command, in alphabetical order of the commands."""
    grammar = program_grammar()
    return {
        " ".join(command): Example(command, tuple(grammar.linearize(program)), str(number))
        for number, (command, program) in enumerate(commands().items())
    }
