"""BLEU and chrF, computed by sacrebleu.

All corpora are tokenised (Japanese by KyTea, English by the rules of each dataset, in lower case), and models produce
such tokens. Scores are computed on tokens joined by spaces, which sacrebleu must not tokenise again: its signature says
``tok:none``, which is ``--tokenize none`` on its command line. Such a BLEU can be compared between systems with the
same tokens, but not with a BLEU on detokenised text.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from permalign.errors import PermalignError

TranslationMetric = Literal["bleu", "chrf"]
BleuStatistics = Sequence[int]
"""What BLEU needs to know of a sentence: matching n-grams and all n-grams of the output for n = 1 to 4, the length of
the output, and the length of the reference. BLEU of a corpus is a function of their sums.
"""
BLEU_ORDER = 4


class CorpusScore(NamedTuple):
    """A score in percent, and the signature that says how it was computed."""

    value: float
    signature: str


def corpus_score(metric: TranslationMetric, outputs: Sequence[str], references: Sequence[str]) -> CorpusScore:
    """Score outputs against one reference each.

    >>> value, signature = corpus_score("bleu", ["the cat sat on the mat"], ["the cat sat on the mat"])
    >>> round(value, 6), signature
    (100.0, 'nrefs:1|case:mixed|eff:no|tok:none|smooth:exp|version:...')
    """
    if len(outputs) != len(references):
        raise ValueError(
            f"there are {len(outputs)} outputs but {len(references)} references; expected one reference per output."
        )
    scorer = make_metric(metric)
    score = scorer.corpus_score(list(outputs), [list(references)])
    return CorpusScore(float(score.score), str(scorer.get_signature().format()))


def bleu_statistics(outputs: Sequence[str], references: Sequence[str]) -> list[BleuStatistics]:
    """The statistics of each sentence, from which `permalign.evaluation.significance` tests differences in BLEU.

    >>> bleu_statistics(["the cat sat"], ["the cat slept"])
    [[2, 1, 0, 0, 3, 2, 1, 0, 3, 3]]
    """
    scorer = make_metric("bleu", of_sentences=True)
    scores = (
        scorer.sentence_score(output, [reference])
        for output, reference in zip(outputs, references, strict=True)
    )
    return [[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores]


def make_metric(metric: TranslationMetric, of_sentences: bool = False) -> Any:
    """Create the sacrebleu object of a metric, with the settings that are used throughout permalign.

    Args:
        metric: the metric.
        of_sentences: whether it will score single sentences, for which sacrebleu wants BLEU to leave out the orders of
            n-grams that are longer than the sentence.
    """
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise PermalignError('BLEU and chrF need sacrebleu: pip install "permalign[training]".') from None
    # With force, sacrebleu does not warn that the text is tokenised, which is intended.
    if metric == "chrf":
        return CHRF()
    return BLEU(tokenize="none", force=True, effective_order=of_sentences)


def sacrebleu_command(references: Path, outputs: Path) -> str:
    """The command of sacrebleu that computes the same scores."""
    return f"sacrebleu {references} -i {outputs} -m bleu chrf --tokenize none --force -w 2"
