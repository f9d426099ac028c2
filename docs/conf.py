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
    "extensions.docstrings",
    "extensions.drawn_math",
    "extensions.tables",
    "extensions.results",
]
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings name the types that matter, with their shapes
autodoc_class_signature = "separated"
napoleon_use_ivar = True
napoleon_use_rtype = False
default_role = "py:obj"  # a name in single backticks is a link where there is something to link to

html_title = "permalign"
html_theme = "alabaster"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_show_sourcelink = False
html_math_renderer = "drawn"
html_theme_options = {
    "description": "Sequence transduction with exact latent reorderings",
    "fixed_sidebar": True,
    "page_width": "1120px",
    "sidebar_width": "240px",
    "font_family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
    "head_font_family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif",
    "code_font_family": "ui-monospace, 'SF Mono', Menlo, Consolas, monospace",
    "font_size": "16px",
    "show_powered_by": False,
}
html_sidebars = {"**": ["about.html", "searchfield.html", "navigation.html"]}

figures.make_all(HERE / "figures")
