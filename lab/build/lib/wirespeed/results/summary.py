"""From trials to what is said about them: cells, tables with gains, verdicts, the noise floor.

    load(run_dir) -> Summary
        cells    every cell of the plan, measured or not
        sheets   the recipe's tables, one for each value of `each`
        gains    every comparison once, with interval, q and verdict

The page, the Markdown, the CSV and the terminal print the same Summary, so they agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from wirespeed.results import store
from wirespeed.results.model import Axes, PlannedTrial, Run, Trial
from wirespeed.results.statistics import (
    Comparison,
    Verdict,
    benjamini_hochberg,
    compare,
    decide,
    geometric_mean,
    median,
    odd_even_floor,
)

SCALING_AXES = ("instances", "workers")  # more of these is more server, so X(n)/(n X(1)) counts
SCALING_SUSPECT = 1.05  # better than linear: the first point was slow
CONNECTIONS_A_CORE_MIN = 8  # below, a free idle state decides the figure
LITTLE_RESIDUAL_MAX = 0.05

# The same metric under the name that a recipe may use for it.
ALIASES = {
    "server.loadavg": "loadavg",
    "server.context_switches": "context_switches",
    "server.network_mbps": "network_mbps",
}


@dataclass(frozen=True)
class Cell:
    """One point of the sweep with all its trials."""

    key: str
    axes: Axes
    state: str  # measured, no valid trial, not measured yet, or the plan's reason not to
    reason: str
    trials: tuple[Trial, ...] = ()  # the valid ones, in time order
    invalid: tuple[Trial, ...] = ()

    def values(self, metric: str) -> list[float]:
        name = ALIASES.get(metric, metric)
        found = (trial.metrics.get(name, trial.metrics.get(metric)) for trial in self.trials)
        return [value for value in found if value is not None]

    def median(self, metric: str) -> float | None:
        values = self.values(metric)
        return median(values) if values else None

    @cached_property
    def bottleneck(self) -> str:
        """What held the cell back in most of its trials; a tie is not the server's."""
        counts = Counter(trial.bottleneck for trial in self.trials)
        if not counts:
            return "unknown"
        return max(counts, key=lambda name: (counts[name], name != "server"))

    @property
    def disturbed(self) -> float:
        """What its trials may have lost to something from outside, on average."""
        return sum(trial.disturbed for trial in self.trials) / max(1, len(self.trials))

    @property
    def shares_cores(self) -> bool:
        return any(trial.shared_cores for trial in self.trials)

    def server_cores(self) -> int:
        cores = {
            core
            for trial in self.trials[:1]
            for process in trial.processes
            if process.role == "server"
            for core in process.cores
        }
        return max(1, len(cores))


@dataclass(frozen=True)
class Gain:
    """One cell against its baseline cell, in one metric."""

    cell: Cell
    base: Cell
    axis: str
    metric: str
    better: str
    of_medians: float | None  # what the documents print
    found: Comparison | None
    q: float
    verdict: Verdict

    @property
    def contender(self) -> str:
        return str(self.cell.axes[self.axis])

    @property
    def over(self) -> str:
        return str(self.base.axes[self.axis])


Slot = tuple[tuple[Any, ...], Any]  # (row values, column value)


@dataclass(frozen=True)
class Sheet:
    """One printed table: rows over columns, for one value of each `each` axis."""

    number: int
    spec: Mapping[str, Any]
    title: str
    fixed: Axes
    row_axes: tuple[str, ...]
    column_axis: str | None
    rows: tuple[tuple[Any, ...], ...]
    columns: tuple[Any, ...]
    metrics: tuple[str, ...]
    cells: Mapping[Slot, Cell]
    units: Mapping[str, str] = field(default_factory=dict)  # those that the recipe names
    gains: Mapping[Slot, Gain] = field(default_factory=dict)

    @property
    def over(self) -> Any:
        return self.spec.get("gain", {}).get("over")

    @property
    def gain_decimals(self) -> int:
        return int(self.spec.get("gain", {}).get("round", 0))

    @property
    def shares_cores(self) -> bool:
        return any(cell.shares_cores for cell in self.cells.values())


@dataclass(frozen=True)
class Family:
    """All comparisons of one contender with one baseline, in one metric."""

    contender: str
    over: str
    metric: str
    gains: tuple[Gain, ...]

    @property
    def judged(self) -> list[Gain]:
        """The gains that are a figure and not only a bound."""
        return [
            gain
            for gain in self.gains
            if gain.found is not None and gain.verdict.word != "not comparable"
        ]

    @property
    def mean(self) -> float | None:
        ratios = [1 + gain.found.gain for gain in self.judged if gain.found]
        return geometric_mean(ratios) - 1 if ratios else None

    def count(self, word: str) -> int:
        return sum(gain.verdict.word == word for gain in self.gains)


