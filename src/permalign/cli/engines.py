"""Where commands that make many runs may run them."""

from enum import StrEnum


class Engine(StrEnum):
    """What starts the processes of many runs."""

    LOCAL = "local"
    RAY = "ray"
