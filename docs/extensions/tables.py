"""Tables that are read from the code: the options of a config, the experiments, the command line's help."""

import json
from collections.abc import Iterator
from importlib import import_module
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from docutils import nodes
from docutils.parsers.rst import directives
from pydantic.fields import FieldInfo
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.main import get_command

from permalign.options.base import MAX_SEED, MAX_SIZE, Options, PartName

SIGNS = {Ge: (">=", "ge"), Gt: (">", "gt"), Le: ("<=", "le"), Lt: ("<", "lt")}


def option_rows(options: type[Options], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Name, type with range, default and meaning of every option, nested ones with dots."""
    for name, field in options.model_fields.items():
        nested = next((part for part in _parts(field.annotation) if _is_options(part)), None)
        many = get_origin(field.annotation) is tuple
        if nested is not None and not many:
            yield from option_rows(nested, f"{prefix}{name}.")
            continue
        if nested is not None:
            yield f"{prefix}{name}", "list", "``[]``", field.description or ""
            yield from option_rows(nested, f"{prefix}{name}.*.")
            continue
        yield f"{prefix}{name}", _type(field), _default(field), field.description or ""


def _parts(annotation: Any) -> Iterator[Any]:
    """The annotation, and those inside it."""
    yield annotation
    for part in get_args(annotation) if get_origin(annotation) is not Literal else ():
        yield from _parts(part)


def _is_options(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Options)


def _type(field: FieldInfo) -> str:
    for rule in field.metadata:
        if isinstance(rule, PartName):
            return ", ".join(f"``{name}``" for name in rule.registry.built_in) + ", or that of a plug-in"
    bounds = ", ".join(_bounds(field.metadata))
    return _name(field.annotation) + (f", {bounds}" if bounds else "")


def _bounds(metadata: list[Any]) -> Iterator[str]:
    for rule in metadata:
        for kind, (sign, attribute) in SIGNS.items():
            if isinstance(rule, kind) and getattr(rule, attribute) not in (MAX_SIZE, MAX_SEED):
                yield f"{sign} {getattr(rule, attribute):g}"


def _name(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        bounds = ", ".join(
            _bounds([rule for part in inner[1:] for rule in getattr(part, "metadata", [part])])
        )
        return _name(inner[0]) + (f", {bounds}" if bounds else "")
    if origin is Literal:
        return ", ".join(f"``{value}``" for value in inner)
    if origin in (Union, UnionType):
        return " or ".join("null" if part is type(None) else _name(part) for part in inner)
    if origin is dict:
        return "mapping"
    if origin in (tuple, list):
        return f"list of {_name(inner[0])}"
    return {"int": "integer", "float": "number", "str": "text", "bool": "true or false"}[annotation.__name__]


def _default(field: FieldInfo) -> str:
    """Return the default as YAML spells it."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    return f"``{value}``" if isinstance(value, str) and value else f"``{json.dumps(value)}``"


class OptionsTable(SphinxDirective):
    """``options-table`` with the name of a class of options, and of a part of it (``model.head``).

    Without a part, the options that stand in none; with ``:own:``, those of the part that stand in no part of it.
    """

    required_arguments = 1
    optional_arguments = 1
    option_spec = {"own": directives.flag}  # noqa: RUF012

    def run(self) -> list[nodes.Node]:
        """The table."""
        module, _, name = self.arguments[0].rpartition(".")
        part = f"{self.arguments[1]}." if len(self.arguments) > 1 else ""
        rows = [
            row
            for row in option_rows(getattr(import_module(module), name))
            if row[0].startswith(part)
            and ((part and "own" not in self.options) or "." not in row[0].removeprefix(part))
        ]
        return [
            table(("option", "values", "default", "meaning"), [(f"``{row[0]}``", *row[1:]) for row in rows])
        ]


class ExperimentsTable(SphinxDirective):
    """``experiments-table``: what `permalign train --list` lists."""

    def run(self) -> list[nodes.Node]:
        """The table."""
        from permalign.training.experiments import describe_experiments

        return [
            table(
                ("experiment", "what it is"),
                [(f"``{name}``", about) for name, about in describe_experiments().items()],
            )
        ]


class CommandHelp(SphinxDirective):
    """``command-help`` with a verb: its help, as a terminal shows it."""

    optional_arguments = 9

    def run(self) -> list[nodes.Node]:
        """The help as it stands."""
        from permalign.cli.app import app

        command: Any = get_command(app)
        context = command.make_context("permalign", [], resilient_parsing=True)
        for verb in self.arguments:
            command = command.commands[verb]
            context = command.make_context(verb, [], parent=context, resilient_parsing=True)
        context.max_content_width = 100
        text = command.get_help(context)
        return [nodes.literal_block(text, text, language="text")]


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> nodes.table:
    """A table of plain text; what stands in backticks is code."""
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    group += nodes.thead("", _row(head))
    group += nodes.tbody("", *(_row(row) for row in rows))
    return nodes.table("", group, classes=["options"])


def _row(cells: tuple[str, ...]) -> nodes.row:
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", *_inline(cell))) for cell in cells))


def _inline(text: str) -> Iterator[nodes.Node]:
    for place, part in enumerate(text.replace("``", "`").split("`")):
        if part:
            yield nodes.literal(part, part) if place % 2 else nodes.Text(part)


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the directives."""
    app.add_directive("options-table", OptionsTable)
    app.add_directive("experiments-table", ExperimentsTable)
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
