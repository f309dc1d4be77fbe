"""The statistics of a comparison: medians, gains with exact intervals, verdicts.

A trial with a fresh server is the unit of replication. Two sets of trials are
compared by the Hodges-Lehmann estimate on log ratios: the median of all n x m
ratios. Its interval comes from the exact null distribution of the Mann-Whitney
count, so its coverage is known, not assumed: with 5 against 5 trials the third
and the twenty-third of the 25 sorted ratios cover the true ratio with 96.83 %.
Nothing here reads a file or knows what a recipe is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

__all__ = [
    "CONFIDENCE",
    "ROUNDS_MAX",
    "THRESHOLD",
    "TRIALS_MIN",
    "Comparison",
    "Verdict",
    "benjamini_hochberg",
    "compare",
    "decide",
    "geometric_mean",
    "mann_whitney_counts",
    "median",
    "odd_even_floor",
    "rank_correlation",
]

CONFIDENCE = 0.95  # an interval that covers less is not shown as one
TRIALS_MIN = 4  # with 3 against 3 the widest interval covers 90 % only
THRESHOLD = 0.02  # a difference below 2 % is of no practical use
Q_MAX = 0.05  # share of false discoveries accepted in one table
ROUNDS_MAX = 40  # more rounds than this are not proposed: the machine is too noisy


@dataclass(frozen=True)
class Comparison:
    """A gain of one set of trials over another; 0.10 is 10 % more."""

    gain: float
    low: float | None  # None: too few trials for an interval
    high: float | None
    coverage: float | None
    p: float
    n: int
    m: int


@dataclass(frozen=True)
class Verdict:
    """What may be said about one comparison."""

    word: str  # gain, loss, no difference, not decided, not comparable
    reason: str
    more_rounds: int | None = None  # about so many more would decide it
    bound: str = ""  # "≥" or "≤" when a side was held back by something else


@cache
def mann_whitney_counts(n: int, m: int) -> tuple[int, ...]:
    """How many orders of n and m values have each count u = 0..n*m."""
    row = [[1] for _ in range(m + 1)]  # with no value of the first kind, u is 0
    for i in range(1, n + 1):
        row[0] = [1]
        for j in range(1, m + 1):
            row[j] = _add_shifted(row[j - 1], row[j], j, i * j + 1)
    return tuple(row[m])


def _add_shifted(left: list[int], above: list[int], shift: int, length: int) -> list[int]:
    """The largest value is of the second kind (left) or beats j of them (above)."""
    out = [0] * length
    for u, count in enumerate(left):
        out[u] += count
    for u, count in enumerate(above):
        out[u + shift] += count
    return out


def _interval_rank(n: int, m: int) -> tuple[int, float] | None:
    """The rank k of the interval D(k)..D(n*m+1-k) and what it covers."""
    counts = mann_whitney_counts(n, m)
    total = math.comb(n + m, n)
    below, best = 0, None
    for rank in range(1, n * m // 2 + 1):
        below += counts[rank - 1]
        coverage = 1 - 2 * below / total
        if coverage < CONFIDENCE:
            break
        best = (rank, coverage)
    return best


def _p_value(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Two-sided exact U-test; a tie counts half and is rounded to the safe side."""
    n, m = len(xs), len(ys)
    u = sum((x > y) + 0.5 * (x == y) for x in xs for y in ys)
    tail = math.ceil(min(u, n * m - u))
    total = math.comb(n + m, n)
    return min(1.0, 2 * sum(mann_whitney_counts(n, m)[: tail + 1]) / total)


def compare(xs: Sequence[float], ys: Sequence[float]) -> Comparison | None:
    """The gain of xs over ys; None when a value is missing or not above zero."""
    if not xs or not ys or min(xs) <= 0 or min(ys) <= 0:
        return None
    logs = sorted(math.log(x / y) for x in xs for y in ys)
    low = high = coverage = None
    found = _interval_rank(len(xs), len(ys)) if min(len(xs), len(ys)) >= TRIALS_MIN else None
    if found:
        rank, coverage = found
        low, high = math.expm1(logs[rank - 1]), math.expm1(logs[-rank])
    gain = math.expm1(median(logs))
    return Comparison(gain, low, high, coverage, _p_value(xs, ys), len(xs), len(ys))


