"""How many rounds a run needs for its verdicts, and what a given number of rounds can decide."""

from __future__ import annotations

import math
from statistics import NormalDist

from wirespeed.stats import student
from wirespeed.stats.comparison import P_MAX, PAIRS_MIN, Q_MAX, prior_df_max

QUIET_SPREAD = 0.015  # of one trial on a quiet machine (docs/history/lab.md)
ROUNDS_MAX = 40  # more are not proposed: the machine is too noisy
ROUNDS_PLAIN = 5  # of a recipe that compares nothing
GROWTH_MAX = 2  # times the rounds of a quiet machine: users do not expect a run of hours
# (difference, chance to find it): when all cells have it, and when a single one does.
ALL_HAVE = ((0.03, 0.50), (0.05, 0.80), (0.10, 0.95))
ONE_HAS = ((0.05, 0.80), (0.10, 0.95))


def planned(comparisons: int, spread: float = QUIET_SPREAD) -> int:
    """The rounds of a run with so many comparisons, where a trial spreads by `spread`."""
    if comparisons == 0:
        return ROUNDS_PLAIN
    candidates = [needed(size, chance, 1, comparisons, spread) for size, chance in ALL_HAVE]
    candidates += [
        needed(size, chance, comparisons, comparisons, spread) for size, chance in ONE_HAS
    ]
    return max(ROUNDS_PLAIN, *(rounds or ROUNDS_MAX for rounds in candidates))


def planned_here(comparisons: int, spread: float | None) -> int:
    """The same for a machine whose trials are known to spread by so much; None where that is not
    known. A machine that is stiller than the quiet one gets no fewer."""
    quiet = planned(comparisons)
    rounds = planned(comparisons, max(spread or 0.0, QUIET_SPREAD))
    return min(rounds, GROWTH_MAX * quiet)


def needed(
    difference: float, chance: float, rivals: int, comparisons: int, spread: float
) -> int | None:
    """Rounds until a difference is found with this chance; None when ROUNDS_MAX do not do.

    `rivals` is how many comparisons its p must be small for: 1 when all of them differ alike, all
    of them when it is the only one.
    """
    for rounds in range(PAIRS_MIN, ROUNDS_MAX + 1):
        if smallest(rounds, rivals, comparisons, spread, chance) <= math.log1p(difference):
            return rounds
    return None


def smallest(
    rounds: int, rivals: int, comparisons: int, spread: float, chance: float = 0.5
) -> float:
    """The log ratio that so many rounds find with this chance."""
    df = rounds - 1 + prior_df_max(comparisons, rounds - 1)
    error = math.sqrt(2 / rounds) * spread
    bar = student.critical(round(df, 1), min(P_MAX, Q_MAX / rivals))
    return error * (bar + NormalDist().inv_cdf(chance))
