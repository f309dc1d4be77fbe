"""Two runs next to each other: the same cells, what differs between the hosts, and by how much.

The runs were not interleaved, so what the machine did in between is in every difference. The
interval is Welch's over the logs of the trials (Welch 1947, doi:10.1093/biomet/34.1-2.28). Many
figures give chance many chances, so a difference counts under the terms of a run's verdicts: p,
q over everything that is compared, who was at its limit, and what either run's baseline differs
from itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from wirespeed.analysis import comparisons
from wirespeed.analysis.cells import Cell, identity, known_name
from wirespeed.analysis.comparisons import Pair, interference
from wirespeed.analysis.summary import Summary
from wirespeed.analysis.verdict import Terms, decide
from wirespeed.errors import InputError, ResultsError
from wirespeed.stats import student
from wirespeed.stats.comparison import (
    CONFIDENCE,
    PAIRS_MIN,
    Comparison,
    Level,
    level,
    level_over_cells,
)  # fmt: skip
from wirespeed.units import BYTE_RATES

NAMES = ("the second run", "the first run")
WORDS = {"gain": "better", "loss": "worse"}
DIFFERING = ("better", "worse")


@dataclass(frozen=True)
class Difference:
    """One metric of one cell, or over all cells, in both runs; `change` 0.10 is 10 % more."""

    axes: dict[str, object]
    metric: str
    first: float | None
    second: float | None
    change: float | None
    low: float | None
    high: float | None
    word: str  # better, worse, no difference, not decided, not comparable
    reason: str = ""
    q: float = 1.0
    seems: str = ""  # better or worse by the figures alone, where it is not comparable

    @property
    def is_lost(self) -> bool:
        """Whether only the first run has a figure."""
        return self.first is not None and self.second is None


@dataclass(frozen=True)
class RunDifferences:
    """The cells and facts that two runs have in common, and what differs."""

    facts: dict[str, tuple[object, object]]
    differences: list[Difference]
    only: tuple[int, int]  # measured cells that only one run has
    pooled: list[Difference]  # of each metric with several cells that can be compared
    missing: list[dict[str, object]] = field(default_factory=list)  # cells of the first alone

    @property
    def undecidable(self) -> str:
        """Why no figure can be worse, so that a check shows nothing; empty where one can."""
        if any(one.low is not None or one.word in DIFFERING for one in self.differences):
            return ""
        return f"no verdict is possible: no cell has {PAIRS_MIN} trials in both runs"

    @property
    def words(self) -> list[str]:
        return [one.word for one in (*self.pooled, *self.differences)]

    @property
    def verdict(self) -> str:
        """Whether the second run says what the first said; what shows nothing, says nothing."""
        if any(word in DIFFERING for word in self.words):
            return "not reproduced"
        if any(one.is_lost or one.seems for one in (*self.differences, *self.pooled)):
            return "not decided"
        words = {one.metric: one.word for one in self.pooled}
        for one in self.differences:
            if one.word != "not comparable":
                words.setdefault(one.metric, one.word)
        metrics = {one.metric for one in self.differences}
        is_same = all(words.get(metric) == "no difference" for metric in metrics)
        return "reproduced" if metrics and is_same and not self.only[0] else "not decided"


@dataclass(frozen=True)
class _Sides:
    """One metric of a cell that both runs tried."""

    pair: Pair  # the second run's cell over the first's
    found: Comparison | None
    terms: Terms
    reason: str = ""  # why a ratio is missing
    word: str = "not comparable"  # what can be said all the same


def compare(first: Summary, second: Summary, metrics: Sequence[str]) -> RunDifferences:
    """Every cell that the first run measured and the second tried, in each metric.

    Raises InputError for a metric that neither run has, ResultsError without a common cell.
    """
    names = [_known((first, second), metric) for metric in metrics]
    for name in names:
        _same_unit(first, second, name)
    theirs = {identity(cell.axes): cell for cell in second.cells if cell.trials or cell.failed}
    ours = {identity(cell.axes): cell for cell in first.measured}
    common = [key for key in ours if key in theirs]
    if not common:
        raise ResultsError("the two runs have no measured cell in common")
    pairs = [Pair(theirs[key], ours[key], "", metric) for metric in names for key in common]
    has = [pair for pair in pairs if pair.cell.values(pair.metric) or pair.base.values(pair.metric)]
    sides = [_sides(first, second, pair) for pair in has]
    over_all = [one for metric in names if (one := _over_all(first, sides, metric))]
    floors = {name: max(run.floors.get(name) or 0.0 for run in (first, second)) for name in names}
    qs = _qs([*over_all, *sides])
    seen = [replace(one, terms=comparisons.as_seen(one.pair, one.terms)) for one in sides]
    words = [_judged(one, q)[0] for one, q in zip(seen, _qs(seen), strict=True)]
    differences = [
        _seen(_difference(one, q), word)
        for one, q, word in zip(sides, qs[len(over_all) :], words, strict=True)
    ]
    pooled = [_pooled(one, q, floors) for one, q in zip(over_all, qs, strict=False)]
    every = (*differences, *pooled)
    shown = {(one.metric, word) for one in every for word in (one.word, one.seems)}
    hidden = _pooled_as_seen(first, sides, seen, floors)
    measured = {identity(cell.axes) for cell in second.measured}
    return RunDifferences(
        _facts(first, second),
        differences,
        (len(ours) - len(common), len(measured - ours.keys())),
        [*pooled, *(one for one in hidden if (one.metric, one.seems) not in shown)],
        [dict(cell.axes) for key, cell in ours.items() if key not in theirs],
    )


def _known(runs: Iterable[Summary], metric: str) -> str:
    cells = [cell for run in runs for cell in run.measured]
    if name := known_name(cells, metric):
        return name
    known = sorted({name for cell in cells for trial in cell.trials for name in trial.metrics})
    raise InputError(f"--metric: neither run has {metric!r} (metrics: {', '.join(known)})")


def _same_unit(first: Summary, second: Summary, metric: str) -> None:
    units = [one.unit(metric) for one in (first, second)]
    if BYTE_RATES.get(units[0], 1.0) != BYTE_RATES.get(units[1], 1.0):
        before, after = (unit or "no unit" for unit in units)
        raise ResultsError(f"the first run measures {metric} in {before}, the second in {after}")


def _facts(first: Summary, second: Summary) -> dict[str, tuple[object, object]]:
    """Facts of the hosts and of the method that are not the same."""
    plain = [
        {
            "recipe hash": run.recipe_hash, "commit": run.commit, "site": run.site, "fit": run.fit,
            "window, s": run.plan.duration_s, "warm-up, s": run.plan.warmup_s,
            "order": run.plan.order, "duets": run.plan.duet or "no",
            "nice": run.nice, "tuned": run.tuned or "no",
            "idle states held": run.idle_held, **run.facts,
        }
        for run in (first.run, second.run)
    ]  # fmt: skip
    names = dict.fromkeys([*plain[0], *plain[1]])
    pairs = {name: (plain[0].get(name), plain[1].get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _sides(first: Summary, second: Summary, pair: Pair) -> _Sides:
    metric, direction = pair.metric, first.better(pair.metric)
    is_idle_held = first.run.idle_held and second.run.idle_held
    terms = Terms(
        1.0, direction, interference=interference([(pair.cell, pair.base)], direction),
        threshold=_threshold(first, second),
        **comparisons.held_back(pair, direction, is_idle_held, NAMES)._asdict(),
    )  # fmt: skip
    before, after = pair.base.values(metric), pair.cell.values(metric)
    for values, which in ((after, NAMES[0]), (before, NAMES[1])):
        if not values:
            return _Sides(pair, None, terms, f"{which} has no such figure")
    if {*before, *after} == {0.0}:
        return _Sides(pair, Comparison(0.0, 0.0, 0.0, 1.0, min(len(before), len(after))), terms)
    if min(*before, *after) <= 0:
        return _Sides(pair, None, terms, *_of_zeros(before, after, direction))
    logs = [[math.log(value) for value in side] for side in (before, after)]
    found = _welch(level(logs[0]), level(logs[1]))
    return _Sides(pair, comparisons.loosened(found, comparisons.slack([pair], terms)), terms)


def _threshold(first: Summary, second: Summary) -> float:
    """Of two runs with different ones the larger: no difference of that run is smaller."""
    return max(one.run.plan.threshold for one in (first, second))


def _of_zeros(before: list[float], after: list[float], better: str) -> tuple[str, str]:
    """(reason, word) where a figure of 0 has no ratio: a rate that fell to 0 is worse, and so are
    errors where there were none."""
    if set(before) == {0.0} or set(after) == {0.0}:
        is_rise = set(before) == {0.0}
        is_better = is_rise == (better == "higher")
        return f"{'rose from' if is_rise else 'fell to'} 0", "better" if is_better else "worse"
    if better == "higher" and min(before) > 0:
        return f"fell to 0 in {after.count(0.0)} of {len(after)} trials", "worse"
    return "some figures are 0, which has no ratio", "not decided"


def _welch(before: Level, after: Level) -> Comparison:
    """Change of the geometric mean; without an interval below PAIRS_MIN on a side."""
    shift, least = after.mean - before.mean, min(before.rounds, after.rounds)
    if least < PAIRS_MIN:
        return Comparison(math.expm1(shift), None, None, 1.0, least)
    error = math.sqrt(before.variance + after.variance)
    df = round(error**4 / sum(one.variance**2 / one.df for one in (before, after)), 1)
    reach = student.critical(df, 1 - CONFIDENCE) * error
    low, high = math.expm1(shift - reach), math.expm1(shift + reach)
    p = student.two_sided_p(shift / error, df)
    return Comparison(math.expm1(shift), low, high, p, least, error, df)


def _qs(sides: Sequence[_Sides]) -> list[float]:
    """Everything that is compared at once counts, where something may be claimed of it."""
    return comparisons.qs([one.found for one in sides], [one.terms for one in sides])


def _difference(one: _Sides, q: float) -> Difference:
    pair, found = one.pair, one.found
    word, reason = _judged(one, q)
    return Difference(
        dict(pair.cell.axes), pair.metric, pair.base.median(pair.metric),
        pair.cell.median(pair.metric), found.gain if found else None,
        found.low if found else None, found.high if found else None, word, reason, q,
    )  # fmt: skip


def _seen(difference: Difference, word: str) -> Difference:
    """With what the figures alone say: a second run that is slower is not shown to be as good."""
    is_hidden = difference.word == "not comparable" and word in DIFFERING
    return replace(difference, seems=word) if is_hidden else difference


def _judged(one: _Sides, q: float) -> tuple[str, str]:
    if one.pair.cell.fails_more_than(one.pair.base):
        return "worse", f"{NAMES[0]} {one.pair.cell.failures} trials"
    if one.found is None:
        return one.word, one.reason
    if one.found.low is None:
        return "not decided", f"fewer than {PAIRS_MIN} trials on a side"
    verdict = decide(one.found, replace(one.terms, q=q))
    word = WORDS.get(verdict.word, verdict.word)
    return word, ", ".join(part for part in (verdict.reason, verdict.scope) if part)


def _over_all(first: Summary, sides: Sequence[_Sides], metric: str) -> _Sides | None:
    """The geometric mean over the cells that can be compared; None when there are not several."""
    chosen = [
        one
        for one in sides
        if one.pair.metric == metric and one.found and one.found.low is not None
        and not one.terms.withheld and one.found.error
    ]  # fmt: skip
    if len(chosen) < 2:
        return None
    # From the first run's level of each cell, as cells that lost rounds may be left out.
    levels = [fmean(_logs(one.pair.base, metric).values()) for one in chosen]
    before, after = (
        level_over_cells(
            [_from(_logs(cell, metric), base) for cell, base in zip(side, levels, strict=True)]
        )
        for side in ([one.pair.base for one in chosen], [one.pair.cell for one in chosen])
    )
    assert before is not None and after is not None
    terms = Terms(
        better=first.better(metric),
        interference=interference(
            [(one.pair.cell, one.pair.base) for one in chosen], first.better(metric)
        ),
        threshold=sides[0].terms.threshold,
    )
    found = _welch(before, after)
    slack = comparisons.slack([one.pair for one in chosen], terms)
    return _Sides(chosen[0].pair, comparisons.loosened(found, slack), terms)


def _pooled_as_seen(
    first: Summary, sides: Sequence[_Sides], seen: Sequence[_Sides], floors: Mapping[str, float]
) -> list[Difference]:
    """The differences over all cells, also the withheld ones, by their figures alone: many small
    losses that no single cell shows are not shown to be none either."""
    over_all = [one for metric in floors if (one := _over_all(first, seen, metric))]
    differences = []
    for one, q in zip(over_all, _qs([*over_all, *seen]), strict=False):
        pooled = _pooled(one, q, floors)
        withheld = [
            was.terms.withheld
            for was, now in zip(sides, seen, strict=True)
            if was.pair.metric == pooled.metric and was.terms.withheld and not now.terms.withheld
        ]
        if withheld and pooled.word in DIFFERING:
            reason = f"{len(withheld)} of its cells are not comparable: {withheld[0]}"
            hidden = replace(pooled, word="not comparable", seems=pooled.word)
            differences.append(replace(hidden, reason=reason))
    return differences


def _logs(cell: Cell, metric: str) -> dict[int, float]:
    return {number: math.log(value) for number, value in cell.by_round(metric).items()}


def _from(logs: Mapping[int, float], level: float) -> dict[int, float]:
    return {number: value - level for number, value in logs.items()}


def _pooled(one: _Sides, q: float, floors: Mapping[str, float]) -> Difference:
    """Drift between the runs is in all cells alike, so a pooled shift counts only if its whole
    interval lies outside the noise floor. The floor never makes two runs equal: the margin of
    "no difference" is fixed, and a noisy run decides less, not more."""
    found, limit = one.found, max(one.terms.threshold, floors.get(one.pair.metric, 0.0))
    assert found is not None
    word, reason = _judged(replace(one, pair=replace(one.pair, cell=one.pair.base)), q)
    is_beyond = (
        found.low is not None
        and found.high is not None
        and (found.low > limit or found.high < -limit)
    )
    if word in DIFFERING and not is_beyond:
        word, reason = "not decided", f"the interval reaches into ±{limit:.1%}"
    return Difference(
        {}, one.pair.metric, None, None, found.gain, found.low, found.high, word, reason, q
    )
