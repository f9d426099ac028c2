"""The entry point: Ctrl-C before a command begins, and options spelled as in a config."""

import pytest
from typer.testing import CliRunner

from permalign import cli
from permalign.cli.app import app


def test_an_interruption_while_modules_are_imported_is_one_line(monkeypatch, capsys):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "use_passive_threads", interrupt)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "permalign: interrupted\n"


def test_options_may_be_spelled_with_underscores_as_in_a_config(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("a,b,c\nx,y,z\n", encoding="utf-8")
    shown = CliRunner().invoke(
        app, ["data", "show", str(path), "iid/train", "--source_column", "b", "--target_column", "c"]
    )
    assert shown.exit_code == 0, shown.output
    assert "source  y" in shown.output
