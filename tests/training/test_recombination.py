import json

import pytest
from tests.training.small_run import SILENT

from permalign.errors import ConfigError
from permalign.options.run import RunOptions
from permalign.structures import Segment
from permalign.structures.derivations import Tree
from permalign.tasks.base import Example
from permalign.tasks.geoquery.signatures import program_grammar
from permalign.training import train
from permalign.training.recombination import cut, exchange, recombine
from permalign.training.run_directory import RunDirectory

GRAMMAR = program_grammar()


def pair_of(source, target, name):
    return Example(tuple(source.split()), tuple(target.split()), name)


LONGEST = pair_of("what is the longest river in new york", "longest river loc_2 stateid_ENTITY", "1")
BORDERS = pair_of("which states border utah", "state next_to_2 stateid_ENTITY", "2")


def leaf(token):
    return Tree(token, token + 1)


def right_branching(start, end):
    tree = leaf(end - 1)
    for token in range(end - 2, start - 1, -1):
        tree = Tree(token, end, "S", (leaf(token), tree))
    return tree


def fragments_of(example, units, written):
    """The fragments of a pair, for a right-branching tree; ``written`` has the output word of some units."""
    segments = [Segment((unit,), (written[unit],) if unit in written else ()) for unit in range(len(units))]
    return cut(example, units, right_branching(0, len(units)), segments, GRAMMAR)


@pytest.fixture
def fragments():
    units = ["what", "is", "the", "longest", "river", "in", "new york"]
    longest = fragments_of(LONGEST, units, {3: 0, 4: 1, 5: 2, 6: 3})
    return [*longest, *fragments_of(BORDERS, list(BORDERS.source), {1: 0, 2: 1, 3: 2})]


def test_a_fragment_has_the_fewest_words_that_write_its_subprogram(fragments):
    cuts = [(" ".join(f.source_words), " ".join(f.target_words), *f.kinds) for f in fragments]
    assert cuts == [
        ("longest river in new york", "longest river loc_2 stateid_ENTITY", "River"),
        ("river in new york", "river loc_2 stateid_ENTITY", "River"),
        ("in new york", "loc_2 stateid_ENTITY", "River"),
        ("new york", "stateid_ENTITY", "State"),
        ("states border utah", "state next_to_2 stateid_ENTITY", "State"),
        ("border utah", "next_to_2 stateid_ENTITY", "State"),
        ("utah", "stateid_ENTITY", "State"),
    ]


def test_fragments_are_exchanged_on_both_sides(fragments):
    pair = exchange(fragments[3], fragments[4])
    assert " ".join(pair.source) == "what is the longest river in states border utah"
    assert " ".join(pair.target) == "longest river loc_2 state next_to_2 stateid_ENTITY"


def test_new_pairs_are_well_typed_and_new_and_the_same_for_a_seed(fragments):
    given = [LONGEST, BORDERS]
    pairs = recombine(given, fragments, GRAMMAR, count=10)
    assert len({(pair.source, pair.target) for pair in [*pairs, *given]}) == 12
    for pair in pairs:
        GRAMMAR.read(pair.target)
    assert pairs == recombine(given, fragments, GRAMMAR, count=10)
    assert pairs != recombine(given, fragments, GRAMMAR, count=10, seed=1)
    assert recombine(given, [], GRAMMAR, count=10) == []
    assert recombine(given, fragments[6:], GRAMMAR, count=10) == []  # it can only be exchanged with itself


def options(data_dir, **changes):
    small = {"embedding_dim": 8, "encoder": {"hidden_size": 8}}
    return {
        "task": {"name": "geoquery", "data_dir": str(data_dir)},
        "model": {
            "reorderer": {"kind": "separable", "objective": "exact", "scorer_hidden_size": 8, **small},
            "head": {"kind": "segments", "max_segment_length": 1, "hidden_size": 8, "context": 1, **small},
        },
        "training": {
            "max_steps": 2,
            "evaluate_every": 2,
            "max_dev_examples": 2,
            "overlong_targets": "skip",
            "recombine": 20,
            **changes,
        },
    }


def test_a_run_trains_on_recombined_pairs_by_the_derivations_of_a_first_model(tmp_path, data_dir):
    progress = train(options(data_dir), tmp_path / "run", display=SILENT)
    assert progress.step == 2
    assert RunDirectory(tmp_path / "run").facts()["recombined_pairs"] == 20
    first = RunDirectory(tmp_path / "run" / "attempts" / "without-recombination")
    assert first.read_options().training.recombine == 0


def test_both_models_have_the_best_of_several_seeds(tmp_path, data_dir):
    values = options(data_dir)
    values["training"] |= {"restarts": 2, "restart_steps": 1, "restart_by": "loss", "log_every": 1}
    train(values, tmp_path / "run", display=SILENT)
    run = tmp_path / "run"
    first = run / "attempts" / "without-recombination"
    assert {path.name for path in (first / "attempts").iterdir()} == {"seed-0", "seed-1"}
    assert {path.name for path in (run / "attempts").iterdir()} == {"seed-0", "seed-1", first.name}
    for folder in (first, run):
        losses = [_losses(folder / "attempts" / f"seed-{seed}")[1] for seed in (0, 1)]
        assert RunDirectory(folder).facts()["chosen_seed"] == losses.index(min(losses))
        # the seeds of the second model are tried on all of its pairs, also the new ones
        assert _losses(folder)[1] == min(losses)


def _losses(run):
    """The training losses of a run by their steps."""
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {record["step"]: record["loss"] for record in records if record["kind"] == "train"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": {"head": {"kind": "ssnt"}}}, "needs? head.kind: segments"),
        ({"task": {"name": "arithmetic"}}, "the task arithmetic has no grammar"),
    ],
)
def test_options_that_recombination_does_not_fit_are_an_error(changes, words, data_dir):
    with pytest.raises(ConfigError, match=words):
        RunOptions.parse(options(data_dir) | changes)
