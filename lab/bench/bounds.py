"""Intervals for the chance behind a count of hits: Clopper and Pearson's (1934), which is exact and
holds at least as often as it says, and Wilson's (1927), which holds that often on average.

They assume that the tries are independent. Tries of one session share a state of the machine, so
whoever prints them also prints the sessions.
"""

import math
from statistics import NormalDist

CONFIDENCE = 0.95


def at_most(hits: int, tries: int, chance: float) -> float:
    """The chance of so many hits or fewer."""
    if chance <= 0.0 or hits >= tries:
        return 1.0
    if chance >= 1.0:
        return 0.0
    logs = (
        math.lgamma(tries + 1) - math.lgamma(k + 1) - math.lgamma(tries - k + 1)
        + k * math.log(chance) + (tries - k) * math.log1p(-chance)
        for k in range(hits + 1)
    )  # fmt: skip
    return min(1.0, math.fsum(map(math.exp, logs)))


def interval(hits: int, tries: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The chances that so many hits do not rule out; all of them where nothing was tried."""
    if tries == 0:
        return 0.0, 1.0
    tail = (1 - confidence) / 2
    # The lowest chance with which so many or more are not too rare, the highest with so many or
    # fewer.
    low = 0.0 if hits == 0 else _solved(lambda p: 1 - at_most(hits - 1, tries, p) >= tail)
    high = 1.0 if hits == tries else 1 - _solved(lambda q: at_most(hits, tries, 1 - q) >= tail)
    return low, high


def wilson(hits: int, tries: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Narrower with a few tries; all chances where nothing was tried."""
    if tries == 0:
        return 0.0, 1.0
    z2 = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    share, whole = hits / tries, tries + z2
    centre = (hits + z2 / 2) / whole
    reach = math.sqrt(z2 * (tries * share * (1 - share) + z2 / 4)) / whole
    return max(0.0, centre - reach), min(1.0, centre + reach)


def _solved(is_enough) -> float:
    """The least chance with which it is enough; it is so for all larger ones."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def more_for_at_most(hits: int, tries: int, chance: float, most: int = 100_000) -> int | None:
    """How many more tries without a hit put the upper bound at `chance`; None for too many."""
    low, high = -1, most
    if interval(hits, tries + most)[1] > chance:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if interval(hits, tries + middle)[1] <= chance else (middle, high)
    return high
