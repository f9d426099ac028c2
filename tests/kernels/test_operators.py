"""The operators follow torch's rules for operators, so that programs with them can be compiled, exported and loaded."""

import subprocess
import sys

import pytest
import torch
from tests.structures.contract import seeded
from torch._library.custom_ops import CustomOpDef

from permalign import kernels
from permalign.kernels.operators import (
    factorised,
    labelled,
    labelled_synchronous,
    pruned_synchronous,
    scoring,
    separable,
    synchronous,
)

BATCH, LENGTH, HIDDEN = 2, 4, 5
SPLITS = (LENGTH**3 - LENGTH) // 6
LENGTHS = torch.tensor([4, 3])
SEED = torch.tensor(12345)

OPERATORS = {
    value._qualname: value
    for module in (
        factorised,
        labelled,
        labelled_synchronous,
        pruned_synchronous,
        scoring,
        separable,
        synchronous,
    )
    for value in vars(module).values()
    if isinstance(value, CustomOpDef)
}


def draw(*shape, gradient=True):
    return torch.randn(shape, dtype=torch.float64, generator=seeded(sum(shape))).requires_grad_(gradient)


def rules():
    return kernels.span_softmax(draw(BATCH, SPLITS, 2).detach(), LENGTHS).requires_grad_()


def chart_of(operator, *inputs):
    return operator(*inputs)[1].detach()


def examples():
    """The arguments of one call for every operator; they require gradients where the operator has some."""
    projections, hidden_bias = draw(BATCH, LENGTH + 1, HIDDEN, 2), draw(HIDDEN)
    weight, bias = draw(2, HIDDEN), draw(2)
    scores, emissions = draw(BATCH, SPLITS, 2), draw(BATCH, LENGTH, LENGTH)
    plain = [tensor.detach() for tensor in (projections, hidden_bias, weight)]
    gradient = draw(BATCH, SPLITS, 2, gradient=False)
    square = draw(BATCH, LENGTH, LENGTH, gradient=False)
    known, gamma = rules().detach(), separable.inside(scores.detach(), LENGTHS)[1]
    marginals = separable.rule_marginals(known, LENGTHS)
    matrix_chart = chart_of(separable.expected_matrix, known, LENGTHS)
    tagging_chart = chart_of(separable.tagging_inside, scores.detach(), emissions.detach(), LENGTHS)
    per_sentence = draw(BATCH, gradient=False)
    segments, both = draw(BATCH, LENGTH, 4, 3), (LENGTHS, torch.tensor([3, 0]))
    leaves = draw(BATCH, 2 * LENGTH - 1, 4, 3)  # tokens, and phrases of two
    known_pair = scores.detach(), leaves.detach()
    summed = chart_of(synchronous.inside, *known_pair, *both, False)
    tokens = known, draw(BATCH, LENGTH, 4, 3, gradient=False)
    pruning = pruned_synchronous.bound_cells(marginals, tokens[1], *both, 0.05)
    pruned = chart_of(pruned_synchronous.inside, *tokens, *pruning[:3], *both)
    grammar = (draw(2, 3, 3, 3), draw(3), draw(BATCH, LENGTH, 3), scores)
    known_grammar = [tensor.detach() for tensor in grammar]
    labelled_chart = labelled.inside(*known_grammar, LENGTHS)[1:]
    labelled_tags = labelled.tagging_inside(*known_grammar, emissions.detach(), LENGTHS)[1:]
    products = (draw(2, 2, 3, 3), *grammar[1:])
    known_products = [tensor.detach() for tensor in products]
    factorised_chart = factorised.inside(*known_products, LENGTHS)[1:]
    factorised_tags = factorised.tagging_inside(*known_products, emissions.detach(), LENGTHS)[1:]
    labelled_pairs = labelled_synchronous.inside(*known_grammar, segments.detach(), *both)[1:]
    return {
        "permalign::synchronous_inside": (scores, leaves, *both, False),
        "permalign::synchronous_inside_backward": (per_sentence, *known_pair, summed, *both),
        "permalign::synchronous_walk": (
            *known_pair,
            summed,
            *both,
            torch.rand(3, BATCH, LENGTH - 1, dtype=torch.float64),
        ),
        "permalign::synchronous_bounds": (marginals, tokens[1], *both, 0.05),
        "permalign::pruned_synchronous_inside": (rules(), segments, *pruning[:3], *both),
        "permalign::pruned_synchronous_inside_backward": (per_sentence, *tokens, pruned, pruning[2], *both),
        "permalign::labelled_synchronous_inside": (*grammar, segments, *both),
        "permalign::labelled_synchronous_inside_backward": (
            per_sentence,
            *known_grammar,
            *labelled_pairs,
            *both,
            4,
            2,
        ),
        "permalign::labelled_synchronous_best_inside": (
            known_grammar[0],
            *known_grammar[2:],
            segments.detach(),
            *both,
        ),
        "permalign::labelled_inside": (*grammar, LENGTHS),
        "permalign::labelled_inside_backward": (per_sentence, *known_grammar, *labelled_chart, LENGTHS),
        "permalign::labelled_best_inside": (known_grammar[0], *known_grammar[2:], LENGTHS),
        "permalign::labelled_tagging_inside": (*grammar, emissions, LENGTHS),
        "permalign::labelled_tagging_inside_backward": (
            per_sentence,
            *known_grammar,
            *labelled_tags,
            LENGTHS,
        ),
        "permalign::factorised_inside": (*products, LENGTHS),
        "permalign::factorised_inside_backward": (per_sentence, *known_products, *factorised_chart, LENGTHS),
        "permalign::factorised_best_inside": (known_products[0], *known_products[2:], LENGTHS),
        "permalign::factorised_tagging_inside": (*products, emissions, LENGTHS),
        "permalign::factorised_tagging_inside_backward": (
            per_sentence,
            *known_products,
            *factorised_tags,
            LENGTHS,
        ),
        "permalign::split_scores": (projections, hidden_bias, weight, bias, LENGTHS, SEED, 0.25),
        "permalign::split_scores_backward": (gradient, *plain, LENGTHS, SEED, 0.25),
        "permalign::inside": (scores, LENGTHS),
        "permalign::inside_backward": (per_sentence, gradient, gamma, LENGTHS),
        "permalign::best_inside": (scores.detach(), LENGTHS),
        "permalign::span_one_hot": (gamma, LENGTHS),
        "permalign::walk": (gamma, LENGTHS, torch.rand(3, BATCH, LENGTH - 1, dtype=torch.float64), False),
        "permalign::span_softmax": (draw(BATCH, SPLITS, 2), LENGTHS),
        "permalign::span_softmax_backward": (gradient, known, LENGTHS),
        "permalign::rule_marginals": (rules(), LENGTHS),
        "permalign::rule_marginals_backward": (gradient, known, marginals, LENGTHS),
        "permalign::expected_matrix": (rules(), LENGTHS),
        "permalign::expected_matrix_backward": (square, known, matrix_chart, LENGTHS),
        "permalign::tagging_inside": (scores, emissions, LENGTHS),
        "permalign::tagging_inside_backward": (per_sentence, scores.detach(), tagging_chart, LENGTHS),
    }


