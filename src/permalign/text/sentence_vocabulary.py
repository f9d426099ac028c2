"""Vocabularies that are extended by the unknown words of one sentence, so that a model can copy them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from permalign.text.batching import Batch, pad
from permalign.text.codec import END_ID, PADDING_ID, UNKNOWN_ID, Codec, until_end
from permalign.text.tokenized_vocabulary import TokenizedVocabulary
from permalign.text.vocabulary import Vocabulary


class SentenceVocabulary:
    """The target vocabulary, and after it the words of one source sentence that it does not have.

    It is used like any other codec. Ids beyond the target vocabulary mean something in this sentence only.

    >>> target = Vocabulary(["-", "12"])
    >>> words = SentenceVocabulary(target, ["31", "December", "1945"], target.encode(["31", "December", "1945"]))
    >>> words.encode(["1945", "-", "12", "-", "31"])
    [8, 4, 5, 4, 6]
    >>> words.decode([8, 4, 5])
    ('1945', '-', '12')

    Args:
        target: the target vocabulary.
        tokens: the tokens of the source sentence.
        token_ids: the id of each of these tokens in the target vocabulary; `UNKNOWN_ID` where it has none.

    Attributes:
        target: the target vocabulary.
        copy_ids: the id that copying each token of the source writes; `PADDING_ID` for a token that cannot be copied.
    """

    def __init__(self, target: Codec, tokens: Sequence[str], token_ids: Sequence[int]) -> None:
        self.target, self._size = target, len(target)
        self._own: dict[str, int] = {}  # the sentence's own words and their ids
        self.copy_ids: list[int] = []
        for token, known in zip(tokens, token_ids, strict=True):
            if known != UNKNOWN_ID:
                self.copy_ids.append(known)
            elif _writes_any_token(target):
                self.copy_ids.append(self._own.setdefault(token, self._size + len(self._own)))
            else:  # a piece of a word that the target cannot write
                self.copy_ids.append(PADDING_ID)

    def __len__(self) -> int:
        return self._size + len(self._own)

    @property
    def own_words(self) -> tuple[str, ...]:
        """The words of the sentence that are not in the target vocabulary, in the order of their ids."""
        return tuple(self._own)

    def encode(self, tokens: Sequence[str]) -> list[int]:
        """The id of each token."""
        ids = self.target.encode(tokens)
        if not self._own:
            return ids
        return [
            self._own.get(token, known) if known == UNKNOWN_ID else known
            for token, known in zip(self.target.tokenize(tokens), ids, strict=True)
        ]

    def decode(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The words of an output up to the end symbol, without padding and begin symbols."""
        if not self._own:
            return self.target.decode(ids)
        written = self.convert_ids_to_tokens(until_end(ids, len(self)))
        return self.target.join(written) if isinstance(self.target, TokenizedVocabulary) else tuple(written)

    def tokenize(self, tokens: Sequence[str]) -> list[str]:
        """The text that each id of `encode` stands for."""
        return self.target.tokenize(tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """The token of each id."""
        own = self.own_words
        return [
            own[token_id - self._size]
            if token_id >= self._size
            else self.target.convert_ids_to_tokens([token_id])[0]
            for token_id in ids
        ]

    def save(self, path: str | Path) -> None:
        """Write the target vocabulary: the words of a sentence are not saved."""
        self.target.save(path)


class CopyCodec:
    """Makes the `SentenceVocabulary` of any sentence, and batches with the ids that copying writes.

    Words, words that were split at punctuation, and characters are copied as they are, whether or not they are in a
    vocabulary. A model that writes subwords or other pieces of words copies those that both vocabularies have.

    Args:
        source: the vocabulary of sentences.
        target: the vocabulary of outputs.
    """

    def __init__(self, source: Codec, target: Codec) -> None:
        self._source, self._target = source, target
        self._ids: dict[str, int] | None = (
            None  # of all tokens, where `encode` does not look up single tokens
        )
        if not isinstance(target, Vocabulary):
            names = target.convert_ids_to_tokens(range(len(target)))
            self._ids = {name: token_id for token_id, name in enumerate(names) if token_id > END_ID}

    def of(self, words: Sequence[str]) -> SentenceVocabulary:
        """The target vocabulary of a sentence."""
        tokens = self._source.tokenize(words)
        if self._ids is None:
            return SentenceVocabulary(self._target, tokens, self._target.encode(tokens))
        return SentenceVocabulary(
            self._target, tokens, [self._ids.get(token, UNKNOWN_ID) for token in tokens]
        )

    def add_copies(self, batch: Batch) -> Batch:
        """The batch with `Batch.copies`, and with targets that contain ids of the words of their own sentence.

        Raises:
            ValueError: the batch has neither copies nor examples to look them up in.
        """
        if batch.copies is not None:
            return batch
        if len(batch.examples) != len(batch.source):
            raise ValueError(
                "this model copies words, but the batch has neither copies nor examples to find them in. Make batches "
                "with permalign.text.batching.Batches."
            )
        vocabularies = [self.of(example.source) for example in batch.examples]
        copies, _ = pad([vocabulary.copy_ids for vocabulary in vocabularies])
        targets = [
            vocabulary.encode(example.target)
            for vocabulary, example in zip(vocabularies, batch.examples, strict=True)
        ]
        device = batch.source.device
        return replace(batch, copies=copies.to(device), target=pad(targets)[0].to(device))


def _writes_any_token(target: Codec) -> bool:
    """Whether outputs may contain tokens that are not in the vocabulary, and can still be put together."""
    if isinstance(target, TokenizedVocabulary):
        return target.joins_any_token
    return isinstance(target, Vocabulary)


def hide_copied_words(batch: Batch, share: float, vocab_size: int) -> Batch:
    """Replace a share of the source words that occur in their output by unknown ones, which must then be copied.

    All occurrences of a word in a sentence are hidden together. A hidden word gets the id of the unknown word in the
    source, and an id beyond the vocabulary in the target, as a word that was never seen. A word that occurs more often
    in the output than in the source is not hidden, because some other source word may have written it.

    Args:
        batch: a batch with copies.
        share: the probability that a word is hidden; drawn with torch's global generator.
        vocab_size: the size of the target vocabulary.
    """
    assert batch.copies is not None
    copies, target = batch.copies, batch.target
    tokens = copies.shape[1]
    same = copies[:, :, None] == copies[:, None]
    first = same.to(torch.uint8).argmax(2)  # (batch, n): the first occurrence of each word in its sentence
    drawn = (torch.rand(copies.shape, device=copies.device) < share).gather(1, first)
    found = copies[:, :, None] == target[:, None]  # (batch, n, m)
    count = found.sum(2)
    hidden = drawn & (count > 0) & (count <= same.sum(2)) & (copies != PADDING_ID)
    # beyond the ids of the sentence's own words, of which there are at most n
    new_ids = vocab_size + tokens + first
    copied = hidden[:, :, None] & found
    new_target = torch.where(copied, new_ids[:, :, None], 0).amax(1)  # (batch, m)
    return replace(
        batch,
        source=batch.source.masked_fill(hidden, UNKNOWN_ID),
        copies=torch.where(hidden, new_ids, copies),
        target=torch.where(copied.any(1), new_target, target),
    )
