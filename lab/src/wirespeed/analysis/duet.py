"""The result of a duet: the ratio of two contenders that took turns, from its slices.

The speed of a machine changes within 100 ms, so slices of 25 ms share what disturbs them, and the
ratio of a group of four (A B B A or B A A B) is almost free of it. What is left are rare bursts,
which a trimmed mean leaves out. Bursts come in spells, and so do garbage collections: groups are
trimmed within blocks of seconds, and blocks are what the error within a pair of servers is made of.
Two fresh pairs differ by more than that, so the verdict's interval is over pairs (comparisons.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median, variance
from typing import Any

from wirespeed.results.model import DuetRatio, Trial

RATE = "rps"
CPU = ("server.work_us_per_request", "server.cpu_us_per_request")
TRIM = 0.2  # of the groups of a block, at each end
GROUPS_MIN = 5  # fewer say nothing, trimmed or not
LEFT_OUT_MAX = 0.25  # of the groups; when more were not drained, the rest may be a selection
BASELINE, CONTENDER = 0, 1  # the sides
SETTLE_SHARE, SETTLE_MOST_S = 0.1, 0.5  # at the beginning of a pair: connections have just opened


@dataclass(frozen=True)
class Slice:
    """One turn of one side, from the thaw until nothing was in flight."""

    group: int
    side: int  # BASELINE or CONTENDER
    seconds: float
    responses: int
    cpu_s: float  # of the servers
    counted_s: float  # of the part that a rate is made of
    counted: int
    is_drained: bool
    freezing_s: float


@dataclass(frozen=True)
class Told:
    """The result of one pair."""

    ratios: dict[str, DuetRatio]
    groups: int
    left_out: int
    problem: str = ""
    cores_used: tuple[float, float] = (0.0, 0.0)  # by the servers of each side while in its turn


def of_slices(slices: Sequence[Slice], block_s: float, has_cpu: bool) -> Told:
    """The contender over the baseline in each metric. `has_cpu` is False where a server polls: its
    CPU time for a request means nothing."""
    groups = _groups(slices)
    if not groups:
        return Told({}, 0, 0, "it has no slices")
    whole_s = sum(_seconds(group) for group in groups)
    groups = _settled(groups, min(SETTLE_MOST_S, SETTLE_SHARE * whole_s))
    good = [group for group in groups if _counts(group)]
    left_out = len(groups) - len(good)
    if left_out > LEFT_OUT_MAX * len(groups):
        return Told({}, len(good), left_out, f"{left_out} of {len(groups)} groups did not drain")
    if len(good) < GROUPS_MIN:
        return Told({}, len(good), left_out, f"{len(good)} groups of slices are too few")
    blocks = _blocks(good, block_s)
    ratios = {RATE: _ratio(blocks, _rate)}
    if has_cpu and all(_cpu(group, side) > 0 for group in good for side in (0, 1)):
        cpu = _ratio(blocks, _cpu)
        ratios |= dict.fromkeys(CPU, cpu)
    used = _cores_used(good, BASELINE), _cores_used(good, CONTENDER)
    return Told(ratios, len(good), left_out, cores_used=used)


def trimmed_mean(values: Sequence[float], share: float = TRIM) -> float:
    """The mean without the lowest and the highest values, this share of them at each end."""
    ordered = sorted(values)
    cut = int(share * len(ordered))
    return fmean(ordered[cut : len(ordered) - cut])


def over(trials: Iterable[Trial], base: str, metric: str) -> dict[int, float]:
    """The log ratio of each round that has a duet of these trials' cell with the cell `base`."""
    return {
        trial.round: trial.duet.ratios[metric].log
        for trial in trials
        if trial.duet is not None and trial.duet.over == base and metric in trial.duet.ratios
    }


