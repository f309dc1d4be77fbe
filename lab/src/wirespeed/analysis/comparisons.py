"""Gains: every comparison of a run once, with its interval and its verdict."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple

from wirespeed.analysis import duet
from wirespeed.analysis.cells import SATURATED, Cell, is_time
from wirespeed.analysis.verdict import Terms, Verdict, decide, interval_at, kept
from wirespeed.results.model import Run
from wirespeed.stats import comparison
from wirespeed.stats.comparison import (
    P_MAX,
    PAIRS_MIN,
    Comparison,
    benjamini_hochberg,
    log_ratios,
)
from wirespeed.stats.spending import Spending

CONNECTIONS_A_CORE_MIN = 8  # below, a free idle state decides the figure
#: Judged in every comparison, whatever its table shows.
CPU_EXCL_POLLING = "server.work_us_per_request"
INSTRUCTIONS = "server.instructions_per_request"  # judged, too, where the machine counts them
#: Of a request, whoever was the limit.
COSTS = (CPU_EXCL_POLLING, "server.cpu_us_per_request", INSTRUCTIONS)

# Of two figures the better one, for metrics that no recipe declares.
BETTER_LOWER = (
    "latency", "cpu_us_per_request", "work_us_per_request", "instructions_per_request",
    "cycles_per_request", "cache_misses_per_request", "context_switches_per_request", "rss_mib",
    "memory_mib", "context_switches", "pause_ms", "gc.count", "loadavg", "runqueue", "psi",
    "psi_io", "steal", "errors", "non_2xx", "timeouts", "cpu", "fullest_thread", "server.work",
)  # fmt: skip
LATENCY_BOUND = "latency-bound"
DUET, TRIALS = "duet", "separate trials"
BOTH_SATURATED = (
    "server and load generator were both saturated, so the interval is wider by up to "
    f"{1 / SATURATED - 1:.0%}"
)
HELD = {
    "client": "the load generator was the limit, not the server",
    "link": "the link was the limit, not the server",
    "both": "server and load generator were both saturated",
    "concurrency": "its server was not busy: too few connections, or it waits (locks, a disk)",
    "unknown": "what was the limit is not known",
}


Key = tuple[str, str, str]  # of a comparison: contender's cell, baseline's cell, metric


@dataclass(frozen=True)
class Pair:
    """Two cells to compare: a contender and its baseline, along an axis."""

    cell: Cell
    base: Cell
    axis: str
    metric: str
    is_alone: bool = False  # judged by the trials that each side had alone, not by their turns

    @property
    def key(self) -> Key:
        return (self.cell.key, self.base.key, self.metric)

    @property
    def limits(self) -> tuple[str, str]:
        """The limit of the contender and of the baseline. Where the trials do not show it, turns in
        which the server was full do; of the generator they say nothing."""
        known = [self.cell.bottleneck, self.base.bottleneck]
        if "unknown" in known and self.method == DUET:
            trials = (*self.cell.trials, *self.cell.invalid)
            for number, side in ((0, duet.CONTENDER), (1, duet.BASELINE)):
                busy = duet.busy_over(trials, self.base.key, side)
                if known[number] == "unknown" and busy is not None and busy >= SATURATED:
                    known[number] = "both"
        return known[0], known[1]

    def ratios(self) -> dict[int, float]:
        """The log ratio of each round: of its duet, where there are enough of them."""
        if self.method == DUET:
            return self._duets
        return log_ratios(self.cell.by_round(self.metric), self.base.by_round(self.metric))

    @property
    def method(self) -> str:
        """DUET or TRIALS: one comparison is never made of both."""
        if self.is_alone:
            return TRIALS
        trials = log_ratios(self.cell.by_round(self.metric), self.base.by_round(self.metric))
        return DUET if len(self._duets) >= min(PAIRS_MIN, max(1, len(trials))) else TRIALS

    @property
    def _duets(self) -> dict[int, float]:
        # Also after a trial that other processes spoiled: its duet shares what they took.
        trials = (*self.cell.trials, *self.cell.invalid)
        return duet.over(trials, self.base.key, self.cell.stored(self.metric))

    @property
    def rounds_without_ratio(self) -> int:
        """Rounds with figures on both sides of which one is 0."""
        if self.method == DUET:
            return 0
        both = self.cell.by_round(self.metric).keys() & self.base.by_round(self.metric).keys()
        return len(both) - len(self.ratios())


@dataclass(frozen=True)
class Gain:
    """One cell against its baseline cell, in one metric."""

    cell: Cell
    base: Cell
    axis: str
    metric: str
    better: str
    found: Comparison | None
    q: float
    verdict: Verdict
    method: str = ""  # DUET or TRIALS

    @property
    def duets(self) -> int:
        """The duets of these two cells, with a figure or without."""
        trials = (*self.cell.trials, *self.cell.invalid)
        return sum(one.duet is not None and one.duet.over == self.base.key for one in trials)

    @property
    def of_medians(self) -> float | None:
        """The ratio of the two medians, as the documents print gains."""
        a, b = self.cell.median(self.metric), self.base.median(self.metric)
        return a / b - 1 if a is not None and b else None

    @property
    def contender(self) -> str:
        return str(self.cell.axes[self.axis])

    @property
    def over(self) -> str:
        return str(self.base.axes[self.axis])

    @property
    def is_figure(self) -> bool:
        """Whether it is a figure, or at least a bound."""
        return self.found is not None and (
            self.verdict.word != "not comparable" or bool(self.verdict.bound)
        )


@dataclass(frozen=True)
class Family:
    """All comparisons of one contender with one baseline in one metric, and their verdict."""

    contender: str
    over: str
    metric: str
    gains: tuple[Gain, ...]
    pooled: tuple[Gain, ...]  # the gains whose geometric mean is `found`
    found: Comparison | None
    verdict: Verdict

    @property
    def judged(self) -> list[Gain]:
        """The gains that are figures or bounds."""
        return [gain for gain in self.gains if gain.is_figure]

    @property
    def bounded(self) -> int:
        """Bounds that the pooled figure leaves out."""
        return len(self.judged) - len(self.pooled)

    @property
    def mean(self) -> float | None:
        return self.found.gain if self.found else None

    @property
    def better(self) -> str:
        return self.gains[0].better

    def count(self, word: str) -> int:
        return sum(gain.verdict.word == word for gain in self.gains)


def judge(run: Run, pairs: Iterable[Pair]) -> list[Gain]:
    """The gains of a run; comparisons of one metric are judged together."""
    groups: dict[str, list[Pair]] = {}
    for pair in {pair.key: pair for pair in pairs}.values():
        if pair.cell.trials and pair.base.trials:
            groups.setdefault(pair.metric, []).append(pair)
    return [gain for group in groups.values() for gain in _judged(run, group)]


def unproven_losses(run: Run, gains: Iterable[Gain]) -> dict[Key, float]:
    """The gains of comparisons that are withheld although their figures alone would be a loss: with
    idle states held off, or at its server's limit, the contender may be as good, but nothing shows
    it."""
    gains = list(gains)
    withheld = _withheld_keys(gains)
    return {
        key_of(gain): gain.found.gain
        for gain in _seen(run, gains)
        if gain.found and gain.verdict.word == "loss" and key_of(gain) in withheld
    }


def unproven_families(run: Run, gains: Iterable[Gain]) -> list[Family]:
    """Pooled losses of the figures alone, where some of the cells are withheld."""
    gains = list(gains)
    withheld = _withheld_keys(gains)
    return [
        one
        for one in families(run, _seen(run, gains))
        if one.verdict.word == "loss" and any(key_of(gain) in withheld for gain in one.pooled)
    ]


def _withheld_keys(gains: Iterable[Gain]) -> set[Key]:
    return {key_of(gain) for gain in gains if gain.verdict.word == "not comparable"}


def _seen(run: Run, gains: Sequence[Gain]) -> list[Gain]:
    """The gains by their figures alone, of the metrics in which a comparison is withheld."""
    if run.plan.order == "blocked":
        return []
    groups: dict[str, list[Gain]] = {}
    for gain in gains:
        groups.setdefault(gain.metric, []).append(gain)
    return [
        gain
        for group in groups.values()
        if _withheld_keys(group)
        for gain in _judged(run, [_pair(gain) for gain in group], is_seen=True)
    ]


def disturbs_itself(gain: Gain) -> bool:
    """Whether other programs took more from the contender than from the baseline in a way that
    chance hardly explains. The order of the two is random, so they are its own: helpers that it
    started elsewhere, as a container's are."""
    contender, base = (
        {trial.round: trial.disturbed for trial in side.trials} for side in (gain.cell, gain.base)
    )
    both = contender.keys() & base.keys()
    (found,) = comparison.compare([[contender[number] - base[number] for number in both]])
    return found is not None and found.gain > 0 and found.p <= P_MAX


