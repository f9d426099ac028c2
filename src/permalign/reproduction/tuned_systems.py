"""Table 3 with systems that are tuned in each column, and the options that were chosen for them.

The options are in ``tuned_systems.yaml``, which `permalign.reproduction.tuning` writes.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from permalign.reproduction.cells import Table
from permalign.yaml_files import parse_yaml

SYSTEMS = ("seq2seq", "syntactic-attention", "ssnt", "soft", "hard", "exact")
"""The rows of table 3 that are tuned."""
TRIALS = 4
"""The number of trials of each system in each column, besides the options of its experiment."""
SEED = 0
"""The seed of every search, and of the training of its trials."""
SIZES = "128,256"
"""The sizes that are tried. The paper also tried 512."""
RANGES = (
    f"model.head.embedding_dim={SIZES}",
    f"model.head.encoder.hidden_size={SIZES}",
    "model.head.dropout=0.1:0.9",
    "model.head.label_smoothing=0.0,0.1",
)
"""What is tried for every system."""
DECODER_RANGES = (f"model.head.hidden_size={SIZES}", "model.head.num_layers=1,2")
"""What is also tried for all systems but exact transduction, whose decoder has no hidden states."""
REORDERER_RANGES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"hard": ("model.reorderer.temperature=0.1:10.0:log",)}
)
"""What is also tried for single systems."""
CONSTRAINED = "-constrained"
"""The end of the keys of rows with constrained decoding."""
FILE = "tuned_systems.yaml"

Chosen = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Options as ``option=value``, by system and by column."""


def ranges_of(system: str) -> tuple[str, ...]:
    """The search space of a system."""
    return RANGES + (() if system == "exact" else DECODER_RANGES) + REORDERER_RANGES.get(system, ())


@cache
def chosen_settings() -> Chosen:
    """The options that were chosen for each system in each column in which it was tuned."""
    chosen = parse_yaml(files(__package__).joinpath(FILE).read_text(encoding="utf-8"))
    return {
        system: {column: tuple(settings) for column, settings in columns.items()}
        for system, columns in chosen.items()
    }


def with_chosen_settings(table: Table, chosen: Chosen) -> Table:
    """Table 3 with its tuned systems only, plain and constrained, each with the options that were chosen for it.

    A system has no cell in a column in which it was not tuned.
    """
    rows = {f"{system}{suffix}": system for system in SYSTEMS for suffix in ("", CONSTRAINED)}
    return Table(
        "table3-tuned",
        "Table 3 with systems that are tuned in each column",
        table.metrics,
        tuple(row for row in table.rows if row.key in rows),
        table.columns,
        tuple(
            replace(cell, settings=(*chosen[rows[cell.row]][cell.column], *cell.settings))
            for cell in table.cells
            if cell.row in rows and cell.column in chosen.get(rows[cell.row], {})
        ),
        notes=(
            f"Every system is tuned in every column with the same budget, on the development set of the column only: "
            f"the options of its experiment, which are those of table 3, and {TRIALS} random trials of "
            f"`permalign tune --seed {SEED}`. The best of these {TRIALS + 1} runs on the development set is chosen; if "
            "several are equally good, the first one. It is the run with seed 0 here, and other seeds are trained with "
            "the same options. `tuning.jsonl` lists all trials.",
            "The trials have the same seeds everywhere, so that trial 2, say, has the same sizes and dropout in all "
            "systems and columns. They draw from ranges of the paper: embeddings, encoder and decoder of size 128 or "
            "256, one or two layers of the decoder, dropout from 0.1 to 0.9, label smoothing of 0 or 0.1, and the "
            "Gumbel temperature of Hard-ReMoto from 0.1 to 10. The decoder of exact transduction has no hidden states, "
            "so it has no size and layers. What was not tried: size 512 (exact transduction has it in the window "
            "encoder of its experiment), two layers of the encoder, other options of the reorderer, and other learning "
            "rates. Options that are not tuned are those of table 3.",
            "Every system is decoded greedily (the paper's way) and *constrained*: with a beam of five, and only to "
            "programs of a grammar that has the rules of the run's training programs. The development scores by which "
            "options are chosen are those of greedy decoding.",
            "Where the options of table 3 are chosen, the runs are those of table 3, and are not trained again. Then "
            "syntactic attention and Soft-ReMoto have no constrained outputs.",
        ),
        absent="not run",
    )
