"""The paper's tables: their systems and columns, and how their cells are run, recorded and reported.

A table is a grid of cells. A cell names a training run (an experiment and the options it changes) and an evaluation of
the trained model. Cells may share a run. The results of every run are one line of ``runs.jsonl`` (`records`), and all
tables are written from that file alone (`report`).
"""
