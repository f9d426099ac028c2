"""The compiled kernels and the portable ones give the same numbers and the same gradients."""

import subprocess
import sys

import pytest
import torch

from permalign import kernels
from permalign.kernels import operators, threads
from permalign.kernels.layout import leaf_count, root_scores, split_count

SENTENCE_LENGTHS = [1, 2, 3, 7, 11]
TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-10}


def random_lengths(length, batch=4):
    return torch.randint(1, length + 1, (batch,)).index_fill(0, torch.tensor([0]), length)


def on_both_backends(function, *inputs, backends=("compiled", "portable")):
    """Values and gradients (of a fixed random weighting of the values) on each backend."""
    answers = []
    for name in backends:
        leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
        with kernels.backend(name):
            values = function(*leaves)
        values = values if isinstance(values, tuple) else (values,)
        generator = torch.Generator().manual_seed(1)
        total = torch.zeros(())
        for value in values:
            if value.requires_grad:
                total = (
                    total + (torch.randn(value.shape, generator=generator, dtype=value.dtype) * value).sum()
                )
        inputs_with_gradients = [x for x in leaves if x.requires_grad]
        grads = torch.autograd.grad(total, inputs_with_gradients) if total.requires_grad else ()
        answers.append([*values, *grads])
    return answers


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.mark.parametrize("length", SENTENCE_LENGTHS)
@pytest.mark.parametrize(
    "function",
    [kernels.inside, kernels.span_softmax, kernels.rule_marginals, kernels.expected_matrix],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("name", ["compiled", "vectorized"])
def test_functions_of_splits(function, length, name, dtype):
    torch.manual_seed(length)
    splits = torch.randn(4, split_count(length), 2, dtype=dtype)
    lengths = random_lengths(length)
    if function in (kernels.rule_marginals, kernels.expected_matrix):
        splits = kernels.span_softmax(splits, lengths)
    fast, portable = on_both_backends(lambda x: function(x, lengths), splits, backends=(name, "portable"))
    for ours, theirs in zip(fast, portable, strict=True):
        torch.testing.assert_close(ours, theirs, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", ["compiled", "vectorized"])
@pytest.mark.parametrize("length", SENTENCE_LENGTHS)
def test_tagging_inside(length, name, dtype):
    torch.manual_seed(length)
    scores, emissions = (
        torch.randn(4, split_count(length), 2, dtype=dtype),
        torch.randn(4, length, length, dtype=dtype),
    )
    lengths = random_lengths(length)
    fast, portable = on_both_backends(
        lambda s, e: kernels.tagging_inside(s, e, lengths), scores, emissions, backends=(name, "portable")
    )
    for ours, theirs in zip(fast, portable, strict=True):
        torch.testing.assert_close(ours, theirs, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


def random_pairs(length, dtype, scale=1.0, phrase=1):
    """Scores, segments of up to three output tokens for tokens and phrases, and lengths of both sides that fit."""
    torch.manual_seed(length)
    scores = scale * torch.randn(4, split_count(length), 2, dtype=dtype)
    segments = -scale * torch.randn(4, leaf_count(length, phrase), 9, 4, dtype=dtype).abs()
    lengths = random_lengths(length)
    return scores, segments, lengths, torch.minimum(torch.tensor([8, 5, 0, 7]), 3 * lengths)


@pytest.mark.parametrize("phrase", [1, 3])
@pytest.mark.parametrize("scale", [1.0, 30.0, 3000.0])
@pytest.mark.parametrize("length", SENTENCE_LENGTHS)
def test_synchronous_inside(length, scale, phrase, dtype):
    """Large scores drive sums of exponentials into underflow, where both backends switch to logarithms."""
    scores, segments, *lengths = random_pairs(length, dtype, scale, phrase)
    compiled, portable = on_both_backends(
        lambda s, e: kernels.synchronous_inside(s, e, *lengths), scores, segments
    )
    for ours, theirs in zip(compiled, portable, strict=True):
        torch.testing.assert_close(ours, theirs, atol=scale * TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("threshold", [0.0, 1e-4, 1e-2, 0.3])
@pytest.mark.parametrize("scale", [1.0, 5.0, 300.0])
@pytest.mark.parametrize("length", SENTENCE_LENGTHS)
def test_pruned_synchronous_inside(length, scale, threshold):
    """The same cells are kept, with the same bound on what is lost; and the same sums over them."""
    scores, segments, *lengths = random_pairs(length, torch.float64, scale)

    def kept(splits, segments):
        rules = kernels.span_softmax(splits, lengths[0])
        return kernels.synchronous_bounds(rules, segments, *lengths, threshold)

    compiled, portable = on_both_backends(lambda s, e: tuple(kept(s, e)), scores, segments)
    for ours, theirs in zip(compiled, portable, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)

    def summed(splits, segments):
        rules = kernels.span_softmax(splits, lengths[0])
        pruning = kernels.Pruning(*(tensor.detach() for tensor in compiled))
        log_sums = kernels.pruned_synchronous_inside(rules, segments, pruning, *lengths)
        # the portable sum knows logs of what is too small for products
        return torch.where(log_sums < pruning.relaxed(lengths[1]) - 500, 0.0, log_sums)

    compiled_sums, portable_sums = on_both_backends(summed, scores, segments)
    for ours, theirs in zip(compiled_sums, portable_sums, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("labels", [1, 3, 9])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_labelled_synchronous_inside(length, labels, dtype):
    splits, segments, *lengths = random_pairs(length, dtype)
    grammar = [
        torch.randn(shape, dtype=dtype)
        for shape in ((2, labels, labels, labels), (labels,), (4, length, labels))
    ]
    compiled, portable = on_both_backends(
        lambda *inputs: kernels.labelled_synchronous_inside(*inputs, *lengths), *grammar, splits, segments
    )
    for ours, theirs in zip(compiled, portable, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2 * TOLERANCE[dtype], rtol=2 * TOLERANCE[dtype])


@pytest.mark.parametrize("phrase", [1, 3])
@pytest.mark.parametrize("length", SENTENCE_LENGTHS)
def test_synchronous_walks(length, phrase):
    scores, segments, *lengths = random_pairs(length, torch.float64, phrase=phrase)
    uniforms = torch.rand(50, 4, length - 1, dtype=torch.float64)
    for drawn in (None, uniforms):
        compiled, portable = on_both_backends(
            lambda s, e: kernels.synchronous_walk(s, e, *lengths, drawn),  # noqa: B023
            scores,
            segments,
        )
        for ours, theirs in zip(compiled, portable, strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_labelled_synchronous_walks(length, labels):
    splits, segments, *lengths = random_pairs(length, torch.float64)
    grammar = [
        torch.randn(shape, dtype=torch.float64)
        for shape in ((2, labels, labels, labels), (labels,), (4, length, labels))
    ]
    uniforms = torch.rand(20, 4, length, dtype=torch.float64)
    for drawn in (None, uniforms):
        compiled, portable = on_both_backends(
            lambda *inputs: kernels.labelled_synchronous_walk(*inputs, *lengths, drawn),  # noqa: B023
            *grammar,
            splits,
            segments,
        )
        for ours, theirs in zip(compiled, portable, strict=True):
            assert torch.equal(ours, theirs)


def test_sums_without_gradients_are_those_of_all_pairs_at_once(monkeypatch):
    splits, segments, *lengths = random_pairs(5, torch.float64)
    grammar = [torch.randn(shape, dtype=torch.float64) for shape in ((2, 3, 3, 3), (3,), (4, 5, 3))]
    rules = kernels.span_softmax(splits, lengths[0])
    pruning = kernels.synchronous_bounds(rules, segments, *lengths, 0.01)

    def all_sums():
        return (
            kernels.synchronous_inside(splits, segments, *lengths),
            kernels.labelled_synchronous_inside(*grammar, splits, segments, *lengths),
            kernels.pruned_synchronous_inside(rules, segments, pruning, *lengths),
        )

    at_once = all_sums()
    monkeypatch.setattr(kernels, "GROUP_BYTES", 0)
    with torch.no_grad():
        one_by_one = all_sums()
    assert torch.equal(torch.cat(one_by_one), torch.cat(at_once))


@pytest.mark.parametrize("labels", [1, 2, 6, 9, 17])
@pytest.mark.parametrize("length", SENTENCE_LENGTHS)
def test_labelled(length, labels, dtype):
    torch.manual_seed(length)
    lengths = random_lengths(length)
    grammar = [
        torch.randn(shape, dtype=dtype)
        for shape in (
            (2, labels, labels, labels),
            (labels,),
            (4, length, labels),
            (4, split_count(length), 2),
        )
    ]
    emissions = torch.randn(4, length, length, dtype=dtype)
    for function, inputs in (
        (lambda *g: kernels.labelled_log_partition(*g, lengths), grammar),
        (lambda *g: kernels.labelled_tagging_inside(*g, lengths), [*grammar, emissions]),
    ):
        compiled, portable = on_both_backends(function, *inputs)
        for ours, theirs in zip(compiled, portable, strict=True):
            torch.testing.assert_close(ours, theirs, atol=2 * TOLERANCE[dtype], rtol=2 * TOLERANCE[dtype])
    charts = []
    for name in ("compiled", "portable"):
        with kernels.backend(name):
            charts.append(kernels.labelled_chart(*grammar, lengths, maximise=True))
    tops = [root_scores(chart, grammar[1], lengths) for chart in charts]
    torch.testing.assert_close(*tops)


@pytest.mark.parametrize("labels", [1, 2, 9, 17])
@pytest.mark.parametrize("length", SENTENCE_LENGTHS)
def test_factorised(length, labels, dtype):
    torch.manual_seed(length)
    lengths = random_lengths(length)
    shapes = (2, 2, labels, labels), (labels,), (4, length, labels), (4, split_count(length), 2)
    grammar = [torch.randn(shape, dtype=dtype) for shape in shapes]
    emissions = torch.randn(4, length, length, dtype=dtype)
    for function, inputs in (
        (lambda *g: kernels.factorised_log_partition(*g, lengths), grammar),
        (lambda *g: kernels.factorised_tagging_inside(*g, lengths), [*grammar, emissions]),
    ):
        compiled, portable = on_both_backends(function, *inputs)
        for ours, theirs in zip(compiled, portable, strict=True):
            torch.testing.assert_close(ours, theirs, atol=2 * TOLERANCE[dtype], rtol=2 * TOLERANCE[dtype])
    charts = []
    for name in ("compiled", "portable"):
        with kernels.backend(name):
            charts.append(kernels.factorised_chart(*grammar, lengths, maximise=True))
    tops = [root_scores(chart, grammar[1], lengths) for chart in charts]
    torch.testing.assert_close(*tops)


@pytest.mark.parametrize("which", [0, 1], ids=["rules", "root"])
def test_operators_refuse_what_probabilities_cannot_hold(which):
    grammar = [torch.zeros(shape) for shape in ((2, 2, 2, 2), (2,), (1, 3, 2), (1, 4, 2))]
    grammar[which].view(-1)[0] = 301.0
    with pytest.raises(ValueError, match="differ by too much"):
        operators.labelled.inside(*grammar, torch.tensor([3]))
    assert kernels.labelled_log_partition(*grammar, torch.tensor([3])).isfinite().all()
    with pytest.raises(ValueError, match="differ by too much"):
        operators.factorised.inside(*grammar, torch.tensor([3]))
    assert kernels.factorised_log_partition(*grammar, torch.tensor([3])).isfinite().all()


@pytest.mark.parametrize("name", ["compiled", "vectorized"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("hidden", [1, 5, 32])
@pytest.mark.parametrize("length", SENTENCE_LENGTHS)
def test_split_scores(length, hidden, dropout, name, dtype):
    torch.manual_seed(length)
    projections = torch.randn(4, length + 1, hidden, 2, dtype=dtype)
    hidden_bias, weight, bias = (torch.randn(shape, dtype=dtype) for shape in ((hidden,), (2, hidden), (2,)))
    lengths, seed = random_lengths(length), torch.tensor(2**40 + 12345)
    fast, portable = on_both_backends(
        lambda p, h, w, b: kernels.split_scores(p, h, w, b, lengths, seed, dropout),
        projections,
        hidden_bias,
        weight,
        bias,
        backends=(name, "portable"),
    )
    for ours, theirs in zip(fast, portable, strict=True):
        torch.testing.assert_close(ours, theirs, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("length", SENTENCE_LENGTHS)
def test_parts_of_long_sentences_give_the_same_scores(length, dropout, monkeypatch):
    torch.manual_seed(length)
    shapes = ((4, length + 1, 5, 2), (5,), (2, 5), (2,))
    inputs = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    lengths, answers = random_lengths(length), []
    for long in (1, length + 1):
        monkeypatch.setattr(threads, "LONG", long)
        assert threads.num_parts(length) == (8 if long == 1 else 1)
        leaves = [tensor.clone().requires_grad_() for tensor in inputs]
        scores = kernels.split_scores(*leaves, lengths, torch.tensor(7), dropout)
        answers.append((scores, *torch.autograd.grad(scores.square().sum(), leaves)))
    torch.testing.assert_close(*answers)


@pytest.mark.parametrize("normal_form", [False, True], ids=["plain", "normal form"])
@pytest.mark.parametrize("length", SENTENCE_LENGTHS)
def test_walks(length, normal_form):
    torch.manual_seed(length)
    scores, lengths = torch.randn(4, split_count(length), 2, dtype=torch.float64), random_lengths(length)
    uniforms = torch.rand(50, 4, length - 1, dtype=torch.float64)
    for drawn in (None, uniforms):
        compiled, portable = on_both_backends(lambda w: kernels.walk(w, lengths, drawn, normal_form), scores)  # noqa: B023
        for ours, theirs in zip(compiled, portable, strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("length", SENTENCE_LENGTHS)
def test_best_inside(length, dtype):
    torch.manual_seed(length)
    scores, lengths = torch.randn(4, split_count(length), 2, dtype=dtype), random_lengths(length)
    compiled, portable = on_both_backends(lambda s: kernels.best_inside(s, lengths), scores)
    for ours, theirs in zip(compiled, portable, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_results_do_not_depend_on_the_number_of_threads():
    torch.manual_seed(0)
    scores, lengths = torch.randn(9, split_count(12), 2, requires_grad=True), random_lengths(12, 9)
    threads, answers = torch.get_num_threads(), []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            rules = kernels.span_softmax(kernels.inside(scores, lengths)[1], lengths)
            matrix = kernels.expected_matrix(rules, lengths)
            answers.append((matrix, *torch.autograd.grad(matrix[:, 0].square().sum(), scores)))
    finally:
        torch.set_num_threads(threads)
    for answer in answers[1:]:
        assert all(torch.equal(ours, first) for ours, first in zip(answer, answers[0], strict=True))


def test_unknown_backend_is_refused():
    with (
        pytest.raises(ValueError, match="'auto', 'compiled', 'vectorized', 'portable', not 'gpu'"),
        kernels.backend("gpu"),
    ):
        pass


def test_only_recorded_kernels_can_be_differentiated_twice():
    scores = torch.randn(1, split_count(4), 2, dtype=torch.float64, requires_grad=True)
    for name in ("compiled", "vectorized", "portable"):
        with kernels.backend(name):
            (gradient,) = torch.autograd.grad(
                kernels.inside(scores, torch.tensor([4]))[0].sum(), scores, create_graph=True
            )
        if name == "portable":
            assert torch.autograd.grad(gradient.square().sum(), scores)[0].abs().sum() > 0
        else:
            with pytest.raises(RuntimeError):
                torch.autograd.grad(gradient.square().sum(), scores)


def test_compiled_kernels_refuse_other_devices():
    scores = torch.zeros(1, 1, 2, device="meta")
    with kernels.backend("compiled"), pytest.raises(ValueError, match=r"need CPU tensors.*meta"):
        kernels.inside(scores, torch.tensor([2]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kernels.inside(torch.zeros(5, 4, 2), torch.tensor([3])), "lengths of shape"),
        (
            lambda: kernels.tagging_inside(torch.zeros(1, 4, 2), torch.zeros(1, 1, 1), torch.tensor([3])),
            "emissions",
        ),
        (
            lambda: kernels.labelled_log_partition(
                torch.zeros(2, 3, 3, 2),
                torch.zeros(3),
                torch.zeros(1, 2, 3),
                torch.zeros(1, 1, 2),
                torch.tensor([2]),
            ),
            "rules",
        ),
        (lambda: kernels.walk(torch.zeros(1, 1, 2), torch.tensor([2]), torch.zeros(1, 1, 0)), "uniforms"),
        (
            lambda: kernels.split_scores(
                torch.zeros(1, 3, 4, 2),
                torch.zeros(4),
                torch.zeros(2, 5),
                torch.zeros(2),
                torch.tensor([2]),
                torch.tensor(0),
            ),
            "weight",
        ),
        (lambda: kernels.inside(torch.zeros(1, 4, 2), torch.tensor([4])), "lengths must lie in 1..3"),
        (
            lambda: kernels.synchronous_inside(
                torch.zeros(1, 4, 2), torch.zeros(1, 4, 3, 2), torch.tensor([3]), torch.tensor([2])
            ),
            "segments",
        ),
        (
            lambda: kernels.synchronous_inside(
                torch.zeros(1, 4, 2), torch.zeros(1, 3, 3, 2), torch.tensor([3]), torch.tensor([3])
            ),
            "target_lengths must be one for each sentence and lie in 0..2",
        ),
        (
            lambda: kernels.synchronous_bounds(
                torch.zeros(1, 4, 2), torch.zeros(1, 3, 3, 2), torch.tensor([3]), torch.tensor([2]), 0.1
            ),
            "must be of torch.float64",
        ),
        (
            lambda: kernels.synchronous_bounds(
                torch.zeros(1, 4, 2), torch.zeros(1, 5, 3, 2), torch.tensor([3]), torch.tensor([2]), 0.1
            ),
            "segments",
        ),
        (
            lambda: kernels.pruned_synchronous_inside(
                torch.zeros(1, 1, 2, dtype=torch.float64),
                torch.zeros(1, 2, 3, 2, dtype=torch.float64),
                kernels.Pruning(*(torch.zeros(1, 2, dtype=torch.float64) for _ in range(4))),
                torch.tensor([2]),
                torch.tensor([2]),
            ),
            "output_scales",
        ),
    ],
)
def test_shapes_that_loops_rely_on_are_checked(call, message):
    with kernels.backend("compiled"), pytest.raises(ValueError, match=message):
        call()


def test_kernels_work_where_nothing_can_be_kept():
    """Where neither the package's folder nor the user's can be written to, as in some containers."""
    program = (
        "from permalign.kernels.compiled import disk_cache\n"
        "disk_cache.cache_folders = lambda: []\n"
        "import torch\n"
        "from permalign import kernels\n"
        "print(kernels.inside(torch.zeros(1, 1, 2), torch.tensor([2]))[0].exp().item())\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout.strip() == "2.0", ended.stderr[-2000:]
    assert "compiling kernels" in ended.stderr
