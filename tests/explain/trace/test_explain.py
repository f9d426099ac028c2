"""Traces tell the truth about the model, for every reorderer and head, with and without a given target."""

import json
from math import exp, log

import pytest
import torch
from tests.models.small import PAIRS, make
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from permalign import Ensemble, Transducer
from permalign.decoding.search_cost import TooCostlyError
from permalign.explain import compare, explain, sample
from permalign.explain.trace.trace import Trace
from permalign.kernels.compiled.vectors import LANES
from permalign.text.tokenized_vocabulary import TokenizedVocabulary
from permalign.text.tokenizers import PunctuationTokenizer
from permalign.text.vocabulary import Vocabulary

WORDS = "a b c d"
PAIR = ("a b c", "C B A")


@pytest.mark.parametrize(("reorderer", "head"), PAIRS)
def test_every_model_can_be_explained(reorderer, head):
    model = make(reorderer, head)
    trace = explain(model, WORDS, beam=2)
    assert trace.source == tuple("abcd")
    options = model.options.reorderer
    has_trees = options.kind in ("separable", "labelled") and options.decoding != "marginal"
    assert bool(trace.nodes) == has_trees
    if trace.order is not None:
        assert sorted(trace.order) == [0, 1, 2, 3]
    for row in trace.alignment or ():
        assert len(row) == 4
        assert 0 <= sum(row) <= 1.001
    if trace.confidence.derivation is not None:
        assert trace.confidence.derivation <= trace.confidence.order + 1e-6
    elif not trace.nodes:
        assert trace.notes  # which say what is missing
    json.dumps(trace.to_json(), allow_nan=False)


@pytest.mark.parametrize(("reorderer", "head"), PAIRS)
def test_every_model_explains_a_given_target(reorderer, head):
    model = make(reorderer, head)
    trace = explain(model, *PAIR)
    assert trace.target_given
    assert trace.target == tuple("CBA")
    assert trace.confidence.output <= 0
    json.dumps(trace.to_json(), allow_nan=False)


def test_output_written_at_the_end_of_a_sentence_is_noted(ssnt_model):
    trace = explain(ssnt_model, "a", "A B C D")
    for row, end in zip(trace.alignment, trace.at_end, strict=True):
        assert sum(row) + end == pytest.approx(1, abs=1e-4)
    late = [word for word, end in zip(trace.target, trace.at_end, strict=True) if end >= 0.5]
    said = [note for note in trace.notes if note.startswith("Written at the end")]
    assert bool(said) == bool(late)
    model = make("none", "ssnt").eval()
    torch.nn.init.constant_(model.head.emit.bias, -30.0)  # nothing before the end
    trace = explain(model, "a b", "B A")
    assert trace.at_end == pytest.approx((1, 1), abs=1e-4)
    assert any(
        note.startswith("Written at the end of the sentence, and not at any of its words: B A.")
        for note in trace.notes
    )


def test_the_output_is_the_models_own(ssnt_model):
    trace = explain(ssnt_model, WORDS)
    (prediction,) = ssnt_model.predict([WORDS], beam=5, explain=True)
    assert trace.target == prediction.tokens
    assert trace.order == prediction.explanation.order
    assert trace.segments == prediction.explanation.segments
    assert trace.confidence.output == pytest.approx(prediction.score, abs=1e-4)


def test_a_trained_model_is_sure_of_the_right_order(exact_model):
    trace = explain(exact_model, WORDS)
    assert trace.target == tuple("DCBA")
    assert trace.order == (3, 2, 1, 0)
    assert trace.nodes[0].rule == "I"
    assert exp(trace.confidence.order) > 0.9