def named(ratios: Mapping[str, DuetRatio], own: Iterable[str]) -> dict[str, DuetRatio]:
    """With the rate of requests under each name that the recipe has for it."""
    return {**dict.fromkeys(own, ratios[RATE]), **ratios} if RATE in ratios else dict(ratios)


def with_names(trials: Iterable[Trial], metrics: Iterable[Mapping[str, Any]]) -> tuple[Trial, ...]:
    """The trials of a run, with the rates of their duets under the names of its metrics. Earlier
    builds knew a rate as `rps` only; with rounds that were added since, those would not count."""
    trials = tuple(trials)
    loads = {one.name for trial in trials for one in trial.processes if one.role == "load"}
    own = [str(one["name"]) for one in metrics if _is_rate(one)] if len(loads) <= 1 else []
    return tuple(
        replace(trial, duet=replace(trial.duet, ratios=named(trial.duet.ratios, own)))
        if trial.duet is not None
        else trial
        for trial in trials
    )


def _is_rate(metric: Mapping[str, Any]) -> bool:
    return metric.get("combine", "sum") == "sum" and metric.get("field", "") in ("rps", "")


def busy_over(trials: Iterable[Trial], base: str, side: int) -> float | None:
    """How full the servers of a side usually were in the duets with the cell `base`."""
    busy = [
        trial.duet.busy[side]
        for trial in trials
        if trial.duet is not None and trial.duet.over == base and trial.duet.ratios
        and len(trial.duet.busy) == 2
    ]  # fmt: skip
    known = [share for share in busy if share is not None]
    return median(known) if known and len(known) == len(busy) else None


def _groups(slices: Sequence[Slice]) -> list[list[Slice]]:
    groups: dict[int, list[Slice]] = {}
    for one in slices:
        groups.setdefault(one.group, []).append(one)
    return [group for group in groups.values() if len(group) == 4]


def _seconds(group: Sequence[Slice]) -> float:
    return sum(one.seconds + one.freezing_s for one in group)


def _settled(groups: list[list[Slice]], settle_s: float) -> list[list[Slice]]:
    """Without those of the first moments."""
    for number, group in enumerate(groups):
        settle_s -= _seconds(group)
        if settle_s < 0:
            return groups[number:]
    return []


def _counts(group: Sequence[Slice]) -> bool:
    """A request in flight at a freeze has its CPU time in one slice and its response in another."""
    return all(one.is_drained and one.counted > 0 and one.counted_s > 0 for one in group)


def _blocks(groups: list[list[Slice]], block_s: float) -> list[list[list[Slice]]]:
    """Stretches of equal numbers of groups, about so long each, none with too few of them."""
    number = int(sum(_seconds(group) for group in groups) / block_s)
    number = max(1, min(number, len(groups) // GROUPS_MIN))
    edges = [len(groups) * place // number for place in range(number + 1)]
    return [groups[a:b] for a, b in pairwise(edges)]


def _rate(group: Sequence[Slice], side: int) -> float:
    slices = [one for one in group if one.side == side]
    return sum(one.counted for one in slices) / sum(one.counted_s for one in slices)


def _cpu(group: Sequence[Slice], side: int) -> float:
    slices = [one for one in group if one.side == side]
    return sum(one.cpu_s for one in slices) / sum(one.responses for one in slices)


def _cores_used(groups: Sequence[Sequence[Slice]], side: int) -> float:
    """By the utilisation law, at the rate of the part that counts: a slice also has its thaw and
    the end of its load in it, when no server is full."""
    return median(_rate(group, side) * _cpu(group, side) for group in groups)


def _ratio(blocks: Sequence[Sequence[Sequence[Slice]]], figure: object) -> DuetRatio:
    assert callable(figure)
    found = [
        trimmed_mean([math.log(figure(group, 1) / figure(group, 0)) for group in block])
        for block in blocks
    ]
    error = math.sqrt(variance(found) / len(found)) if len(found) > 1 else None
    return DuetRatio(fmean(found), error, len(found))
