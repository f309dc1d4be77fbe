"""A run before it runs: its cells, trials, order and time."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wirespeed.recipe import sweep
from wirespeed.recipe.model import Ramp, Recipe
from wirespeed.recipe.resolve import Place, Resolver
from wirespeed.results.model import PlannedTrial
from wirespeed.runner import budget, order
from wirespeed.runner.budget import Times
from wirespeed.runner.cells import PlannedCell, check_lives, planned_cells

# What a trial costs beside its own phases, measured on a 2-core guest (docs/method.md).
START_S = {"jvm": 0.7}
START_OTHER_S = 0.15
STOP_S = 0.15
TRIAL_S = 0.17
WARMUP_OTHER_S = 0.6  # servers without a compiler need one short window
FIT_MODES = ("strict", "share", "pairs")
SEED_MAX = 2**31


@dataclass(frozen=True)
class Wishes:
    """What was asked for on the command line."""

    only: str = ""
    repeat: int | None = None
    budget_s: float | None = None
    fit: str = "strict"
    seed: int | None = None
    accept_noise: bool = False
    tune: bool = False


@dataclass(frozen=True)
class Schedule:
    """Everything that is decided before the first process starts."""

    recipe: Recipe
    place: Place
    cells: list[PlannedCell]
    lives: list[order.Life]
    times: Times
    repeat: int
    thinned: list[str]
    seed: int
    fit: str
    seconds: float
    accept_noise: bool = False
    budget_s: float | None = None

    @property
    def trials(self) -> int:
        return sum(len(life.cells) for life in self.lives)

    def lines(self) -> list[PlannedTrial]:
        """plan.jsonl: trials in their order, then the cells that are only shown."""
        lines: list[PlannedTrial] = []
        for number, life in enumerate(self.lives, 1):
            for planned in life.cells:
                cell = planned.cell
                key = sweep.trial_key(cell.id, life.round)
                lines.append(
                    PlannedTrial(len(lines) + 1, life.round, cell.id, key, cell.axes, life=number)
                )
        for planned in self.cells:
            if not planned.is_measured:
                cell = planned.cell
                key = sweep.trial_key(cell.id, 0)
                lines.append(
                    PlannedTrial(0, 0, cell.id, key, cell.axes, planned.state, planned.reason)
                )
        return lines


def make(recipe: Recipe, place: Place, wishes: Wishes) -> Schedule:
    wanted = sweep.parse_only(wishes.only, recipe) if wishes.only else {}
    recipe = with_values(recipe, wanted)
    cells = planned_cells(recipe, place, wishes.fit, wanted)
    return arrange(recipe, place, cells, wishes)


def arrange(recipe: Recipe, place: Place, cells: list[PlannedCell], wishes: Wishes) -> Schedule:
    """Budget and order over cells whose state is known."""
    plan = recipe.plan
    repeat = wishes.repeat or plan.repeat
    times = Times(
        plan.settle, plan.warmup, plan.duration, plan.cooldown,
        plan.warmup_least, plan.step_warmup, plan.duration_least,
    )  # fmt: skip
    thinned: list[str] = []
    guess = Guess(recipe, place, repeat)
    if wishes.budget_s is not None:
        fitted = budget.fit(recipe, cells, times, wishes.budget_s, guess.seconds)
        cells, times, thinned = fitted.cells, fitted.times, fitted.sentences
    seed = secrets.randbelow(SEED_MAX) if wishes.seed is None else wishes.seed
    lives = order.lives(recipe, cells, repeat, seed)
    check_lives(recipe, place, [life.cells for life in lives if life.round == 1], place.recipe_file)
    timed = replace(place, duration_s=times.duration_s, warmup_s=times.warmup_s)
    return Schedule(
        recipe, timed, cells, lives, times, repeat, thinned, seed, wishes.fit,
        guess.seconds(cells, times), wishes.accept_noise, wishes.budget_s,
    )  # fmt: skip


class Guess:
    """How long a plan will take, from what its trials are made of."""

    def __init__(self, recipe: Recipe, place: Place, repeat: int) -> None:
        self.recipe, self.place, self.repeat = recipe, place, repeat
        self._compiled: dict[str, bool] = {}

    def seconds(self, cells: Sequence[PlannedCell], times: Times) -> float:
        total = 0.0
        for group in order.groups(self.recipe, cells):
            total += self.life_s(group[0], times)
            total += len(group) * self.trial_s(times)
        return total * self.repeat

    def life_s(self, planned: PlannedCell, times: Times) -> float:
        compiled = self._is_compiled(planned)
        warmup = times.warmup_s if compiled else min(times.warmup_s, WARMUP_OTHER_S)
        start = START_S["jvm"] if compiled else START_OTHER_S
        return start + times.settle_s + warmup + STOP_S

    def trial_s(self, times: Times) -> float:
        step = min(times.warmup_s, times.step_warmup_s)
        return TRIAL_S + step + times.duration_s + times.cooldown_s

    def _is_compiled(self, planned: PlannedCell) -> bool:
        if planned.cell.id not in self._compiled:
            resolver = Resolver(self.recipe, planned.cell, self.place)
            instances = resolver.instances(planned.cores)
            self._compiled[planned.cell.id] = any(i.tool == "jvm" for i in instances)
        return self._compiled[planned.cell.id]


def with_values(recipe: Recipe, wanted: dict[str, list[Any]]) -> Recipe:
    """Values that [axis.x] declares but the sweep leaves out join it when --only names them."""
    axes = dict(recipe.axes)
    for name, values in wanted.items():
        current = axes[name]
        known = list(current.ramp if isinstance(current, Ramp) else current)
        grown = known + [value for value in values if value not in known]
        axes[name] = Ramp(ramp=grown) if isinstance(current, Ramp) else grown
    return recipe.model_copy(update={"axes": axes})
