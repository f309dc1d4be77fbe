"""Student's t distribution, and the two functions that pooling variances needs; pure arithmetic.

The incomplete beta function is Lentz's continued fraction (DLMF 8.17.22), digamma and trigamma
are their asymptotic series after recurrence (DLMF 5.11.2, 5.15.8). No run of the lab needs more
digits than these give, and a dependency of 100 MB for three functions would be too much.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

DF_NORMAL = 1e6  # with more degrees of freedom the normal distribution is the same
_TINY = 1e-300
_STEPS_MAX = 300
_SERIES_FROM = 6.0  # the asymptotic series is exact to 1e-10 from here on


def two_sided_p(t: float, df: float) -> float:
    """The chance of a value at least so far from zero, if nothing differs."""
    if math.isinf(t):
        return 0.0
    if df >= DF_NORMAL:
        return math.erfc(abs(t) / math.sqrt(2))
    return _incomplete_beta(df / 2, 0.5, df / (df + t * t))


@lru_cache(maxsize=4096)
def critical(df: float, alpha: float) -> float:
    """The t that |T| exceeds with probability `alpha`."""
    if df >= DF_NORMAL:
        return NormalDist().inv_cdf(1 - alpha / 2)
    low, high = 0.0, 2.0
    while two_sided_p(high, df) > alpha:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, df) > alpha else (low, middle)
    return (low + high) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b), regularised."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    log_front = a * math.log(x) + b * math.log1p(-x)
    log_front += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    if x < (a + 1) / (a + b + 2):
        return math.exp(log_front) * _fraction(a, b, x) / a
    return 1 - math.exp(log_front) * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or _TINY)
    value = d
    for m in range(1, _STEPS_MAX):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + step * d) or _TINY)
            c = (1 + step / c) or _TINY
            value *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return value


def digamma(x: float) -> float:
    below = 0.0
    while x < _SERIES_FROM:
        below, x = below - 1 / x, x + 1
    s = 1 / (x * x)
    tail = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s / 132))))
    return below + math.log(x) - 0.5 / x - tail


def trigamma(x: float) -> float:
    below = 0.0
    while x < _SERIES_FROM:
        below, x = below + 1 / (x * x), x + 1
    s = 1 / (x * x)
    tail = s * (1 / 6 - s * (1 / 30 - s * (1 / 42 - s * (1 / 30 - 5 * s / 66))))
    return below + 1 / x + s / 2 + tail / x


def trigamma_inverse(value: float) -> float:
    """The x with trigamma(x) = value > 0, by bisection on a logarithmic scale."""
    low, high = -20.0, 20.0  # exponents of e
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if trigamma(math.exp(middle)) > value else (low, middle)
    return math.exp((low + high) / 2)
