"""Where examples come from, and what a correct answer is."""

from permalign.tasks.base import Example, Task

__all__ = ["Example", "Task"]
