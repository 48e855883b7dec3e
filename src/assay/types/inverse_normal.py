"""Standard normal numbers from uniform ones by an inverse function with the same bits everywhere.

Only additions, products, quotients and square roots of single-precision numbers are used, one per
step: IEEE 754 rounds each of them in one way only, so a CPU and a GPU agree to the last bit. The
library's logarithm does not have that property and is replaced by a series. Its square root does
not have it on a CPU, where NumPy's is taken.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

# With t = sqrt(-log P(X > x)) and t = sqrt(log 2) at x = 0, x is t - sqrt(log 2) times a quotient
# of polynomials in t, here from the highest power down. It was fitted to scipy's `ndtri` on t <=
# sqrt(25 log 2), with a largest error in x of 2.2e-8.
_ABOVE = (2.232661086, 14.30036962, 18.56942451, 3.870410332)
_BELOW = (1.577607551, 8.850410904, 7.909197457, 1.0)
_START = math.sqrt(math.log(2))
_SERIES = (2 / 7, 2 / 5, 2 / 3, 2.0)  # of 2 artanh(s) / s in s^2
_BITS = 24


def inverse_normal(bits: Tensor) -> Tensor:  # int32 -> float32
    """The x with P(X <= x) = (k + 1/2) / 2^24, for whole numbers k below 2^24.

    The error is below 1e-6. The largest number is 5.42.
    """
    odd = bits.mul(2).add_(1 - 2**_BITS).float()  # exact: 2^25 (p - 1/2)
    t = _root(_minus_log(2**_BITS - odd.abs(), _BITS + 1))  # exact: 2^25 P(X > |x|)
    size = _polynomial(t, _ABOVE).div_(_polynomial(t, _BELOW))
    return size.mul_(t.sub_(_START).clamp_(min=0)).copysign_(odd)


def _minus_log(x: Tensor, power: int) -> Tensor:
    """-log(x / 2^`power`) for x from 1 on: log x = e log 2 + log r + 2 artanh((m - r) / (m + r)).

    Here x = m 2^e with m in [1, 2), and r^2 = 2.
    """
    raw = x.view(torch.int32)
    halvings = (power + 126.5) - (raw >> 23).float()  # power - e - 1/2; 127 is e's offset
    mantissa = (raw & 0x7FFFFF).bitwise_or_(0x3F800000).view(torch.float32)
    ratio = (mantissa - 2**0.5).div_(mantissa.add_(2**0.5))
    return halvings.mul_(math.log(2)).sub_(_polynomial(ratio * ratio, _SERIES).mul_(ratio))


def _root(x: Tensor) -> Tensor:
    """The square root, rounded as IEEE 754 says."""
    return torch.from_numpy(np.sqrt(x.numpy())) if x.device.type == "cpu" else x.sqrt()


def _polynomial(x: Tensor, coefficients: Sequence[float]) -> Tensor:
    value = x * coefficients[0]
    for coefficient in coefficients[1:-1]:
        value.add_(coefficient).mul_(x)
    return value.add_(coefficients[-1])