def test_confidence_is_that_of_the_distribution(ssnt_model):
    trace = explain(ssnt_model, WORDS)
    source = torch.tensor([ssnt_model.source.encode(WORDS.split())])
    with torch.no_grad():
        distribution = ssnt_model.reorderer.distribution(source, torch.tensor([4]))
    (trees,) = distribution.top_derivations(1000)
    own = sum(exp(tree.log_prob) for tree in trees if tree.order == trace.order)
    assert exp(trace.confidence.order) == pytest.approx(own, abs=1e-5)
    assert trace.confidence.derivation == pytest.approx(trees[0].log_prob, abs=1e-5)
    bits = -sum(exp(tree.log_prob) * tree.log_prob for tree in trees) / log(2)
    assert trace.confidence.entropy == pytest.approx(bits, abs=1e-4)
    product = 1.0
    for node in trace.nodes:
        product *= node.probability if node.rule else 1.0
    assert product == pytest.approx(exp(trace.confidence.derivation), abs=1e-4)
    for row, expected in zip(trace.matrix, distribution.expected_matrix()[0].tolist(), strict=True):
        assert row == pytest.approx(expected, abs=1e-4)


def test_a_span_is_as_undecided_as_its_options(undecided):
    trace = explain(undecided, "a b c")
    root = trace.nodes[0]
    rules = undecided.reorderer.distribution(torch.zeros(1, 3), torch.tensor([3])).rule_probabilities()[0]
    options = rules[2:].flatten()  # the splits of the whole sentence come last
    assert root.entropy == pytest.approx(float(-(options * options.log2()).sum()), abs=1e-4)


def test_a_given_target_changes_probabilities_by_bayes_rule(exact_model):
    """Against enumeration: p(tree | pair) = p(tree) p(output | order) / p(output)."""
    source, target = "a b c", "C A B"
    trace = explain(exact_model, source, target)
    numbers = torch.tensor([exact_model.source.encode(source.split())])
    lengths = torch.tensor([3])
    output = torch.tensor([exact_model.target.encode(target.split())])
    with torch.no_grad():
        distribution = exact_model.reorderer.distribution(numbers, lengths)
        states = exact_model.embeddings(numbers)
        emissions = exact_model.head.target_emissions(states, lengths, output, lengths)[0].double()
    (trees,) = distribution.top_derivations(100)
    joint = [
        tree.log_prob + sum(float(emissions[token, place]) for place, token in enumerate(tree.order))
        for tree in trees
    ]
    total = torch.tensor(joint, dtype=torch.float64).logsumexp(0).item()
    best = max(range(len(trees)), key=joint.__getitem__)
    assert trace.order == trees[best].order
    assert trace.confidence.output == pytest.approx(total, abs=1e-4)
    assert trace.confidence.derivation == pytest.approx(joint[best] - total, abs=1e-4)
    same = [weight for tree, weight in zip(trees, joint, strict=True) if tree.order == trace.order]
    assert exp(trace.confidence.order) == pytest.approx(sum(exp(one - total) for one in same), abs=1e-4)
    behind_first = [0.0] * 3
    for tree, weight in zip(trees, joint, strict=True):
        behind_first[tree.order[0]] += exp(weight - total)
    assert trace.alignment[0] == pytest.approx(behind_first, abs=1e-4)


def test_rescoring_finds_the_best_order(ssnt_model):
    source, target = "a b c", "A B C"
    trace = explain(ssnt_model, source, target)
    numbers = torch.tensor([ssnt_model.source.encode(source.split())])
    lengths = torch.tensor([3])
    output = torch.tensor([ssnt_model.target.encode(target.split())])
    with torch.no_grad():
        distribution = ssnt_model.reorderer.distribution(numbers, lengths).double()
        orders = distribution.enumerate_support()[:, 0]
        states = ssnt_model.embeddings(numbers)[0][orders]
        likelihoods = ssnt_model.head.log_likelihood(
            states, lengths.repeat(6), output.repeat(6, 1), lengths.repeat(6)
        )
        joint = distribution.log_prob(orders[:, None])[:, 0] + likelihoods
    assert trace.order == tuple(orders[int(joint.argmax())].tolist())
    assert trace.confidence.order == pytest.approx(float(joint.max() - joint.logsumexp(0)), abs=1e-4)
    assert any("best of 6 orders" in note and "100.0%" in note for note in trace.notes)


