"""Constraints on outputs: which words may follow a prefix, by a grammar or by a caller's own rule."""

from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from permalign.tasks.grammar import END as GRAMMAR_END
from permalign.tasks.grammar import Grammar, State
from permalign.tasks.program_parts import ProgramParts
from permalign.text.codec import END_ID, Codec
from permalign.text.sentence_vocabulary import SentenceVocabulary
from permalign.text.vocabulary import Vocabulary

AllowedWords = Callable[[tuple[str, ...]], Sequence[str]]
"""A function from the words so far to those that may come next; ``"</s>"`` stands for the end."""


class Constraint(Protocol):
    """Decides which tokens may follow a prefix, by a state that a search keeps with each of its prefixes.

    Attributes:
        requires_tokens: whether outputs must contain some tokens; else `wanted` and `progress` need not be asked.
    """

    requires_tokens: bool

    def start(self) -> object:
        """The state before the first token."""
        ...

    def advance(self, state: object, token: int) -> object:
        """The state after one more token."""
        ...

    def mask(self, state: object, left: int, exactly: bool) -> Tensor:
        """``(vocabulary,)``, true for tokens that may come next.

        Args:
            state: the state after the tokens so far.
            left: how many tokens may still be written before the end.
            exactly: whether exactly that many must be written.
        """
        ...

    def wanted(self, state: object) -> Collection[int]:
        """Tokens that bring an output closer to what the constraint requires, however improbable they are."""
        ...

    def progress(self, state: object) -> int:
        """How much of what the constraint requires has been written; a beam keeps prefixes of every progress."""
        ...


class _RequiresNothing:
    """What constraints share that only forbid tokens."""

    requires_tokens = False

    def wanted(self, state: object) -> Collection[int]:
        """None."""
        return ()

    def progress(self, state: object) -> int:
        """Always 0."""
        return 0


class _Masks:
    """Masks over a vocabulary, computed once for each set of words."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._ids = {word: token for token, word in enumerate(tokens)}
        self._masks: dict[frozenset[str], Tensor] = {}

    def get(self, words: frozenset[str]) -> Tensor:
        if words not in self._masks:
            mask = torch.zeros(len(self._ids), dtype=torch.bool)
            for word in words:
                if word == GRAMMAR_END:
                    mask[END_ID] = True
                elif word in self._ids:
                    mask[self._ids[word]] = True
            self._masks[words] = mask
        return self._masks[words]


class GrammarConstraint(_RequiresNothing):
    """Allows the programs of a grammar that can be written with a vocabulary; it never leads to a dead end."""

    def __init__(self, grammar: Grammar, tokens: Sequence[str]) -> None:
        self._grammar = grammar.restricted_to(tokens)
        self._tokens = tokens
        self._masks = _Masks(tokens)
        self._mask_of: dict[tuple[State, int, bool], Tensor] = {}

    @cached_property
    def parts(self) -> ProgramParts:
        """What parts the programs have."""
        return ProgramParts(self._grammar, self._tokens)

    @property
    def tokens(self) -> Sequence[str]:
        """The token of the grammar for each token id."""
        return self._tokens

    def start(self) -> State:
        """The state before the first token."""
        return self._grammar.initial

    def advance(self, state: object, token: int) -> object:
        """The state after one more token."""
        assert isinstance(state, State)
        return state.advance(self._tokens[token])

    def mask(self, state: object, left: int, exactly: bool) -> Tensor:
        """Words after which a program can be finished within the limit; if none can, those of the shortest program."""
        assert isinstance(state, State)
        key = state, left, exactly
        if key not in self._mask_of:
            words = (
                state.allowed_exactly(left) if exactly else state.allowed_within(max(left, state.shortest))
            )
            self._mask_of[key] = self._masks.get(words)
        return self._mask_of[key]


class RuleConstraint(_RequiresNothing):
    """Allows the outputs that a caller's function allows, which may lead to dead ends."""

    def __init__(self, allowed: AllowedWords, tokens: Sequence[str]) -> None:
        self._allowed = allowed
        self._tokens = tokens
        self._masks = _Masks(tokens)

    def start(self) -> tuple[str, ...]:
        """The state before the first token."""
        return ()

    def advance(self, state: object, token: int) -> object:
        """The state after one more token."""
        assert isinstance(state, tuple)
        return (*state, self._tokens[token])

    def mask(self, state: object, left: int, exactly: bool) -> Tensor:
        """What the function allows; at the maximum length, only the end if that is allowed."""
        assert isinstance(state, tuple)
        allowed = frozenset(self._allowed(state))
        return self._masks.get(allowed if left > 0 else allowed & {GRAMMAR_END})


def make_constraints(
    constraint: Grammar | AllowedWords | None, codecs: Sequence[Codec]
) -> list[Constraint] | None:
    """The constraint that a caller asks for, over the tokens that a model can write for each sentence.

    Sentences without unknown words to copy share one constraint, and so do those that have the same.

    Raises:
        ValueError: it is not a constraint, or the model does not write words.
    """
    if constraint is None:
        return None
    if not isinstance(constraint, Grammar) and not callable(constraint):
        raise ValueError(
            f"constraint is {constraint!r}, but must be a grammar (`task.grammar`) or a function from the words so far "
            "to those that may follow."
        )
    made: dict[tuple[str, ...], Constraint] = {}
    constraints = []
    for codec in codecs:
        words, own = word_tokens(codec)
        if own not in made:
            tokens = (*words, *own)
            made[own] = (
                GrammarConstraint(constraint, tokens)
                if isinstance(constraint, Grammar)
                else RuleConstraint(constraint, tokens)
            )
        constraints.append(made[own])
    return constraints


def word_tokens(codec: Codec) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tokens of a word vocabulary, and the unknown words of one sentence that come after them.

    Raises:
        ValueError: the codec is not one of words.
    """
    own = codec.own_words if isinstance(codec, SentenceVocabulary) else ()
    words = codec.target if isinstance(codec, SentenceVocabulary) else codec
    if not isinstance(words, Vocabulary):
        raise ValueError("a constraint is about whole words, but this model writes subwords.")
    return words.tokens, own
