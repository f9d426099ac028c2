"""Values from YAML: only what JSON can also express, and no larger than a person would write."""

from typing import Any

import yaml

from permalign.errors import excerpt, shorten

MAX_DEPTH = 50
"""How deep values may be nested."""

MAX_VALUES = 10_000
"""How many values a text may stand for once its aliases (``*name``) are replaced by what they refer to."""

MAX_DIGITS = 4_000
"""How many characters a number may have; Python would refuse more than 4,300 digits."""

_PREFIX = "tag:yaml.org,2002:"
_NUMBERS_AND_TRUTH_VALUES = {"int": "number", "float": "number", "bool": "truth value"}
_TAGS = {_PREFIX + name for name in ("str", "int", "float", "bool", "null", "seq", "map")}


class YamlError(ValueError):
    """A text is not YAML, or stands for values that no option can have; the message has one line."""


class _Loader(yaml.SafeLoader):
    """Reads dates as text, and refuses mappings that have a key twice or a key that is a list or mapping.

    It also refuses values that are not what their tag says, such as ``!!bool ten``.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _PREFIX + "timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise yaml.constructor.ConstructorError(None, None, "expected a mapping", node.start_mark)
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a name, not a list or mapping", key.start_mark
                )
            name = self.construct_object(key, deep=True)
            if name in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{excerpt(name)} occurs twice", key.start_mark
                )
            seen.add(name)
        return super().construct_mapping(node, deep)

    def construct_number_or_truth_value(self, node: yaml.ScalarNode) -> bool | int | float:
        kind = node.tag.removeprefix(_PREFIX)
        try:
            if len(node.value) > MAX_DIGITS:
                raise ValueError
            value: bool | int | float = yaml.SafeLoader.yaml_constructors[node.tag](self, node)
        except (ValueError, LookupError, OverflowError):
            raise yaml.constructor.ConstructorError(
                None,
                None,
                f"{shorten(node.value)!r} is not a {_NUMBERS_AND_TRUTH_VALUES[kind]} that can be read",
                node.start_mark,
            ) from None
        return value


for _kind in _NUMBERS_AND_TRUTH_VALUES:
    _Loader.add_constructor(_PREFIX + _kind, _Loader.construct_number_or_truth_value)


def parse_yaml(text: str) -> Any:
    """Parse a YAML text into mappings, lists, strings, numbers, truth values and None.

    >>> parse_yaml("{released: 2021-06-07, seeds: [1, 2]}")
    {'released': '2021-06-07', 'seeds': [1, 2]}

    Raises:
        YamlError: the text is not YAML, is nested too deeply, or grows too large through aliases.
    """
    try:
        _require_moderate(text)
        return yaml.load(text, _Loader)
    except YamlError:
        raise
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise YamlError(shorten(" ".join(str(error).split()), max_length=300)) from None


def _require_moderate(text: str) -> None:
    """Check depth, size and tags while the text is read, before any value is built."""
    sizes: dict[str, int] = {}  # how many values each anchor stands for
    open_anchors: list[str | None] = []
    counts = [0]  # values so far: of the whole text, and of every list or mapping that is open
    for event in yaml.parse(text, _Loader):
        place = f"line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            anchor = event.anchor or ""
            if anchor in open_anchors:
                raise YamlError(f"{place}: *{shorten(anchor)} refers to itself")
            counts[-1] += sizes.get(anchor, 1)
        elif isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):
            if event.tag is not None and event.tag not in _TAGS | {"!"}:
                raise YamlError(f"{place}: values of the type {excerpt(event.tag)} are not allowed")
            if isinstance(event, yaml.CollectionStartEvent):
                open_anchors.append(event.anchor)
                counts.append(1)
            else:
                counts[-1] += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            closed, size = open_anchors.pop(), counts.pop()
            counts[-1] += size
            if closed is not None:
                sizes[closed] = size
        if len(open_anchors) > MAX_DEPTH:
            raise YamlError(f"{place}: lists and mappings are nested more than {MAX_DEPTH} deep")
        if counts[-1] > MAX_VALUES:
            raise YamlError(f"{place}: the text stands for more than {MAX_VALUES:,} values")
