"""Lines in a terminal, drawn with Braille characters: two dots wide and four high to a character."""

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of every dot, by row and column."""
BLANK = 0x2800


class Canvas:
    """A field of dots.

    >>> canvas = Canvas(columns=3, rows=1)
    >>> canvas.line((0, 0), (5, 3))
    >>> canvas.rows()
    ['⠑⠢⢄']
    """

    def __init__(self, columns: int, rows: int) -> None:
        self._cells = [[0] * columns for _ in range(rows)]

    def line(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Dots from one place to another, each given as ``(x, y)`` in dots."""
        across, down = end[0] - start[0], end[1] - start[1]
        steps = max(round(max(abs(across), abs(down))), 1)
        for step in range(steps + 1):
            self._dot(round(start[0] + across * step / steps), round(start[1] + down * step / steps))

    def _dot(self, x: int, y: int) -> None:
        self._cells[y // 4][x // 2] |= DOTS[y % 4][x % 2]

    def rows(self) -> list[str]:
        """The characters, row by row; empty ones are spaces."""
        return ["".join(chr(BLANK + cell) if cell else " " for cell in row) for row in self._cells]
