"""Predicting with a glossary, and saying which of its entries could not be honoured."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from permalign.decoding.beam import SearchSettings
from permalign.decoding.glossary import Glossary, GlossaryConstraint, require_phrases
from permalign.models.prediction import Prediction
from permalign.text.codec import Codec

SPARE_BEAM = 4
"""How many more prefixes a beam keeps than there are required tokens."""


def predict_with_glossary(
    sentences: Sequence[Sequence[str]],
    glossary: Glossary,
    source: Codec,
    vocabularies: Sequence[Codec],
    settings: SearchSettings,
    search: Callable[[Sequence[Sequence[str]], SearchSettings], list[Prediction]],
) -> list[Prediction]:
    """Predict outputs that contain what a glossary requires, where that is possible.

    Args:
        sentences: the words of the sentences.
        glossary: the glossary.
        source: the vocabulary of the sentences; if it splits off punctuation, so does the search for phrases.
        vocabularies: the vocabulary of the outputs of each sentence.
        settings: how to search; its constraints have to hold as well.
        search: predicts outputs of sentences.
    """
    punctuation = source.tokenize(["a,"]) != ["a,"]
    required = [glossary.find(sentence, punctuation) for sentence in sentences]
    others = settings.constraints or [None] * len(sentences)
    constraints = [
        (require_phrases(requirements, codec, other) if requirements else None) or other
        for requirements, codec, other in zip(required, vocabularies, others, strict=True)
    ]
    longest = max((one.num_tokens for one in constraints if isinstance(one, GlossaryConstraint)), default=0)
    beam = max(settings.beam, longest + SPARE_BEAM) if longest else settings.beam
    predictions = search(sentences, replace(settings, beam=beam, constraints=constraints))
    failed = [
        index
        for index, prediction in enumerate(predictions)
        if prediction.score == -inf and constraints[index] is not others[index]
    ]
    if failed:
        without = search([sentences[index] for index in failed], settings.select(failed))
        for index, prediction in zip(failed, without, strict=True):
            predictions[index] = prediction
    return [
        replace(
            prediction,
            unmet=tuple(
                " ".join(requirement.phrase)
                for requirement in requirements
                if not requirement.is_met(prediction.tokens)
            ),
        )
        for prediction, requirements in zip(predictions, required, strict=True)
    ]
