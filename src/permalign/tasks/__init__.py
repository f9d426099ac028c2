"""Tasks: datasets of examples, and what counts as a correct output."""

from permalign.tasks.base import Example, Task

__all__ = ["Example", "Task"]
