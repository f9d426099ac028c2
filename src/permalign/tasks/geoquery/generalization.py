"""Grammars of some programs, extended by rules that follow from the rules that these programs use.

A function that training programs apply to one type of entity may be applied to another type in a test program: *most*
rivers instead of *most* states. The rules below follow from the meaning of such functions, and not from other programs.
"""

from collections.abc import Iterator

from permalign.tasks.geoquery.signatures import ALL, MEASURES, NUMBER, measured
from permalign.tasks.grammar import Grammar, Rule


def generalize(grammar: Grammar) -> Grammar:
    """Extend a grammar by rules that its functions have for other types of entity.

    - *Selection.* A function from a type to the same type, such as ``most`` or ``exclude``, has a rule for every type
      that has nouns. Nouns themselves, such as ``river``, keep their types.
    - *Numbers.* A function from entities to numbers, such as ``area_1`` or ``count``, has a rule for every type of
      entity.
    - *Measures.* A function that selects by a measure, such as ``largest_one``, has a rule for every measure and every
      type that has nouns.

    Only functions and types of the grammar take part. No rule is removed.

    >>> noun = [Rule("all", "All"), *(Rule(word, word.title(), ("All",)) for word in ("river", "state"))]
    >>> grammar = Grammar(["State"], [*noun, Rule("most", "State", ("State",))], optional=["all"])
    >>> sorted(" ".join([rule.function, *rule.arguments]) for rule in generalize(grammar).rules)
    ['all', 'most River', 'most State', 'river All', 'state All']

    Args:
        grammar: the grammar of some programs, such as the training programs of a run (see `restrict_to_programs`).
    """
    return Grammar(grammar.start, [*grammar.rules, *_new_rules(grammar)], grammar.optional)


def _new_rules(grammar: Grammar) -> Iterator[Rule]:
    everything = {rule.result for rule in grammar.rules if rule.function == ALL}
    nouns = {rule.function for rule in grammar.rules if everything.intersection(rule.arguments)}
    with_nouns = sorted({rule.result for rule in grammar.rules if rule.function in nouns})
    measures = {rule.function for rule in grammar.rules if rule.result == NUMBER} & MEASURES
    measured_types = {measured(measure, kind) for measure in MEASURES for kind in with_nouns}
    entities = sorted({rule.result for rule in grammar.rules} - everything - measured_types - {NUMBER})
    for rule in grammar.rules:
        arguments = {*rule.arguments}
        if arguments == {rule.result} and rule.result in entities and rule.function not in nouns:
            for kind in with_nouns:
                yield Rule(rule.function, kind, (kind,) * len(rule.arguments))
        elif rule.result == NUMBER and arguments and arguments <= {*entities}:
            for kind in entities:
                yield Rule(rule.function, NUMBER, (kind,))
        elif arguments & measured_types:
            for measure in sorted(measures):
                for kind in with_nouns:
                    yield Rule(rule.function, kind, (measured(measure, kind),))
                    yield Rule(measure, measured(measure, kind), (kind,))
