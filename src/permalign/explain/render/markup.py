"""Text inside HTML and SVG: escaped, and without characters that documents may not contain."""

import re
from collections.abc import Iterable
from html import escape
from unicodedata import category, combining, east_asian_width

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML does not allow: control characters and lone surrogates."""

MAX_CHARACTERS = 26
"""How many characters of a word are drawn; its title has all of them."""


def safe(text: object) -> str:
    r"""Escape a text for an element or a quoted attribute.

    >>> safe("<b>'x' & \x00</b>")
    '&lt;b&gt;&#x27;x&#x27; &amp; �&lt;/b&gt;'
    """
    return escape(FORBIDDEN.sub("\ufffd", str(text)), quote=True)


def isolated(words: Iterable[str]) -> str:
    """Join words with spaces; the text direction of each word does not affect the others.

    >>> isolated(["a", "b"])
    '<bdi>a</bdi> <bdi>b</bdi>'
    """
    return " ".join(f"<bdi>{safe(word)}</bdi>" for word in words)


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """Return an element.

    Args:
        name: the name of the element.
        content: markup, already escaped.
        **attributes: underscores in names become hyphens; an attribute that is None is left out.

    >>> element("text", safe("a<b"), class_="word", data_token=3, x=1.50)
    '<text class="word" data-token="3" x="1.5">a&lt;b</text>'
    """
    attribute_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{attribute_text}>{content}</{name}>" if content else f"<{name}{attribute_text}/>"


def _attribute_value(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else safe(value)


def shortened(word: str) -> str:
    """Replace the middle of a long word by an ellipsis, so that it fits into a picture.

    >>> shortened("donaudampfschifffahrtsgesellschaft")
    'donaudampfsch…sgesellschaft'
    """
    half = MAX_CHARACTERS // 2
    return word if len(word) <= MAX_CHARACTERS else f"{word[:half]}…{word[-half:]}"


def text_width(text: str) -> float:
    """Estimate how wide a text is in a sans-serif font, in units of the font size."""
    return sum(map(_letter_width, text))


def _letter_width(letter: str) -> float:
    if combining(letter) or category(letter) in ("Mn", "Me", "Cf"):
        return 0.0
    if east_asian_width(letter) in "WF":
        return 1.1
    if letter in "iljIt.,:;'|!()[]{}f":
        return 0.38
    if letter in "mwMW@%—":
        return 0.95
    return 0.72 if letter.isupper() or ord(letter) > 0x2FF else 0.62
