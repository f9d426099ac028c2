"""Tables 2 to 5 of the paper, with its numbers and with additional systems, and tables of our own.

Table 6, GeoQuery on the splits of other papers, is in `public_splits`. Table 3 with tuned systems is in
`tuned_systems`.
"""

from collections.abc import Iterator
from typing import Any

from permalign.errors import UsageError, unknown_name
from permalign.reproduction.cells import Column, Evaluation, Row, Table
from permalign.reproduction.public_splits import table6
from permalign.reproduction.systems import System, both_decodings, condition_settings
from permalign.reproduction.tuned_systems import chosen_settings, with_chosen_settings
from permalign.tasks.geoquery.splits import TUNING

PREFIX_SUM = ("model.reorderer.encoder.kind=prefix_sum", "model.reorderer.score_straight_rules=false")
BEST_OF_FOUR = {
    "arithmetic": (
        "model.reorderer.encoder.hidden_size=128",
        "training.restarts=4",
        "training.restart_steps=1000",  # as many as training.max_steps
    ),
    "scan": (),
}
"""Train four times and keep the best on dev: with some seeds, a BiLSTM does not generalise to deeper expressions."""
DEEPER = (8, 9, 10)
DEEPEST = (11, 12, 13)
"""Derivation depths of arithmetic beyond that of LEN, which is 7."""
PUBLISHED = "arithmetic-published"
ON_PUBLISHED_FILES = ("soft", "hard", "labelled")
"""The column of the authors' own files of arithmetic, and the rows that have it."""
ARITHMETIC = ("arithmetic-iid", "arithmetic-len", *(f"arithmetic-depth-{depth}" for depth in DEEPER))


# --- Table 2 -------------------------------------------------------------------------------------------------

_DIAGNOSTIC = (
    System(Row("seq2seq", "Seq2Seq"), "seq2seq", paper=(100, 0.0, 100, 13.9)),
    System(Row("tagging", "LSTM tagging"), "tagging", paper=(100, 20.6, 100, 57.7)),
    System(
        Row("sinkhorn", "Sinkhorn tagging"),
        "sinkhorn",
        {"arithmetic": ("training.restarts=4", "training.restart_steps=1500"), "scan": ()},
        paper=(99.5, 8.8, 100, 48.2),
    ),
    *both_decodings(
        "soft", "Soft-ReMoto", {"arithmetic": "soft-paper", "scan": "soft"}, paper=(100, 86.9, 100, 100)
    ),
    *both_decodings(
        "shared",
        "Soft-ReMoto, shared parameters",
        {"arithmetic": "soft-paper", "scan": "shared"},
        {"arithmetic": ("model.reorderer.shared_embeddings=true",), "scan": ()},
        paper=(100, 40.9, 100, 100),
    ),
    *both_decodings(
        "hard",
        "Hard-ReMoto",
        {"arithmetic": "soft-paper", "scan": "hard"},
        {"arithmetic": ("model.reorderer.objective=hard",), "scan": ()},
        paper=(100, 83.3, 100, 100),
    ),
    *(
        System(
            Row(f"{key}-deep", f"{title}, best of four on deeper expressions", ours=True),
            key,
            BEST_OF_FOUR["arithmetic"],
            evaluation={"decoding": "greedy"},
            columns=ARITHMETIC,
        )
        for key, title in (
            ("soft", "Soft-ReMoto"),
            ("shared", "Soft-ReMoto, shared parameters"),
            ("hard", "Hard-ReMoto"),
        )
    ),
    *both_decodings("exact", "Exact objective", "exact", BEST_OF_FOUR),
    *(
        system
        for objective in ("soft", "hard", "exact")
        for system in both_decodings(
            f"{objective}-prefix-sum",
            f"{objective.capitalize()}, prefix sums",
            {"arithmetic": f"{objective}-prefix-sum", "scan": objective},
            {"arithmetic": (), "scan": PREFIX_SUM},
        )
    ),
    System(Row("labelled", "Labelled trees", ours=True), "labelled", evaluation={"decoding": "viterbi"}),
)


