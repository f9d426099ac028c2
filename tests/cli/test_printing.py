import io
import sys

import pytest

from permalign.cli.printing import echo

HOSTILE = "jump\x1b[2J\x07\x9b31m\u202ewalk\ttwice"


class Stream(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


@pytest.mark.parametrize("err", [False, True])
def test_a_terminal_shows_control_characters_and_a_file_gets_them(monkeypatch, err):
    for terminal, shown in ((True, "jump\\x1b[2J\\x07\\x9b31m\\u202ewalk\ttwice\n"), (False, HOSTILE + "\n")):
        stream = Stream(terminal)
        monkeypatch.setattr(sys, "stderr" if err else "stdout", stream)
        echo(HOSTILE, err=err)
        assert stream.getvalue().replace("\x1b[2J", "") == shown.replace("\x1b[2J", "")