def benjamini_hochberg(ps: Sequence[float]) -> list[float]:
    """The q value of each p: the share of false finds if everything up to it is believed."""
    order = sorted(range(len(ps)), key=lambda i: ps[i], reverse=True)
    qs, lowest = [1.0] * len(ps), 1.0
    for i, index in enumerate(order):
        lowest = min(lowest, ps[index] * len(ps) / (len(ps) - i))
        qs[index] = lowest
    return qs


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean that treats a doubling and a halving alike."""
    return math.exp(math.fsum(math.log(ratio) for ratio in ratios) / len(ratios))


def odd_even_floor(cells: Sequence[Sequence[float]]) -> float | None:
    """The noise floor from the baseline itself: its odd rounds against its even ones.

    Nothing differs between the two halves, so what they differ by is noise. A half has
    fewer trials than a cell; the difference is scaled to two whole cells, and the root
    mean square over the cells is taken, so that one bad cell raises the floor.
    """
    squares = []
    for values in cells:
        odd, even = values[0::2], values[1::2]
        if len(values) < TRIALS_MIN or min(values) <= 0:
            continue
        scale = (2 / len(values)) / (1 / len(odd) + 1 / len(even))
        squares.append(math.log(median(odd) / median(even)) ** 2 * scale)
    return math.expm1(math.sqrt(math.fsum(squares) / len(squares))) if squares else None


def rank_correlation(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Spearman's rho: do two tables put their cells into the same order?"""
    if len(xs) != len(ys) or len(xs) < 3:
        return None
    a, b = _ranks(xs), _ranks(ys)
    mean = (len(xs) + 1) / 2
    spread = math.sqrt(sum((v - mean) ** 2 for v in a) * sum((v - mean) ** 2 for v in b))
    if spread == 0:
        return None
    return sum((v - mean) * (w - mean) for v, w in zip(a, b, strict=True)) / spread


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    first = {value: ordered.index(value) for value in ordered}
    return [first[v] + (ordered.count(v) + 1) / 2 for v in values]


def decide(
    found: Comparison | None,
    *,
    q: float = 0.0,
    floor: float = 0.0,
    threshold: float = THRESHOLD,
    better: str = "higher",
    withheld: str = "",
    bound: str = "",
    disturbed: float = 0.0,
) -> Verdict:
    """The verdict on one comparison; `withheld` names why none may be given.

    `disturbed` is the share of its speed that a side may have lost to something from outside. It
    may have hit one side only, so a verdict must hold when all of it is given to the other side.
    """
    if withheld:
        return Verdict("not comparable", withheld, bound=bound)
    if found is None:
        return Verdict("not decided", "one side has no valid trial")
    if found.low is None or found.high is None:
        missing = max(1, TRIALS_MIN - min(found.n, found.m))
        return Verdict("not decided", f"fewer than {TRIALS_MIN} trials on a side", missing)
    needed = max(threshold, floor)
    if -threshold <= _less(found.low, disturbed) and _more(found.high, disturbed) <= threshold:
        return Verdict("no difference", f"the whole interval is within ±{threshold:.0%}")
    apart = (found.low > 0 or found.high < 0) and q <= Q_MAX
    kept = _less(found.gain, disturbed) if found.gain > 0 else _more(found.gain, disturbed)
    stands = _less(found.low, disturbed) > 0 or _more(found.high, disturbed) < 0
    if apart and stands and abs(kept) >= needed:
        is_gain = (found.gain > 0) == (better == "higher")
        return Verdict("gain" if is_gain else "loss", "the interval excludes 0")
    if apart and abs(found.gain) >= needed:
        reason = f"its trials were disturbed from outside, which may be up to {disturbed:.0%} of it"
        return Verdict("not decided", reason)
    if apart and abs(found.gain) >= threshold:
        return Verdict("not decided", f"below this run's noise floor of {floor:.1%}")
    more = _more_rounds(found, threshold)
    return Verdict("not decided", _undecided_reason(found, threshold), more)


def _less(gain: float, disturbed: float) -> float:
    """The gain, had only the other side lost that share."""
    return (1 + gain) * (1 - disturbed) - 1


def _more(gain: float, disturbed: float) -> float:
    """The gain, had only this side lost that share."""
    return (1 + gain) / (1 - disturbed) - 1


def _undecided_reason(found: Comparison, threshold: float) -> str:
    assert found.low is not None and found.high is not None
    if found.low <= 0 <= found.high:
        return "the interval contains 0"
    if abs(found.gain) < threshold:
        return f"the interval reaches over ±{threshold:.0%}"
    return "too many comparisons in this table for the trials there are"


def _more_rounds(found: Comparison, threshold: float) -> int | None:
    """Rounds until the interval excludes 0 or fits the threshold; width goes as 1/sqrt(n)."""
    assert found.low is not None and found.high is not None
    gain = math.log1p(found.gain)
    half = (math.log1p(found.high) - math.log1p(found.low)) / 2
    limit = math.log1p(threshold)
    target = max(abs(gain) if abs(gain) >= limit else 0.0, limit - abs(gain))
    if target <= 0 or half <= 0:
        return None
    now = min(found.n, found.m)
    more = max(1, math.ceil(now * (half / target) ** 2 - now))
    return more if more <= ROUNDS_MAX else None
