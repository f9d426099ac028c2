"""Imports point one way, there is no cycle between packages, and the core needs few dependencies."""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "permalign"

# A package or module may import from the rows above its own, and from nothing else. So there is no cycle.
ROWS = [
    {"errors", "hub", "notebooks", "openmp", "shapes"},
    {"checks", "files", "masks", "plugins", "precision", "products"},
    {"tensor_files", "yaml_files"},
    {"kernels"},
    {"structures"},
    {"tasks"},
    {"diagnosis", "text", "options"},
    {"encoders"},
    {"reorderers", "heads"},
    {"decoding"},
    {"models"},
    {"evaluation"},
    {"training"},
    {"demo", "explain"},
    {"reproduction"},
    {"cli"},
    {"__main__"},
]
ROW_OF = {name: number for number, row in enumerate(ROWS) for name in row}
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
    """What a module imports from its own row or from one below it, its own package aside."""
    own = part_of(path)
    imported = {
        name.split(".")[1]
        for name in imported_names(ast.parse(source), path)
        if name.startswith("permalign.")
    }
    return sorted(part for part in imported - {own} if part in ROW_OF and ROW_OF[part] >= ROW_OF[own])


def test_every_package_and_module_has_its_row():
    assert {part_of(path) for path in modules()} == set(ROW_OF)


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


def test_the_check_sees_imports_between_neighbours():
    assert breaches(PACKAGE / "tasks" / "base.py", "from permalign.cli import app") == ["cli"]
    assert breaches(PACKAGE / "heads" / "base.py", "from permalign.reorderers import Reorderer") == [
        "reorderers"
    ]
    assert breaches(PACKAGE / "heads" / "base.py", "from permalign.heads.tagging import TaggingHead") == []


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
