"""Accounts as one self-contained HTML file: no request to anywhere, readable in ten years."""

from importlib.resources import files

from permalign.explain.account import Account, Comparison
from permalign.explain.heatmap import heatmaps
from permalign.explain.in_words import in_words, notes_list, sureness_list
from permalign.explain.markup import isolated, safe
from permalign.explain.picture import svg

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Of a file that carries its style and script in itself, and loads nothing."""


def html(account: Account, comparison: Comparison | None = None) -> str:
    """A page with the picture, how sure the model is, the same in words, and, if given, other ways to decode."""
    title = f"{' '.join(account.source)} → {' '.join(account.target)}"
    body = [_section("", account)]
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


def fragment(account: Account) -> str:
    """Picture, figures and words, without a page around them."""
    return (
        f'<div class="scroller" tabindex="0" role="region" aria-label="picture">{svg(account, standalone=False)}</div>'
        f"{sureness_list(account)}{notes_list(account)}"
        f'{heatmaps(account)}<details class="words"><summary>In words</summary>{in_words(account)}</details>'
    )


def asset(name: str) -> str:
    """A file of the package that pages are made of."""
    return (files("permalign.explain") / "static" / name).read_text(encoding="utf-8")


def _section(heading: str, account: Account) -> str:
    head = f"<h2>{safe(heading)}</h2>" if heading else f"<h1>{isolated(account.source)}</h1>"
    output = f'<p class="output">{isolated(account.target) or "∅"}</p>'
    return f"<section>{head}{output}{fragment(account)}</section>"


def _comparison(comparison: Comparison) -> str:
    if not comparison.trees_differ:
        return (
            "<section><p>Greedy, Viterbi and the most probable permutation agree on the tree.</p></section>"
        )
    return "".join(_section(f"{way.name}: {way.meaning}", way.account) for way in comparison.ways)
