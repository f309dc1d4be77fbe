"""One metric over many runs, and where it changed.

The unit is a run, not a trial: trials of one run share the state of the machine in that hour. A
change point is the split of a series into two parts that differ most (in logs); chance is what the
same split reaches when the runs are shuffled. Parts are searched again for as long as one is found,
as E-divisive does (Matteson and James 2014, doi:10.1080/01621459.2013.849605). Fewer than RUNS_MIN
runs cannot show a change at this level, and none is called.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from wirespeed.results.cells import identity
from wirespeed.results.summary import Summary

CHANCE_MAX = 0.05
PART_MIN = 2  # runs on each side of a change
RUNS_MIN = 7  # below, no arrangement is rarer than one in twenty
SHUFFLES = 999
SHUFFLES_LONG = 4999  # where many cells are asked, so that a lone change is rare enough
CHANGE_MIN = 0.02  # below, of no practical use


@dataclass(frozen=True)
class RunMedian:
    """One run's median of the metric in one cell."""

    run: str
    started: str
    commit: str
    value: float


@dataclass(frozen=True)
class Change:
    """The runs from `run` on differ from those before it; 0.10 is 10 % more."""

    run: str
    commit: str
    change: float
    chance: float
    word: str  # better or worse


@dataclass(frozen=True)
class MetricHistory:
    """A cell over the runs that measured it."""

    axes: dict[str, object]
    metric: str
    points: list[RunMedian]
    changes: list[Change] = field(default_factory=list)


def series(summaries: Iterable[Summary], metric: str) -> list[MetricHistory]:
    """Every cell of the runs, oldest run first, with its change points."""
    points: dict[tuple[tuple[str, str], ...], list[RunMedian]] = {}
    axes: dict[tuple[tuple[str, str], ...], dict[str, object]] = {}
    more_is_better = True
    for summary in sorted(summaries, key=lambda one: one.run.started):
        more_is_better = summary.better(metric) == "higher"
        for cell in summary.measured:
            value = cell.median(metric)
            if value is not None and value > 0:
                key = identity(cell.axes)
                axes.setdefault(key, dict(cell.axes))
                run = summary.run
                points.setdefault(key, []).append(
                    RunMedian(run.run_id, run.started, run.commit, value)
                )
    limit = limit_of([chance(found) for found in points.values()])
    return [
        MetricHistory(axes[key], metric, found, changes(found, more_is_better, limit))
        for key, found in points.items()
    ]


def chance(points: Sequence[RunMedian]) -> float:
    """How often shuffled runs reach as much as the best split of all of them; 1 for a few runs."""
    logs = [math.log(point.value) for point in points]
    return _tested(logs, random.Random(1), SHUFFLES_LONG)[1] if len(logs) >= RUNS_MIN else 1.0


def limit_of(chances: Sequence[float]) -> float:
    """The chance below which a cell's split counts, when so many cells are asked at once.

    Benjamini and Hochberg's: of all changes that are called, one of twenty is none.
    """
    count = len(chances)
    bars = [CHANCE_MAX * rank / count for rank in range(1, count + 1)]
    kept = [bar for bar, found in zip(bars, sorted(chances), strict=True) if found <= bar]
    return kept[-1] if kept else 0.0


def changes(
    points: Sequence[RunMedian], more_is_better: bool, limit: float = CHANCE_MAX
) -> list[Change]:
    logs = [math.log(point.value) for point in points]
    found = sorted(_splits(logs, 0, len(logs), random.Random(1), limit))
    borders = [0, *(at for at, _ in found), len(logs)]
    result = []
    for number, (at, chance) in enumerate(found, 1):
        before, after = logs[borders[number - 1] : at], logs[at : borders[number + 1]]
        change = math.expm1(fmean(after) - fmean(before))
        word = "better" if (change > 0) == more_is_better else "worse"
        if abs(change) >= CHANGE_MIN:
            result.append(Change(points[at].run, points[at].commit, change, chance, word))
    return result


def _splits(
    logs: list[float], start: int, end: int, dice: random.Random, limit: float
) -> list[tuple[int, float]]:
    part = logs[start:end]
    if len(part) < RUNS_MIN:
        return []
    at, chance = _tested(part, dice, SHUFFLES if limit >= CHANCE_MAX else SHUFFLES_LONG)
    if chance > limit:
        return []
    here = start + at
    return [
        (here, chance),
        *_splits(logs, start, here, dice, limit),
        *_splits(logs, here, end, dice, limit),
    ]


def _tested(part: Sequence[float], dice: random.Random, shuffles: int) -> tuple[int, float]:
    """The best split and its chance; given up as soon as the chance is above CHANCE_MAX."""
    at, height = _best(part)
    shuffled, higher = list(part), 1
    for _ in range(shuffles):
        dice.shuffle(shuffled)
        higher += _best(shuffled)[1] >= height
        if higher > CHANCE_MAX * (shuffles + 1):
            break
    return at, higher / (shuffles + 1)


def _best(part: Sequence[float]) -> tuple[int, float]:
    """Where the two sides differ most, each difference weighed by how many runs show it."""
    total, count, left = sum(part), len(part), 0.0
    best = (PART_MIN, -1.0)
    for at in range(1, count):
        left += part[at - 1]
        if PART_MIN <= at <= count - PART_MIN:
            gap = left / at - (total - left) / (count - at)
            best = max(best, (at, gap * gap * at * (count - at) / count), key=lambda one: one[1])
    return best
