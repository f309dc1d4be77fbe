"""Which charts a run has: figures by table, resources, every trial in time order.

Each function takes the Summary and returns drawings with a caption; plot.py draws them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from wirespeed.analysis.cells import is_time
from wirespeed.analysis.summary import Cell, Sheet, Summary, load
from wirespeed.errors import ResultsError
from wirespeed.report import plot, recipe_copy, wording
from wirespeed.report.plot import SERIES_MAX, Labels, Point, Series
from wirespeed.results import store
from wirespeed.results.model import Trial

RESOURCES = ("server.cpu", "load.cpu", "server.cpu_us_per_request", "context_switches")
OVER_TIME = (
    "server.cpu",
    "load.cpu",
    "memory_mib",
    "network_mbps",
    "runqueue",
    "context_switches",
    "loadavg",
    "gc.pause_ms",
)
#: What [sample] calls them; all but `cpu` are of the server's machine.
SAMPLED = {
    "cpu": "server.cpu",
    "network": "network_mbps",
    "memory": "memory_mib",
    "gc": "gc.pause_ms",
}
SHARED = "Instances share cores."
PAIRS = "Pairs: one server and one generator share each core."
LOG_FROM = 30  # latencies that differ by more stand on a logarithmic axis
CALIBRATION_POINTS_MAX = 300  # finer than that cannot be seen
REACH_MIN = 4.0  # %: the least that the axis of the trials in time order shows


@dataclass(frozen=True)
class Chart:
    """A drawing and the sentence below it."""

    svg: str
    caption: str


def sheet_charts(summary: Summary, sheet: Sheet) -> list[Chart]:
    """One chart for each metric of a table; the first also says what held each cell back."""
    first, *others = sheet.metrics
    charts = [_sheet_chart(summary, sheet, first, hold=True)]
    charts += [_sheet_chart(summary, sheet, metric, hold=False) for metric in others]
    return [chart for chart in charts if chart]


def resource_charts(summary: Summary, sheet: Sheet) -> list[Chart]:
    """The cost of a table's cells, over the same axis as the table's own values."""
    charts = []
    for metric in RESOURCES:
        if metric not in sheet.metrics and f"server.{metric}" not in sheet.metrics:
            charts.append(_sheet_chart(summary, sheet, metric, hold=False))
    return [chart for chart in charts if chart]


def _sheet_chart(summary: Summary, sheet: Sheet, metric: str, *, hold: bool) -> Chart | None:
    lines, x_label = series(summary, sheet, metric, hold=hold)
    if not lines:
        return None
    highest = max(p.y for line in lines for p in line.points)
    if not hold and highest <= 0:
        return None
    shown = _measure(sheet, metric, highest)
    lines = [_scaled(line, shown.scale) for line in lines]
    title = f"{sheet.title}: {shown.head} by {x_label}"
    is_log = is_time(metric) and _spans_decades(lines)
    labels = Labels(title, x_label, shown.head + (" (log)" if is_log else ""))
    svg = plot.line_chart(lines, labels, is_thin=not hold, is_log=is_log)
    return Chart(svg, _caption(summary, sheet, metric, shown, hold))


def _spans_decades(lines: Sequence[Series]) -> bool:
    """Whether small figures would vanish at the foot of a linear axis."""
    values = [p.y for line in lines for p in line.points]
    return min(values) > 0 and max(values) / min(values) > LOG_FROM


def _measure(sheet: Sheet, metric: str, highest: float) -> wording.Measure:
    is_ms = len(sheet.metrics) > 1 and wording.is_long(highest)
    return wording.measure(metric, sheet.units.get(metric, ""), is_ms=is_ms)


def _caption(
    summary: Summary, sheet: Sheet, metric: str, shown: wording.Measure, hold: bool
) -> str:
    sharing = _sharing(summary, sheet)
    left = _not_drawn(summary, sheet, metric)
    more = f"{wording.count(left, 'line')} more: see the table." if left else ""
    if not hold:
        return " ".join(part for part in (more, sharing) if part)
    parts = [f"{shown.head[:1].upper()}{shown.head[1:]}: medians; small dots: every valid trial."]
    missing = sum(not cell.trials for cell in sheet.cells.values())
    if missing:
        parts.append(f"{wording.count(missing, 'cell')} without a figure: see the table.")
    return " ".join(part for part in (*parts, more, sharing) if part)


def _not_drawn(summary: Summary, sheet: Sheet, metric: str) -> int:
    """Lines that a chart has no colour for."""
    x_axis, line_axes = _chart_axes(summary, sheet)
    names = {
        tuple(cell.axes.get(axis) for axis in line_axes)
        for cell in sheet.cells.values()
        if cell.median(metric) is not None and x_axis in cell.axes
    }
    return max(0, len(names) - SERIES_MAX)


def _sharing(summary: Summary, sheet: Sheet) -> str:
    """The note below every chart of cells that do not have their cores to themselves."""
    if summary.run.fit == "pairs":
        return PAIRS
    return SHARED if sheet.shares_cores else ""


def series(
    summary: Summary, sheet: Sheet, metric: str, *, hold: bool = True
) -> tuple[list[Series], str]:
    """The lines of a table's chart, and the name of its x axis."""
    x_axis, line_axes = _chart_axes(summary, sheet)
    lines: dict[tuple[Any, ...], list[Point]] = {}
    for cell in sheet.cells.values():
        value = cell.median(metric)
        if value is not None and x_axis in cell.axes:
            name = tuple(cell.axes.get(axis) for axis in line_axes)
            held = cell.bottleneck if hold else ""
            point = Point(cell.axes[x_axis], value, tuple(cell.values(metric)), held)
            lines.setdefault(name, []).append(point)
    ordered = sorted(lines, key=lambda name: _colour_key(summary, line_axes, name))
    points = []
    for i, name in enumerate(ordered[:SERIES_MAX]):
        index = colour(summary, line_axes[0], name[0]) if len(line_axes) == 1 else i % SERIES_MAX
        text = ", ".join(str(value) for value in name) or wording.measure(metric).label
        points.append(Series(text, index, tuple(lines[name])))
    return points, x_axis