def table2() -> Table:
    """Table 2: arithmetic and SCAN-SP, and deeper arithmetic expressions than in the paper, with the same runs."""
    columns: list[tuple[Column, str, tuple[str, ...], Evaluation]] = [
        (Column("arithmetic-iid", "Arithmetic IID"), "arithmetic", (), Evaluation("iid/test")),
        (Column("arithmetic-len", "Arithmetic LEN"), "arithmetic", (), Evaluation("len/test")),
        (Column("scan-iid", "SCAN-SP IID"), "scan", condition_settings("iid"), Evaluation("iid/test")),
        (Column("scan-len", "SCAN-SP LEN"), "scan", (), Evaluation("len/test")),
    ]
    for depth in DEEPER + DEEPEST:
        settings = (f"task.depth={depth}", *(("task.max_length=60",) if depth in DEEPEST else ()))
        column = Column(f"arithmetic-depth-{depth}", f"Arithmetic depth {depth}")
        columns.append((column, "arithmetic", (), Evaluation(f"depth-{depth}/test", settings)))
    published = Column(PUBLISHED, "Arithmetic IID, the authors' files")
    columns.append((published, "arithmetic", ("task.published=true",), Evaluation("iid/test")))
    return Table(
        "table2",
        "Table 2: accuracy on arithmetic and SCAN-SP",
        ("exact_match",),
        tuple(system.row for system in _DIAGNOSTIC),
        tuple(column for column, *_ in columns),
        tuple(
            system.cell(column, task, settings, index, evaluation)
            for system in _DIAGNOSTIC
            for index, (column, task, settings, evaluation) in enumerate(columns)
            if _has_cell(system, column)
        ),
        notes=(
            "Derivation depths of 8 and more are not in the paper. Each of these columns has 1,000 sampled "
            "expressions of exactly that depth. An expression of derivation depth 8 has brackets that are nested five "
            "deep. The models are the same as in the arithmetic columns, and were trained on depths of at most 6. "
            "Depths 11 to 13 were run for labelled trees only, with at most 60 tokens per expression.",
            "On arithmetic, Seq2Seq, Sinkhorn tagging, Soft-ReMoto, Hard-ReMoto and shared parameters choose their "
            "checkpoint on IID dev, as the paper does. Soft-ReMoto, Hard-ReMoto and shared parameters have the "
            "configuration of the paper's authors and are not restarted. The runs of Sinkhorn tagging are the best of "
            "four restarts on IID dev.",
            "All other rows had more supervision on arithmetic: they choose their checkpoint, and their restart, on "
            "`deep/dev`, expressions of derivation depth 8, which are in no test set. The exact objective and the rows "
            "*best of four on deeper expressions* were started four times with different initial weights, and the "
            "best on `deep/dev` was kept; the latter begin with 150 steps of the exact objective. One of the three "
            "runs of each of soft and hard in these rows was chosen within these steps, and is a model of the exact "
            "objective; training no longer chooses such checkpoints.",
            "The last column is trained, developed and tested on the files that the paper's authors published, "
            "which have other expressions than ours, drawn in the same way. Their LEN test set was not at hand.",
            "Rows that end in Viterbi decode with the most probable tree. The other rows with trees, except for "
            "labelled trees, take the most probable rule of every span from the root down, as the paper does.",
        ),
    )


def _has_cell(system: System, column: Column) -> bool:
    """Whether a system of table 2 has a cell in a column."""
    if column.key == PUBLISHED:
        return system.row.key in ON_PUBLISHED_FILES
    deepest = column.key in {f"arithmetic-depth-{depth}" for depth in DEEPEST}
    return system.runs_in(column) and (system.row.key == "labelled" or not deepest)


# --- Table 3 -------------------------------------------------------------------------------------------------

CONSTRAINED: dict[str, Any] = {"grammar": "training", "beam": 5}
ALL_PROGRAMS: dict[str, Any] = {"grammar": "task", "beam": 5}
"""Constrained decoding by the grammar of the training programs, and by that of all programs, test sets included."""
EXACT_SEARCH: dict[str, Any] = {**CONSTRAINED, "search": "exact"}
"""Constrained decoding that finds the best derivations exactly, as many as the beam had outputs."""
ENSEMBLE = ("model.ensemble_size=3",)
FORTY_EPOCHS = ("training.max_epochs=40",)
RECOMBINED = ("training.recombine=500",)
"""On held-out templates, a run with recombination first reached its best score well before epoch 40."""
WORD_DROPOUT = ("model.head.word_dropout=0.1",)
"""It was chosen on three sets of held-out templates (see the ablation)."""
FOUR_SEEDS = ("training.restarts=4", "training.restart_steps=300", "training.restart_by=loss")
"""Some seeds end in a poor local optimum, which the training loss shows after 300 steps."""
GENERALIZED: dict[str, Any] = {"grammar": "generalized", "beam": 5}
"""Constrained decoding by the grammar of the training programs, generalized to other types."""
EXACT = {"en": "exact", "zh": "exact-window", "de": "exact-window"}
RERANKED = {"en": "exact-reranked", "zh": "exact-window-reranked", "de": "exact-window-reranked"}
"""The experiments by language. They were chosen on held-out templates and lengths, in German only on lengths."""
LINKED = ("text.source.link_entities=true",)
SOURCE_CELLS = ("model.head.words_at_end_cell=false",)
"""SSNT writes every word at the cell of a source word, and only END at the end cell."""
ENGLISH = ("en-iid", "en-temp", "en-len")
"""The columns of systems that were run only in English; in the other languages, all systems of exact transduction have
a window encoder."""
NAMES: dict[str, tuple[str, ...]] = {
    "en": (),
    "zh": ("task.names=list",),
    "de": ("task.names=list", "task.fold_umlauts=true"),
}
"""Where names come from: Geobase has only English names."""
_NAMES, _GRAMMAR, _ENSEMBLE = "names", "the grammar of all programs", "three models"
_TYPES = "generalized types"
"""What systems are given besides the training set."""


