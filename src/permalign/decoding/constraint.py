"""Which words may follow: keeping an output to a grammar, or to any rule a caller has."""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from permalign.tasks.grammar import END as GRAMMAR_END
from permalign.tasks.grammar import Grammar, State
from permalign.text.codec import END_ID, Codec
from permalign.text.vocabulary import Vocabulary

AllowedWords = Callable[[tuple[str, ...]], Sequence[str]]
"""Given the words so far, those that may come next; ``"</s>"`` stands for the end."""


class Constraint(Protocol):
    """Decides word by word; its states are small values that a search keeps beside its hypotheses."""

    def start(self) -> object:
        """The state before the first word."""
        ...

    def advance(self, state: object, word: int) -> object:
        """The state after one more word."""
        ...

    def mask(self, state: object, left: int, exactly: bool) -> Tensor:
        """``(words,)``, true for what may come next when at most (or exactly) so many words are left before the end."""
        ...


class _Masks:
    """Masks over a vocabulary, made once for each set of words."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._numbers = {word: number for number, word in enumerate(vocabulary.tokens)}
        self._masks: dict[frozenset[str], Tensor] = {}

    def of(self, words: frozenset[str]) -> Tensor:
        if words not in self._masks:
            mask = torch.zeros(len(self._numbers), dtype=torch.bool)
            for word in words:
                if word == GRAMMAR_END:
                    mask[END_ID] = True
                elif word in self._numbers:
                    mask[self._numbers[word]] = True
            self._masks[words] = mask
        return self._masks[words]


class GrammarConstraint:
    """Outputs that are programs of a grammar, written with the words of a vocabulary; never a dead end."""

    def __init__(self, grammar: Grammar, vocabulary: Vocabulary) -> None:
        self._grammar = grammar.restricted_to(vocabulary.tokens)
        self._tokens = vocabulary.tokens
        self._masks = _Masks(vocabulary)

    def start(self) -> State:
        """Before the first word."""
        return self._grammar.initial

    def advance(self, state: object, word: int) -> object:
        """After one more word."""
        assert isinstance(state, State)
        return state.advance(self._tokens[word])

    def mask(self, state: object, left: int, exactly: bool) -> Tensor:
        """Words after which a program can still be finished in time; with too little time, the shortest way."""
        assert isinstance(state, State)
        if exactly:
            return self._masks.of(state.allowed_exactly(left))
        return self._masks.of(state.allowed_within(max(left, state.shortest)))


class RuleConstraint:
    """Outputs that a caller's function allows; it alone is responsible for dead ends."""

    def __init__(self, allowed: AllowedWords, vocabulary: Vocabulary) -> None:
        self._allowed = allowed
        self._tokens = vocabulary.tokens
        self._masks = _Masks(vocabulary)

    def start(self) -> tuple[str, ...]:
        """Before the first word."""
        return ()

    def advance(self, state: object, word: int) -> object:
        """After one more word."""
        assert isinstance(state, tuple)
        return (*state, self._tokens[word])

    def mask(self, state: object, left: int, exactly: bool) -> Tensor:
        """What the function allows; with no words left, the end if it is allowed."""
        assert isinstance(state, tuple)
        allowed = frozenset(self._allowed(state))
        return self._masks.of(allowed if left > 0 else allowed & {GRAMMAR_END})


def constraint_of(wanted: Grammar | AllowedWords | None, codec: Codec) -> Constraint | None:
    """What a caller wants, for a model that writes with this codec.

    Raises:
        ValueError: it is no constraint, or the model does not write words.
    """
    if wanted is None:
        return None
    if not isinstance(codec, Vocabulary):
        raise ValueError("a constraint speaks of whole words, but this model writes pieces of words.")
    if isinstance(wanted, Grammar):
        return GrammarConstraint(wanted, codec)
    if not callable(wanted):
        raise ValueError(
            f"constraint is {wanted!r}, but must be a grammar (`task.grammar`) or a function from the words so far to "
            "those that may follow."
        )
    return RuleConstraint(wanted, codec)