@dataclass(frozen=True)
class Summary:
    """All that a report says, before it is printed."""

    run_dir: Path
    run: Run
    cells: tuple[Cell, ...]
    sheets: tuple[Sheet, ...]
    gains: tuple[Gain, ...]
    floors: Mapping[str, float | None]

    @property
    def primary(self) -> str:
        """The metric that the recipe names first."""
        return str(self.run.metrics[0]["name"]) if self.run.metrics else "rps"

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
    def disturbed(self) -> tuple[Trial, ...]:
        """Trials that count although something from outside disturbed them."""
        return tuple(trial for trial in self.valid if trial.disturbed > 0)

    @property
    def trials_left_out(self) -> int:
        """Planned trials of a finished run that its time had no room for."""
        if self.run.state != "done":
            return 0
        started = [cell for cell in self.cells if cell.trials or cell.invalid]
        done = sum(len(cell.trials) + len(cell.invalid) for cell in started)
        return max(0, self.run.plan.repeat * len(started) - done)

    @cached_property
    def families(self) -> tuple[Family, ...]:
        groups: dict[tuple[str, str, str], list[Gain]] = {}
        for gain in self.gains:
            groups.setdefault((gain.contender, gain.over, gain.metric), []).append(gain)
        return tuple(Family(*names, tuple(found)) for names, found in groups.items())

    @property
    def shares_cores(self) -> bool:
        return self.run.fit == "share" or any(cell.shares_cores for cell in self.cells)

    def better(self, metric: str) -> str:
        return _better(self.run, metric)


def load(run_dir: Path) -> Summary:
    """Reads a run directory, finished or not, and judges it."""
    run = store.read_run(run_dir)
    return summarize(run_dir, run, store.read_plan(run_dir), store.read_trials(run_dir))


def summarize(
    run_dir: Path, run: Run, plan: Iterable[PlannedTrial], trials: Iterable[Trial]
) -> Summary:
    """Judges what was read."""
    cells = _cells(plan, trials)
    floors = {str(metric["name"]): _floor(run, cells, metric) for metric in run.metrics}
    sheets = [_with_gains(run, sheet, floors) for sheet in _sheets(run, cells)]
    gains = {
        (gain.cell.key, gain.base.key, gain.metric): gain
        for sheet in sheets
        for gain in sheet.gains.values()
    }
    if not gains:
        gains = _gains_over_baseline(run, cells, floors)
    return Summary(run_dir, run, cells, tuple(sheets), tuple(gains.values()), floors)


def _cells(plan: Iterable[PlannedTrial], trials: Iterable[Trial]) -> tuple[Cell, ...]:
    lines: dict[str, PlannedTrial] = {}
    for line in plan:
        if line.cell not in lines or line.state != "planned":
            lines[line.cell] = line
    done: dict[str, list[Trial]] = {}
    for trial in sorted(trials, key=lambda trial: trial.t_start):
        done.setdefault(trial.cell, []).append(trial)
    return tuple(_cell(line, done.get(key, [])) for key, line in lines.items())


def _cell(line: PlannedTrial, trials: list[Trial]) -> Cell:
    valid = tuple(trial for trial in trials if trial.valid)
    invalid = tuple(trial for trial in trials if not trial.valid)
    state: str = line.state
    reason = line.reason
    if valid:
        state, reason = "measured", ""
    elif invalid:
        state, reason = "no valid trial", "; ".join(invalid[-1].reasons)
    elif line.state == "planned":
        state, reason = "not measured yet", "the run ended before this cell"
    return Cell(line.cell, line.axes, state, reason, valid, invalid)


def _sheets(run: Run, cells: Iterable[Cell]) -> list[Sheet]:
    sheets: list[Sheet] = []
    cells = tuple(cells)
    for spec in run.tables:
        where = {axis: _listed(wanted) for axis, wanted in spec.get("where", {}).items()}
        chosen = [
            cell
            for cell in cells
            if all(cell.axes.get(axis) in wanted for axis, wanted in where.items())
        ]
        groups: dict[tuple[Any, ...], list[Cell]] = {}
        each = _each(run, spec, chosen)
        for cell in sorted(chosen, key=lambda cell: _order(run, cell.axes, each)):
            groups.setdefault(tuple(cell.axes.get(axis) for axis in each), []).append(cell)
        for values, group in groups.items():
            fixed = dict(zip(each, values, strict=True))
            sheets.append(_sheet(run, len(sheets) + 1, spec, fixed, group))
    return sheets


