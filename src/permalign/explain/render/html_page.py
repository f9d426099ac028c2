"""Traces as one self-contained HTML file: no request to anywhere, readable in ten years."""

from importlib.resources import files

from permalign.explain.render.description import confidence_list, in_words, notes_list
from permalign.explain.render.heatmap import heatmaps
from permalign.explain.render.markup import isolated, safe
from permalign.explain.render.svg import svg
from permalign.explain.trace.records import Comparison, Trace

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Of a file that carries its style and script in itself, and loads nothing."""


def html(trace: Trace, comparison: Comparison | None = None) -> str:
    """A page with the picture, how sure the model is, the same in words, and, if given, other ways of decoding."""
    title = f"{' '.join(trace.source)} → {' '.join(trace.target)}"
    body = [_section("", trace)]
    if comparison is not None:
        body.append(_comparison(comparison))
    script = (
        asset("picture.js")
        + '\ndocument.querySelectorAll(".permalign-picture").forEach((one) => { enliven(one); fit(one); });'
    )
    style = "\n".join(asset(f"{name}.css") for name in ("page", "picture", "dark"))
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            f"<title>{safe(title)}</title>",
            f"<style>{style}</style></head>",
            f"<body><main>{''.join(body)}</main>",
            f'<script type="module">{script}</script></body></html>\n',
        ]
    )


def fragment(trace: Trace) -> str:
    """Picture, figures and words, without a page around them."""
    return (
        f'<div class="scroller" tabindex="0" role="region" aria-label="picture">{svg(trace, standalone=False)}</div>'
        f"{confidence_list(trace)}{notes_list(trace)}"
        f'{heatmaps(trace)}<details class="words"><summary>In words</summary>{in_words(trace)}</details>'
    )


def asset(name: str) -> str:
    """A file of the package that pages are made of."""
    return (files("permalign.explain.render") / "static" / name).read_text(encoding="utf-8")


def _section(heading: str, trace: Trace) -> str:
    head = f"<h2>{safe(heading)}</h2>" if heading else f"<h1>{isolated(trace.source)}</h1>"
    output = f'<p class="output">{isolated(trace.target) or "∅"}</p>'
    return f"<section>{head}{output}{fragment(trace)}</section>"


def _comparison(comparison: Comparison) -> str:
    if not comparison.trees_differ:
        return (
            "<section><p>Greedy, Viterbi and the most probable permutation agree on the tree.</p></section>"
        )
    return "".join(
        _section(f"{variant.name}: {variant.meaning}", variant.trace) for variant in comparison.variants
    )
