"""Decide when training stops: after the last step, by early stopping, or when the CPU time is used up."""

from permalign.options.run import TrainingOptions
from permalign.training.state import Progress


def reason_to_stop(
    progress: Progress, training: TrainingOptions, total_steps: int, metric: str, cpu_seconds: float
) -> str | None:
    """Decide after an evaluation whether training stops; returns the reason, or None if training continues.

    Args:
        progress: the progress of the run, which includes this evaluation.
        training: the training options.
        total_steps: the largest number of steps of the run.
        metric: the dev metric that checkpoints are compared by.
        cpu_seconds: the CPU time that the run has used so far.
    """
    if progress.step >= total_steps:
        return f"all {total_steps} steps are done"
    if training.patience is not None and progress.waited >= training.patience:
        return f"{metric} has not improved for {progress.waited} evaluations"
    if training.max_cpu_minutes is not None and cpu_seconds >= 60 * training.max_cpu_minutes:
        return f"{training.max_cpu_minutes:g} minutes of CPU time are used up"
    return None