def as_seen(pair: Pair, terms: Terms) -> Terms:
    """The terms of the figures alone. Where the generator or the link was the limit of both sides,
    the figures are not the servers', and a server's loss shows in the cost of a request."""
    sides = (pair.cell, pair.base)
    is_of_neither = pair.cell.bottleneck == pair.base.bottleneck in ("client", "link", "both")
    if pair.rounds_without_ratio or is_of_neither or any(side.failures for side in sides):
        return terms
    return replace(terms, withheld="", bound="", scope="", is_bound_only=False)


def _judged(run: Run, pairs: Sequence[Pair], is_seen: bool = False) -> list[Gain]:
    found = comparison.compare([list(pair.ratios().values()) for pair in pairs])
    terms = [_terms(run, pair) for pair in pairs]
    if is_seen:
        terms = [as_seen(pair, term) for pair, term in zip(pairs, terms, strict=True)]
    gains = []
    for pair, one, term, q in zip(pairs, found, terms, qs(found, terms), strict=True):
        wide = loosened(one, slack([pair], term))
        verdict = decide(wide, replace(term, q=q))
        verdict = _after(run, pair.key, verdict, wide, term)
        verdict = _with_slack(verdict, [pair], term)
        shown = at_level(wide, term)
        names = (pair.axis, pair.metric, term.better)
        gains.append(Gain(pair.cell, pair.base, *names, shown, q, verdict, pair.method))
    return gains


