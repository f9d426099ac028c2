"""How good answers are: metrics, significance, and accuracy by length and depth.

Nothing here waits for torch; a model comes in from outside.
"""

from permalign.evaluation.answers import Answer
from permalign.evaluation.metrics import main_metric, metrics_of
from permalign.evaluation.predictions import read_predictions, write_predictions
from permalign.evaluation.report import Report, evaluate, report_of

__all__ = [
    "Answer",
    "Report",
    "evaluate",
    "main_metric",
    "metrics_of",
    "read_predictions",
    "report_of",
    "write_predictions",
]
