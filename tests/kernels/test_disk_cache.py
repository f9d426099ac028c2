"""Compiled kernels on disk are never stale, and a cache that is damaged, full or read-only is no obstacle."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import permalign
from permalign.kernels.compiled import disk_cache
from permalign.kernels.compiled.compiler import compiled


def doubled(b, values, result):
    result[b] = 2 * values[b]


def answer():
    """Compile the function as in a new process, or load it from disk, and return what it computes and its counts."""
    kernel = compiled(doubled)
    values, result = np.array([1.0, 4.0]), np.zeros(2)
    kernel(1, values, result)
    return result[1], sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values())


COMPILED, LOADED = (8.0, 0, 1), (8.0, 1, 0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(disk_cache, "_announced", set())
    return tmp_path


def entries(folder):
    return sorted(folder.rglob("*.kernel"))


def test_what_was_compiled_is_loaded(folder):
    assert answer() == COMPILED
    assert answer() == LOADED


def test_an_edit_of_any_file_of_kernels_compiles_anew(folder, tmp_path, monkeypatch):
    sources = tmp_path / "kernels"
    (sources / "compiled").mkdir(parents=True)
    (sources / "compiled" / "helper.py").write_text("one = 1\n")
    monkeypatch.setattr(disk_cache, "_KERNELS", sources)
    disk_cache.source_hash.cache_clear()
    try:
        assert [answer(), answer()] == [COMPILED, LOADED]
        (sources / "compiled" / "helper.py").write_text("one = 2\n")
        disk_cache.source_hash.cache_clear()
        assert answer() == COMPILED
        (sources / "compiled" / "helper.py").rename(sources / "helper.py")
        disk_cache.source_hash.cache_clear()
        assert answer() == COMPILED
    finally:
        disk_cache.source_hash.cache_clear()


@pytest.mark.parametrize("module", ["numba", "numpy"])
def test_another_version_compiles_anew(folder, monkeypatch, module):
    disk_cache._environment_hash.cache_clear()
    before = disk_cache.cache_folders()
    monkeypatch.setattr(f"{module}.__version__", "0.0.1")
    disk_cache._environment_hash.cache_clear()
    try:
        assert disk_cache.cache_folders() != before
    finally:
        disk_cache._environment_hash.cache_clear()


def test_another_processor_has_its_own_entry():
    cache = disk_cache.KernelCache(doubled)
    names = set()
    for processor in ("skylake", "znver4"):

        class Codegen:
            def magic_tuple(self, name=processor):
                return ("x86_64-unknown-linux-gnu", name, "+avx2")

        names.add(cache._file_name((), Codegen()))
    assert len(names) == 2


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty"])
def test_a_damaged_entry_is_compiled_anew_and_mended(folder, capfd, damage):
    answer()
    (path,) = entries(folder)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes({"flip": data, "truncate": data[:-1], "empty": b""}[damage])
    capfd.readouterr()
    assert [answer(), answer()] == [COMPILED, LOADED]
    assert "damaged, and are compiled anew" in capfd.readouterr().err


def test_a_full_disk_is_announced_once(folder, capfd, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk_cache, "atomic_file", full)
    assert [answer(), answer()] == [COMPILED, COMPILED]
    lines = [line for line in capfd.readouterr().err.splitlines() if "cannot be kept" in line]
    assert len(lines) == 1
    assert "No space left on device" in lines[0]
    assert "NUMBA_CACHE_DIR" in lines[0]


@pytest.fixture
def two_folders(tmp_path, monkeypatch):
    """The folder inside the package, and the user's."""
    package, home = tmp_path / "package", tmp_path / "home"
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(disk_cache, "_IN_PACKAGE", package)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return package, home


def test_without_permission_for_the_package_the_users_folder_serves(two_folders):
    package, home = two_folders
    package.write_text("not a folder, so even root cannot write into it")
    assert [answer(), answer()] == [COMPILED, LOADED]
    assert len(entries(home)) == 1


def test_a_cache_in_the_package_that_is_read_only_is_read(two_folders, monkeypatch):
    assert answer() == COMPILED

    def read_only(path):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(disk_cache, "atomic_file", read_only)
    assert answer() == LOADED


def test_the_cache_in_the_package_of_older_sources_is_removed(two_folders, monkeypatch):
    package, _ = two_folders
    answer()
    (new,) = package.iterdir()
    old = package / (new.name.rpartition("-")[0] + "-0123456789abcdef")
    other = package / "permalign-kernels-anything-0123456789abcdef"  # of another version of Python, say
    new.rename(old)
    other.mkdir()
    answer()
    assert {path.name for path in package.iterdir()} == {new.name, other.name}


def test_a_user_without_a_home_has_no_folder(monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert disk_cache._user_folder() == []


SCRIPT = """
import sys
from tests.kernels.test_disk_cache import answer
print(*answer())
"""


def start_process(folder, **environment):
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(Path(permalign.__file__).parents[1])])
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        env=variables | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_processes_that_fill_an_empty_cache_at_once_agree_without_a_home(folder):
    processes = [start_process(folder) for _ in range(2)]
    outputs = [process.communicate() for process in processes]
    assert {process.returncode for process in processes} == {0}, outputs
    assert {out.split()[0] for out, _ in outputs} == {"8.0"}
    assert len(entries(folder)) == 1
    assert [path for path in folder.rglob("*") if path.is_file()] == entries(folder)
    assert answer() == LOADED