def _row(key: str, title: str, *given: str) -> Row:
    """The row of a system that is not in the paper; its title says so if it knows the grammar of all programs."""
    suffix = " (grammar of all programs)" if _GRAMMAR in given else ""
    return Row(key, title + suffix, ours=True, given=", ".join(given))


def with_both_grammars(
    key: str,
    title: str,
    experiment: str | dict[str, str],
    settings: tuple[str, ...] | dict[str, tuple[str, ...]] = (),
    given: tuple[str, ...] = (),
    columns: tuple[str, ...] | None = None,
    columns_of_all_programs: tuple[str, ...] | None = None,
) -> Iterator[System]:
    """Yield a constrained system twice: with the grammar of the training programs, and with that of all programs.

    Args:
        key: the key of the first row; that of the second ends in ``-all-programs``.
        title: the title of the first row; that of the second says which grammar it has.
        experiment: the name of the experiment, or names by language.
        settings: changes to its options, or changes by language.
        given: what both systems are given besides the training set and the grammar.
        columns: the keys of the columns of the first row; None for all.
        columns_of_all_programs: those of the second row; None for the same.
    """
    yield System(_row(key, title, *given), experiment, settings, evaluation=CONSTRAINED, columns=columns)
    yield System(
        _row(f"{key}-all-programs", title, *given, _GRAMMAR),
        experiment,
        settings,
        evaluation=ALL_PROGRAMS,
        columns=columns_of_all_programs or columns,
    )


