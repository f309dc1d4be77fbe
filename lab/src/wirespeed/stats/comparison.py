"""The statistics of a comparison: gains from pairs within a round, intervals, verdicts.

A round measures the two sides of a comparison next to each other, so the unit of evidence is
the log ratio of one round: drift of the machine falls out of it, and its spread is that of the
pair, however unequal the two sides are. Over the rounds their mean is the gain, with Student's t
interval. A few rounds show little of a spread, so what the run's other comparisons say of theirs
is taken in (empirical Bayes, Smyth 2004, doi:10.2202/1544-6115.1027), never to make the
comparison's own spread smaller. docs/method.md has the reasons, lab/bench/verdicts.py the error
rates. Nothing here opens files or knows what a recipe is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

from wirespeed.stats import student

__all__ = [
    "CONFIDENCE",
    "PAIRS_MIN",
    "P_MAX",
    "Q_MAX",
    "THRESHOLD",
    "Comparison",
    "benjamini_hochberg",
    "compare",
    "geometric_mean",
    "level",
    "level_over_cells",
    "log_ratios",
    "median",
    "noise_floor",
    "over_cells",
    "prior_df_max",
    "rank_correlation",
]

CONFIDENCE = 0.95
PAIRS_MIN = 3  # rounds with a valid trial on both sides; fewer give no verdict
THRESHOLD = 0.02  # a difference below 2 % is of no practical use
Q_MAX = 0.05  # share of false discoveries accepted among the verdicts of one run
P_MAX = 0.02  # and no single one with more than this chance of being none
PRIOR_DF_MAX = 10.0  # other comparisons count for no more than so many rounds of one's own
VARIANCE_MIN = 1e-10  # equal figures in every round: a counter's grain, not certainty


@dataclass(frozen=True)
class Comparison:
    """A gain of one side over another; 0.10 is 10 % more."""

    gain: float
    low: float | None  # None: a single round has no interval
    high: float | None
    p: float
    rounds: int  # with a figure on both sides
    error: float = 0.0  # standard error of the log ratio
    df: float = 0.0

    @property
    def coverage(self) -> float | None:
        return CONFIDENCE if self.low is not None else None


def log_ratios(over: Mapping[int, float], base: Mapping[int, float]) -> dict[int, float]:
    """The log ratio of each round that both sides have; figures not above zero have none."""
    return {
        number: math.log(over[number] / base[number])
        for number in sorted(over.keys() & base.keys())
        if over[number] > 0 and base[number] > 0
    }


def compare(pairs: Sequence[Sequence[float]]) -> list[Comparison | None]:
    """The comparisons of one run, from the log ratios of each; None where a side has no figure."""
    spreads = [
        (max(variance(ratios), VARIANCE_MIN), len(ratios) - 1)
        for ratios in pairs
        if len(ratios) >= 2
    ]
    df0, variance0 = _prior(spreads)
    return [_comparison(ratios, df0, variance0) for ratios in pairs]


@dataclass(frozen=True)
class Level:
    """A mean of logs with what is known of its error."""

    mean: float
    variance: float  # of the mean
    df: float
    rounds: int


def level(values: Sequence[float]) -> Level:
    """The mean of figures that do not err together; of a single one nothing else is known."""
    count = len(values)
    observed = max(variance(values), VARIANCE_MIN) if count > 1 else 0.0
    return Level(fmean(values), observed / count, count - 1.0, count)


def over_cells(pairs: Sequence[Mapping[int, float]]) -> Comparison | None:
    """The geometric mean of the gains of several cells, from {round: log ratio} of each."""
    pooled = level_over_cells(pairs)
    if pooled is None:
        return None
    gain = math.expm1(pooled.mean)
    if pooled.df <= 0:
        return Comparison(gain, None, None, 1.0, pooled.rounds)
    return _with_interval(pooled.mean, math.sqrt(pooled.variance), pooled.df, pooled.rounds)


def level_over_cells(cells: Sequence[Mapping[int, float]]) -> Level | None:
    """The mean over cells, from {round: log} of each.

    Cells that share a server's life, or a slow hour of the host, err together, and their common
    error must stay in the spread: a round is one figure, the mean of what its cells differ from
    their own means. A round that cells lost counts by its share of the whole mean (Kish's
    effective number), and what a cell's own mean hides of its spread is given back.
    """
    chosen = _with_enough_rounds(cells)
    if not chosen:
        return None
    means = [fmean(logs.values()) for logs in chosen]
    numbers = sorted(set().union(*chosen))
    weights, figures = [], []
    for number in numbers:
        there = [(logs, mean) for logs, mean in zip(chosen, means, strict=True) if number in logs]
        weights.append(sum(1 / len(logs) for logs, _ in there) / len(chosen))
        figures.append(
            fmean((logs[number] - mean) * _hidden(len(logs), len(numbers)) for logs, mean in there)
        )
    count = 1 / sum(weight**2 for weight in weights)
    most = max(map(len, chosen))
    if most < 2:
        return Level(fmean(means), 0.0, 0.0, 1)
    centre = math.fsum(w * f for w, f in zip(weights, figures, strict=True))
    squares = math.fsum(w * (f - centre) ** 2 for w, f in zip(weights, figures, strict=True))
    observed = max(squares * count / (count - 1), VARIANCE_MIN)
    return Level(fmean(means), observed / count, count - 1, min(most, round(count)))


def _with_enough_rounds(cells: Sequence[Mapping[int, float]]) -> list[Mapping[int, float]]:
    """Without the cells that lost more than half of what the others have."""
    lengths = [len(logs) for logs in cells if logs]
    least = max(min(PAIRS_MIN, max(lengths, default=0)), median(lengths) / 2 if lengths else 0)
    return [logs for logs in cells if logs and len(logs) >= least]


def _hidden(rounds: int, of: int) -> float:
    """A mean follows its own figures; the fewer they are, the closer."""
    return math.sqrt(rounds / (rounds - 1) * (of - 1) / of) if rounds > 1 else 1.0


def _comparison(ratios: Sequence[float], df0: float, variance0: float) -> Comparison | None:
    if not ratios:
        return None
    centre, rounds = fmean(ratios), len(ratios)
    gain = math.expm1(centre)
    if rounds < 2:
        return Comparison(gain, None, None, 1.0, rounds)
    observed = max(variance(ratios), VARIANCE_MIN)
    df = rounds - 1 + df0
    shared = (df0 * variance0 + (rounds - 1) * observed) / df
    return _with_interval(centre, math.sqrt(max(observed, shared) / rounds), df, rounds)


def _with_interval(centre: float, error: float, df: float, rounds: int) -> Comparison:
    reach = student.critical(round(df, 1), 1 - CONFIDENCE) * error
    low, high = math.expm1(centre - reach), math.expm1(centre + reach)
    p = student.two_sided_p(centre / error, df)
    return Comparison(math.expm1(centre), low, high, p, rounds, error, df)


def _prior(spreads: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """(degrees of freedom, variance) that the comparisons of a run have in common.

    The more their own variances differ beyond what chance explains, the less is in common.
    """
    if len(spreads) < 2:
        return 0.0, 0.0
    logs = [math.log(spread) - student.digamma(df / 2) + math.log(df / 2) for spread, df in spreads]
    unequal = variance(logs) - fmean(student.trigamma(df / 2) for _, df in spreads)
    least = prior_df_max(len(spreads), min(df for _, df in spreads))
    if unequal <= 0:
        total = sum(df for _, df in spreads)
        return least, sum(spread * df for spread, df in spreads) / total
    df0 = min(2 * student.trigamma_inverse(unequal), least)
    return df0, math.exp(fmean(logs) + student.digamma(df0 / 2) - math.log(df0 / 2))


def prior_df_max(comparisons: int, df: float) -> float:
    """The weight of the other comparisons: half of their evidence, as equal spreads are a guess."""
    return min(PRIOR_DF_MAX, (comparisons - 1) * df / 2)


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


def noise_floor(cells: Sequence[Mapping[int, float]]) -> float | None:
    """How far the baseline differs from itself: its odd rounds against its even ones.

    `cells` maps rounds to figures. Nothing differs between the two halves, so what they differ by
    is noise. Means of logs are compared, as in a gain, so the difference of two halves is scaled
    to two whole cells exactly; the root mean square over the cells lets one bad cell raise it.
    """
    squares = []
    for values in cells:
        logs = [math.log(values[number]) for number in sorted(values) if values[number] > 0]
        odd, even = logs[0::2], logs[1::2]
        if len(logs) >= PAIRS_MIN:
            scale = (2 / len(logs)) / (1 / len(odd) + 1 / len(even))
            squares.append((fmean(odd) - fmean(even)) ** 2 * scale)
    return math.expm1(math.sqrt(fmean(squares))) if squares else None


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
