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


def make_metric(metric: TranslationMetric) -> Any:
    """Create the sacrebleu object of a metric, with the settings that are used throughout permalign."""
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise PermalignError('BLEU and chrF need sacrebleu: pip install "permalign[training]".') from None
    # With force, sacrebleu does not warn that the text is tokenised, which is intended.
    return BLEU(tokenize="none", force=True) if metric == "bleu" else CHRF()


def sacrebleu_command(references: Path, outputs: Path) -> str:
    """The command of sacrebleu that computes the same scores."""
    return f"sacrebleu {references} -i {outputs} -m bleu chrf --tokenize none --force -w 2"
