"""Text inside HTML and SVG: escaped, and without characters that no document may have."""

import re
from collections.abc import Iterable
from html import escape
from unicodedata import category, combining, east_asian_width

FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML cannot hold: control characters and halves of characters."""

LONGEST = 26
"""How many characters of a word are drawn; the rest is in its title."""


def safe(text: object) -> str:
    r"""A text as it may stand in an element or in a quoted attribute.

    >>> safe("<b>'x' & \x00</b>")
    '&lt;b&gt;&#x27;x&#x27; &amp; �&lt;/b&gt;'
    """
    return escape(FORBIDDEN.sub("\ufffd", str(text)), quote=True)


def isolated(words: Iterable[str]) -> str:
    """Words with spaces between them, each of them unable to turn those beside it around.

    >>> isolated(["a", "b"])
    '<bdi>a</bdi> <bdi>b</bdi>'
    """
    return " ".join(f"<bdi>{safe(word)}</bdi>" for word in words)


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """An element; underscores of attributes become hyphens, None leaves one out, the content is markup already.

    >>> element("text", safe("a<b"), class_="word", data_token=3, x=1.50)
    '<text class="word" data-token="3" x="1.5">a&lt;b</text>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def _value(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else safe(value)


def shortened(word: str) -> str:
    """A word that fits into a picture: its middle is left out if it is long.

    >>> shortened("donaudampfschifffahrtsgesellschaft")
    'donaudampfsch…sgesellschaft'
    """
    half = LONGEST // 2
    return word if len(word) <= LONGEST else f"{word[:half]}…{word[-half:]}"


def text_width(text: str) -> float:
    """About how wide a text is in a sans serif face, in units of the size of its letters."""
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
