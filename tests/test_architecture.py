"""Imports point one way, from the back of the house to its front door, and the core needs few packages."""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "permalign"

# Each may import from its own row and from the rows above; what is not named may be imported by all.
ROWS = [
    {"kernels"},
    {"structures"},
    {"encoders"},
    {"reorderers", "heads"},
    {"decoding"},
    {"models"},
    {"evaluation"},
    {"training"},
    {"demo", "explain", "runs"},
    {"reproduction"},
    {"cli"},
]
HEIGHT = {name: height for height, row in enumerate(ROWS) for name in row}
CORE = ("kernels", "structures", "reorderers", "heads")


def part_of(path):
    """The package or module below ``permalign`` that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def modules():
    return [path for path in sorted(PACKAGE.rglob("*.py")) if part_of(path) != "__init__"]


def imported_names(tree, path):
    """The dotted names a module imports, wherever in it, relative ones resolved."""
    package = ["permalign", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def required(tree):
    """The tree without what need not be there: imports for the type checker, and those that may fail."""

    class Pruned(ast.NodeTransformer):
        def visit_If(self, node):
            return None if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)

        def visit_Try(self, node):
            caught = " ".join(ast.unparse(handler.type) for handler in node.handlers if handler.type)
            return None if "ImportError" in caught or "ModuleNotFoundError" in caught else node

    return Pruned().visit(tree)


def breaches(path, source):
    own = HEIGHT.get(part_of(path))
    parts = (
        name.split(".")[1:2]
        for name in imported_names(ast.parse(source), path)
        if name.startswith("permalign.")
    )
    heights = {part[0]: HEIGHT.get(part[0]) for part in parts}
    if own is None:
        return []
    return sorted(part for part, height in heights.items() if height is not None and height > own)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    assert breaches(path, path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "from permalign.heads import additive_word_log_probs",
        "import permalign.reorderers.scorer",
        "from permalign import heads",
        "from ..heads import anything",
        "def late():\n    from permalign.models.transducer import Transducer",
    ],
)
def test_the_check_sees_wrong_imports(line):
    assert breaches(PACKAGE / "structures" / "chart.py", line) != []
    assert breaches(PACKAGE / "cli" / "main.py", line) == []


def core_modules():
    """Those that work without any extra."""
    return [path for path in modules() if part_of(path) in CORE]


@pytest.mark.parametrize("path", core_modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_core_imports_what_the_package_depends_on(path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {
        requirement.split(">")[0].split("<")[0].split("=")[0] for requirement in project["dependencies"]
    }
    found = {name.split(".")[0] for name in imported_names(required(ast.parse(path.read_text())), path)}
    assert found - set(sys.stdlib_module_names) - declared - {"permalign"} == set()


def test_no_module_is_longer_than_a_reader_can_bear():
    lengths = {str(path.relative_to(PACKAGE)): len(path.read_text().splitlines()) for path in modules()}
    assert {name: length for name, length in lengths.items() if length > 600} == {}
