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
    return [
        MetricHistory(axes[key], metric, found, changes(found, more_is_better))
        for key, found in points.items()
    ]


def changes(points: Sequence[RunMedian], more_is_better: bool) -> list[Change]:
    logs = [math.log(point.value) for point in points]
    found = sorted(_splits(logs, 0, len(logs), random.Random(1)))
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
    logs: list[float], start: int, end: int, dice: random.Random
) -> list[tuple[int, float]]:
    part = logs[start:end]
    if len(part) < RUNS_MIN:
        return []
    at, height = _best(part)
    shuffled = list(part)
    higher = 1
    for _ in range(SHUFFLES):
        dice.shuffle(shuffled)
        higher += _best(shuffled)[1] >= height
    chance = higher / (SHUFFLES + 1)
    if chance > CHANCE_MAX:
        return []
    here = start + at
    return [(here, chance), *_splits(logs, start, here, dice), *_splits(logs, here, end, dice)]


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
