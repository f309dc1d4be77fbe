"""One metric over many runs, and where it changed.

The unit is a run, not a trial: trials of one run share the state of the machine in that hour. A
change point is the split of a series into two parts that differ most (in logs); chance is what the
same split reaches when the runs are shuffled. Parts are searched again for as long as one is found,
as E-divisive does (Matteson and James 2014, doi:10.1080/01621459.2013.849605). Fewer than RUNS_MIN
runs cannot show a change at this level, and none is called.

A user who follows a server looks after every run, at every cell, and each look may give a false
positive. So the cells count together, a part has half of what the whole had, and all of it is
divided by how often a history of this length can have been looked at: then one of twenty histories
has a false change once in its first sixty runs, not every second one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import fmean

from wirespeed.analysis.cells import identity
from wirespeed.analysis.summary import Summary
from wirespeed.errors import ResultsError
from wirespeed.results import store
from wirespeed.results.model import Run
from wirespeed.units import BYTE_RATES

CHANCE_MAX = 0.05
FIRST_LOOK = 0.035  # the second has half of it, …: simulated, sixty looks come to CHANCE_MAX
PART_MIN = 2  # runs on each side of a change
RUNS_MIN = 8  # of seven the rarest split is one of 2 in 35 arrangements, more than CHANCE_MAX
SHUFFLES_LEAST = 4999
SELDOM = 5 / (SHUFFLES_LEAST + 1)  # a chance that more shuffles may show to be less
EXCEEDED = 20  # so many shuffles that reach as much give a chance (Besag and Clifford 1991)
CHANGE_MIN = 0.02  # below, of no practical use
ROUNDING = 1e-9  # the same split in another order of its runs
#: Facts of a machine by their names: another one of these changes figures, whatever the commit.
MACHINE = {
    "cpu_model": "CPU model", "cores": "cores", "kernel": "kernel", "memory_mib": "memory",
}  # fmt: skip


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
    is_new: bool = False  # detected with the last run for the first time
    conditions: tuple[str, ...] = ()  # of the measurement, that changed with this run too


@dataclass(frozen=True)
class MetricHistory:
    """A cell over the runs that measured it."""

    axes: dict[str, object]
    metric: str
    points: list[RunMedian]
    changes: list[Change] = field(default_factory=list)


@dataclass(frozen=True)
class Lost:
    """A cell that had a figure and has none in the last run, or one of 0, or trials that failed."""

    axes: dict[str, object]
    reason: str


def in_order(summaries: Iterable[Summary]) -> list[Summary]:
    """Oldest first, by the times in their names: each is later than those of all runs that were in
    its folder, also where the clock was set back between them and `started` is earlier."""
    return sorted(summaries, key=lambda one: (_made_s(one.run), one.run.started))


def _made_s(run: Run) -> float:
    named = store.stamp_s(run.run_id)
    if named is not None:
        return named
    try:
        return datetime.fromisoformat(run.started).timestamp()
    except ValueError:  # a run of somebody else's program
        return 0.0


def series(summaries: Iterable[Summary], metric: str) -> list[MetricHistory]:
    """Every cell of the runs, oldest run first, with its change points; raises ResultsError where
    the runs have the metric in different units."""
    summaries = list(summaries)
    _same_unit(summaries, metric)
    ordered = in_order(summaries)
    histories = _histories(ordered, metric)
    if not any(one.changes for one in histories):
        return histories
    before = {identity(one.axes): one for one in _histories(ordered[:-1], metric)}
    runs = {one.run.run_id: one.run for one in ordered}
    return [
        _with_conditions(_with_news(one, before.get(identity(one.axes))), runs) for one in histories
    ]


def _same_unit(summaries: Sequence[Summary], metric: str) -> None:
    given = dict.fromkeys(one.unit(metric) for one in summaries)
    if len({BYTE_RATES.get(unit, 1.0) for unit in given}) > 1:
        units = " and ".join(unit or "no unit" for unit in given)
        raise ResultsError(
            f"--metric: these runs measure {metric} in {units} (choose runs of one unit)"
        )


def _with_conditions(history: MetricHistory, runs: Mapping[str, Run]) -> MetricHistory:
    """Says of each change what else its first run had than the run before it: a new kernel or
    machine explains a change that its commit did not make."""
    places = {point.run: number for number, point in enumerate(history.points)}
    changes = [
        replace(
            one,
            conditions=_differing(runs[history.points[places[one.run] - 1].run], runs[one.run]),
        )
        for one in history.changes
    ]
    return replace(history, changes=changes)


def _differing(before: Run, after: Run) -> tuple[str, ...]:
    names = [
        name for fact, name in MACHINE.items() if before.facts.get(fact) != after.facts.get(fact)
    ]
    names += ["site"] * (before.site != after.site)
    times = [(run.plan.duration_s, run.plan.warmup_s) for run in (before, after)]
    return (*names, *["times of the plan"] * (times[0] != times[1]))


def _with_news(now: MetricHistory, before: MetricHistory | None) -> MetricHistory:
    """Marks the changes that the runs before the last one did not show yet. With another run the
    same change may be placed a run or two further."""
    places = {point.run: number for number, point in enumerate(now.points)}
    known = [(places[one.run], one.word) for one in before.changes] if before else []
    changes = [
        replace(
            one,
            is_new=not any(
                word == one.word and abs(at - places[one.run]) <= PART_MIN for at, word in known
            ),
        )
        for one in now.changes
    ]
    return replace(now, changes=changes)


def lost(summaries: Iterable[Summary], metric: str) -> list[Lost]:
    """Cells that the last run lost: its planned cells, and those of the run before."""
    *earlier, last = in_order(summaries)
    cells = {identity(one.axes): one for one in last.cells}
    before = {identity(one.axes): one for one in earlier[-1].cells}
    expected = {identity(one.axes): one for one in (*earlier[-1].measured, *last.cells)}
    is_rate = last.better(metric) == "higher"
    losses = []
    for key, cell in expected.items():
        there = cells.get(key)
        now = there.median(metric) if there else None
        was = _last_known(earlier, key, metric)
        if was is None:
            continue
        if now is None:
            reason = "not in the last run"
            if there:
                reason = there.reason or ("its trials lack it" if there.trials else there.state)
            losses.append(Lost(dict(cell.axes), f"no figure: {reason}"))
        elif there and (there.fails_more_than(before[key]) if key in before else there.failed):
            losses.append(Lost(dict(cell.axes), f"{there.failures} trials: {there.failure}"))
        elif is_rate and now <= 0 < was:
            losses.append(Lost(dict(cell.axes), "fell to 0"))
        elif not is_rate and was <= 0 < now:
            losses.append(Lost(dict(cell.axes), "rose from 0"))
    return losses


def _last_known(
    earlier: Sequence[Summary], key: tuple[tuple[str, str], ...], metric: str
) -> float | None:
    for summary in reversed(earlier):
        for cell in summary.measured:
            if identity(cell.axes) == key and (value := cell.median(metric)) is not None:
                return value
    return None


def _histories(ordered: Sequence[Summary], metric: str) -> list[MetricHistory]:
    points: dict[tuple[tuple[str, str], ...], list[RunMedian]] = {}
    axes: dict[tuple[tuple[str, str], ...], dict[str, object]] = {}
    more_is_better = True
    for summary in ordered:
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
    limit = _limit(list(points.values()))
    return [
        MetricHistory(axes[key], metric, found, changes(found, more_is_better, limit))
        for key, found in points.items()
    ]


def _limit(histories: Sequence[Sequence[RunMedian]]) -> float:
    """The limit for a change among these histories; exact chances only where they decide."""
    share = share_of(max(map(len, histories), default=0))
    chances = [chance(one) for one in histories]
    if limit := limit_of(chances, share):
        return limit
    least = share / max(1, len(histories))
    return limit_of(
        [
            chance(one, least) if found <= SELDOM else found
            for one, found in zip(histories, chances, strict=True)
        ],
        share,
    )


def share_of(runs: int) -> float:
    """The share that one look may spend, when one was taken after each of so many runs."""
    return FIRST_LOOK / max(1, runs - RUNS_MIN + 1)


def chance(points: Sequence[RunMedian], least: float = CHANCE_MAX) -> float:
    """How often shuffled runs reach as much as the best split of all of them; 1 for a few runs.

    `least` is a chance that must be distinguished from a smaller one.
    """
    logs = [math.log(point.value) for point in points]
    return _tested(logs, random.Random(1), least)[1] if len(logs) >= RUNS_MIN else 1.0


def limit_of(chances: Sequence[float], share: float = CHANCE_MAX) -> float:
    """The chance below which a cell's split counts, when so many cells are asked at once.

    Benjamini and Hochberg's: of all changes that are called, the `share` is none.
    """
    count = len(chances)
    bars = [share * rank / count for rank in range(1, count + 1)]
    kept = [bar for bar, chance in zip(bars, sorted(chances), strict=True) if chance <= bar]
    return kept[-1] if kept else 0.0


def changes(
    points: Sequence[RunMedian], more_is_better: bool, limit: float = CHANCE_MAX
) -> list[Change]:
    logs = [math.log(point.value) for point in points]
    splits = sorted(_splits(logs, 0, len(logs), random.Random(1), limit))
    borders = [0, *(at for at, _ in splits), len(logs)]
    result = []
    for number, (at, chance) in enumerate(splits, 1):
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
    if len(part) < RUNS_MIN or limit <= 0:
        return []
    at, chance = _tested(part, dice, limit)
    if chance > limit:
        return []
    here = start + at
    return [
        (here, chance),
        *_splits(logs, start, here, dice, limit / 2),
        *_splits(logs, here, end, dice, limit / 2),
    ]


def _tested(part: Sequence[float], dice: random.Random, least: float) -> tuple[int, float]:
    """The best split and its chance, from as many shuffles as distinguish it from `least`."""
    at, height = _best(part)
    shuffled, higher = list(part), 0
    shuffles = max(SHUFFLES_LEAST, math.ceil(2 / least))
    for done in range(1, shuffles + 1):
        dice.shuffle(shuffled)
        higher += _best(shuffled)[1] >= height * (1 - ROUNDING)
        if higher == EXCEEDED:
            return at, higher / done
    return at, (higher + 1) / (shuffles + 1)


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
