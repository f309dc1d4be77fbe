"""Two runs beside each other: the same cells, what differs between the hosts, and by how much.

The runs were not interleaved, so what the machine did in between is in every difference. The
interval is Welch's over the logs of the trials (Welch 1947, doi:10.1093/biomet/34.1-2.28); a
difference counts only when it also exceeds what either run's baseline differs from itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, variance

from wirespeed.errors import ResultsError
from wirespeed.results import student
from wirespeed.results.cells import identity
from wirespeed.results.comparison import CONFIDENCE, THRESHOLD
from wirespeed.results.summary import Cell, Summary

TRIALS_MIN = 3


@dataclass(frozen=True)
class Difference:
    """One metric of one cell in both runs; `change` 0.10 is 10 % more in the second."""

    axes: dict[str, object]
    metric: str
    first: float
    second: float
    change: float
    low: float | None
    high: float | None
    word: str  # better, worse, no difference, not decided


@dataclass(frozen=True)
class Apart:
    """What two runs have in common, and what not."""

    facts: dict[str, tuple[object, object]]
    differences: list[Difference]
    only: tuple[int, int]  # measured cells that only one run has


def compare(first: Summary, second: Summary, metrics: list[str]) -> Apart:
    """Every cell that both runs measured, in each metric; raises ResultsError without any."""
    theirs = {identity(cell.axes): cell for cell in second.measured}
    ours = {identity(cell.axes): cell for cell in first.measured}
    common = [key for key in ours if key in theirs]
    if not common:
        raise ResultsError("the two runs have no measured cell in common")
    differences = [
        found
        for metric in metrics
        for key in common
        if (found := _difference(first, second, ours[key], theirs[key], metric))
    ]
    only = (len(ours) - len(common), len(theirs) - len(common))
    return Apart(_facts(first, second), differences, only)


def _facts(first: Summary, second: Summary) -> dict[str, tuple[object, object]]:
    """Facts of the hosts and of the method that are not the same."""
    plain = [
        {
            "recipe hash": run.recipe_hash, "commit": run.commit, "site": run.site, "fit": run.fit,
            "window, s": run.plan.duration_s, "idle states held": run.idle_held, **run.facts,
        }
        for run in (first.run, second.run)
    ]  # fmt: skip
    names = dict.fromkeys([*plain[0], *plain[1]])
    pairs = {name: (plain[0].get(name), plain[1].get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _difference(
    first: Summary, second: Summary, ours: Cell, theirs: Cell, metric: str
) -> Difference | None:
    a, b = ours.values(metric), theirs.values(metric)
    if not a or not b or min(*a, *b) <= 0:
        return None
    change, low, high = _welch([math.log(v) for v in a], [math.log(v) for v in b])
    floor = max(THRESHOLD, first.floors.get(metric) or 0.0, second.floors.get(metric) or 0.0)
    word = _word(change, low, high, floor, first.better(metric) == "higher")
    medians = ours.median(metric) or 0.0, theirs.median(metric) or 0.0
    return Difference(dict(ours.axes), metric, *medians, change, low, high, word)


def _welch(a: list[float], b: list[float]) -> tuple[float, float | None, float | None]:
    """Change of the geometric mean with its interval; without one below TRIALS_MIN trials."""
    shift = fmean(b) - fmean(a)
    if min(len(a), len(b)) < TRIALS_MIN:
        return math.expm1(shift), None, None
    parts = [(max(variance(side), 1e-12) / len(side), len(side) - 1) for side in (a, b)]
    error = math.sqrt(sum(part for part, _ in parts))
    freedom = error**4 / sum(part**2 / df for part, df in parts)
    reach = student.critical(round(freedom, 1), 1 - CONFIDENCE) * error
    return math.expm1(shift), math.expm1(shift - reach), math.expm1(shift + reach)


def _word(
    change: float, low: float | None, high: float | None, floor: float, more_is_better: bool
) -> str:
    if low is None or high is None:
        return "not decided"
    if -floor <= low and high <= floor:
        return "no difference"
    if low <= 0 <= high or abs(change) < floor:
        return "not decided"
    return "better" if (change > 0) == more_is_better else "worse"
