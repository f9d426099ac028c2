"""``python -m benchmarks``: measure everything (five minutes), print and save the results, and update all tables."""

import json
import sys
from collections.abc import Iterator

from benchmarks import (
    alignment,
    answers,
    labelled,
    models,
    processes,
    reordering,
    table,
    tasks,
    transduction,
    translation,
)
from benchmarks.measuring import Measurement, machine
from permalign import kernels


def measurements() -> Iterator[list[Measurement]]:
    """All measurements, at the sizes that the tables report."""
    small, large = reordering.Size(batch=16, length=25), reordering.Size(batch=8, length=41)
    reordering.Problem(reordering.Size(2, 3)).slow()  # torch loads its libraries at the first call
    yield reordering.against_the_paper(small, target=200, slow_times=3)
    yield reordering.against_the_paper(large, target=600, slow_times=2)
    yield reordering.backends(
        small,
        long=reordering.Size(batch=4, length=80, hidden=128),
        launches=reordering.Size(batch=2, length=40, hidden=16),
    )
    yield [reordering.growth(batch=8, length=40)]
    yield [reordering.dynamic_programs_against_scoring(small)]
    yield [reordering.memory_of_one_sentence(length=500)]
    yield labelled.compiled_against_portable(labelled.Size(batch=16, length=20), target=3)
    yield [labelled.likelihood_seconds(labelled.Size(batch=16, length=41), target=0.3)]
    yield [labelled.factorised_against_full(labelled.Size(batch=16, length=20, labels=64))]
    yield alignment.additive_against_full(alignment.Size())
    yield [
        transduction.seconds_of_likelihood(transduction.Size(32, 9, 5), target=0.015),
        transduction.seconds_of_likelihood(transduction.Size(32, 16, 16), target=1.0),
        transduction.seconds_of_likelihood(transduction.Size(16, 9, 5, labels=8), target=0.1),
        transduction.pruned_against_exact(transduction.Size(32, 16, 16), target=5),
        transduction.pruned_against_exact(transduction.Size(8, 30, 30), target=10, times=2),
        transduction.pruned_against_exact(transduction.Size(32, 16, 16), target=None, certain=False),
    ]
    yield processes.compare_settings(batch=16, length=25)
    yield models.arithmetic_step()
    yield models.translation_step()
    yield translation.steps()
    yield models.predictions()
    yield [answers.constrained_transduction(), answers.ensemble_of_three()]
    yield [answers.answers_without_scores(), answers.long_explanation()]
    yield tasks.data()
    yield [tasks.grammar_step(), *tasks.command_line()]


def main() -> None:
    """Measure everything, save the results, update the tables, and print them."""
    kernels.warm_up()
    rows = []
    for group in measurements():
        rows += [measurement.as_json() for measurement in group]
        print(f"measured: {', '.join(measurement.name for measurement in group)}", file=sys.stderr)
    results = {"machine": machine(), "measurements": rows}
    table.RESULTS.parent.mkdir(exist_ok=True)
    table.RESULTS.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", "utf-8")
    table.write_all()
    print(table.plain(results))


if __name__ == "__main__":
    main()
