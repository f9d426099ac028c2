"""The published lists of names that questions of GeoQuery mention, one for each language.

Statistical parsers of this corpus have always been given these lists. They seem to be made from the whole corpus, test
questions included, so a system that uses them has to be compared with systems that use them, or a database, too.

A file has the format of the corpus: blocks with the words of a name (``nl:``) and a production that says what it names,
such as ``*n:StateName -> ({ ' south dakota ' })``.
"""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from permalign.errors import DataError, excerpt
from permalign.tasks.file_readers import read_text

_FUNCTIONS = {
    "CityName": "cityid",
    "CountryName": "countryid",
    "PlaceName": "placeid",
    "RiverName": "riverid",
    "StateName": "stateid",
}
"""The FunQL function of each kind of name; masked programs do not contain other kinds, such as abbreviations."""


def read_name_list(path: Path) -> Mapping[str, str]:
    """Map every name to its kind: the FunQL functions of the entities that it may refer to, separated by slashes.

    Raises:
        DataError: a production does not follow a name, or there are no names at all.
    """
    functions = defaultdict(set)
    name: str | None = None
    for line in read_text(path, blank="skip").lines:
        if line.text.startswith("nl:"):
            name = " ".join(line.text.removeprefix("nl:").split())
        elif line.text.startswith("*n:"):
            if not name:
                raise DataError(f"{excerpt(line.text)} follows no name, `nl:...`.", path, line.number)
            kind = line.text.removeprefix("*n:").partition("->")[0].strip()
            if kind in _FUNCTIONS:
                functions[name].add(_FUNCTIONS[kind])
    if not functions:
        raise DataError("the file has no names; expected blocks of `nl:` and `*n:`.", path)
    return {name: "/".join(sorted(kinds)) for name, kinds in sorted(functions.items())}