def test_samples_follow_their_seed(ssnt_model):
    first = sample(ssnt_model, WORDS, 5, seed=3)
    assert len(first) == 5
    assert sample(ssnt_model, WORDS, 5, seed=3) == first
    assert all(isinstance(one, Trace) and sorted(one.order) == [0, 1, 2, 3] for one in first)


def test_samples_have_the_labels_that_were_drawn():
    model = make("labelled hard", "tagging")
    drawn = sample(model, "a b", 200)
    assert all(node.label is not None for one in drawn for node in one.nodes)
    trees = {tuple((node.rule, node.label) for node in one.nodes) for one in drawn}
    assert len(trees) > 10  # 54 there are; two orders alone would have two trees
    one = drawn[0]
    assert one.confidence.derivation < one.confidence.order  # which has other labels too
    assert any("summed over labels" in note for note in one.notes)


def test_trees_with_other_labels_are_other_trees():
    from permalign.explain.trace.trace import Comparison, DecodingVariant, Node

    first, second = (Trace(("a",), ("A",), order=(0,), nodes=(Node(0, 1, None, name),)) for name in "xy")
    assert Comparison.of(
        [DecodingVariant("one", "", first), DecodingVariant("other", "", second)], 0.0
    ).trees_differ


def test_a_reorderer_without_a_distribution_has_no_samples():
    model = make("none", "ssnt")
    assert sample(model, WORDS) == ()
    assert compare(model, WORDS) is None


def test_three_ways_of_decoding_that_differ(undecided):
    comparison = compare(undecided, "a b c")
    greedy, viterbi, permutation = (variant.trace for variant in comparison.variants)
    assert comparison.orders_differ
    assert len({greedy.order, viterbi.order, permutation.order}) == 3
    assert permutation.confidence.order >= max(greedy.confidence.order, viterbi.confidence.order)
    assert viterbi.confidence.derivation >= max(
        greedy.confidence.derivation, permutation.confidence.derivation
    )
    assert comparison.gap == 0


def test_ways_to_decode_that_agree(exact_model):
    comparison = compare(exact_model, "a b")
    assert not comparison.trees_differ
    assert not comparison.outputs_differ


def test_unknown_words_are_named(exact_model):
    trace = explain(exact_model, "a zebra b")
    assert trace.unknown == (1,)
    assert any("zebra" in note for note in trace.notes)
    given = explain(exact_model, "a b", "B zebra")
    assert any("cannot write" in note and "zebra" in note for note in given.notes)


def test_an_output_that_begins_with_punctuation_is_shown_as_it_is_predicted():
    target = TokenizedVocabulary.build([["2021-03"]], PunctuationTokenizer())
    model = Transducer({"head": {"kind": "tagging", "encoder": {"kind": "none"}}}, Vocabulary(["x"]), target)
    (dash,) = (number for number, token in enumerate(target.convert_ids_to_tokens(range(7))) if "-" in token)
    with torch.no_grad():
        for name, parameter in model.head.named_parameters():
            if name.endswith("bias") and len(parameter) == len(target):
                parameter[dash] += 100.0
    trace = explain(model, "x")
    assert (trace.target, trace.output) == (("￭-￭",), model.predict("x").tokens)
    assert trace.output == ("-",)


def test_one_word(exact_model, ssnt_model):
    for model in (exact_model, ssnt_model):
        trace = explain(model, "a")
        assert trace.order == (0,)
        assert len(trace.nodes) == 1
        assert sample(model, "a", 2)[0].order == (0,)
        assert not compare(model, "a").trees_differ
        assert explain(model, "a", "A").target == ("A",)


