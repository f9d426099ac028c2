"""How the documentation is built: ``make docs``, or ``sphinx-build -W docs build/docs``."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "src")]

import figures  # noqa: E402

from permalign import __version__  # noqa: E402

project = "permalign"
author = "The permalign developers"
copyright = "The permalign developers"
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "extensions.docstrings",
    "extensions.formulas",
    "extensions.tables",
    "extensions.results",
]
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 90
napoleon_use_ivar = True
napoleon_use_rtype = False
default_role = "py:obj"  # a name in single backticks is a link where there is something to link to

copybutton_exclude = ".linenos, .gp, .go"  # of a console block only the commands are copied

html_title = "permalign"
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_show_sourcelink = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

figures.make_all(HERE / "figures")