def qs(found: Sequence[Comparison | None], terms: Sequence[Terms]) -> list[float]:
    """The q of each comparison, among those about which something may be claimed.

    A comparison that is withheld can be no false positive; counted with the others, its small p
    would let a true null among them pass.
    """
    claimable = [
        one is not None and one.low is not None and term.is_claimable
        for one, term in zip(found, terms, strict=True)
    ]
    ps = [one.p for one, is_claimable in zip(found, claimable, strict=True) if is_claimable and one]
    each = iter(benjamini_hochberg(ps))
    return [next(each) if is_claimable else 1.0 for is_claimable in claimable]


def slack(pairs: Sequence[Pair], terms: Terms) -> tuple[float, float]:
    """(share by which the true ratio may be lower, higher) where server and generator were full.

    By the utilisation law a server that is busy for a share U of its time carries at most X / U,
    so a cell that was saturated at both ends is known to within 1 - SATURATED (Lazowska et al.,
    Quantitative System Performance, 1984, chapter 3). Over several cells it is their mean.
    """
    if terms.better != "higher" or not pairs or not terms.is_claimable:
        return 0.0, 0.0
    lost = math.log(SATURATED)
    limits = [pair.limits for pair in pairs]
    lower = fmean(lost if base == "both" else 0.0 for _, base in limits)
    higher = fmean(lost if cell == "both" else 0.0 for cell, _ in limits)
    return -math.expm1(lower), -math.expm1(higher)


