"""How a trace is drawn: as text for a terminal, as SVG, as an HTML page, in a notebook, and as figures for papers."""
