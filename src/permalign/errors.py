"""The errors permalign raises for what a user can mend.

Wrong arguments of a Python call are a plain ``ValueError`` (as in torch.distributions); what comes from
files, networks and configuration is a `PermalignError`, which the command line prints without a stack trace.
Each message says what was wrong, what was expected and what to do.
"""

from pathlib import Path


class PermalignError(Exception):
    """Something outside the program is wrong, and the message says how to mend it."""


class DataError(PermalignError):
    """A data file does not hold what it should; the message begins with its name and line."""

    def __init__(self, message: str, path: str | Path | None = None, line: int | None = None) -> None:
        place = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(place + message)
        self.path = path
        self.line = line


class ConfigError(PermalignError, ValueError):
    """An option that does not exist, has a wrong value, or contradicts another; the message names it."""