_PARSERS = (
    System(
        Row("seq2seq", "Seq2Seq", baseline=True),
        "seq2seq",
        paper=(75.7, 38.8, 21.8, 72.5, 25.4, 19.8, 56.1, 18.8, 15.2),
    ),
    System(
        Row("syntactic-attention", "Syntactic attention", baseline=True),
        "syntactic-attention",
        paper=(74.3, 39.1, 18.3, 70.2, 27.9, 18.7, 54.3, 19.3, 14.2),
    ),
    System(
        Row("ssnt", "SSNT", baseline=True),
        "ssnt",
        paper=(75.3, 38.7, 19.1, 71.6, 23.8, 17.8, 55.2, 19.8, 14.1),
    ),
    System(
        Row("soft", "Soft-ReMoto"),
        "soft",
        paper=(74.5, 39.3, 19.8, 73.4, 30.3, 17.3, 55.8, 19.5, 13.4),
        evaluation={"decoding": "greedy"},
    ),
    System(
        Row("hard", "Hard-ReMoto"),
        "hard",
        paper=(75.2, 43.2, 23.2, 74.3, 45.7, 22.3, 55.6, 22.3, 16.6),
        evaluation={"decoding": "greedy"},
    ),
    System(Row("ssnt-short", "SSNT, short context", ours=True), "ssnt-short"),
    System(
        Row("hard-short", "Hard-ReMoto, short context", ours=True),
        "hard-short",
        evaluation={"decoding": "greedy"},
    ),
    *(
        System(
            Row(f"{experiment}-source-cells", f"{title}, no words at the end cell", ours=True),
            experiment,
            SOURCE_CELLS,
            evaluation={"decoding": "greedy"},
        )
        for experiment, title in (("hard", "Hard-ReMoto"), ("hard-short", "Hard-ReMoto, short context"))
    ),
    System(Row("exact", "Exact transduction", ours=True), EXACT),
    System(Row("labelled", "Exact transduction, labels", ours=True), "labelled"),
    *(
        System(
            Row(f"{key}-constrained", f"{title}, constrained", ours=True, baseline=baseline),
            key,
            evaluation={**CONSTRAINED, **decoding},
        )
        for key, title, baseline, decoding in (
            ("seq2seq", "Seq2Seq", True, {}),
            ("syntactic-attention", "Syntactic attention", True, {}),
            ("ssnt", "SSNT", True, {}),
            ("soft", "Soft-ReMoto", False, {"decoding": "greedy"}),
            ("hard", "Hard-ReMoto", False, {"decoding": "greedy"}),
            ("hard-short", "Hard-ReMoto, short context", False, {"decoding": "greedy"}),
        )
    ),
    *with_both_grammars("exact-constrained", "Exact transduction, constrained", EXACT),
    *with_both_grammars(
        "reranked", "Exact transduction, constrained, reranked by an inverse model", RERANKED
    ),
    *with_both_grammars(
        "window-constrained",
        "Exact transduction, constrained, window encoder",
        "exact-window",
        columns=ENGLISH,
    ),
    System(
        _row("labelled-constrained", "Exact transduction, constrained, labels", _GRAMMAR),
        "labelled",
        evaluation=ALL_PROGRAMS,
    ),
    System(
        _row(
            "reranked-ensemble",
            "Exact transduction, constrained, reranked, ensemble of three",
            _ENSEMBLE,
            _GRAMMAR,
        ),
        RERANKED,
        ENSEMBLE,
        evaluation=ALL_PROGRAMS,
        columns=("zh-iid", "zh-temp", "zh-len"),
    ),
    *(
        System(
            _row(f"{key}-linked", f"{title}, entities linked", _NAMES),
            key,
            LINKED,
            evaluation=evaluation,
            columns=ENGLISH,
        )
        for key, title, evaluation in (
            ("seq2seq", "Seq2Seq", None),
            ("ssnt", "SSNT", None),
            ("hard", "Hard-ReMoto", {"decoding": "greedy"}),
        )
    ),
    System(
        _row("ssnt-linked-ensemble", "SSNT, entities linked, ensemble of three", _NAMES, _ENSEMBLE),
        "ssnt",
        LINKED + ENSEMBLE,
        columns=("en-iid",),
    ),
    *with_both_grammars(
        "reranked-linked",
        "Exact transduction, constrained, reranked, entities linked",
        "exact-window-reranked-linked",
        NAMES,
        (_NAMES,),
        columns_of_all_programs=ENGLISH,
    ),
    *(
        System(
            _row(f"linked{key}", f"Exact transduction, constrained, entities linked{title}", _NAMES),
            "exact-window",
            LINKED + FORTY_EPOCHS + settings,
            evaluation=evaluation,
            columns=ENGLISH,
        )
        for key, title, settings, evaluation in (
            ("-constrained", "", (), CONSTRAINED),
            ("-recombined", ", recombination", RECOMBINED, CONSTRAINED),
            ("-recombined-exact-search", ", recombination, exact search", RECOMBINED, EXACT_SEARCH),
        )
    ),
    *(
        System(
            _row(
                f"linked-recombined{key}-restarted{suffix}",
                f"Exact transduction, constrained{ending}, entities linked, recombination{title}, best of four seeds",
                _NAMES,
                *given,
            ),
            "exact-window",
            LINKED + FORTY_EPOCHS + RECOMBINED + settings + FOUR_SEEDS,
            evaluation=evaluation,
            columns=ENGLISH,
        )
        for key, title, settings in (("", "", ()), ("-hidden", ", word dropout", WORD_DROPOUT))
        for suffix, ending, evaluation, given in (
            ("", "", CONSTRAINED, ()),
            ("-generalized", " (generalized grammar)", GENERALIZED, (_TYPES,)),
        )
    ),
    System(
        _row(
            "reranked-linked-ensemble",
            "Exact transduction, constrained, reranked, entities linked, ensemble of three",
            _NAMES,
            _ENSEMBLE,
            _GRAMMAR,
        ),
        "exact-window-reranked-linked",
        ENSEMBLE,
        evaluation=ALL_PROGRAMS,
        columns=ENGLISH,
    ),
)


