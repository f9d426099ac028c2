"""Docstrings as pages: an indented block is a formula or code, and a class is called as its ``__init__`` says."""

import inspect

from sphinx.application import Sphinx
from sphinx.util.inspect import signature, stringify_signature


def keep_blocks(lines: list[str]) -> list[str]:
    """The lines, with a directive before every indented block that is not a doctest.

    >>> keep_blocks(["A sum:", "", "    a + b", "", "It ends."])
    ['A sum:', '', '.. code-block:: text', '', '    a + b', '', 'It ends.']
    """
    kept: list[str] = []
    inside = False
    for place, line in enumerate(lines):
        indented = line.startswith("    ")
        begins = indented and not inside and (place == 0 or not lines[place - 1].strip())
        if begins and not line.lstrip().startswith(">>>") and not _in_section(lines[:place]):
            kept += [".. code-block:: text", ""]
        if line.strip():
            inside = indented
        kept.append(line)
    return kept


def _in_section(before: list[str]) -> bool:
    """Whether the last line that is not indented names a section (Args:, Raises:), whose text is indented too."""
    flush = [line for line in before if line.strip() and not line.startswith(" ")]
    return bool(flush) and flush[-1] in {"Args:", "Attributes:", "Raises:", "Returns:"}


def _process(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    lines[:] = keep_blocks(lines)


def _sign(
    app: Sphinx, what: str, name: str, obj: object, options: object, args: str | None, returns: str | None
) -> tuple[str, None] | None:
    """Show the arguments of ``__init__`` where a base class from another package hides them by its ``__new__``."""
    if what != "class" or not args or not args.startswith("(*args, **kwargs)") or not inspect.isclass(obj):
        return None
    call = signature(obj.__init__, bound_method=True)
    return stringify_signature(call, show_return_annotation=False, unqualified_typehints=True), None


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at docstrings before napoleon does, and at signatures."""
    app.connect("autodoc-process-docstring", _process, priority=100)
    app.connect("autodoc-process-signature", _sign)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