def _chart_axes(summary: Summary, sheet: Sheet) -> tuple[str, list[str]]:
    """The row axis with most numbers is x, or none where a table has no axis; what is left
    distinguishes the lines."""
    axes = [*sheet.row_axes, *([sheet.column_axis] if sheet.column_axis else [])]

    def fitness(axis: str) -> tuple[bool, int]:
        values = {cell.axes.get(axis) for cell in sheet.cells.values() if cell.trials}
        return all(isinstance(v, int | float) for v in values), len(values)

    x_axis = max(sheet.row_axes or axes[:1], key=fitness, default="")
    return x_axis, [axis for axis in axes if axis != x_axis]


def _colour_key(summary: Summary, axes: Sequence[str], name: Sequence[Any]) -> tuple[int, ...]:
    return tuple(colour(summary, axis, value) for axis, value in zip(axes, name, strict=True))


def colour(summary: Summary, axis: str, value: Any) -> int:
    """The same value has the same colour in every chart; a baseline is grey."""
    values = [str(v) for v in summary.run.axes.get(axis, [])]
    base = str(summary.run.plan.baseline.get(axis, values[0] if values else ""))
    ordered = [base, *(v for v in values if v != base)]
    return ordered.index(str(value)) % SERIES_MAX if str(value) in ordered else 0


def _scaled(line: Series, scale: float) -> Series:
    if scale == 1.0:
        return line
    points = (
        Point(p.x, p.y * scale, tuple(y * scale for y in p.repeats), p.held_by) for p in line.points
    )
    return Series(line.name, line.colour, tuple(points), line.is_marked)


def contender_axis(summary: Summary) -> str | None:
    """The axis that the run compares along: the baseline's, or a table's columns."""
    if summary.run.plan.baseline:
        return str(next(iter(summary.run.plan.baseline)))
    columns = [sheet.column_axis for sheet in summary.sheets if sheet.column_axis]
    return columns[0] if columns else None


