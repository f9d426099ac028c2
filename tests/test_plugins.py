"""Plug-ins work wherever permalign's own parts do, and no code comes from the folder of a model."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.test_docs import blocks_of
from typer.testing import CliRunner

from permalign import Transducer, plugins
from permalign.cli.app import app
from permalign.encoders import WindowEncoder
from permalign.errors import ConfigError, DataError, UsageError
from permalign.options.model import EncoderOptions, ModelOptions, ReordererOptions
from permalign.options.run import RunOptions
from permalign.plugins import (
    ENCODERS,
    REGISTRIES,
    REORDERERS,
    TASKS,
    PluginError,
    register_encoder,
    register_reorderer,
    register_task,
    require_plugins,
)
from permalign.reorderers import IdentityReorderer
from permalign.tasks import Example, Task
from permalign.tasks.registry import get_task
from permalign.text.vocabulary import Vocabulary

ROOT = Path(__file__).parents[1]
SOURCE, TARGET = Vocabulary("abc"), Vocabulary("ABC")


@pytest.fixture
def registered():
    """Registers a reorderer for one test."""

    @register_reorderer("strong")
    class Strong(IdentityReorderer):
        class Options(ReordererOptions):
            strength: int = 1

        def __init__(self, strength, input_size):
            super().__init__()
            self.strength, self.input_size = strength, input_size

    yield Strong
    del REORDERERS.registered["strong"]


BLOCKS = blocks_of(ROOT / "docs" / "how-to" / "plugins.md")


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The two packages of the how-to page, installed into a folder, beside the other files of the page."""
    folder, modules = tmp_path_factory.mktemp("work"), []
    for block in BLOCKS:
        if block.language == "python":
            modules.append(block)
        elif block.file == "pyproject.toml":
            project = tmp_path_factory.mktemp("project")
            (project / block.file).write_text(block.body, "utf-8")
            (project / modules[-1].file).write_text(modules[-1].body, "utf-8")
            command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
            command += ["--no-index", "--target", str(folder / "installed"), str(project)]
            subprocess.run(command, check=True, capture_output=True)
        elif block.file:
            (folder / block.file).write_text(block.body, "utf-8")
    return folder


