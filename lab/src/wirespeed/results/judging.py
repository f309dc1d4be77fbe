"""Gains: every comparison of a run once, with its interval and its verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from wirespeed.results import comparison
from wirespeed.results.cells import Cell
from wirespeed.results.comparison import Comparison, benjamini_hochberg, log_ratios
from wirespeed.results.model import Run
from wirespeed.results.verdict import Terms, Verdict, decide

CONNECTIONS_A_CORE_MIN = 8  # below, a free idle state decides the figure
WORK = "server.work_us_per_request"  # judged in every comparison, whatever its table shows
COSTS = (WORK, "server.cpu_us_per_request")  # of a request, whoever was the limit

# Of two figures the better one, for metrics that no recipe declares.
BETTER_LOWER = (
    "latency", "cpu_us_per_request", "work_us_per_request", "rss_mib", "memory_mib",
    "context_switches", "pause_ms", "gc.count", "loadavg", "runqueue", "psi", "errors", "non_2xx",
    "timeouts", "cpu",
)  # fmt: skip
LATENCY_BOUND = "latency-bound"
HELD = {
    "client": "the load generator was the limit, not the server",
    "link": "the link was the limit, not the server",
    "both": "server and load generator were both full",
    "concurrency": "there were too few connections to fill the server",
    "unknown": "what was the limit is not known",
}


@dataclass(frozen=True)
class Pair:
    """Two cells to compare: a contender and its baseline, along an axis."""

    cell: Cell
    base: Cell
    axis: str
    metric: str

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.cell.key, self.base.key, self.metric)

    def ratios(self) -> dict[int, float]:
        """The log ratio of each round."""
        return log_ratios(self.cell.by_round(self.metric), self.base.by_round(self.metric))


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
    found: Comparison | None  # the geometric mean over `judged`
    verdict: Verdict

    @property
    def judged(self) -> list[Gain]:
        """The gains that are figures or bounds."""
        return [gain for gain in self.gains if gain.is_figure]

    @property
    def mean(self) -> float | None:
        return self.found.gain if self.found else None

    @property
    def better(self) -> str:
        return self.gains[0].better

    def count(self, word: str) -> int:
        return sum(gain.verdict.word == word for gain in self.gains)


def judge(run: Run, pairs: Iterable[Pair], floors: Mapping[str, float | None]) -> list[Gain]:
    """The gains of a run. Those of one metric are judged together: q counts all of them."""
    groups: dict[str, list[Pair]] = {}
    for pair in {pair.key: pair for pair in pairs}.values():
        if pair.cell.trials and pair.base.trials:
            groups.setdefault(pair.metric, []).append(pair)
    return [gain for group in groups.values() for gain in _judged(run, group, floors)]


def _judged(run: Run, pairs: Sequence[Pair], floors: Mapping[str, float | None]) -> list[Gain]:
    found = comparison.compare([list(pair.ratios().values()) for pair in pairs])
    asked = [one for one in found if one is not None]
    qs = iter(benjamini_hochberg([one.p for one in asked]))
    gains = []
    for pair, one in zip(pairs, found, strict=True):
        q = 1.0 if one is None else next(qs)
        floor = floors.get(pair.metric) or 0.0
        terms = _terms(run, pair, q, floor)
        verdict = decide(one, terms)
        gains.append(
            Gain(pair.cell, pair.base, pair.axis, pair.metric, terms.better, one, q, verdict)
        )
    return gains


def families(run: Run, gains: Iterable[Gain], floors: Mapping[str, float | None]) -> list[Family]:
    groups: dict[tuple[str, str, str], list[Gain]] = {}
    for gain in gains:
        groups.setdefault((gain.contender, gain.over, gain.metric), []).append(gain)
    return [_family(run, *names, tuple(found)) for names, found in groups.items()]


def _family(run: Run, contender: str, over: str, metric: str, gains: tuple[Gain, ...]) -> Family:
    """The pooled verdict: one figure a round, so that cells which err together stay together."""
    chosen = [gain for gain in gains if gain.is_figure]
    bounds = {gain.verdict.bound for gain in chosen} - {""}
    if not chosen or len(bounds) > 1:
        reasons = Counter(gain.verdict.reason for gain in gains)
        reason = reasons.most_common(1)[0][0] if not chosen else "bounds of both kinds"
        return Family(contender, over, metric, gains, None, Verdict("not comparable", reason))
    pairs = [Pair(gain.cell, gain.base, gain.axis, metric).ratios() for gain in chosen]
    found = comparison.over_cells(pairs)
    terms = Terms(
        q=found.p if found else 1.0,
        better=gains[0].better,
        withheld="some cells are bounds only" if bounds else "",
        bound=next(iter(bounds), ""),
        scope=_scope(chosen),
        looks=run.looks,
        is_sequential=run.is_sequential,
        disturbed=disturbed_over([(gain.cell, gain.base) for gain in chosen]),
    )
    return Family(contender, over, metric, gains, found, decide(found, terms))


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


def _terms(run: Run, pair: Pair, q: float, floor: float) -> Terms:
    wanted = better(run, pair.metric)
    withheld, bound, scope = _withheld(run, pair, wanted)
    disturbed = disturbed_over([(pair.cell, pair.base)])
    return Terms(
        q, floor, wanted, withheld, bound, scope, disturbed,
        looks=run.looks, is_sequential=run.is_sequential,
    )  # fmt: skip


def disturbed_over(pairs: Sequence[tuple[Cell, Cell]]) -> float:
    """The share that one side of these (contender, baseline) may have lost more than the other.

    Other programs and steal may have cost one side all of it and the other nothing. A slow host
    slows whatever runs, so only what it slowed one side more counts: over all the cells, as what
    it took from the contender in one and from the baseline in the next falls out of their mean.
    """
    others = fmean(max(map(_of_others, pair)) for pair in pairs)
    return 1 - (1 - others) * (1 - abs(fmean(cell.slowed - base.slowed for cell, base in pairs)))


def _of_others(side: Cell) -> float:
    return max(0.0, 1 - (1 - side.disturbed) / max(1e-9, 1 - side.slowed))


def _withheld(run: Run, pair: Pair, wanted: str) -> tuple[str, str, str]:
    """(why no plain verdict may be given, on which side the true gain lies, its scope)."""
    if run.plan.order == "blocked":
        return "measured in blocks: drift cannot be told from a gain", "", ""
    names = [str(side.axes.get(pair.axis, "a cell")) for side in (pair.cell, pair.base)]
    return held_back(pair, wanted, run.idle_held, names)


def held_back(
    pair: Pair, wanted: str, is_idle_held: bool, names: Sequence[str]
) -> tuple[str, str, str]:
    """The same for two sides that are called `names`, in whichever order they were measured."""
    cell, base = pair.cell, pair.base
    for name, side in zip(names, (cell, base), strict=True):
        if side.failures:
            return f"{name} {side.failures} trials", "", ""
    if not is_idle_held and any(_is_idle_prone(side) for side in (cell, base)):
        return "idle states were not held off and there are few connections a core", "", ""
    if pair.metric in COSTS:
        return "", "", ""
    held = [side.bottleneck != "server" for side in (cell, base)]
    if not any(held):
        return "", "", ""
    if cell.bottleneck == base.bottleneck == "concurrency":
        return "", "", LATENCY_BOUND
    name, side = (names[0], cell) if held[0] else (names[1], base)
    reason = f"{name}: {HELD.get(side.bottleneck, HELD['unknown'])}"
    if all(held):
        return reason, "", ""
    return reason, "≥" if held[0] == (wanted == "higher") else "≤", ""


def _is_idle_prone(cell: Cell) -> bool:
    connections = cell.axes.get("connections")
    if isinstance(connections, int | float):
        return connections < CONNECTIONS_A_CORE_MIN * cell.server_cores()
    return cell.bottleneck == "concurrency"


def floor(run: Run, cells: Iterable[Cell], metric: str) -> float | None:
    """How far the baseline differs from itself in this run, in this metric."""
    baseline: Mapping[str, Any] = run.plan.baseline
    chosen = [
        cell
        for cell in cells
        if all(cell.axes.get(axis) == value for axis, value in baseline.items())
    ]
    return comparison.noise_floor([cell.by_round(metric) for cell in chosen])
