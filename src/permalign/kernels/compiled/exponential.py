"""An exponential that a loop over an array computes for several entries at once.

`math.exp` calls the C library for every entry. The function below consists of additions, multiplications and shifts
only, so loops that contain it are vectorised.
"""

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload


def exponential(x):
    """exp(x) of a number that is not positive; zero where the result would be subnormal, NaN if x is NaN.

    With n the integer closest to x / log 2, and r = x - n log 2 at most (log 2) / 2 in size, exp(x) = 2^n exp(r). The
    first factor is written into the bits of a number; the second is the beginning of its Taylor series. The relative
    error is at most |x| units in the last place, as large as if x itself were rounded.
    """
    return math.exp(x)  # without Numba


@overload(exponential)
def _compiled_exponential(x):
    single = x == types.float32
    numbers: tuple[Any, Any] = (np.float32, np.int32) if single else (np.float64, np.int64)
    real, integer = numbers
    mantissa_bits, exponent_bias, degree = (23, 127, 7) if single else (52, 1023, 13)
    shift, bias = integer(mantissa_bits), integer(exponent_bias)
    least, zero, half, log_2 = real(math.log(np.finfo(real).tiny)), real(0), real(0.5), real(math.log(2))
    per_log_2 = real(1 / math.log(2))
    coefficients = tuple(real(1 / math.factorial(power)) for power in range(degree, -1, -1))

    def implementation(x):
        n = np.floor((x if x > least else least) * per_log_2 + half)
        remainder = x - n * log_2
        total = zero
        for coefficient in coefficients:
            total = total * remainder + coefficient
        power_of_two = integer((integer(n) + bias) << shift).view(real)
        return zero if x < least else total * power_of_two

    return implementation
