"""``permalign schema``: the JSON schema of configs, for editors."""

import json

from permalign.cli.error_messages import report_errors
from permalign.cli.formatting import with_examples
from permalign.cli.printing import echo

HELP = with_examples(
    "Print the JSON schema of configs, with which editors complete and check YAML files.\n\n"
    "It has all options with their types, defaults and meanings, including those of installed plug-ins. Editors that "
    "use the YAML language server find it by a first line such as `# yaml-language-server: "
    "$schema=permalign.schema.json`.",
    "schema > permalign.schema.json",
)


@report_errors()
def schema() -> None:
    """Print the schema."""
    from permalign.options.schema import config_schema

    echo(json.dumps(config_schema(), indent=2))