def loosened(found: Comparison | None, slack: tuple[float, float]) -> Comparison | None:
    """The same with its interval wider by what saturation at both ends leaves open."""
    if found is None or found.low is None or found.high is None or slack == (0.0, 0.0):
        return found
    lower, higher = slack
    return replace(
        found, low=(1 + found.low) * (1 - lower) - 1, high=(1 + found.high) / (1 - higher) - 1
    )


def at_level(found: Comparison | None, terms: Terms) -> Comparison | None:
    """As it is shown: after interim analyses the interval is wider, so that it holds 95 % of all
    runs that are analysed as often."""
    if found is None or found.low is None:
        return found
    low, high = interval_at(found, terms.spending.share)
    return replace(found, low=low, high=high)


def _with_slack(verdict: Verdict, pairs: Sequence[Pair], terms: Terms) -> Verdict:
    if slack(pairs, terms) == (0.0, 0.0) or verdict.word == "not comparable":
        return verdict
    reason = f"{verdict.reason}; {BOTH_SATURATED}"
    return replace(verdict, reason=reason)


def families(run: Run, gains: Iterable[Gain]) -> list[Family]:
    """The pooled verdicts; all of them count together, as each is one more chance to be wrong."""
    groups: dict[tuple[str, str, str], list[Gain]] = {}
    for gain in gains:
        groups.setdefault((gain.contender, gain.over, gain.metric), []).append(gain)
    pooled = [_pooled(run, tuple(group)) for group in groups.values()]
    each = qs([one.found for one in pooled], [one.terms for one in pooled])
    return [
        _family(run, names, one, q) for names, one, q in zip(groups, pooled, each, strict=True)
    ]


@dataclass(frozen=True)
class _Pooled:
    """What is known of a family before its q is."""

    gains: tuple[Gain, ...]
    chosen: tuple[Gain, ...]
    found: Comparison | None
    terms: Terms


def _pooled(run: Run, gains: tuple[Gain, ...]) -> _Pooled:
    """One figure a round, so that cells which err together stay together. Cells that are bounds
    only are pooled apart: they count where all are bounds, and only of one kind."""
    figures = [gain for gain in gains if gain.is_figure]
    chosen = [gain for gain in figures if not gain.verdict.bound] or figures
    bounds = {gain.verdict.bound for gain in chosen} - {""}
    if not chosen or len(bounds) > 1:
        reasons = Counter(gain.verdict.reason for gain in gains)
        reason = reasons.most_common(1)[0][0] if not chosen else "bounds of both kinds"
        return _Pooled(gains, (), None, Terms(withheld=reason))
    pairs = [_pair(gain) for gain in chosen]
    terms = Terms(
        better=gains[0].better,
        withheld="all cells are bounds" if bounds else "",
        bound=next(iter(bounds), ""),
        scope=_scope(chosen),
        is_bound_only=any(gain.verdict.bound and gain.verdict.scope for gain in chosen),
        spending=_spending(run),
        interference=_of_trials(pairs, gains[0].better),
        threshold=run.plan.threshold,
    )
    found = comparison.over_cells([pair.ratios() for pair in pairs])
    return _Pooled(gains, tuple(chosen), loosened(found, slack(pairs, terms)), terms)


def _family(run: Run, names: Key, one: _Pooled, q: float) -> Family:
    verdict = decide(one.found, replace(one.terms, q=q))
    verdict = _after(run, names, verdict, one.found, one.terms)
    if not one.chosen:
        return Family(*names, one.gains, (), None, verdict)
    verdict = _with_slack(verdict, [_pair(gain) for gain in one.chosen], one.terms)
    return Family(*names, one.gains, one.chosen, at_level(one.found, one.terms), verdict)