def run(folder, *arguments, installed=True, text="! a b c\n"):
    """Run a command in a folder, with or without the packages."""
    path = [str(ROOT / "src"), *([str(folder / "installed")] if installed else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from permalign.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, input=text)


def test_the_first_package_of_the_page_has_one_part_in_about_twenty_lines():
    first = next(block for block in BLOCKS if block.language == "python")
    assert sum(bool(line.strip()) for line in first.body.splitlines()) <= 20
    assert first.body.count("class Options") == 1


def test_the_package_of_twenty_lines_does_what_the_page_says(packages):
    shown = next(block.body for block in BLOCKS if "$ pip install" in block.body)
    assert "$ permalign train reverse.yaml --run runs/reverse\n" in shown
    done = run(packages, "train", "reverse.yaml", "--run", "runs/reverse")
    assert done.returncode == 0, done.stderr
    config = json.loads((packages / "runs" / "reverse" / "model" / "config.json").read_text())
    assert config["options"]["reorderer"]["keep"] == 1
    assert config["plugins"] == [
        {"part": "reorderer", "name": "reverse", "module": "permalign_reverse"}
        | {"package": "permalign-reverse", "version": "0.1.0"}
    ]
    done = run(packages, "predict", "runs/reverse", text="a white house\n")
    assert done.returncode == 0, done.stderr
    assert f'$ echo "a white house" | permalign predict runs/reverse\n{done.stdout}' in shown

    done = run(packages, "predict", "runs/reverse", installed=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "needs the reorderer 'reverse' of the package permalign-reverse" in done.stderr
    assert "pip install permalign-reverse." in done.stderr
    assert done.stderr.count("\n") == 1
    done = run(packages, "train", "reverse.yaml", "--run", "runs/other", installed=False)
    assert "unknown reorderer 'reverse'" in done.stderr


def test_parts_of_several_installed_packages_are_trained_and_loaded_together(packages):
    reverse = "model.reorderer={kind: reverse, keep: 1}"
    done = run(packages, "train", "mirror.yaml", "--run", "runs/mirror", "--set", reverse)
    assert done.returncode == 0, done.stderr
    config = json.loads((packages / "runs" / "mirror" / "model" / "config.json").read_text())
    head = config["options"]["head"]
    options = config["options"]["reorderer"]["keep"], head["init_scale"], head["encoder"]["weight"]
    assert options == (1, 0.5, 0.1)
    assert {(plugin["part"], plugin["package"]) for plugin in config["plugins"]} == {
        ("reorderer", "permalign-reverse"),
        ("head", "permalign-mirror"),
        ("encoder", "permalign-mirror"),
    }
    records = (packages / "runs" / "mirror" / "metrics.jsonl").read_text().splitlines()
    assert "first_word" in json.loads(records[-1])
    done = run(packages, "predict", "runs/mirror")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 4
    done = run(packages, "evaluate", "runs/mirror", "--split", "iid/dev", "--metric", "first_word")
    assert done.returncode == 0, done.stderr
    assert "FIRST_WORD" in done.stdout
    done = run(packages, "predict", "runs/mirror", installed=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install permalign-" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("noun", REGISTRIES)
def test_the_package_of_a_missing_part_is_named(noun):
    provider = {"part": noun, "name": "some", "module": "some_parts", "package": "some-parts"}
    with pytest.raises(DataError, match=f"needs the {noun} 'some' .* pip install some-parts") as caught:
        require_plugins([provider], "runs/some")
    assert "\n" not in str(caught.value)


def test_a_registered_encoder_is_built_saved_and_loaded(tmp_path):
    @register_encoder("wide_window")
    class WideWindow(WindowEncoder):
        class Options(EncoderOptions):
            window_radius: int = 3

    try:
        encoder = {"kind": "wide_window", "hidden_size": 8}
        options = {"reorderer": {"kind": "separable", "encoder": encoder}, "head": {"encoder": encoder}}
        Transducer(options, SOURCE, TARGET).save_pretrained(tmp_path)
        loaded = Transducer.from_pretrained(tmp_path)
        assert isinstance(loaded.head.encoder, WideWindow)
        assert loaded.head.encoder.window_radius == 3
        assert [type(part) for part in loaded.modules()].count(WideWindow) == 2
    finally:
        del ENCODERS.registered["wide_window"]
    with pytest.raises(DataError, match="needs the encoder 'wide_window'"):
        Transducer.from_pretrained(tmp_path)


def test_a_registered_task_is_named_in_configs_and_on_the_command_line():
    @register_task("shout")
    class Shout(Task):
        name, description = "shout", "capitals"
        splits = ("iid/train",)

        def __init__(self, letters: str = "ab"):
            self.letters = letters

        def examples(self, split):
            return [Example((letter,), (letter.upper(),), letter) for letter in self.letters]

    try:
        options = RunOptions.parse({"task": {"name": "shout", "letters": "abc"}})
        assert [example.target for example in options.make_task().examples("iid/train")] == [
            *map(tuple, "ABC")
        ]
        assert options.plugins()[-1] == {"part": "task", "name": "shout", "module": Shout.__module__}
        with pytest.raises(UsageError, match=r"did you mean --letters"):
            get_task("shout", leters="a")
        shown = CliRunner().invoke(app, ["data", "show", "shout", "iid/train"])
        assert "A" in shown.output
    finally:
        del TASKS.registered["shout"]


def test_options_of_plugins_are_checked_like_others(registered):
    options = ModelOptions.parse({"reorderer": {"kind": "strong", "strength": 3}})
    assert ModelOptions.model_validate_json(options.model_dump_json()) == options
    for values, message in (
        ({"strenght": 3}, "unknown option reorderer.strenght; did you mean reorderer.strength?"),
        ({"strength": "x"}, "reorderer.strength is 'x'"),
        ({"encoder": {"hiden_size": 3}}, "did you mean reorderer.encoder.hidden_size?"),
    ):
        with pytest.raises(ConfigError) as caught:
            ModelOptions.parse({"reorderer": {"kind": "strong", **values}})
        assert message in str(caught.value)
    with pytest.raises(ConfigError, match=r"unknown option reorderer\.strength"):
        ModelOptions.parse({"reorderer": {"kind": "separable", "strength": 3}})


def test_a_registered_part_is_built_saved_and_loaded(registered, tmp_path):
    model = Transducer({"reorderer": {"kind": "strong", "strength": 3}}, SOURCE, TARGET)
    model.save_pretrained(tmp_path / "model")
    loaded = Transducer.from_pretrained(tmp_path / "model")
    assert isinstance(loaded.reorderer, registered)
    assert (loaded.reorderer.strength, loaded.reorderer.input_size) == (3, 128)
    del REORDERERS.registered["strong"]
    try:
        with pytest.raises(DataError, match=r"that the module 'tests\.test_plugins' registers|registers"):
            Transducer.from_pretrained(tmp_path / "model")
    finally:
        REORDERERS.registered["strong"] = registered


def test_a_part_that_the_options_do_not_describe_is_not_saved(registered, tmp_path):
    model = Transducer({}, SOURCE, TARGET)
    model.reorderer = registered(1, 2)
    model.save_pretrained(tmp_path / "subclass")  # a subclass of what the options describe
    model.head = model.reorderer
    with pytest.raises(ConfigError, match="register_head"):
        model.save_pretrained(tmp_path / "model")


def test_a_parameter_that_is_no_option_is_named(registered):
    class Odd(IdentityReorderer):
        def __init__(self, colour):
            super().__init__()

    REORDERERS.registered["strong"] = Odd
    with pytest.raises(ConfigError, match="has a parameter 'colour', which is neither an option"):
        Transducer({"reorderer": {"kind": "strong"}}, SOURCE, TARGET)


def test_names_are_unique(registered):
    with pytest.raises(ValueError, match="of permalign itself"):
        register_reorderer("separable")
    with pytest.raises(ValueError, match="already"):
        register_reorderer("strong")(IdentityReorderer)
    assert register_reorderer("strong")(registered) is registered


def test_every_built_in_part_can_be_imported():
    for registry in REGISTRIES.values():
        assert all(callable(registry.load(name)) for name in registry.built_in)
        assert all(registry.provider(name) is None for name in registry.built_in)


def test_nothing_is_imported_from_the_folder_of_a_model(tmp_path, monkeypatch):
    Transducer({}, SOURCE, TARGET).save_pretrained(tmp_path)
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    (tmp_path / "evil.dist-info").mkdir()
    (tmp_path / "evil.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    (tmp_path / "evil.dist-info" / "entry_points.txt").write_text("[permalign.heads]\nevil = evil:Head\n")
    (tmp_path / "checksums.json").unlink(missing_ok=True)
    for checksums in tmp_path.glob("*sums*"):
        checksums.unlink()
    config = json.loads((tmp_path / "config.json").read_text())
    config["options"]["head"]["kind"] = "evil"
    config["plugins"] = [{"part": "head", "name": "evil", "module": "evil", "package": "a; rm -rf /"}]
    (tmp_path / "config.json").write_text(json.dumps(config))
    monkeypatch.setattr(plugins, "_installed", plugins._installed.__wrapped__)
    with pytest.raises(DataError, match="needs the head 'evil' that the module 'evil' registers"):
        Transducer.from_pretrained(tmp_path)
    del config["plugins"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="unknown head 'evil'"):
        Transducer.from_pretrained(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("broken", [None, 3, [3], [{"part": "wheel", "name": "x"}], [{"part": ["head"]}]])
def test_a_broken_list_of_plugins_is_ignored(broken):
    require_plugins(broken, "model")


def test_a_plugin_that_cannot_be_imported_is_named(tmp_path, monkeypatch):
    info = tmp_path / "broken_plugin-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[permalign.reorderers]\nbroken = no_such_module:Part\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins._installed.cache_clear()
    try:
        with pytest.raises(
            PluginError, match=r"of the package broken-plugin cannot be imported .*no_such_mod"
        ):
            REORDERERS.load("broken")
        with pytest.raises(ConfigError, match=r"reorderer: the reorderer 'broken' of the package"):
            ModelOptions.parse({"reorderer": {"kind": "broken"}})
    finally:
        shutil.rmtree(info)
        plugins._installed.cache_clear()


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("mistyped.py", None, r"FileNotFoundError: .*\. Give the path of the file that registers it\.$"),
        ("a_file_here", "", r"if it is in a file, give its path: --plugin a_file_here\.py\.$"),
        ("two_lines.py", "raise RuntimeError('one\\ntwo')", r"\(RuntimeError: one two\)\.$"),
        (
            "needs_more.py",
            "import no_such_module",
            r"\(ModuleNotFoundError: No module named 'no_such_module'\)\.$",
        ),
    ],
)
def test_why_a_file_cannot_be_imported_is_said_in_one_line(name, code, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if code is not None:
        Path(name).with_suffix(".py").write_text(code)
    with pytest.raises(PluginError, match=message) as caught:
        plugins.import_plugins([name])
    assert "\n" not in str(caught.value)
