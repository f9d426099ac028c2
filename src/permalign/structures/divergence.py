"""Kullback-Leibler divergences, for ``torch.distributions.kl_divergence``."""

from torch import Tensor
from torch.distributions.kl import register_kl

from permalign.kernels.layout import mask_padding
from permalign.structures.separable import SeparablePermutation


def _kl_separable(p: SeparablePermutation, q: SeparablePermutation) -> Tensor:
    """``sum(marginals_p * (scores_p - scores_q)) - log Z_p + log Z_q``, in double precision."""
    if (
        p.normal_form != q.normal_form
        or p.scores.shape != q.scores.shape
        or bool((p.lengths != q.lengths).any())
    ):
        raise ValueError(
            f"kl_divergence of {p!r} and {q!r}: both must have the same batch, lengths and normal_form."
        )
    p64, q64 = p.double(), q.double()
    difference = mask_padding(p64.scores - q64.scores, p.lengths)
    expected = (p64.rule_marginals() * difference).sum((1, 2))
    return (expected - p64.log_partition() + q64.log_partition()).to(p.scores.dtype)


register_kl(SeparablePermutation, SeparablePermutation)(_kl_separable)
