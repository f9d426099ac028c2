"""Prefixes whose probability is the mean of several models' probabilities."""

from collections.abc import Sequence

from torch import Tensor

from permalign.decoding.candidates import log_mean_exp
from permalign.heads.base import Decoder
from permalign.shapes import Float, Int


class MixtureDecoder(Decoder):
    """Rows are the same prefixes in the decoders of all members.

    The probability of a prefix by the mixture is the mean of its probabilities by the members, because it is the sum
    over all outputs that begin with it. So one beam search over the mixture has exact scores.
    """

    def __init__(self, members: Sequence[Decoder]) -> None:
        self._members = members

    def scores(self) -> Float[Tensor, "rows vocab"]:
        """Return the logarithm of the members' mean probability of every prefix followed by each token."""
        return log_mean_exp([member.scores() for member in self._members])

    def extend(self, rows: Int[Tensor, " new"], tokens: Int[Tensor, " new"]) -> None:
        """Write one token in each of the chosen rows, in the decoders of all members."""
        for member in self._members:
            member.extend(rows, tokens)
