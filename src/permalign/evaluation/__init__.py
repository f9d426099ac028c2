"""Evaluation: metrics, significance tests, and accuracy by length and depth.

Nothing here imports torch; the model is an argument.
"""

from permalign.evaluation.judging import JudgedPrediction
from permalign.evaluation.metrics import compute_metrics, main_metric
from permalign.evaluation.prediction_files import read_predictions, write_predictions
from permalign.evaluation.report import Report, evaluate, make_report

__all__ = [
    "JudgedPrediction",
    "Report",
    "compute_metrics",
    "evaluate",
    "main_metric",
    "make_report",
    "read_predictions",
    "write_predictions",
]
