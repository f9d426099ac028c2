"""The JSON schema of configs, with which editors complete and check YAML files."""

from typing import Any

from permalign.options.base import PartOptions
from permalign.options.model import EncoderOptions, HeadOptions, ReordererOptions
from permalign.options.run import RunOptions
from permalign.plugins import TASKS


def config_schema() -> dict[str, Any]:
    """The schema of a YAML file for `permalign train`, including the options of installed plug-ins."""
    schema: dict[str, Any] = RunOptions.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "permalign config"
    schema.pop("required", None)  # a file that extends another need not name the task again
    properties = schema["properties"]
    properties["extends"] = {
        "type": "string",
        "description": "name of an experiment, or of a file in the same folder, whose options this file changes",
    }
    properties["task"] |= {
        "properties": {"name": {"enum": TASKS.names(), "description": "name of the task"}},
    }
    parts: tuple[type[PartOptions], ...] = (ReordererOptions, HeadOptions, EncoderOptions)
    for part in parts:
        _add_plugins(schema["$defs"], part)
    return schema


def _add_plugins(definitions: dict[str, Any], part: type[PartOptions]) -> None:
    """Add the options that plug-ins declare to those of permalign's own parts."""
    for name in part.registry.names():
        options = part.class_for({"kind": name})
        if options is not part:
            declared = options.model_json_schema()
            definitions |= {
                key: value for key, value in declared.get("$defs", {}).items() if key not in definitions
            }
            known = definitions[part.__name__]["properties"]
            known |= {key: value for key, value in declared["properties"].items() if key not in known}