def _after(
    run: Run, key: Key, now: Verdict, found: Comparison | None, terms: Terms
) -> Verdict:
    """The verdict of this analysis, or of the ones before rounds were added."""
    for one in run.decided:
        if tuple(one["of"]) == key:
            earlier = Verdict(one["word"], "", bound=one["bound"], decided_at=one["rounds"])
            return kept(now, found, terms, earlier)
    return now


def decided(run: Run, gains: Iterable[Gain], pooled: Iterable[Family]) -> list[dict[str, Any]]:
    """The verdicts that decide something, as run.json keeps them when rounds are added, and the
    earlier ones of what this analysis cannot compare."""
    named = [(key_of(gain), gain.verdict) for gain in gains]
    named += [((one.contender, one.over, one.metric), one.verdict) for one in pooled]
    compared = {key for key, verdict in named if verdict.word != "not comparable"}
    earlier = [one for one in run.decided if tuple(one["of"]) not in compared]
    return earlier + [
        {
            "of": list(key), "word": verdict.word, "bound": verdict.bound,
            "rounds": verdict.decided_at or run.plan.repeat,
        }
        for key, verdict in named
        if verdict.word not in ("not decided", "not comparable")
    ]  # fmt: skip


def _pair(gain: Gain) -> Pair:
    return Pair(gain.cell, gain.base, gain.axis, gain.metric)


def key_of(gain: Gain) -> Key:
    return _pair(gain).key


def _scope(gains: Sequence[Gain]) -> str:
    """Of a pooled figure: a single gain that holds for few connections only qualifies it."""
    scopes = {gain.verdict.scope for gain in gains}
    return LATENCY_BOUND if scopes == {LATENCY_BOUND} else f"partly {LATENCY_BOUND}" * any(scopes)


def better(run: Run, metric: str) -> str:
    """Which of two figures is the better one: the recipe's word, else what the metric is."""
    for spec in run.metrics:
        if metric == spec["name"] or metric.startswith(f"{spec['name']}."):
            if spec.get("better"):
                return str(spec["better"])
            return "lower" if spec.get("combine") == "histogram" else "higher"
    is_lower = any(
        metric == name or metric.endswith(f".{name}") or metric.startswith(f"{name}.")
        for name in BETTER_LOWER
    )
    return "lower" if is_lower else "higher"


def is_ceiling(run: Run, cell: Cell) -> bool:
    """Whether the cell has no server and shows what generator and origin can do alone."""
    ceiling = run.plan.ceiling
    return bool(ceiling) and all(cell.axes.get(axis) == value for axis, value in ceiling.items())


def _terms(run: Run, pair: Pair) -> Terms:
    direction = better(run, pair.metric)
    return Terms(
        better=direction, interference=_of_trials([pair], direction), spending=_spending(run),
        threshold=run.plan.threshold, **_withheld(run, pair, direction)._asdict(),
    )  # fmt: skip


def _spending(run: Run) -> Spending:
    return Spending(run.analyses, run.is_sequential, tuple(run.analysed_at), run.rounds_max)


def _of_trials(pairs: Sequence[Pair], better: str) -> float:
    """The interference of separate trials; whatever slows contenders that take turns slows both."""
    trials = [(pair.cell, pair.base) for pair in pairs if pair.method == TRIALS]
    return interference(trials, better) * len(trials) / len(pairs) if trials else 0.0


def interference(pairs: Sequence[tuple[Cell, Cell]], better: str) -> float:
    """The share that the contender of these (contender, baseline) lost beyond the baseline.

    Other processes, steal and a slow host hit both sides of interleaved rounds, and what differs
    from round to round is in the spread of the ratios. Only the difference of what the two sides
    lost on average biases the gain, and it counts once: a side that lost more shows a rate that is
    too low, or a time that is too long.
    """
    lost = fmean(cell.disturbed - base.disturbed for cell, base in pairs)
    return lost if better == "higher" else -lost


