r"""Formulas as drawings: matplotlib lays them out, the page carries the outlines.

So a page needs neither a TeX installation where it is built nor a script from another host where it is read. A display
may have several lines, parted by ``\\`` and aligned at ``&``.
"""

from functools import cache
from html import escape

from docutils import nodes
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from sphinx.application import Sphinx

FONT = FontProperties(family="serif", math_fontfamily="cm")
SIZE = 10.0
"""Of a letter in the drawing's own unit."""
EM = 8.8
"""How many of these units are one em of the page: serif letters look small beside others of the same size."""
LETTERS = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C", Path.CLOSEPOLY: "Z"}


@cache
def drawing(formula: str) -> str:
    """A formula as an inline SVG that stands on the line of the text around it."""
    text = f"${formula.strip()}$"
    width, height, depth, *_ = MathTextParser("path").parse(text, dpi=72, prop=_font())
    outline = []
    for points, code in TextPath((0, 0), text, size=SIZE, prop=FONT).iter_segments():
        if code == Path.CLOSEPOLY:
            outline.append("Z")
        else:
            mirrored = (f"{-value if place % 2 else value:.2f}" for place, value in enumerate(points))
            outline.append(LETTERS[code] + " ".join(mirrored))
    margin = 0.5
    return (
        f'<svg class="formula" role="img" aria-label="{escape(formula, quote=True)}" '
        f'style="height:{(height + 2 * margin) / EM:.3f}em;vertical-align:{-(depth + margin) / EM:.3f}em" '
        f'viewBox="{-margin} {-(height - depth) - margin:.2f} {width + 2 * margin:.2f} {height + 2 * margin:.2f}">'
        f'<path fill="currentColor" d="{"".join(outline)}"/></svg>'
    )


def _font() -> FontProperties:
    font = FONT.copy()
    font.set_size(SIZE)
    return font


def display(formula: str) -> str:
    """Lines one below the other, with what is left and right of ``&`` in columns."""
    rows = [
        "<tr>"
        + "".join(f"<td>{drawing(part) if part.strip() else ''}</td>" for part in line.split("&"))
        + "</tr>"
        for line in formula.strip().split("\\\\")
        if line.strip()
    ]
    return f'<div class="formulas"><table role="presentation">{"".join(rows)}</table></div>'


def _visit_inline(self, node: nodes.math) -> None:
    self.body.append(drawing(node.astext()))
    raise nodes.SkipNode


def _visit_display(self, node: nodes.math_block) -> None:
    self.body.append(display(node.astext()))
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Offer the renderer ``drawn``."""
    app.add_html_math_renderer("drawn", (_visit_inline, None), (_visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
