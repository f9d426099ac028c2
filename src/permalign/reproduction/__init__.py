"""Reproduce the tables of the paper: run their cells, record the results, and write the tables.

A table is a grid of cells. A cell specifies a training run (an experiment and the options that it changes) and an
evaluation of the trained model; several cells may share a run. The results of a run are stored as one line of
``runs.jsonl`` (module `records`), and all tables are written from that file alone (module `report`).
"""