def table3() -> Table:
    """Table 3: GeoQuery in three languages under three conditions."""
    columns = [
        (Column(f"{language}-{condition}", f"{language.upper()} {condition.upper()}"), language, condition)
        for language in ("en", "zh", "de")
        for condition in ("iid", "temp", "len")
    ]
    return Table(
        "table3",
        "Table 3: GeoQuery, exact match and execution accuracy",
        ("exact_match", "execution_accuracy"),
        tuple(system.row for system in _PARSERS),
        tuple(column for column, *_ in columns),
        tuple(
            system.cell(
                column,
                "geoquery",
                (f"task.language={language}", *condition_settings(condition)),
                index,
                Evaluation(f"{condition}/test"),
            )
            for system in _PARSERS
            for index, (column, language, condition) in enumerate(columns)
            if system.runs_in(column)
        ),
        notes=(
            "The encoder of exact transduction is a BiLSTM in English. In Chinese and German, and in all rows with "
            "labels or linked entities, it is a window encoder, which sees a word and its two neighbours.",
            "*No words at the end cell* means that SSNT writes every word at the cell of a source word "
            "(`words_at_end_cell: false`). In the other rows with SSNT and ReMoto, words may also be written at the "
            "end cell, whose state has seen the whole question.",
            "*Short context* means that the decoder sees only the previous output word. *Constrained* means that "
            "decoding generates only programs that a typed grammar of FunQL accepts, with a beam of five; the other "
            "rows decode greedily. The grammar has the rules that the programs of the run's training set use. In rows "
            "that end in *grammar of all programs*, it was read off all 880 programs, and some programs of the test "
            "sets use a function with types that it never has in training (27 of 276 in TEMP, 7 of 280 in IID). "
            "So these rows know more than the others, and are not comparable with the paper's. A *generalized grammar* "
            "has the rules of the training programs, and those that follow from them for other types: if states can be "
            "the most, so can rivers, and if states have a density, so have cities. It knows no other programs, but we "
            "wrote down which rules follow from others after we had counted which ones the test programs lack.",
            "*Reranked* means that the outputs of beam search are ranked by log p(output | question) plus a weight "
            "times log p(question | output). An inverse model computes the second term.",
            "*Recombination* means that the run first trains a model without it, cuts the training pairs where the "
            "derivations of this model allow it, and adds 500 new pairs of such parts to the training set of the "
            "model that is evaluated (`training.recombine`). The names that it exchanges are those of the training "
            "questions. These rows, and the row without it that they are compared with, are trained for 40 epochs "
            "instead of 80. *Exact search* (`--search exact`) finds the five best derivations. *Word dropout* hides "
            "one source word in ten in training (`head.word_dropout`), so that the model learns to read unknown "
            "words. *Best of four seeds* means that four seeds are trained for 300 steps, and the one with the lowest "
            "training loss is trained to the end; no development set is used for this.",
            "*Entities linked* means that every known name is replaced by the types of entity that it may refer to "
            "(`text.source.link_entities`). The replacement does not depend on the program. In English the names are "
            "those of the database Geobase. In Chinese and German they are those of the published lists of names "
            "(`task.names=list`), which seem to be made from the whole corpus, test questions included; in German, "
            "umlauts and their spellings are also unified (`task.fold_umlauts`). The paper "
            "masks names in programs, but leaves them in questions.",
        ),
    )


def table3_tuned() -> Table:
    """Table 3 with systems that are tuned in each column."""
    return with_chosen_settings(table3(), chosen_settings())


# --- Table 4 -------------------------------------------------------------------------------------------------

BEAM_FOR_TRANSLATION: dict[str, Any] = {"beam": 5, "length_penalty": 1.0}
"""The decoding of all translation systems; it was chosen on development sets."""
_LONGER_TITLE = "16 epochs, dropout 0.3"
_TRANSLATORS = (
    System(Row("seq2seq", "Seq2Seq", baseline=True), "seq2seq", paper=(35.6, 25.3)),
    System(Row("ssnt", "SSNT"), "ssnt", paper=(36.3, 26.5)),
    System(Row("local", "Local Reordering"), "local", paper=(36.0, 27.1)),
    System(Row("soft", "Soft-ReMoto"), "soft", paper=(36.6, 27.5), evaluation={"decoding": "greedy"}),
    System(Row("hard", "Hard-ReMoto"), "hard", paper=(37.4, 28.7), evaluation={"decoding": "greedy"}),
    System(
        Row("ssnt-attention", "SSNT, with attention", ours=True),
        "ssnt-attention",
        columns=("en-ja-iid", "en-ja-len"),
    ),
    System(Row("exact", "Exact transduction, with attention", ours=True), "exact"),
    System(
        Row("hard-pretrained", "Hard-ReMoto, pretrained reorderer", ours=True),
        "hard-pretrained",
        evaluation={"decoding": "greedy"},
    ),
    System(
        Row("hard-pretrained-attention", "Hard-ReMoto, pretrained reorderer, with attention", ours=True),
        "hard-pretrained-attention",
        evaluation={"decoding": "greedy"},
        columns=("en-ja-iid", "en-ja-len"),
    ),
    System(
        Row(
            "hard-pretrained-attention-longer",
            f"Hard-ReMoto, pretrained reorderer, with attention, {_LONGER_TITLE}",
            ours=True,
            given=_LONGER_TITLE,
        ),
        "hard-pretrained-attention",
        ("training.max_epochs=16", "model.head.encoder.dropout=0.3", "model.head.dropout=0.3"),
        evaluation={"decoding": "greedy"},
        columns=("en-ja-iid",),
    ),
)