class Held(NamedTuple):
    """The reason against a plain verdict, and its bound, as the fields of Terms."""

    withheld: str = ""
    bound: str = ""
    scope: str = ""
    is_bound_only: bool = False


def _withheld(run: Run, pair: Pair, direction: str) -> Held:
    if run.plan.order == "blocked":
        return Held("measured in blocks: drift looks like a gain")
    if zeros := pair.rounds_without_ratio:
        return Held(f"{zeros} of its rounds have a figure of 0, which has no ratio")
    names = [str(side.axes.get(pair.axis, "a cell")) for side in (pair.cell, pair.base)]
    return held_back(pair, direction, run.idle_held, names)


def held_back(pair: Pair, direction: str, is_idle_held: bool, names: Sequence[str]) -> Held:
    """The same for two sides that are called `names`, in whichever order they were measured."""
    sides = (pair.cell, pair.base)
    for name, side in zip(names, sides, strict=True):
        if side.failures:
            return Held(f"{name} {side.failures} trials")
    for name, side in zip(names, sides, strict=True):
        if not is_idle_held and (why := _idle_prone(side, name)):
            return Held(f"idle states were not held off and {why}")
    return Held() if pair.metric in COSTS else _of_limits(pair, direction, names)


def _of_limits(pair: Pair, direction: str, names: Sequence[str]) -> Held:
    """A server at its limit is known, one that waited is at its number of connections, and what was
    held back by anything else is at least as good as it was seen. So a side that is known makes a
    bound of the other one's figure, and two that were held back say nothing."""
    limits = pair.limits
    # Saturated at both ends is known well enough where the metric is a rate: see `slack`.
    good = ("server", "both") if direction == "higher" else ("server",)
    held = [limit not in good for limit in limits]
    if not any(held):
        return Held()
    if limits == ("concurrency", "concurrency"):
        return Held(scope=LATENCY_BOUND)
    waits = [limit == "concurrency" for limit in limits]
    # Of two that are not at their server's limit, the one that waited is the known one.
    place = waits.index(False) if all(held) else held.index(True)
    reason = f"{names[place]}: {HELD.get(limits[place], HELD['unknown'])}"
    if all(held) and not any(waits):
        return Held(reason)
    if limits[place] == "unknown" and not _is_at_least(pair, place, is_at_limit=not all(held)):
        return Held(reason)
    bound = "≥" if (place == 0) == (direction == "higher") else "≤"
    # A server that waits (for locks or a disk) where the other one works is slower all the same.
    return Held(reason, bound, LATENCY_BOUND if any(waits) else "", is_bound_only=all(held))


def _is_at_least(pair: Pair, place: int, is_at_limit: bool) -> bool:
    """Whether a side whose limit is not known is at least as good as its figure. Generators that
    ran partly alone had more of the server than together, so the sum of their rates is too high.
    Where Little's law does not hold, times are not those of the requests, and the connections were
    not all served: their rate is one of the server, and not of this number of connections."""
    side = (pair.cell, pair.base)[place]
    if pair.method == TRIALS and side.has_partly_alone:
        return False
    return side.keeps_littles_law or (is_at_limit and not is_time(pair.metric))


def _idle_prone(cell: Cell, name: str) -> str:
    """Why its cores may have gone idle between requests; empty where they hardly can."""
    connections = cell.axes.get("connections")
    if isinstance(connections, int | float):
        is_few = connections < CONNECTIONS_A_CORE_MIN * cell.server_cores()
        return "there are few connections a core" if is_few else ""
    return f"{name} was not busy" if cell.bottleneck == "concurrency" else ""


def floor(run: Run, cells: Iterable[Cell], metric: str) -> float | None:
    """How far the baseline differs from itself in this run, in this metric."""
    baseline: Mapping[str, Any] = run.plan.baseline
    chosen = [
        cell
        for cell in cells
        if all(cell.axes.get(axis) == value for axis, value in baseline.items())
    ]
    return comparison.noise_floor([cell.by_round(metric) for cell in chosen])