def test_every_operator_has_an_example():
    assert set(examples()) == set(OPERATORS)


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_opcheck(name):
    torch.library.opcheck(OPERATORS[name], examples()[name])


PROGRAM = """
import torch
from permalign import kernels
from permalign.reorderers import SplitScorer

def expected(scores, lengths, emissions):
    log_partition, gamma = kernels.inside(scores, lengths)
    rules = kernels.span_softmax(gamma, lengths)
    return (
        log_partition,
        kernels.expected_matrix(rules, lengths),
        kernels.rule_marginals(rules, lengths),
        kernels.tagging_inside(scores, emissions, lengths),
    )

torch.manual_seed(0)
lengths = torch.tensor([5, 3])
scorer = SplitScorer(4, 6).double()
states = torch.randn(2, 7, 4, dtype=torch.float64)
emissions = torch.randn(2, 5, 5, dtype=torch.float64)

class Reorder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scorer = scorer

    def forward(self, states, lengths, emissions):
        return expected(SCORES, lengths, emissions)

module = Reorder()
plain = module(states, lengths, emissions)
sum(value.square().sum() for value in plain).backward()
gradient = scorer.first.weight.grad.clone()
"""

COMPILE = """
for path in ("auto", "vectorized", "portable"):
    with kernels.backend(path):
        scorer.zero_grad()
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")(states, lengths, emissions)
    torch.testing.assert_close(compiled, plain)
    sum(value.square().sum() for value in compiled).backward()
    torch.testing.assert_close(scorer.first.weight.grad, gradient)
    torch._dynamo.reset()
print("equal")
"""

EXPORT = """
program = torch.export.export(module, (states, lengths, emissions))
torch.testing.assert_close(program.module()(states, lengths, emissions), plain)
assert "permalign.inside" in str(program.graph), program.graph
print("equal")
"""

DISTRIBUTION = """
from permalign import SeparablePermutation
def matrix(scores, lengths):
    return SeparablePermutation(scores, lengths).expected_matrix()
scores = module.scorer(states, lengths).detach()
torch.testing.assert_close(torch.compile(matrix, backend="aot_eager")(scores, lengths), matrix(scores, lengths))
print("equal")
"""