def table4() -> Table:
    """Table 4: translation. Tatoeba replaces FBIS, so the paper has no numbers for its columns."""
    columns = [
        (Column("en-ja-iid", "EN-JA IID"), "en-ja", "iid"),
        (Column("en-ja-len", "EN-JA LEN"), "en-ja", "len"),
        (Column("tatoeba-iid", "ZH-EN Tatoeba IID"), "zh-en", "iid"),
        (Column("tatoeba-len", "ZH-EN Tatoeba LEN"), "zh-en", "len"),
    ]
    return Table(
        "table4",
        "Table 4: translation, BLEU",
        ("bleu", "chrf"),
        tuple(system.row for system in _TRANSLATORS),
        tuple(column for column, *_ in columns),
        tuple(
            system.cell(
                column,
                task,
                condition_settings(condition),
                index,
                Evaluation(f"{condition}/test", **BEAM_FOR_TRANSLATION),
            )
            for index, (column, task, condition) in enumerate(columns)
            for system in _TRANSLATORS
            if system.runs_in(column)
        ),
        seeds=(0,),
        notes=(
            "The paper's ZH-EN corpus is FBIS, which is licensed. We use Tatoeba instead, so the paper has no numbers "
            "for these columns.",
            "In each column, all systems have the same sizes, dropout, batches and learning rates, and are trained "
            "for ten epochs, but for a row that says otherwise. ZH-EN has more dropout than EN-JA: 0.3 instead of "
            "0.2, and also on the states of the encoder. This was chosen on the development set with SSNT alone. In "
            "training, softmaxes are normalised over a sample of the vocabulary. Checkpoints are chosen by the BLEU "
            "of greedy outputs on the development set. On the test set, outputs are decoded with a beam of five, "
            "and their log-probabilities are divided by their length; this was chosen on the development set, and "
            "is the same for all systems.",
            "In the rows with attention, output states attend to the source, as those of Seq2Seq do. Those of SSNT, "
            "Local Reordering and ReMoto do not, as in the paper. All attention is scaled (`scaled_attention: true`) "
            "and fed to the next step (`input_feeding: true`).",
            "In SSNT, Local Reordering and ReMoto, every word is written at the cell of a source word, and the end "
            "cell only ends the output (`words_at_end_cell: false`). ReMoto begins with orders close to the source "
            "order (`initial_inversion_rate: 0.05`).",
            "A *pretrained reorderer* is trained for two epochs by exact transduction with a head that reads single "
            "words, on the same training set (`pretrain_reorderer`). The run then trains it further, with a new head.",
        ),
    )


# --- Table 5 -------------------------------------------------------------------------------------------------

NUM_EXPLAINED = 8


def table5() -> Table:
    """Table 5: outputs with their reordered sources and segments, from runs of tables 3 and 4."""
    systems = (
        System(
            Row("hard", "Hard-ReMoto"),
            {"geoquery": "hard", "en-ja": "hard-pretrained"},
            evaluation={"decoding": "greedy"},
        ),
        System(Row("exact", "Exact transduction", ours=True), {"geoquery": "exact-window", "en-ja": "exact"}),
    )
    columns = [
        (Column("geoquery-zh", "GeoQuery ZH, TEMP"), "geoquery", ("task.language=zh",), "temp"),
        (Column("en-ja", "EN-JA, IID"), "en-ja", (), "iid"),
    ]
    return Table(
        "table5",
        "Table 5: outputs with reordered input and segments",
        (),
        tuple(system.row for system in systems),
        tuple(column for column, *_ in columns),
        tuple(
            system.cell(
                column,
                task,
                (*settings, *condition_settings(condition)),
                -1,
                Evaluation(f"{condition}/test", explained=NUM_EXPLAINED),
            )
            for column, task, settings, condition in columns
            for system in systems
        ),
        seeds=(0,),
        notes=(
            f"The {NUM_EXPLAINED} examples are evenly spaced in the test set, and were not selected by their outputs. "
            "Each begins with its id in the corpus. In the lines *segments* and *output*, brackets with the same "
            "number are aligned. The source words there are in their new order.",
            "On EN-JA, the reorderer of Hard-ReMoto is pretrained by exact transduction, as in the row *pretrained "
            "reorderer* of table 4. Exact transduction has attention there.",
        ),
    )


