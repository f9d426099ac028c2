"""Traces as one self-contained HTML file, which loads nothing and so can still be read in ten years."""

from importlib.resources import files

from permalign.explain.render.description import confidence_list, describe, notes_list
from permalign.explain.render.heatmap import heatmaps
from permalign.explain.render.markup import isolated, safe
from permalign.explain.render.svg import svg
from permalign.explain.trace.trace import Comparison, Trace

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
)
"""The policy of a file that contains its style and script, and loads nothing."""

START_SCRIPT = """\
for (const picture of document.querySelectorAll(".permalign-picture")) {
  makeInteractive(picture);
  fit(picture);
}"""


def html(trace: Trace, comparison: Comparison | None = None) -> str:
    """Return a page with the picture, the confidence of the model and a description in words.

    Args:
        trace: the trace to show.
        comparison: other ways of decoding to show below; None for none.
    """
    title = f"{' '.join(trace.source)} → {' '.join(trace.output)}"
    sections = [_section("", trace)]
    if comparison is not None:
        sections.append(_comparison(comparison))
    script = f"{read_static('picture.js')}\n{START_SCRIPT}"
    style = "\n".join(read_static(f"{name}.css") for name in ("page", "picture", "dark"))
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{CONTENT_SECURITY_POLICY}">',
            f"<title>{safe(title)}</title>",
            f"<style>{style}</style></head>",
            f"<body><main>{''.join(sections)}</main>",
            f'<script type="module">{script}</script></body></html>\n',
        ]
    )


def fragment(trace: Trace) -> str:
    """Return picture, confidence and description, without a page around them."""
    return (
        f'<div class="scroller" tabindex="0" role="region" aria-label="picture">{svg(trace, standalone=False)}</div>'
        f"{confidence_list(trace)}{notes_list(trace)}"
        f'{heatmaps(trace)}<details class="words"><summary>In words</summary>{describe(trace)}</details>'
    )


def read_static(name: str) -> str:
    """Read one of the style sheets and scripts of pages."""
    return (files("permalign.explain.render") / "static" / name).read_text(encoding="utf-8")


def _section(heading: str, trace: Trace) -> str:
    head = f"<h2>{safe(heading)}</h2>" if heading else f"<h1>{isolated(trace.source)}</h1>"
    output = f'<p class="output">{isolated(trace.output) or "∅"}</p>'
    return f"<section>{head}{output}{fragment(trace)}</section>"


def _comparison(comparison: Comparison) -> str:
    if not comparison.trees_differ:
        return (
            "<section><p>Greedy, Viterbi and the most probable permutation agree on the tree.</p></section>"
        )
    return "".join(
        _section(f"{variant.name}: {variant.meaning}", variant.trace) for variant in comparison.variants
    )
