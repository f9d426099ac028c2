"""The paper's tables: which systems and columns they have, how cells are run, kept and reported.

A table is a grid of cells. A cell names a training run (an experiment and what differs) and a trial of its model on a
test split. Cells may share a run; what a run gave is kept in one small file (`records`), and tables are written from
those files alone (`report`).
"""
