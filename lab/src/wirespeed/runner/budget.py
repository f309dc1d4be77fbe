"""Fits a plan into a time budget: shorter trials first, then fewer interior points, never fewer
than five repeats. Everything that was left out becomes a sentence for the report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wirespeed.errors import InputError
from wirespeed.recipe.model import Recipe
from wirespeed.runner.cells import PlannedCell
from wirespeed.units import duration_for_people

_BISECTIONS = 30
REPEAT_SHARE = 0.15  # of a budget that windows leave free: noisy ones are measured again


@dataclass(frozen=True)
class Times:
    """The lengths of a trial's phases, in seconds."""

    settle_s: float
    warmup_s: float
    duration_s: float
    cooldown_s: float
    warmup_least_s: float = 2.0
    step_warmup_s: float = 0.25
    duration_least_s: float = 1.0

    def scaled(self, share: float) -> Times:
        return Times(
            self.settle_s * share,
            max(min(self.warmup_s, self.warmup_least_s), self.warmup_s * share),
            max(min(self.duration_s, self.duration_least_s), self.duration_s * share),
            self.cooldown_s * share,
            self.warmup_least_s,
            self.step_warmup_s,
            self.duration_least_s,
        )

    def rounded(self) -> Times:
        """Whole tenths: what a reader can type again."""
        return replace(
            self,
            settle_s=_tenths(self.settle_s),
            warmup_s=_tenths(self.warmup_s),
            duration_s=max(_tenths(self.duration_s), min(self.duration_s, 0.1)),  # never none
            cooldown_s=_tenths(self.cooldown_s),
        )


def _tenths(seconds: float) -> float:
    return math.floor(seconds * 10) / 10


Estimate = Callable[[Sequence[PlannedCell], Times], float]


@dataclass(frozen=True)
class Budgeted:
    cells: list[PlannedCell]
    times: Times
    sentences: list[str]


def fit(
    recipe: Recipe, cells: list[PlannedCell], times: Times, budget_s: float, estimate: Estimate
) -> Budgeted:
    if estimate(cells, times) <= budget_s * (1 - REPEAT_SHARE):
        return Budgeted(cells, times, [])
    shortest = times.scaled(0.0)
    sentences = []
    while estimate(cells, shortest) > budget_s:
        victim = _redundant(recipe, cells)
        if victim is None:
            least = duration_for_people(math.ceil(estimate(cells, shortest)))
            raise InputError(
                f"--budget: {duration_for_people(budget_s)} is too short: the smallest plan of "
                f"{recipe.name} takes {least} (narrow it with --only)"
            )
        name, value = victim
        cells = [_thinned(cell, name, value, budget_s) for cell in cells]
        sentences.append((name, value))
    target_s = max(budget_s * (1 - REPEAT_SHARE), estimate(cells, shortest))
    chosen = _longest(cells, times, target_s, estimate).rounded()
    return Budgeted(cells, chosen, _said(sentences, times, chosen, budget_s))


def _longest(cells: list[PlannedCell], times: Times, budget_s: float, estimate: Estimate) -> Times:
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if estimate(cells, times.scaled(middle)) <= budget_s:
            low = middle
        else:
            high = middle
    return times.scaled(low)


def _thinned(cell: PlannedCell, name: str, value: Any, budget_s: float) -> PlannedCell:
    if not cell.is_measured or cell.cell.axes[name] != value:
        return cell
    reason = f"left out to keep the budget of {duration_for_people(budget_s)}"
    return replace(cell, state="thinned", reason=reason)


def _redundant(recipe: Recipe, cells: list[PlannedCell]) -> tuple[str, Any] | None:
    """The interior point that its neighbours describe best, of the axis with the most points."""
    best: tuple[int, float, str, Any] | None = None
    for name in _thinnable(recipe):
        present = {cell.cell.axes[name] for cell in cells if cell.is_measured}
        values = [value for value in recipe.axis_values()[name] if value in present]
        for low, value, high in zip(values, values[1:], values[2:], strict=False):
            shift = 1 - min(0.0, float(values[0]))  # of numbers below 0 there is no logarithm
            gap = math.log((float(high) + shift) / (float(low) + shift))
            if best is None or (-len(values), gap) < (best[0], best[1]):
                best = (-len(values), gap, name, value)
    return (best[2], best[3]) if best else None


def _thinnable(recipe: Recipe) -> list[str]:
    """Axes of ascending numbers that nothing is compared over."""
    compared = set(recipe.plan.baseline) | {table.columns for table in recipe.table}
    result = []
    for name, values in recipe.axis_values().items():
        numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
        if name not in compared and len(numbers) == len(values) and sorted(numbers) == numbers:
            result.append(name)
    return result


def _said(
    left_out: list[tuple[str, Any]], before: Times, after: Times, budget_s: float
) -> list[str]:
    budget = duration_for_people(budget_s)
    sentences = []
    shorter = [
        f"{what} {now:.3g} s instead of {was:.3g} s"
        for what, now, was in (
            ("the measured window is", after.duration_s, before.duration_s),
            ("the warm-up at most", after.warmup_s, before.warmup_s),
        )
        if f"{now:.3g}" != f"{was:.3g}"
    ]
    if shorter:
        sentences.append(f"To keep the budget of {budget}, {' and '.join(shorter)}.")
    for name in dict.fromkeys(name for name, _ in left_out):
        values = [str(value) for axis, value in left_out if axis == name]
        sentences.append(
            f"To keep the budget of {budget}, these values of {name} are not measured: "
            f"{', '.join(values)}."
        )
    return sentences
