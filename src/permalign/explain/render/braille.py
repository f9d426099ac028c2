"""Lines in a terminal, drawn with Braille characters, each of which is two dots wide and four dots high."""

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot in the number of a character, by row and column."""
BLANK = 0x2800


class BrailleCanvas:
    """A grid of dots.

    Args:
        columns: the width in characters.
        rows: the height in characters.

    >>> canvas = BrailleCanvas(columns=3, rows=1)
    >>> canvas.line((0, 0), (5, 3))
    >>> canvas.rows()
    ['⠑⠢⢄']
    """

    def __init__(self, columns: int, rows: int) -> None:
        self._cells = [[0] * columns for _ in range(rows)]

    def line(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Draw a line between two points, each given as ``(x, y)`` in dots."""
        width, height = end[0] - start[0], end[1] - start[1]
        steps = max(round(max(abs(width), abs(height))), 1)
        for step in range(steps + 1):
            self._dot(round(start[0] + width * step / steps), round(start[1] + height * step / steps))

    def _dot(self, x: int, y: int) -> None:
        self._cells[y // 4][x // 2] |= DOTS[y % 4][x % 2]

    def rows(self) -> list[str]:
        """Return the characters row by row; a character without dots is a space."""
        return ["".join(chr(BLANK + cell) if cell else " " for cell in row) for row in self._cells]
