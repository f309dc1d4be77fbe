"""A run before it runs: its cells, trials, order and time."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wirespeed.driver import null
from wirespeed.recipe import sweep
from wirespeed.recipe.model import Ramp, Recipe
from wirespeed.recipe.resolve import Place, Resolver
from wirespeed.results.model import PlannedTrial
from wirespeed.runner import budget, duet, order
from wirespeed.runner.budget import Times
from wirespeed.runner.cells import PlannedCell, check_sessions, planned_cells
from wirespeed.stats import rounds
from wirespeed.stats.comparison import PAIRS_MIN

# What a trial costs besides its own phases, measured on a 2-core guest (docs/method.md).
START_S = {"jvm": 0.7}
START_OTHER_S = 0.15
STOP_S = 0.15
TRIAL_S = 0.17
WARMUP_OTHER_S = {"nginx": 0.6}  # compiled ahead of time: one short window
WARMUP_UNTIL_STEADY_S = 1.6  # three of them
FIT_MODES = ("strict", "share", "pairs")
SEED_MAX = 2**31


@dataclass(frozen=True)
class PlanOptions:
    """The options given on the command line."""

    only: str = ""
    repeat: int | None = None
    budget_s: float | None = None
    fit: str = "strict"
    seed: int | None = None
    accept_noise: bool = False
    tune: bool = False
    quiet_wait_s: float = 0.0  # so long a run waits for a quiet machine
    labels: tuple[tuple[str, str], ...] = ()
    note: str = ""
    until_decided: bool = False
    for_s: float = 0.0  # that such a run may take; 0: a multiple of its planned rounds
    spread: float | None = None  # of this machine's trials, from former runs
    profile: bool = False
    remarks: tuple[str, ...] = ()  # for whoever reads the report, of what was seen beforehand


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Everything that is decided before the first process starts."""

    recipe: Recipe
    place: Place
    cells: list[PlannedCell]
    sessions: list[order.PlannedSession]
    times: Times
    repeat: int
    thinned: list[str]
    seed: int
    fit: str
    seconds: float
    accept_noise: bool = False
    budget_s: float | None = None
    comparisons: int = 0
    spread: float | None = None  # of this machine's trials; None: not known

    @property
    def trials(self) -> int:
        return sum(len(session.cells) for session in self.sessions)

    def lines(self) -> list[PlannedTrial]:
        """plan.jsonl: trials in their order, then the cells that are only shown."""
        lines: list[PlannedTrial] = []
        for number, session in enumerate(self.sessions, 1):
            for planned in session.cells:
                cell = planned.cell
                key = sweep.trial_key(cell.id, session.round)
                position = len(lines) + 1
                one = PlannedTrial(position, session.round, cell.id, key, cell.axes, life=number)
                lines.append(replace(one, over=planned.over))
        for planned in self.cells:
            if not planned.is_measured:
                cell = planned.cell
                key = sweep.trial_key(cell.id, 0)
                lines.append(
                    PlannedTrial(0, 0, cell.id, key, cell.axes, planned.state, planned.reason)
                )
        return lines


def make(recipe: Recipe, place: Place, options: PlanOptions) -> Schedule:
    only = sweep.parse_only(options.only, recipe) if options.only else {}
    recipe = with_values(recipe, only)
    cells = planned_cells(recipe, place, options.fit, only)
    return arrange(recipe, place, cells, options)


def arrange(
    recipe: Recipe, place: Place, cells: list[PlannedCell], options: PlanOptions
) -> Schedule:
    """Budget and order over cells whose state is known."""
    plan = recipe.plan
    compared = comparisons(recipe, cells)
    repeat = options.repeat or plan.repeat or rounds.planned_here(compared, options.spread)
    times = Times(
        plan.settle, plan.warmup, plan.duration, plan.cooldown,
        plan.warmup_least, plan.step_warmup, plan.duration_least,
    )  # fmt: skip
    cells, thinned = duet.paired(recipe, place, cells)
    if options.repeat is None and plan.repeat is None and duet.is_any(cells):
        repeat = duet.PAIRS
    guess = Guess(recipe, place, repeat)
    if options.budget_s is not None:
        fitted = budget.fit(recipe, cells, times, options.budget_s, guess.seconds)
        cells, times = fitted.cells, fitted.times
        thinned = [*thinned, *fitted.sentences]
    seed = secrets.randbelow(SEED_MAX) if options.seed is None else options.seed
    sessions = order.sessions(recipe, cells, repeat, seed)
    first = [session.cells for session in sessions if session.round == 1]
    alike = [[c for c in own if bool(c.over) == is_duet] for own in first for is_duet in (0, 1)]
    check_sessions(recipe, place, alike, place.recipe_file)
    timed = replace(place, duration_s=times.duration_s, warmup_s=times.warmup_s)
    return Schedule(
        recipe=recipe,
        place=timed,
        cells=cells,
        sessions=sessions,
        times=times,
        repeat=repeat,
        thinned=[*options.remarks, *thinned],
        seed=seed,
        fit=options.fit,
        seconds=guess.seconds(cells, times),
        accept_noise=options.accept_noise,
        budget_s=options.budget_s,
        comparisons=comparisons(recipe, cells),
        spread=options.spread,
    )