# --- Ablation ------------------------------------------------------------------------------------------------

_VARIANTS = (
    ("three-words", "BiLSTM, up to three output words", "exact", ("model.head.max_segment_length=3",)),
    ("exact", "BiLSTM", "exact", ()),
    ("phrases", "BiLSTM, phrases", "exact", ("model.head.max_phrase_length=2",)),
    ("window", "Window encoder", "exact-window", ()),
    ("window-phrases", "Window encoder, phrases", "exact-window", ("model.head.max_phrase_length=2",)),
    ("labelled", "Window encoder, labels", "labelled", ()),
    ("window-linked", "Window encoder, entities linked", "exact-window", LINKED),
)


_ABLATION_COLUMNS = ("en-temp_tune", "en-len", "zh-temp_tune", "zh-len")
_HELD_OUT, _LONGER = ("en-temp_tune",), ("en-len",)
_NEW_TEMPLATES = tuple(f"en-{condition}" for condition in TUNING)
_RECOMBINED_AND_LINKED = LINKED + FORTY_EPOCHS + RECOMBINED
_ON_NEW_TEMPLATES = (
    (
        "linked-recombined-hidden",
        "Window encoder, entities linked, recombination, word dropout",
        "exact-window",
        _RECOMBINED_AND_LINKED + WORD_DROPOUT,
    ),
    (
        "linked-recombined-hidden-reranked",
        "Window encoder, entities linked, recombination, word dropout, reranked by an inverse model",
        "exact-window-reranked-linked",
        _RECOMBINED_AND_LINKED + WORD_DROPOUT,
    ),
    (
        "linked-recombined-restarted",
        "Window encoder, entities linked, recombination, best of four seeds",
        "exact-window",
        _RECOMBINED_AND_LINKED + FOUR_SEEDS,
    ),
    (
        "linked-recombined-hidden-restarted",
        "Window encoder, entities linked, recombination, word dropout, best of four seeds",
        "exact-window",
        _RECOMBINED_AND_LINKED + WORD_DROPOUT + FOUR_SEEDS,
    ),
    ("seq2seq-linked", "Seq2Seq, entities linked", "seq2seq", LINKED),
    ("seq2seq-linked-hidden", "Seq2Seq, entities linked, word dropout", "seq2seq", LINKED + WORD_DROPOUT),
    ("pretrained-recombined", "Pretrained MiniLM, recombination", "exact-pretrained", RECOMBINED),
)
"""Systems that are compared on all three sets of held-out templates: key, title, experiment and settings."""
_WITH_TRAINING_GRAMMAR: tuple[tuple[str, str, str, tuple[str, ...], dict[str, Any], tuple[str, ...]], ...] = (
    tuple(
        (
            f"window-linked{key}{suffix}",
            f"Window encoder, entities linked{title}, constrained{ending}",
            experiment,
            settings,
            evaluation,
            columns,
        )
        for key, title, experiment, settings, columns in (
            ("", "", "exact-window", LINKED, _HELD_OUT),
            ("-recombined", ", recombination", "exact-window", LINKED + RECOMBINED, _HELD_OUT),
            ("-reranked", ", reranked by an inverse model", "exact-window-reranked-linked", (), _LONGER),
        )
        for suffix, ending, evaluation in (
            ("-training", "", CONSTRAINED),
            ("-exact-search", ", exact search", EXACT_SEARCH),
            ("-exact-search-20", ", exact search for 20 outputs", {**EXACT_SEARCH, "beam": 20}),
        )
        if key == "-reranked" or suffix != "-exact-search-20"  # more outputs only matter to an inverse model
    )
)