def trials_over_time(summary: Summary) -> Chart | None:
    """Every trial in the order of measuring, as its distance from its cell's median."""
    metric, axis = summary.primary, contender_axis(summary)
    starts = [trial.t_start for trial in (*summary.valid, *summary.invalid)]
    if len(starts) < 2:
        return None
    first = min(starts)
    marks: dict[Any, list[Point]] = {}
    crosses = []
    for cell in summary.measured:
        middle = cell.median(metric)
        for trial in (*cell.trials, *cell.invalid):
            point = deviation(trial, metric, middle, first)
            if point and trial.valid:
                marks.setdefault(cell.axes.get(axis or ""), []).append(point)
            elif point:
                crosses.append(point)
    every = [point for points in (*marks.values(), crosses) for point in points]
    if not marks:
        return None
    most = reach(every)
    lines = [
        Series(str(name) if axis else metric, colour(summary, axis or "", name), _cut(points, most))
        for name, points in marks.items()
    ]
    lines.sort(key=lambda line: line.colour)
    calibration = _calibration(summary, first, most)
    labels = Labels("Every trial in time order", "minutes since the first trial",
                    f"{wording.measure(metric).label}, % from the cell's median")  # fmt: skip
    svg = plot.strip_chart(lines, _cut(crosses, most), calibration, labels)
    beyond = sum(abs(point.y) > most for point in every)
    return Chart(svg, _time_caption(bool(crosses), calibration is not None, most, beyond))


def _time_caption(has_crosses: bool, has_calibration: bool, cut: float, beyond: int) -> str:
    parts = ["Each mark is one trial. Were marks of one colour to drift, a gain would be in doubt."]
    if has_crosses:
        parts.append("Crosses are invalid trials, which count nowhere.")
    if has_calibration:
        parts.append(
            "Thin line: the calibration loop before and after each trial; up is a slower machine."
        )
    if beyond:
        trials = wording.count(beyond, "trial")
        parts.append(f"{trials} beyond ±{cut:.0f} %, drawn at the edge.")
    return " ".join(parts)


def reach(points: Sequence[Point]) -> float:
    """How far the axis goes: most trials, not the single far one."""
    sizes = sorted(abs(p.y) for p in points)
    return max(REACH_MIN, 1.5 * sizes[int(0.95 * (len(sizes) - 1))])


def _cut(points: Sequence[Point], reach: float) -> tuple[Point, ...]:
    return tuple(Point(p.x, min(max(p.y, -reach), reach)) for p in points)


def deviation(trial: Trial, metric: str, middle: float | None, first: float) -> Point | None:
    """A trial at its minute, in percent from the median of its cell."""
    value = trial.metrics.get(metric)
    if value is None or not middle:
        return None
    return Point((trial.t_start - first) / 60, (value / middle - 1) * 100)


