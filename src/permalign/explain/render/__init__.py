"""How a trace is drawn: as text for a terminal, as SVG, as an HTML page, in a notebook, as figures for a paper."""
