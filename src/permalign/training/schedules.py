"""Learning rates as functions of the step, so that there is no state to lose."""

from math import cos, pi, sqrt

from permalign.options.run import TrainingOptions


def learning_rate(options: TrainingOptions, step: int, total: int, halvings: int = 0) -> float:
    """The rate of a step, counted from 1, of ``total``.

    It grows linearly over the warm-up; then, with t steps of T after it, ``linear`` is 1 - t/T, ``cosine``
    (1 + cos(pi t/T)) / 2, and ``inverse_sqrt`` sqrt(warmup / step), each times `TrainingOptions.learning_rate`.

    >>> options = TrainingOptions(learning_rate=1.0, schedule="linear", warmup=2)
    >>> [round(learning_rate(options, step, total=6), 2) for step in range(1, 7)]
    [0.5, 1.0, 0.8, 0.6, 0.4, 0.2]

    Args:
        options: the kind of schedule, its warm-up and the highest rate.
        step: from 1 on.
        total: how many steps there are.
        halvings: how often a plateau has halved the rate.
    """
    if step <= options.warmup_steps:
        return options.learning_rate * step / options.warmup_steps
    share = (step - options.warmup_steps) / (total - options.warmup_steps + 1)
    factor = {
        "constant": 1.0,
        "plateau": 0.5**halvings,
        "linear": 1 - share,
        "cosine": (1 + cos(pi * share)) / 2,
        "inverse_sqrt": sqrt(options.warmup_steps / step),
    }[options.schedule]
    return options.learning_rate * factor