def _each(run: Run, spec: Mapping[str, Any], cells: list[Cell]) -> tuple[str, ...]:
    """The axes that split a table: those it names, and those it forgot but that vary."""
    placed = [*_listed(spec.get("rows")), *_listed(spec.get("columns"))]
    named = _listed(spec.get("each"))
    left = [
        axis
        for axis in run.axes
        if axis not in placed
        and axis not in named
        and len({str(cell.axes.get(axis)) for cell in cells}) > 1
    ]
    return tuple([*named, *left])


def _sheet(run: Run, number: int, spec: Mapping[str, Any], fixed: Axes, cells: list[Cell]) -> Sheet:
    row_axes = tuple(_listed(spec.get("rows")))
    column_axis = spec.get("columns")
    placed = [*row_axes, *([column_axis] if column_axis else [])]
    cells = sorted(cells, key=lambda cell: _order(run, cell.axes, placed))
    rows = tuple(dict.fromkeys(tuple(cell.axes.get(a) for a in row_axes) for cell in cells))
    seen = {str(cell.axes.get(column_axis)) for cell in cells} if column_axis else set()
    columns = tuple(v for v in run.axes.get(column_axis or "", []) if str(v) in seen) or (None,)
    slots = {
        (
            tuple(cell.axes.get(a) for a in row_axes),
            cell.axes.get(column_axis) if column_axis else None,
        ): cell
        for cell in cells
    }
    metrics = tuple(_listed(spec.get("values") or spec.get("value") or "rps"))
    title = _title(spec, fixed, metrics, row_axes)
    units = {str(metric["name"]): str(metric.get("unit") or "") for metric in run.metrics}
    return Sheet(
        number, spec, title, fixed, row_axes, column_axis, rows, columns, metrics, slots, units
    )  # fmt: skip


class _AxisValues(dict[str, Any]):
    """Axes in a title; on one machine the link that a recipe leaves open is the loopback."""

    def __missing__(self, name: str) -> str:
        return "Loopback" if name == "link" else "any " + name


def _title(
    spec: Mapping[str, Any], fixed: Axes, metrics: tuple[str, ...], rows: tuple[str, ...]
) -> str:
    if spec.get("title"):
        try:
            return str(spec["title"]).format_map(_AxisValues(fixed))
        except (ValueError, AttributeError, IndexError):
            return str(spec["title"])
    names = ", ".join(f"{axis} {value}" for axis, value in fixed.items())
    what = f"{metrics[0]} by {' and '.join(rows)}"
    return f"{what}: {names}" if names else what


def _with_gains(run: Run, sheet: Sheet, floors: Mapping[str, float | None]) -> Sheet:
    if sheet.over is None or sheet.column_axis is None:
        return sheet
    pairs = {}
    for (row, column), cell in sheet.cells.items():
        base = sheet.cells.get((row, sheet.over))
        if base is not None and column != sheet.over:
            pairs[row, column] = (cell, base)
    metric = sheet.metrics[0]
    gains = _judge(run, pairs, sheet.column_axis, metric, floors)
    return Sheet(**{**vars(sheet), "gains": gains})


def _gains_over_baseline(
    run: Run, cells: tuple[Cell, ...], floors: Mapping[str, float | None]
) -> dict[tuple[str, str, str], Gain]:
    """For recipes whose tables print no gain: every cell against the plan's baseline."""
    if len(run.plan.baseline) != 1 or not run.metrics:
        return {}
    ((axis, over),) = run.plan.baseline.items()
    by_axes = {_identity(cell.axes): cell for cell in cells}
    pairs = {}
    for cell in cells:
        base = by_axes.get(_identity({**cell.axes, axis: over}))
        if base is not None and cell.axes.get(axis) != over and not is_ceiling(run, cell):
            pairs[cell.key] = (cell, base)
    metric = str(run.metrics[0]["name"])
    gains = _judge(run, pairs, axis, metric, floors)
    return {(gain.cell.key, gain.base.key, metric): gain for gain in gains.values()}


def is_ceiling(run: Run, cell: Cell) -> bool:
    """Whether the cell has no server and shows what generator and origin can do alone."""
    ceiling = run.plan.ceiling
    return bool(ceiling) and all(cell.axes.get(axis) == value for axis, value in ceiling.items())