def _calibration(summary: Summary, first: float, reach: float) -> Series | None:
    times = [
        (trial.t_start, (one.before_ms + one.after_ms) / 2)
        for trial in summary.valid
        if (one := trial.calibration) and math.isfinite(one.before_ms + one.after_ms)
    ]
    if len(times) < 2:
        return None
    middle = median(ms for _, ms in times)
    step = -(-len(times) // CALIBRATION_POINTS_MAX)
    points = [Point((t - first) / 60, (ms / middle - 1) * 100) for t, ms in times[::step]]
    return Series("calibration loop", 5, _cut(points, reach), is_marked=False)


def resources_over_time(summary: Summary) -> tuple[list[Chart], str]:
    """Samples inside one measured window: for each contender the busiest cell's median trial."""
    chosen = _typical_trials(summary)
    samples = {
        name: store.read_samples(store.trial_dir(summary.run_dir, trial.position, trial.key))
        for name, trial in chosen.items()
    }
    charts = []
    for metric in _over_time(summary):
        lines = []
        for name, found in samples.items():
            points = tuple(
                Point((sample.t_ns - found[0].t_ns) / 1e9, sample.values[metric])
                for sample in found
                if sample.values.get(metric) is not None
            )
            if len(points) > 1:
                shade = colour(summary, contender_axis(summary) or "", name)
                lines.append(Series(name, shade, points, is_marked=False))
        chart = _time_chart(metric, lines)
        if chart:
            charts.append(chart)
    which = next((wording.place(_cell_of(summary, t), [contender_axis(summary) or ""])
                  for t in chosen.values()), "")  # fmt: skip
    return charts, which


def _over_time(summary: Summary) -> Sequence[str]:
    """The resources that the recipe's [sample] names; all of them where it names none."""
    named = recipe_copy.sampled(summary.run_dir)
    names = [SAMPLED.get(name, name) for name in named.get("server", [])]
    names += [f"{role}.cpu" for role in ("load", "origin") if named.get(role)]
    return list(dict.fromkeys(names)) or OVER_TIME


def _time_chart(metric: str, lines: Sequence[Series]) -> Chart | None:
    if not lines or max(p.y for line in lines for p in line.points) <= 0:
        return None
    shown = wording.measure(metric)
    label = Labels(f"{shown.head} over the measured window", "seconds", shown.head)
    svg = plot.time_chart([_scaled(line, shown.scale) for line in lines], label)
    return Chart(svg, "")


def _cell_of(summary: Summary, trial: Trial) -> Cell:
    return next(cell for cell in summary.measured if cell.key == trial.cell)


def _typical_trials(summary: Summary) -> dict[str, Trial]:
    """For each contender the median trial of the cell with the highest baseline figure."""
    axis, metric = contender_axis(summary), summary.primary
    rated = [(cell.median(metric) or 0.0, i, cell) for i, cell in enumerate(summary.measured)]
    if not rated:
        return {}
    base = summary.run.plan.baseline
    based = [r for r in rated if all(r[2].axes.get(a) == v for a, v in base.items())] or rated
    top = max(based)[2]
    rest = {name: value for name, value in top.axes.items() if name != axis}
    trials = {}
    for cell in summary.measured:
        if all(cell.axes.get(name) == value for name, value in rest.items()):
            middle = cell.median(metric) or 0.0
            nearest = min(cell.trials, key=lambda t: abs((t.metrics.get(metric) or 0) - middle))
            trials[str(cell.axes.get(axis or "", cell.key))] = nearest
    order = summary.run.axes.get(axis or "", [])
    places = {str(value): i for i, value in enumerate(order)}
    return dict(sorted(trials.items(), key=lambda item: places.get(item[0], 0))[:SERIES_MAX])


def write_chart(run_dir: Path, out: Path, table: int | None = None) -> Path:
    """Writes one captioned chart of a run as an SVG file of its own, for a README.

    `table` is the number of the table as the report counts them; without it the first
    one with the most measured cells is drawn.
    """
    summary = load(run_dir)
    sheet = _pick(summary, table)
    metric = sheet.metrics[0]
    lines, x_label = series(summary, sheet, metric)
    if not lines:
        raise ResultsError(f"{run_dir}: table {sheet.number} has no measured cell to draw")
    shown = _measure(sheet, metric, 0.0)
    facts = summary.run.facts
    machine = [str(facts.get("cpu_model", "")), f"{facts.get('cores', '?')} cores"]
    repeats = max(len(p.repeats) for line in lines for p in line.points)
    sharing = _sharing(summary, sheet)
    captions = (
        sheet.title,
        f"median of {repeats}, dots: every trial, {summary.run.started[:10]}"
        + (f". {sharing}" if sharing else ""),
        ", ".join(part for part in machine if part),
    )
    labels = Labels(sheet.title, x_label, shown.head, captions)
    bare = [_without_strip(_scaled(line, shown.scale)) for line in lines]
    out.parent.mkdir(parents=True, exist_ok=True)
    drawing = plot.standalone(plot.line_chart(bare, labels), f"run {summary.run.run_id}")
    out.write_text(drawing, encoding="utf-8")
    return out


def _without_strip(line: Series) -> Series:
    points = (Point(p.x, p.y, p.repeats) for p in line.points)
    return Series(line.name, line.colour, tuple(points))


def _pick(summary: Summary, table: int | None) -> Sheet:
    if table is not None:
        for sheet in summary.sheets:
            if sheet.number == table:
                return sheet
        raise ResultsError(f"{summary.run_dir}: table {table} does not exist; the run has "
                           f"{len(summary.sheets)}")  # fmt: skip
    if not summary.sheets:
        raise ResultsError(f"{summary.run_dir}: the recipe has no table to draw")
    return max(summary.sheets, key=lambda s: sum(bool(c.trials) for c in s.cells.values()))
