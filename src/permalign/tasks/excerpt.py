"""Quoting a user's data in a message without repeating a whole megabyte of it."""


def excerpt(text: str, longest: int = 80) -> str:
    """The text in quotes, its end left out if it is long.

    >>> print(excerpt("jump twice"), excerpt("((((1+2)+3)+4)+5)", longest=8))
    'jump twice' '((((1...'
    """
    return repr(text if len(text) <= longest else text[: longest - 3] + "...")
