"""Every notebook runs from top to bottom as a user would run it, and is kept without outputs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
EXECUTE = "from nbclient.cli import main; main()"  # the command `jupyter execute`


def execute(notebook, folder):
    """Run a notebook in a folder, and return the process and what its cells have printed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    environment |= {"IPYTHONDIR": str(folder / ".ipython"), "JUPYTER_PLATFORM_DIRS": "1"}
    copy = folder / notebook.name
    copy.write_text(notebook.read_text("utf-8"), "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE, "--inplace", str(copy)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    return done, [output for cell in json.loads(copy.read_text("utf-8"))["cells"] for output in outputs(cell)]


def outputs(cell):
    return cell.get("outputs", [])


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook, tmp_path):
    done, printed = execute(notebook, tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(printed) >= 3


def test_a_cell_that_fails_fails_the_notebook(tmp_path):
    book = json.loads(NOTEBOOKS[0].read_text("utf-8"))
    book["cells"] = [{**book["cells"][1], "source": "1 / 0"}]
    (tmp_path / "books").mkdir()
    (tmp_path / "books" / "broken.ipynb").write_text(json.dumps(book), "utf-8")
    done, _ = execute(tmp_path / "books" / "broken.ipynb", tmp_path)
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs(notebook):
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    assert not any(outputs(cell) or cell.get("execution_count") for cell in cells)


def test_the_list_of_examples_names_each():
    listed = (ROOT / "examples" / "README.md").read_text("utf-8")
    assert [path.name for path in NOTEBOOKS if f"]({path.name})" not in listed] == []