@pytest.mark.parametrize("decoding", ["greedy", "viterbi", "permutation", "marginal"])
def test_every_decoding_shows_what_it_has(decoding):
    from tests.models.small import SOURCE, TARGET

    options = {"reorderer": {"kind": "separable", "decoding": decoding}, "head": {"kind": "ssnt"}}
    trace = explain(Transducer(options, SOURCE, TARGET), WORDS)
    assert (trace.order is None) == (decoding == "marginal")
    assert bool(trace.nodes) == (decoding != "marginal")
    assert trace.matrix is not None


def test_normal_form_is_explained():
    from tests.models.small import SOURCE, TARGET

    options = {"reorderer": {"kind": "separable", "normal_form": True}, "head": {"kind": "ssnt"}}
    trace = explain(Transducer(options, SOURCE, TARGET), WORDS)
    product = 1.0
    for node in trace.nodes:
        product *= node.probability if node.rule else 1.0
    assert product == pytest.approx(exp(trace.confidence.derivation), abs=1e-4)
    assert trace.confidence.order == pytest.approx(trace.confidence.derivation, abs=1e-5)


def test_wrong_arguments_are_refused(exact_model):
    with pytest.raises(ValueError, match="sentence is empty"):
        explain(exact_model, "  ")
    with pytest.raises(ValueError, match="target is empty"):
        explain(exact_model, "a b", " ")
    with pytest.raises(ValueError, match="2 source tokens and 3 output tokens"):
        explain(exact_model, "a b", "A B C")


@pytest.mark.parametrize("target", [None, "B A"])
def test_the_first_member_of_an_ensemble_explains(target):
    model = Ensemble([make("exact", "segments", seed=seed) for seed in range(3)]).eval()
    trace = explain(model, "a b", target)
    assert any(note.startswith("This is an ensemble of 3 models: the output") for note in trace.notes)
    if target is None:
        (answer,) = model.predict(["a b"], beam=5)
        assert (trace.target, trace.confidence.output) == (
            answer.tokens,
            pytest.approx(answer.score, abs=1e-4),
        )
    json.dumps(trace.to_json(), allow_nan=False)


class LargestTensor(TorchDispatchMode):
    """Remembers how many numbers the largest tensor holds that any operation returns."""

    numel = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        self.numel = max([self.numel, *sizes])
        return result


@pytest.mark.parametrize("target", [None, "A B C D E F E D C B A"])
def test_labelled_trees_with_segments_need_no_more_memory_than_a_few_charts(target):
    model, words = make("labelled exact", "segments"), 11
    with LargestTensor() as largest:
        trace = explain(model, " ".join("abcdefabcde"), target, beam=2)
    # spans, output spans, and three labels, which the kernels pad
    chart = words * (words + 1) // 2 * (len(trace.target) + 1) ** 2 * LANES
    assert largest.numel <= 3 * chart  # two candidates may be scored at once


@pytest.mark.parametrize("kind", ["exact", "labelled exact"])
@pytest.mark.parametrize("target", [None, "A B C D E F"])
def test_a_sentence_that_costs_too_much_is_refused_and_the_length_that_does_not_is_said(kind, target):
    model = make(kind, "segments")
    with pytest.raises(TooCostlyError, match=r"its 8 words.* Sentences of up to \d words can be answered"):
        explain(model, "a b c d e f a b", target, max_operations=100)
    assert explain(model, "a b c d e f a b", target, max_operations=1e9).source


def test_the_cost_of_a_model_is_that_of_all_its_sums():
    exact, soft = make("exact", "segments"), make("soft", "ssnt")
    assert soft.likelihood_cost(8, 9) == 0
    assert make("labelled exact", "segments").likelihood_cost(8, 9) > 9 * exact.likelihood_cost(8, 9) > 0
    assert Ensemble([exact, exact]).likelihood_cost(8, 9) == 2 * exact.likelihood_cost(8, 9)
    assert make("exact", "tagging").likelihood_cost(8, 8) > 0
