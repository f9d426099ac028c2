"""Learning rate schedules. The learning rate is a function of the step; there is no state."""

from math import cos, pi, sqrt

from permalign.options.run import TrainingOptions


def learning_rate(options: TrainingOptions, step: int, total: int, halvings: int = 0) -> float:
    """The learning rate of a step.

    It grows linearly during the warm-up. After the warm-up, it is `TrainingOptions.learning_rate` times a factor. If t
    is the number of steps since the warm-up, and T the number of all steps after it, the factor is 1 - t/T for
    ``linear``, (1 + cos(pi t/T)) / 2 for ``cosine``, and sqrt(warmup_steps / step) for ``inverse_sqrt``.

    >>> options = TrainingOptions(learning_rate=1.0, schedule="linear", warmup_steps=2)
    >>> [round(learning_rate(options, step, total=6), 2) for step in range(1, 7)]
    [0.5, 1.0, 0.8, 0.6, 0.4, 0.2]

    Args:
        options: the schedule, its warm-up and the highest learning rate.
        step: the step, counted from 1.
        total: the total number of steps.
        halvings: how often the schedule ``plateau`` has halved the learning rate.
    """
    if step <= options.warmup_steps:
        return options.learning_rate * step / options.warmup_steps
    fraction = (step - options.warmup_steps) / (total - options.warmup_steps + 1)
    factor = {
        "constant": 1.0,
        "plateau": 0.5**halvings,
        "linear": 1 - fraction,
        "cosine": (1 + cos(pi * fraction)) / 2,
        "inverse_sqrt": sqrt(options.warmup_steps / step),
    }[options.schedule]
    return options.learning_rate * factor
