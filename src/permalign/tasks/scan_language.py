"""The language of SCAN: all 20,910 commands, their programs, and the actions that programs stand for.

Commands (Lake and Baroni, 2018)::

    C -> S | S and S | S after S            S -> V | V twice | V thrice
    V -> U | A left | A right | A M left | A M right      (A = U or turn; U = walk, look, run, jump)
    M -> opposite | around

The program of a command has the same words, with every function before its arguments: the program of ``jump twice after
walk around left`` is ``after ( twice ( jump ) , walk ( around , left ) )``. Models write it without brackets, as
``after twice jump walk around left``.
"""

from functools import cache
from itertools import product

from permalign.tasks.grammar import Grammar, Rule
from permalign.tasks.program import Program

_ACTIONS = {"walk": "I_WALK", "look": "I_LOOK", "run": "I_RUN", "jump": "I_JUMP", "turn": None}
_TURNS = {"left": "I_TURN_LEFT", "right": "I_TURN_RIGHT"}
_MANNERS = ("opposite", "around")
_REPETITIONS = {"twice": 2, "thrice": 3}
_CONJUNCTIONS = ("and", "after")
_MAX_DEPTH = 4  # a conjunction of a repetition of an action with a manner


@cache
def program_grammar() -> Grammar:
    """The grammar of programs; it has exactly 20,910 programs, one for each command.

    >>> sorted(program_grammar().follow(["after", "turn"]))
    ['around', 'left', 'opposite', 'right']
    """
    levels = (
        "Phrase",
        "Sentence",
        "Command",
    )  # every phrase is also a sentence, and every sentence a command
    rules = [Rule(turn, "Direction") for turn in _TURNS] + [Rule(manner, "Manner") for manner in _MANNERS]
    for result in levels:
        for action in _ACTIONS:
            rules += [Rule(action, result, ("Direction",)), Rule(action, result, ("Manner", "Direction"))]
        rules += [Rule(action, result) for action, movement in _ACTIONS.items() if movement]
    for result, repetition in product(levels[1:], _REPETITIONS):
        rules.append(Rule(repetition, result, ("Phrase",)))
    rules += [Rule(conjunction, "Command", ("Sentence", "Sentence")) for conjunction in _CONJUNCTIONS]
    return Grammar(["Command"], rules)


def commands() -> dict[tuple[str, ...], Program]:
    """Every command with its program, in alphabetical order of the commands."""
    sentences = _sentences()
    programs = dict(sentences)
    for conjunction in _CONJUNCTIONS:
        for (first, first_program), (second, second_program) in product(sentences.items(), repeat=2):
            programs[(*first, conjunction, *second)] = Program(conjunction, (first_program, second_program))
    return dict(sorted(programs.items(), key=lambda pair: " ".join(pair[0])))


def _sentences() -> dict[tuple[str, ...], Program]:
    phrases: dict[tuple[str, ...], Program] = {}
    for action, movement in _ACTIONS.items():
        modifiers = [(turn,) for turn in _TURNS] + list(product(_MANNERS, _TURNS))
        for modifier in [(), *modifiers] if movement else modifiers:
            phrases[(action, *modifier)] = Program(action, tuple(Program(word) for word in modifier))
    sentences = dict(phrases)
    for repetition in _REPETITIONS:
        for words, program in phrases.items():
            sentences[(*words, repetition)] = Program(repetition, (program,))
    return sentences


def execute(program: Program) -> tuple[str, ...]:
    """The actions that a program stands for.

    >>> execute(program_grammar().read("after turn opposite left twice walk right".split()))
    ('I_TURN_RIGHT', 'I_WALK', 'I_TURN_RIGHT', 'I_WALK', 'I_TURN_LEFT', 'I_TURN_LEFT')

    Raises:
        ValueError: the program is deeper than any program of the grammar.
    """
    if program.depth > _MAX_DEPTH:
        raise ValueError(
            f"programs of SCAN are at most {_MAX_DEPTH} functions deep; this one has {program.depth:,}."
        )
    return _execute(program)


def _execute(program: Program) -> tuple[str, ...]:
    function, arguments = program.function, program.arguments
    if function == "and":
        return _execute(arguments[0]) + _execute(arguments[1])
    if function == "after":
        return _execute(arguments[1]) + _execute(arguments[0])
    if function in _REPETITIONS:
        return _execute(arguments[0]) * _REPETITIONS[function]
    movement = _ACTIONS[function]
    move = (movement,) if movement else ()
    if not arguments:
        return move
    turn = _TURNS[arguments[-1].function]
    manner = arguments[0].function if len(arguments) == 2 else None
    if manner == "around":
        return (turn, *move) * 4
    return (turn, turn, *move) if manner == "opposite" else (turn, *move)