def comparisons(recipe: Recipe, cells: Sequence[PlannedCell]) -> int:
    """How many comparisons of one metric the run's verdicts will stand among."""
    ceiling = recipe.plan.ceiling
    measured = [
        planned.cell
        for planned in cells
        if planned.is_measured and not (ceiling and planned.cell.matches(ceiling))
    ]
    values: dict[str, set[tuple[str, str]]] = {}
    for table in recipe.table:
        metric = table.value or (table.values[0] if table.values else "rps")
        if table.gain and table.columns:
            chosen = [c for c in measured if all(c.axes[a] in v for a, v in table.where.items())]
            pairs = _pairs(chosen, table.columns, table.gain.over)
            values.setdefault(metric, set()).update(pairs)
    if not values and len(recipe.plan.baseline) == 1:
        ((axis, over),) = recipe.plan.baseline.items()
        values[""] = set(_pairs(measured, axis, over))
    return max((len(pairs) for pairs in values.values()), default=0)


def _pairs(cells: Sequence[sweep.SweepPoint], axis: str, over: Any) -> list[tuple[str, str]]:
    """Each cell with the one that differs from it in being the baseline."""
    by_rest = {_rest(cell, axis): cell.id for cell in cells if cell.axes[axis] == over}
    return [
        (cell.id, by_rest[_rest(cell, axis)])
        for cell in cells
        if cell.axes[axis] != over and _rest(cell, axis) in by_rest
    ]


def _rest(cell: sweep.SweepPoint, axis: str) -> str:
    return repr([(name, value) for name, value in cell.axes.items() if name != axis])


def verdict_text(compared: int, repeat: int, spread: float | None) -> str:
    """The differences that so many rounds can decide, printed before they are spent."""
    if compared == 0:
        return "nothing is compared, so there will be no verdicts"
    if repeat < PAIRS_MIN:
        return f"{repeat} rounds give no verdict; it takes {PAIRS_MIN}"
    if spread is None or spread <= rounds.QUIET_SPREAD:
        where, spread = "on a quiet machine", rounds.QUIET_SPREAD
    else:
        where = f"on this machine, whose trials differ by {spread:.0%},"
    alone = rounds.smallest(repeat, compared, compared, spread, 0.8)
    return (
        f"{compared} comparisons in {repeat} rounds: {where} a single difference of "
        f"{math.expm1(alone):.0%} is found four times of five"
    )


@dataclass(frozen=True)
class _Programs:
    """Facts that the time of a cell depends on: programs to warm up, generators to be tried."""

    tools: set[str]
    headroom: str


class Guess:
    """How long a plan will take, from what its trials are made of."""

    def __init__(self, recipe: Recipe, place: Place, repeat: int) -> None:
        self.recipe, self.place, self.repeat = recipe, place, repeat
        self._known: dict[str, _Programs] = {}

    def seconds(self, cells: Sequence[PlannedCell], times: Times) -> float:
        total = 0.0
        for group in order.units(self.recipe, cells):
            # Contenders that take turns with their baseline start one of it each time.
            total += self.session_s(group[0], times) * (2 if group[0].over else 1)
            total += len(group) * self.trial_s(times)
            total += sum(duet.seconds(self.recipe) for cell in group if cell.over)
        total += self.trial_s(times) * len({cell.over for cell in cells if cell.over})
        return total * self.repeat + null.COST_S * self._headrooms(cells)

    def _headrooms(self, cells: Sequence[PlannedCell]) -> int:
        """How many kinds of generators are measured without their server first."""
        return len(
            {self._cell(planned).headroom for planned in cells if planned.is_measured} - {""}
        )

    def session_s(self, planned: PlannedCell, times: Times) -> float:
        tools = self._tools(planned)
        most = max((WARMUP_OTHER_S.get(tool, WARMUP_UNTIL_STEADY_S) for tool in tools), default=0.6)
        warmup = times.warmup_s if "jvm" in tools else min(times.warmup_s, most)
        start = START_S["jvm"] if "jvm" in tools else START_OTHER_S
        return start + times.settle_s + warmup + STOP_S

    def trial_s(self, times: Times) -> float:
        step = min(times.warmup_s, times.step_warmup_s)
        return TRIAL_S + step + times.duration_s + times.cooldown_s

    def _tools(self, planned: PlannedCell) -> set[str]:
        """The programs of a cell that are warmed up."""
        return self._cell(planned).tools

    def _cell(self, planned: PlannedCell) -> _Programs:
        cell = planned.cell
        if cell.id not in self._known:
            instances = Resolver(self.recipe, cell, self.place).instances(planned.seats)
            tools = {one.tool for one in instances if one.role != "load"}
            self._known[cell.id] = _Programs(tools, null.key_of(self.place.root, instances))
        return self._known[cell.id]


def with_values(recipe: Recipe, only: dict[str, list[Any]]) -> Recipe:
    """Values that [axis.x] declares but the sweep leaves out join it when --only names them."""
    axes = dict(recipe.axes)
    for name, values in only.items():
        current = axes[name]
        known = list(current.ramp if isinstance(current, Ramp) else current)
        grown = known + [value for value in values if value not in known]
        axes[name] = Ramp(ramp=grown) if isinstance(current, Ramp) else grown
    return recipe.model_copy(update={"axes": axes})