EXPORT_DISTRIBUTION = """
from permalign import SeparablePermutation

class Distribution(torch.nn.Module):
    def __init__(self, **arguments):
        super().__init__()
        self.arguments = arguments

    def forward(self, scores, lengths, emissions):
        distribution = SeparablePermutation(scores, lengths, **self.arguments)
        return distribution.expected_matrix(), distribution.log_likelihood(emissions), distribution.entropy()

inputs = (module.scorer(states, lengths).detach(), lengths, emissions)
try:
    torch.export.export(Distribution(), inputs)  # checks of values cannot be traced
except Exception:
    pass
for normal_form in (False, True):
    module = Distribution(normal_form=normal_form, validate_args=False)
    program = torch.export.export(module, inputs)
    torch.testing.assert_close(program.module()(*inputs), module(*inputs))
    torch.testing.assert_close(module(*inputs), Distribution(normal_form=normal_form)(*inputs))
print("equal")
"""


LABELLED = """
def both(*grammar):
    emissions = grammar[2] @ grammar[2].transpose(1, 2)
    total = kernels.labelled_tagging_inside(*grammar, emissions, lengths)
    return total - kernels.labelled_log_partition(*grammar, lengths)
shapes = ((2, 3, 3, 3), (3,), (2, 5, 3), (2, 20, 2))
grammar = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
plain = both(*grammar)
compiled = torch.compile(both, fullgraph=True, backend="aot_eager")(*grammar)
torch.testing.assert_close(compiled, plain)
gradients = [torch.autograd.grad(value.sum(), grammar) for value in (compiled, plain)]
torch.testing.assert_close(*gradients)
print("equal")
"""


MODULE = "self.scorer(states, lengths)"
KERNEL = """kernels.split_scores(
            (states[:, 1:] @ self.scorer.first.weight.view(-1, 4).T).unflatten(-1, (-1, 2)),
            self.scorer.first.bias, self.scorer.second.weight, self.scorer.second.bias, lengths, torch.tensor(7), 0.25
        )"""


@pytest.mark.parametrize(
    ("scores", "what"),
    [
        pytest.param(KERNEL, COMPILE, marks=pytest.mark.slow),
        (KERNEL, EXPORT),
        pytest.param(MODULE, COMPILE, marks=pytest.mark.slow),
        (MODULE, EXPORT),
        (MODULE, DISTRIBUTION),
        (MODULE, EXPORT_DISTRIBUTION),
        (MODULE, LABELLED),
    ],
    ids=[
        "compile kernels",
        "export kernels",
        "compile scorer",
        "export scorer",
        "compile distribution",
        "export distribution",
        "compile labelled trees",
    ],
)
def test_programs_can_be_compiled_and_exported(scores, what):
    """In a separate process, without the checks of shapes that tests wrap around every function."""
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("SCORES", scores) + what],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.stdout.strip() == "equal", ended.stderr[-3000:]


LOAD = """
import sys
IMPORT
import torch
loaded = torch.export.load(sys.argv[1]).module()
scores, lengths, emissions, expected = torch.load(sys.argv[2])
torch.testing.assert_close(loaded(scores, lengths, emissions), expected)
print("equal")
"""


class Kernels(torch.nn.Module):
    """Calls one operator of each kind: with one result, with several, and with a chart that nobody asks for."""

    def forward(self, scores, lengths, emissions):
        rules = kernels.span_softmax(kernels.inside(scores, lengths)[1], lengths)
        return kernels.expected_matrix(rules, lengths), kernels.tagging_inside(scores, emissions, lengths)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The files of an exported program and of an example: its inputs and what it answers."""
    folder, module = tmp_path_factory.mktemp("exported"), Kernels()
    inputs = (draw(BATCH, SPLITS, 2, gradient=False), LENGTHS, draw(BATCH, LENGTH, LENGTH, gradient=False))
    torch.export.save(torch.export.export(module, inputs), folder / "program.pt2")
    torch.save((*inputs, module(*inputs)), folder / "example.pt")
    return folder / "program.pt2", folder / "example.pt"


def load_in_new_process(statement, files):
    return subprocess.run(
        [sys.executable, "-c", LOAD.replace("IMPORT", statement), *map(str, files)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    "statement", ["import permalign.kernels", "from permalign import SeparablePermutation"]
)
def test_exported_programs_can_be_loaded_after_an_import(statement, exported):
    ended = load_in_new_process(statement, exported)
    assert ended.stdout.strip() == "equal", ended.stderr[-3000:]


def test_the_package_alone_registers_no_operators(exported):
    """`import permalign` does not import torch, so it cannot register them; docs/kernels.md says what does."""
    ended = load_in_new_process("import permalign; assert 'torch' not in sys.modules", exported)
    assert ended.returncode == 1
    assert "AssertionError" not in ended.stderr
    assert "permalign" in ended.stderr
