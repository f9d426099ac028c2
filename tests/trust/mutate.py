"""``make mutate``: change the code in small ways, and see whether the tests notice.

Each mutant is the package with one comparison, operator, number or truth value changed. It is killed if the tests of
its module fail, or take far more CPU time than they do without the change. The mutants that survive are printed, to be
looked at one by one: each of them calls for a test, for simpler code, or for an entry in `EQUIVALENT`.

All tests are imported once, and those of a module are run without any change first. For each mutant, the process is
then forked, the functions of the module get the changed code, and the tests are run again; no file is written. So a
mutant costs no more than its tests, but programs that tests start are not changed.
"""

import argparse
import ast
import gc
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from itertools import groupby
from pathlib import Path
from types import CodeType, FunctionType
from typing import NamedTuple

import hypothesis
import jaxtyping
import pytest
import torch
from tests.trust.equivalent_mutants import EQUIVALENT

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "permalign"

OPTIONS = (
    *("-q", "-x", "-p", "no:cacheprovider", "-m", "not slow", "--tb=native"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # plugins are imported already
)
KILLED, SURVIVED = "killed", "SURVIVED"
NOT_IMPORTED = 3
"""The exit status of a process in which no test has imported the function that a mutant changes."""

_KERNELS = (
    r"(closed_form|equal_the_twin|padding|frequencies|follow_the_generator|sampled_derivations|relaxed_samples_are|"
    r"pass_gradients).*portable"
)
_ORDERS = "tests/structures/test_orders.py"
_COPYING = "tests/heads/test_copying.py"
_HEADS = r"^(?!.*(TestTwo|TestLast|test_long|long_prefix|float32))"


class Tests(NamedTuple):
    """Tests that should notice mutants of a module, besides the examples in its docstrings.

    They are those of some files or folders whose name a pattern is found in.
    """

    paths: tuple[str, ...]
    pattern: str = ""

    def include(self, test: pytest.Item) -> bool:
        """Whether a test is one of them."""
        return test.nodeid.startswith(self.paths) and re.search(self.pattern, test.nodeid) is not None


_ALIGNMENTS = ("tests/structures/test_alignments.py", "tests/structures/test_alignment_contract.py")
_BEAM = (
    "tests/decoding/test_narrow_beams.py",
    "tests/decoding/test_beam.py",
    "tests/decoding/test_glossary.py",
)
_RUN = (
    "tests/training/test_loop.py",
    "tests/training/test_stopping.py",
    "tests/training/test_noise_and_leftovers.py",
)
_RUN_FOLDERS = (
    *_RUN,
    "tests/training/test_runs.py",
    "tests/training/test_resume.py",
    "tests/training/test_damage.py",
    "tests/training/test_lost_folders.py",
)
_TREES = (
    "tests/structures/test_separable.py",
    "tests/structures/test_separable_contract.py",
    "tests/structures/test_distribution.py",
    "tests/structures/test_bad_input.py",
)
_ON_PORTABLE = r"^(?!.*(gradcheck|compiled))"
_DECODING = ("tests/decoding/test_beam.py", "tests/decoding/test_narrow_beams.py")
TESTS = {
    "structures/orders.py": Tests(
        ("tests/structures/test_separable_contract.py", "tests/structures/test_bad_input.py", _ORDERS),
        "TestSeparablePermutation::.*(support|no_derivation|orders_do_not).*portable|TestSeparableMethods|test_orders",
    ),
    "structures/kbest.py": Tests(
        ("tests/structures/test_separable_contract.py",), "(top|probable).*portable"
    ),
    "structures/monotone.py": Tests(
        (*_ALIGNMENTS, "tests/structures/test_bad_input.py"),
        r"Monotone(?!.*gradcheck).*portable|test_bad_input.*([mM]onotone)",
    ),
    "structures/segmental.py": Tests(
        (*_ALIGNMENTS, "tests/structures/test_bad_input.py"),
        r"Segmental(?!.*gradcheck).*portable|test_bad_input.*[sS]egmental",
    ),
    "structures/permutations.py": Tests(("tests/structures/test_permutations.py",)),
    "structures/distribution.py": Tests(
        (*_TREES, "tests/structures/test_labelled_contract.py"), _ON_PORTABLE
    ),
    "structures/separable.py": Tests(_TREES, _ON_PORTABLE),
    "structures/derivations.py": Tests(_TREES, _ON_PORTABLE),
    "structures/forests.py": Tests((*_TREES, "tests/structures/test_labelled_contract.py"), _ON_PORTABLE),
    "structures/splits.py": Tests(_TREES, _ON_PORTABLE),
    "structures/tagging_posterior.py": Tests(("tests/structures/test_distribution.py",)),
    "structures/aligned_segments.py": Tests(
        ("tests/structures/test_distribution.py", "tests/structures/test_phrases_contract.py"), "segments|Two"
    ),
    "structures/log_space.py": Tests(("tests/structures/test_large_scores.py", *_TREES), _ON_PORTABLE),
    "structures/labelled.py": Tests(("tests/structures/test_labelled_contract.py",), _ON_PORTABLE),
    "structures/learned_grammar.py": Tests(("tests/reorderers/test_labelled.py",)),
    "structures/synchronous.py": Tests(
        (
            "tests/structures/test_synchronous_contract.py",
            "tests/structures/test_phrases_contract.py",
            "tests/structures/test_bad_input.py",
        ),
        r"^(?!.*(gradcheck|compiled|Three|bad_input))|test_bad_input.*Synchronous",
    ),
    "structures/labelled_synchronous.py": Tests(
        ("tests/structures/test_labelled_synchronous_contract.py",), _ON_PORTABLE
    ),
    "structures/sinkhorn.py": Tests(("tests/structures/test_sinkhorn.py",)),
    "kernels/portable/separable.py": Tests(("tests/structures/test_separable_contract.py",), _KERNELS),
    "kernels/portable/labelled.py": Tests(("tests/structures/test_labelled_contract.py",), _KERNELS),
    "kernels/portable/synchronous.py": Tests(
        ("tests/structures/test_synchronous_contract.py", "tests/structures/test_phrases_contract.py"),
        _KERNELS.replace("closed_form", "closed_form|impossible|probability_zero|without_room"),
    ),
    "kernels/portable/labelled_synchronous.py": Tests(
        ("tests/structures/test_labelled_synchronous_contract.py",),
        _KERNELS.replace("closed_form", "closed_form|impossible|probability_zero|without_room"),
    ),
    "kernels/portable/scoring.py": Tests(
        ("tests/reorderers/test_split_scorer.py", "tests/kernels/test_operators.py"), "(?i)scor"
    ),
    "heads/attention.py": Tests(("tests/heads/test_attention.py", _COPYING), "Attention"),
    "heads/attention_recurrence.py": Tests(("tests/heads/test_attention_recurrence.py",)),
    "heads/lstm_attention.py": Tests(
        ("tests/heads/test_attention.py", "tests/heads/test_attention_recurrence.py"), _HEADS
    ),
    "heads/source_attention.py": Tests(("tests/heads/test_attention.py", "tests/heads/ssnt"), _HEADS),
    "heads/syntactic_attention.py": Tests(("tests/heads/test_syntactic_attention.py",), _HEADS),
    "heads/tagging.py": Tests(
        ("tests/heads/test_tagging.py", "tests/heads/test_alignment_posteriors.py", _COPYING), _HEADS
    ),
    "heads/base.py": Tests(
        (
            "tests/heads/ssnt",
            "tests/heads/test_attention.py",
            "tests/decoding/test_search_over_orders.py",
            *_DECODING,
        ),
        _HEADS,
    ),
    "heads/beam_slots.py": Tests(("tests/heads/test_beam_slots.py", "tests/heads/ssnt"), _HEADS),
    "heads/copying.py": Tests((_COPYING,), _HEADS),
    "heads/output_context.py": Tests(("tests/heads/ssnt",)),
    "heads/segmental_head.py": Tests(
        ("tests/heads/segments", "tests/heads/swan", "tests/heads/test_alignment_posteriors.py"), _HEADS
    ),
    "heads/segments/phrase_cells.py": Tests(("tests/heads/segments", _COPYING), _HEADS),
    "heads/swan/decoder.py": Tests(("tests/heads/swan", _COPYING), _HEADS),
    "heads/swan/head.py": Tests(("tests/heads/swan", _COPYING), _HEADS),
    "heads/swan/segment_lstm.py": Tests(("tests/heads/swan",), _HEADS),
    "heads/softmax/aligned.py": Tests(("tests/heads/ssnt", "tests/heads/softmax"), _HEADS),
    "heads/softmax/cell_step.py": Tests(("tests/heads/ssnt", "tests/heads/softmax", _COPYING), _HEADS),
    "heads/softmax/output.py": Tests(("tests/heads/ssnt", "tests/heads/softmax"), _HEADS),
    "heads/softmax/sampled_vocabulary.py": Tests(("tests/heads/softmax",)),
    "heads/softmax/segmental.py": Tests(("tests/heads/segments", "tests/heads/swan", _COPYING), _HEADS),
    "heads/input_feeding.py": Tests(
        (
            "tests/heads/test_attention.py",
            "tests/heads/test_attention_recurrence.py",
            "tests/heads/segments",
            "tests/heads/ssnt",
            _COPYING,
        ),
        r"(test_attention|test_copying).*(Attention|recurrence)|TestInputFeeding::",
    ),
    "heads/ssnt/head.py": Tests(
        ("tests/heads/ssnt", "tests/heads/test_alignment_posteriors.py", _COPYING),
        _HEADS + "(?=.*(ssnt|TestSsnt::))",
    ),
    "heads/ssnt/decoder.py": Tests(("tests/heads/ssnt", _COPYING), _HEADS + "(?=.*(ssnt|TestSsnt::))"),
    "heads/segments/head.py": Tests(
        ("tests/heads/segments", _COPYING), _HEADS + "(?=.*(segments|TestSegments::|phrases_copy))"
    ),
    "heads/segments/decoder.py": Tests(
        ("tests/heads/segments", _COPYING), _HEADS + "(?=.*(segments|TestSegments::))"
    ),
    "heads/softmax/additive.py": Tests(("tests/heads/softmax/test_additive.py",)),
    "heads/softmax/projected.py": Tests(("tests/heads/softmax/test_projected.py",)),
    "heads/log_recurrence.py": Tests(("tests/heads/test_log_recurrence.py",)),
    "decoding/beam.py": Tests(_BEAM),
    "decoding/output_constraint.py": Tests(_BEAM),
    "decoding/exact_search.py": Tests(
        ("tests/decoding/test_exact_search.py",), "^(?!.*model)|a_model_finds_outputs"
    ),
    "decoding/candidates.py": Tests(("tests/decoding/test_candidates.py",)),
    "decoding/glossary.py": Tests(("tests/decoding/test_glossary.py",)),
    "decoding/output_evidence.py": Tests(("tests/decoding",)),
    "decoding/search_cost.py": Tests(
        ("tests/decoding", "tests/explain/trace/test_explain.py"), "cost|hidden|long"
    ),
    "decoding/search_over_orders.py": Tests(("tests/decoding/test_search_over_orders.py",)),
    "training/loop.py": Tests(_RUN),
    "training/session.py": Tests(
        (
            *_RUN,
            "tests/training/test_processor_minutes.py",
            "tests/training/test_runs.py",
            "tests/training/test_damage.py",
            "tests/training/test_pretrained_models.py",
        ),
        r"^(?!.*(test_runs|test_damage))|stage|cannot_be_mended",
    ),
    "training/state.py": Tests(_RUN),
    "training/early_stopping.py": Tests(_RUN[1:2]),
    "training/schedules.py": Tests(("tests/options/test_run.py",), "schedules|plateau"),
    "training/combine_models.py": Tests(
        ("tests/training/test_combine_models.py", "tests/training/test_runs.py"), "average|ensemble|combine"
    ),
    "training/recombination.py": Tests(("tests/training/test_recombination.py",)),
    "training/recipes.py": Tests(
        ("tests/training/test_recipes.py", "tests/training/test_recipe_trials.py"),
        r"^(?!.*test_recipe_trials)|suggest",
    ),
    "training/tokenization.py": Tests(("tests/training/test_recipes.py", "tests/text")),
    "training/tuning.py": Tests(("tests/training/test_tuning.py",)),
    "training/tuning_ranges.py": Tests(("tests/training/test_tuning.py",)),
    "training/tuning_trials.py": Tests(("tests/training/test_tuning.py",)),
    "training/run_directory.py": Tests(_RUN_FOLDERS),
    "training/resume_check.py": Tests(_RUN_FOLDERS),
    "training/setup.py": Tests((*_RUN_FOLDERS, "tests/training/test_pretrained_models.py")),
    "training/launch.py": Tests(
        (*_RUN_FOLDERS, "tests/training/test_devices.py", "tests/training/test_recipe_trials.py")
    ),
    "training/trained_run.py": Tests(
        ("tests/cli/test_runs.py", "tests/training/test_runs.py", "tests/models/test_bundled.py"),
        r"^(?!.*(interrupt|Ctrl))",
    ),
    "training/experiments.py": Tests(("tests/options", "tests/training/test_runs.py")),
    "evaluation/judging.py": Tests(("tests/evaluation", "tests/training/test_runs.py")),
    "evaluation/report.py": Tests(("tests/evaluation", "tests/training/test_runs.py")),
    "evaluation/sacrebleu_metrics.py": Tests(("tests/evaluation/test_metrics.py",)),
    "evaluation/example_sentences.py": Tests(
        ("tests/training/test_combine_models.py", "tests/explain/server/test_served_runs.py")
    ),
    "evaluation/metrics.py": Tests(
        ("tests/evaluation/test_metrics.py",),
        "^(?!.*(sacrebleu|execution|judged|geobase|batch_size|translations|model))",
    ),
    "evaluation/breakdown.py": Tests(("tests/evaluation/test_breakdown.py",), "^(?!.*plots)"),
    "evaluation/significance.py": Tests(("tests/evaluation/test_significance.py",)),
    "evaluation/prediction_files.py": Tests(("tests/evaluation/test_prediction_files.py",)),
}
"""The modules that are mutated. Slow tests and gradient checks are left out where quick ones should notice as well."""

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A module with one change.

    Attributes:
        module: the path of the module in the package.
        line: the number of the line that is changed.
        before: that line.
        after: that line with the change.
        source: the whole module with the change.
    """

    module: str
    line: int
    before: str
    after: str
    source: str

    @property
    def group(self) -> str:
        """The folder of the package that the module is in."""
        return self.module.split("/")[0]

    def __str__(self) -> str:
        return f"{self.module}, line {self.line}: {self.before}  ->  {self.after}"


def mutants(module: str) -> Iterator[Mutant]:
    """Every mutant of a module."""
    source = (PACKAGE / module).read_bytes()
    begins = [0]  # of lines, in bytes, which is how the syntax tree counts columns
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))
    for node in _that_matter(ast.parse(source)):
        if _change(node):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            begin = begins[node.lineno - 1] + node.col_offset
            end = begins[node.end_lineno - 1] + node.end_col_offset
            changed = source[:begin] + f"({ast.unparse(node)})".encode() + source[end:]
            before, after = (
                text.splitlines()[node.lineno - 1].decode().strip() for text in (source, changed)
            )
            yield Mutant(module, node.lineno, before, after, changed.decode())


def _that_matter(node: ast.AST, in_function: bool = False) -> Iterator[ast.expr]:
    """The expressions in functions, without those that no test should notice.

    These are types, the text of errors and warnings, and ``strict=True``, which guards from mistakes of our own.
    """
    match node:
        case ast.Raise() | ast.Assert() | ast.ImportFrom() | ast.keyword(arg="strict"):
            return
        case ast.Call(func=ast.Name(id="announce" | "print" | "warn")):
            return
        case ast.FunctionDef():
            children: Iterable[ast.AST] = node.body
            in_function = True
        case ast.AnnAssign():
            children = [node.value] if node.value else []
        case _:
            children = ast.iter_child_nodes(node)
    if in_function and isinstance(node, ast.expr):
        yield node
    for child in children:
        yield from _that_matter(child, in_function)


def _change(node: ast.expr) -> bool:
    """Change an expression in place; returns whether there is a way to."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in OPERATORS:
        node.op = OPERATORS[type(node.op)]()  # type: ignore[assignment]
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        node.value = not node.value
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        node.value += 1
    else:
        return False
    return True


def choose(found: Iterable[Mutant], number: int, modules: int, seed: int) -> list[Mutant]:
    """A random sample with as many mutants of each group of modules, where there are so many.

    Args:
        found: all mutants.
        number: the size of the sample.
        modules: how many modules of a group to take mutants from. Fewer are quicker, for the tests of every module are
            run without any change as well.
        seed: the seed of the choices.

    Returns:
        The mutants, those of a module together. The groups take turns, so that each has its share when time is up.
    """
    generator = random.Random(seed)
    groups: dict[str, dict[str, list[Mutant]]] = {}
    for mutant in found:
        groups.setdefault(mutant.group, {}).setdefault(mutant.module, []).append(mutant)
    turns: list[tuple[int, Mutant]] = []
    for of_modules in groups.values():
        chosen = generator.sample(list(of_modules), min(modules, len(of_modules)))
        candidates = [mutant for module in chosen for mutant in of_modules[module]]
        share = generator.sample(candidates, min(-(-number // len(groups)), len(candidates)))
        turns += [(chosen.index(mutant.module), mutant) for mutant in share]
    turns.sort(key=lambda turn: (turn[0], list(TESTS).index(turn[1].module), turn[1].line))
    return [mutant for _, mutant in turns]


# --- Running tests ---------------------------------------------------------------------------------------------


class _NamesOfExamples(dict[str, object]):
    """The names that the examples of a docstring begin with, which doctest would clear after their first run."""

    def clear(self) -> None:
        """Keep them for the next run."""


class MutantRunner:
    """A plugin of pytest that runs the tests of each module once, and then again with each mutant in a forked process.

    Args:
        mutants: the mutants to try, sorted by module.
        minutes: how long to try mutants.

    Attributes:
        ends: what became of the mutants of each module.
    """

    def __init__(self, mutants: Sequence[Mutant], minutes: float) -> None:
        self.ends: dict[str, Counter[str]] = {}
        self._mutants, self._running = mutants, False
        self._until = time.monotonic() + 60 * minutes
        self._output = os.fdopen(os.dup(1), "w")

    def pytest_collection_modifyitems(self, items: Sequence[pytest.Item]) -> None:
        """Let examples in docstrings be run more than once."""
        for item in items:
            if isinstance(item, pytest.DoctestItem):
                item.dtest.globs = _NamesOfExamples(item.dtest.globs)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests of every module as often as it has mutants, and once more."""
        if self._running:
            return None  # the tests are run by pytest itself
        self._running = True
        collected = session.items
        for module, mutants in groupby(self._mutants, key=lambda mutant: mutant.module):
            examples = f"src/permalign/{module}"
            session.items = [
                test for test in collected if TESTS[module].include(test) or test.nodeid.startswith(examples)
            ]
            self._try(session, module, list(mutants))
        return True

    def _try(self, session: pytest.Session, module: str, mutants: Sequence[Mutant]) -> None:
        """Try the mutants of one module."""
        equivalent = EQUIVALENT.get(module, {})
        tried = [mutant for mutant in mutants if not {mutant.before, mutant.after} & equivalent.keys()]
        ends = Counter(equivalent=len(mutants) - len(tried))
        if time.monotonic() > self._until:
            return
        before = time.process_time()
        passed = self._all_pass(session)
        cpu_seconds = time.process_time() - before
        note = "" if passed else ", which fail without any change"
        self._say(f"{module}: {len(session.items)} tests, {cpu_seconds:.1f} s{note}")
        self._find_functions()
        for mutant in tried if passed else ():
            if time.monotonic() > self._until:
                break
            end = self._end_of(mutant, session, cpu_seconds)
            ends[end] += 1
            self._say(f"  {end:10} {mutant}")
        if ends[SURVIVED] == 0 and passed and self._end_of(None, session, cpu_seconds) != SURVIVED:
            self._say("  The tests fail when they are run for the second time, even without any change.")
        elif passed:
            self.ends[module] = ends

    def _find_functions(self) -> None:
        """Find what may be changed, and hide all that exists from the garbage collection of forked processes."""
        gc.unfreeze()
        everything = gc.get_objects()
        self._functions = [each for each in everything if type(each) is FunctionType]
        self._cached = [each for each in everything if _is_own_cache(each)]
        gc.freeze()

    def _all_pass(self, session: pytest.Session) -> bool:
        session.testsfailed, session.shouldfail = 0, False
        with suppress(session.Failed):  # stops at the first test that fails
            session.config.hook.pytest_runtestloop(session=session)
        return session.testsfailed == 0 and len(session.items) > 0

    def _end_of(self, mutant: Mutant | None, session: pytest.Session, cpu_seconds: float) -> str:
        """What becomes of a mutant, or of the module as it is, if its tests are run in a forked process."""
        limit, started, process = int(20 + 4 * cpu_seconds), time.monotonic(), os.fork()
        if process == 0:
            code = NOT_IMPORTED
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
                if mutant is None or self._apply(mutant):
                    code = 0 if self._all_pass(session) else 1
            finally:
                os._exit(code)
        while (ended := os.waitpid(process, os.WNOHANG))[0] == 0:
            if time.monotonic() - started > 60 + 20 * limit:  # it waits for something
                os.kill(process, signal.SIGKILL)
            time.sleep(0.02)
        code = os.waitstatus_to_exitcode(ended[1])
        return {0: SURVIVED, NOT_IMPORTED: "not tried"}.get(code, KILLED)

    def _apply(self, mutant: Mutant) -> bool:
        """Give functions the code of a mutant, and forget what is cached; returns whether there are such functions."""
        original = (PACKAGE / mutant.module).read_text()
        codes = zip(_codes(original), _codes(mutant.source), strict=True)
        changed = {before: after for before, after in codes if before != after}
        functions = [function for function in self._functions if function.__code__ in changed]
        for function in functions:
            function.__code__ = changed[function.__code__]
        for cached in self._cached:
            cached.cache_clear()
        return bool(functions)

    def _say(self, line: str) -> None:
        """Print a line, although pytest is silent."""
        print(line, file=self._output, flush=True)


def _is_own_cache(thing: object) -> bool:
    return type(thing) is _lru_cache_wrapper and str(thing.__module__).startswith("permalign")


def _codes(source: str) -> Iterator[CodeType]:
    """The code of all functions of a module, outer ones first."""
    waiting = [compile(source, "<mutant>", "exec", dont_inherit=True)]
    while waiting:
        code = waiting.pop()
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        yield code


def prepare() -> None:
    """Make this process ready to be forked: tests import the package from here, and Hypothesis does not shrink."""
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "src"))
    torch.set_num_threads(1)
    jaxtyping.install_import_hook = lambda *_: None  # users have no checks of shapes either
    hypothesis.settings.register_profile(
        "mutants",
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        database=None,
        deadline=None,
        derandomize=True,
    )
    hypothesis.settings.load_profile("mutants")


# --- Report ---------------------------------------------------------------------------------------------------


def table(ends: Mapping[str, Counter[str]], command: str) -> str:
    """What became of the mutants of each module, as Markdown."""
    lines = [
        "# Mutation tests",
        "",
        f"`{command}`",
        "",
        "Each mutant is the package with one comparison, operator, number or truth value changed. It is killed if the",
        "tests of its module fail. Equivalent mutants do what the original does. They are not counted as tried;",
        "`tests/trust/equivalent_mutants.py` gives the reason for each.",
        "",
        "| module | tried | killed | equivalent |",
        "|---|---:|---:|---:|",
    ]
    total: Counter[str] = Counter()
    for module, counted in ends.items():
        total += counted
        lines.append(_row(module, counted))
    share = 100 * total[KILLED] / max(total[KILLED] + total[SURVIVED], 1)
    return "\n".join([*lines, _row("all", total), "", f"{share:.1f} % of the mutants were killed.", ""])


def _row(name: str, counted: Counter[str]) -> str:
    tried = counted[KILLED] + counted[SURVIVED]
    return f"| {name} | {tried} | {counted[KILLED]} | {counted['equivalent']} |"


def main() -> None:
    """Try a sample of all mutants within a time limit, and print how many were killed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--sample", type=int, default=100, help="how many mutants to try at most")
    parser.add_argument(
        "--modules", type=int, default=100, help="of how many modules of each folder, at most"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only modules whose path contains this")
    parser.add_argument("--write", type=Path, help="a Markdown file to write the figures to")
    parser.add_argument("--list", action="store_true", help="list the sample, and try nothing")
    arguments = parser.parse_args()
    found = [mutant for module in TESTS if arguments.only in module for mutant in mutants(module)]
    sample = choose(found, arguments.sample, arguments.modules, arguments.seed)
    if arguments.list:
        print(*sample, sep="\n")
        return
    prepare()
    runner = MutantRunner(sample, arguments.minutes)
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 1)
    modules = dict.fromkeys(mutant.module for mutant in sample)
    tests = [path for module in modules for path in TESTS[module].paths]
    examples = [f"src/permalign/{module}" for module in modules]
    status = pytest.main([*OPTIONS, *dict.fromkeys(tests), *examples], plugins=[runner])
    command = " ".join(["python -m tests.trust.mutate", *sys.argv[1:]])
    report = table(runner.ends, command)
    print(f"{report}\npytest ended with {status!r}.", file=sys.stderr)
    if arguments.write:
        arguments.write.write_text(report)


if __name__ == "__main__":
    main()