def _judge(
    run: Run,
    pairs: Mapping[Any, tuple[Cell, Cell]],
    axis: str,
    metric: str,
    floors: Mapping[str, float | None],
) -> dict[Any, Gain]:
    """The gains of one table; q counts the comparisons of that table."""
    pairs = {slot: pair for slot, pair in pairs.items() if pair[0].trials and pair[1].trials}
    found = {slot: compare(a.values(metric), b.values(metric)) for slot, (a, b) in pairs.items()}
    asked = [slot for slot, comparison in found.items() if comparison is not None]
    ps = [comparison.p for comparison in found.values() if comparison is not None]
    qs = dict(zip(asked, benjamini_hochberg(ps), strict=True))
    floor = floors.get(metric.split(".")[0]) or 0.0
    better = _better(run, metric) or "higher"
    gains = {}
    for slot, (cell, base) in pairs.items():
        withheld, bound = _withheld(run, cell, base, better)
        q = qs.get(slot, 1.0)
        verdict = decide(
            found[slot], q=q, floor=floor, better=better, withheld=withheld, bound=bound,
            disturbed=max(cell.disturbed, base.disturbed),
        )  # fmt: skip
        ratio = _of_medians(cell, base, metric)
        gains[slot] = Gain(cell, base, axis, metric, better, ratio, found[slot], q, verdict)
    return gains


def _withheld(run: Run, cell: Cell, base: Cell, better: str) -> tuple[str, str]:
    """Why no verdict may be given on a pair, and on which side the true gain lies."""
    if run.plan.order == "blocked":
        return "measured in blocks: drift cannot be told from a gain", ""
    cell_held, base_held = (side.bottleneck in ("client", "link") for side in (cell, base))
    if cell_held or base_held:
        side = cell if cell_held else base
        what = {"client": "the load generator", "link": "the link"}[side.bottleneck]
        bound = "" if cell_held and base_held else "≥" if cell_held == (better == "higher") else "≤"
        return f"{what} was the limit, not the server", bound
    if not run.idle_held and any(_is_idle_prone(side) for side in (cell, base)):
        return "idle states were not held off and there are few connections a core", ""
    return "", ""


def _is_idle_prone(cell: Cell) -> bool:
    connections = cell.axes.get("connections")
    if isinstance(connections, int | float):
        return connections < CONNECTIONS_A_CORE_MIN * cell.server_cores()
    return cell.bottleneck == "concurrency"


def _floor(run: Run, cells: Iterable[Cell], metric: Mapping[str, Any]) -> float | None:
    """How far the baseline differs from itself in this run."""
    baseline = run.plan.baseline
    name = str(metric["name"])
    chosen = [
        cell
        for cell in cells
        if all(cell.axes.get(axis) == value for axis, value in baseline.items())
    ]
    return odd_even_floor(
        [cell.values(name) or cell.values(f"{name}.mean") for cell in chosen]
    )  # fmt: skip


def scaling(sheet: Sheet, column: Any, metric: str) -> dict[tuple[Any, ...], float]:
    """X(n) / (n X(1)) by row: 1 is linear, above SCALING_SUSPECT the first point was slow."""
    if len(sheet.row_axes) != 1 or sheet.row_axes[0] not in SCALING_AXES:
        return {}
    points = {}
    for row in sheet.rows:
        cell = sheet.cells.get((row, column))
        value = cell.median(metric) if cell else None
        if value:
            points[row] = value
    if len(points) < 2:
        return {}
    first = min(points, key=lambda row: float(row[0]))
    one = points[first] / float(first[0])
    return {row: value / (float(row[0]) * one) for row, value in points.items()}


def _of_medians(cell: Cell, base: Cell, metric: str) -> float | None:
    a, b = cell.median(metric), base.median(metric)
    return a / b - 1 if a is not None and b else None


def _better(run: Run, metric: str) -> str:
    for spec in run.metrics:
        if metric == spec["name"] or metric.startswith(f"{spec['name']}."):
            return str(spec.get("better") or "")
    return ""


def _order(run: Run, axes: Axes, names: Iterable[str]) -> tuple[int, ...]:
    """A cell's place: every axis in the recipe's own order of values."""
    places = []
    for name in names:
        values = run.axes.get(name, [])
        places.append(values.index(axes[name]) if axes.get(name) in values else len(values))
    return tuple(places)


def _identity(axes: Axes) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((name, str(value)) for name, value in axes.items()))


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
