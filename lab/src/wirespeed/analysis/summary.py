"""Computes from a run directory everything that reports show; each report begins here.

    load(run_dir) -> Summary
        cells     every cell of the plan, measured or not
        sheets    the recipe's tables, one for each value of `each`
        gains     every comparison once, with interval, q and verdict
        families  the comparisons of one contender with one baseline, and their pooled verdict

The page, the Markdown, the CSV and the terminal print the same Summary, so they agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from wirespeed.analysis import cells as cells_of
from wirespeed.analysis import comparisons, duet
from wirespeed.analysis import sheets as sheets_of
from wirespeed.analysis.cells import Cell
from wirespeed.analysis.comparisons import (
    CPU_EXCL_POLLING,
    INSTRUCTIONS,
    Family,
    Gain,
    Pair,
    is_ceiling,
)
from wirespeed.analysis.sheets import SCALING_SUSPECT, Sheet, scaling
from wirespeed.results import store
from wirespeed.results.model import PlannedTrial, Run, Trial

__all__ = [
    "LITTLE_RESIDUAL_MAX",
    "SCALING_SUSPECT",
    "Cell",
    "Family",
    "Gain",
    "Sheet",
    "Summary",
    "is_ceiling",
    "load",
    "scaling",
    "summarize",
]

LITTLE_RESIDUAL_MAX = 0.05


@dataclass(frozen=True)
class Summary:
    """All that a report says, before it is printed."""

    run_dir: Path
    run: Run
    cells: tuple[Cell, ...]
    sheets: tuple[Sheet, ...]
    gains: tuple[Gain, ...]
    families: tuple[Family, ...]
    floors: Mapping[str, float | None]

    @cached_property
    def primary(self) -> str:
        """The metric that the recipe names first; of a histogram its median."""
        name = str(self.run.metrics[0]["name"]) if self.run.metrics else "rps"
        return cells_of.known_name(self.measured, name) or name

    @cached_property
    def measured(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.trials)

    @cached_property
    def unmeasured(self) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if not cell.trials)

    @cached_property
    def invalid(self) -> tuple[Trial, ...]:
        return tuple(trial for cell in self.cells for trial in cell.invalid)

    @cached_property
    def valid(self) -> tuple[Trial, ...]:
        trials = (trial for cell in self.cells for trial in cell.trials)
        return tuple(sorted(trials, key=lambda trial: trial.t_start))

    @cached_property
    def noisy(self) -> tuple[Trial, ...]:
        """Trials that count despite interference."""
        return tuple(trial for trial in self.valid if trial.disturbed > 0)

    @cached_property
    def uncompared(self) -> tuple[Pair, ...]:
        """Of each measured cell that is compared with nothing, as its baseline is left out of the
        run, one pair."""
        compared = {gain.cell.key for gain in self.gains}
        pairs = {
            pair.cell.key: pair
            for pair in _pairs(self.run, self.sheets, self.cells)
            if pair.cell.trials and pair.base.is_left_out and pair.cell.key not in compared
        }
        return tuple(pairs.values())

    @property
    def trials_left_out(self) -> int:
        """Planned trials of a finished run that its time had no room for."""
        if self.run.state != "done":
            return 0
        started = [cell for cell in self.cells if cell.trials]
        left = (self.run.plan.repeat - len(c.trials) - len(c.invalid) for c in started)
        return sum(max(0, trials) for trials in left)

    @property
    def shares_cores(self) -> bool:
        return self.run.fit == "share" or any(cell.shares_cores for cell in self.cells)

    def unit(self, metric: str) -> str:
        """The unit that the recipe gives for it; empty where it gives none."""
        units = (str(m.get("unit") or "") for m in self.run.metrics if m["name"] == metric)
        return next(units, "")

    def better(self, metric: str) -> str:
        return comparisons.better(self.run, metric)


def load(run_dir: Path) -> Summary:
    """Reads a run directory, finished or not, and judges it."""
    run = store.read_run(run_dir)
    return summarize(run_dir, run, store.read_plan(run_dir), store.read_trials(run_dir))


def summarize(
    run_dir: Path, run: Run, plan: Iterable[PlannedTrial], trials: Iterable[Trial]
) -> Summary:
    """Judges what was read."""
    trials = duet.with_names(trials, run.metrics)
    run = replace(run, idle_held=idle_held(run, trials))
    cells = cells_of.of_plan(plan, trials)
    sheets = sheets_of.of_run(run, cells)
    pairs = _pairs(run, sheets, cells)
    pairs += _costs(pairs)
    names = [str(metric["name"]) for metric in run.metrics]
    metrics = dict.fromkeys([*names, *(pair.metric for pair in pairs)])
    floors = {metric: comparisons.floor(run, cells, metric) for metric in metrics}
    gains = comparisons.judge(run, pairs)
    by_key = {(gain.cell.key, gain.base.key, gain.metric): gain for gain in gains}
    sheets = [
        replace(sheet, gains={slot: by_key[pair.key] for slot, pair in sheet.pairs().items()
                              if pair.key in by_key})
        for sheet in sheets
    ]  # fmt: skip
    families = comparisons.families(run, gains)
    return Summary(run_dir, run, cells, tuple(sheets), tuple(gains), tuple(families), floors)


def idle_held(run: Run, trials: Iterable[Trial]) -> bool:
    """Whether idle states were held off in every trial that gave figures: of a run that was cut
    off or went on, too, whose last part may have had no trial at all."""
    held = [
        run.idle_held if trial.idle_held is None else trial.idle_held
        for trial in trials
        if trial.metrics
    ]
    return all(held) if held else run.idle_held


def _pairs(run: Run, sheets: Iterable[Sheet], cells: tuple[Cell, ...]) -> list[Pair]:
    """The comparisons of the recipe, measured or not."""
    pairs = [pair for sheet in sheets for pair in sheet.pairs().values()]
    return pairs or _against_baseline(run, cells)


def _costs(pairs: Iterable[Pair]) -> list[Pair]:
    """What a request costs, of every pair that is compared in anything: it shows what rates may
    hide."""
    seen = {(pair.cell.key, pair.base.key): pair for pair in pairs}
    metrics = (CPU_EXCL_POLLING, INSTRUCTIONS)
    costs = [replace(pair, metric=cost) for cost in metrics for pair in seen.values()]
    return [one for one in costs if one.cell.values(one.metric) and one.base.values(one.metric)]


def _against_baseline(run: Run, cells: tuple[Cell, ...]) -> list[Pair]:
    """For recipes whose tables print no gain: every cell against the plan's baseline."""
    if len(run.plan.baseline) != 1 or not run.metrics:
        return []
    ((axis, over),) = run.plan.baseline.items()
    by_axes = {cells_of.identity(cell.axes): cell for cell in cells}
    name = str(run.metrics[0]["name"])
    metric = cells_of.known_name(cells, name) or name
    pairs = []
    for cell in cells:
        base = by_axes.get(cells_of.identity({**cell.axes, axis: over}))
        if base is not None and cell.axes.get(axis) != over and not is_ceiling(run, cell):
            pairs.append(Pair(cell, base, axis, metric))
    return pairs