def ablation() -> Table:
    """An ablation of exact transduction on the development sets of GeoQuery, one change at a time."""
    columns = [
        (Column(f"{language}-{condition}", f"{language.upper()} {title}"), language, condition)
        for language in ("en", "zh")
        for condition, title in (("temp_tune", "held-out templates"), ("len", "longer programs"))
    ]
    columns += [
        (Column(f"en-{condition}", f"EN held-out templates, set {condition[-1]}"), "en", condition)
        for condition in TUNING[1:]
    ]
    unconstrained: tuple[str, str, dict[str, Any]] = ("", "", {})
    constrained = ("-constrained", ", constrained", ALL_PROGRAMS)
    systems = (
        [
            System(
                Row(f"{key}{suffix}", f"{title}{ending}", ours=True),
                experiment,
                settings,
                evaluation=evaluation,
                columns=_ABLATION_COLUMNS,
            )
            for suffix, ending, evaluation in (unconstrained, constrained)
            for key, title, experiment, settings in _VARIANTS
        ]
        + [
            System(
                Row(key, f"{title}, reranked by an inverse model, constrained", ours=True),
                experiment,
                evaluation=ALL_PROGRAMS,
                columns=(f"{language}-temp_tune", f"{language}-len"),
            )
            for key, title, experiment, language in (
                ("reranked", "BiLSTM", "exact-reranked", "en"),
                ("window-reranked", "Window encoder", "exact-window-reranked", "zh"),
                (
                    "window-linked-reranked",
                    "Window encoder, entities linked",
                    "exact-window-reranked-linked",
                    "en",
                ),
            )
        ]
        + [
            System(
                Row(key, f"{title} (grammar of the training programs)", ours=True),
                experiment,
                settings,
                evaluation=evaluation,
                columns=columns,
            )
            for key, title, experiment, settings, evaluation, columns in _WITH_TRAINING_GRAMMAR
        ]
        + [
            System(
                Row(f"{key}-{grammar}", f"{title}, constrained ({explained})", ours=True),
                experiment,
                settings,
                evaluation=evaluation,
                columns=_NEW_TEMPLATES,
            )
            for key, title, experiment, settings in _ON_NEW_TEMPLATES
            for grammar, explained, evaluation in (
                ("training", "grammar of the training programs", CONSTRAINED),
                ("generalized", "generalized grammar", GENERALIZED),
            )
        ]
    )
    return Table(
        "ablation",
        "Exact transduction on GeoQuery: what helps",
        ("exact_match",),
        tuple(system.row for system in systems),
        tuple(column for column, *_ in columns),
        tuple(
            system.cell(
                column,
                "geoquery",
                (f"task.language={language}", *condition_settings(condition)),
                -1,
                Evaluation(f"{condition}/dev"),
            )
            for system in systems
            for column, language, condition in columns
            if system.runs_in(column)
        ),
        seeds=(0,),
        notes=(
            "These are scores on development sets, not on test sets. Held-out templates are templates that were "
            "removed from the training data of TEMP (the splits `temp_tune`). Longer programs are those of `len/dev`. "
            "Each checkpoint was selected by its score (decoded without constraints) on the examples that it is "
            "evaluated on, so all scores are optimistic.",
            "Unless a row says otherwise, a source word generates at most one output word. With *phrases*, one or two "
            "source words jointly generate at most one output word. The window encoder sees a word and its two "
            "neighbours.",
            "*Constrained* means that decoding generates only programs that the grammar of FunQL accepts, with a beam "
            "of five. Unless a row says otherwise, the grammar is that of all 880 programs. *Reranked*, *entities "
            "linked*, *labels*, *generalized grammar* and *word dropout* are explained in "
            "`docs/exact-transduction.md`.",
            "The rows with three sets of held-out templates have 40 epochs; those with a pretrained model have 10. "
            "Seq2Seq is decoded by the same constrained search as the other rows.",
        ),
    )


# --- Dates ---------------------------------------------------------------------------------------------------


def dates() -> Table:
    """Written dates to ISO dates, a task that is not in the paper."""
    systems = (
        System(Row("exact", "Exact transduction, no encoder in the head", ours=True), "exact"),
        System(Row("copying", "The same with a copy mechanism and word dropout", ours=True), "copying"),
    )
    columns = [
        (Column("iid", "IID"), (), Evaluation("iid/test")),
        (Column("comb", "Unseen combinations"), condition_settings("comb"), Evaluation("comb/test")),
        (Column("year", "Unseen years"), (), Evaluation("year/test")),
    ]
    return Table(
        "dates",
        "Written dates to ISO dates",
        ("exact_match",),
        tuple(system.row for system in systems),
        tuple(column for column, *_ in columns),
        tuple(
            system.cell(column, "dates", settings, -1, evaluation)
            for system in systems
            for column, settings, evaluation in columns
        ),
        notes=(
            "The task `dates` is generated, and is not in the paper. *Unseen combinations* are forms and months that "
            "do not occur together in training. *Unseen years* do not occur in training at all. A model with a closed "
            "vocabulary cannot write them, but can copy them; the models are the same as in the column IID.",
        ),
    )


TABLES = {
    "table2": table2,
    "table3": table3,
    "table3-tuned": table3_tuned,
    "table4": table4,
    "table5": table5,
    "table6": table6,
    "ablation": ablation,
    "dates": dates,
}


def get_table(name: str) -> Table:
    """Get a table by its name."""
    if name not in TABLES:
        raise UsageError(unknown_name("table", name, TABLES))
    return TABLES[name]()
