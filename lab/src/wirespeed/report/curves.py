"""Latency over percentiles: what medians and a mean hide, for some cells of a run.

The axis is that of HDR histograms: each nine takes as much room as the one before it.
"""

from __future__ import annotations

import math
import re

from wirespeed.analysis.summary import Cell, Summary
from wirespeed.report import plot, wording
from wirespeed.report.charts import LOG_FROM, Chart, colour, contender_axis
from wirespeed.report.plot import SERIES_MAX, Labels, Point, Series

CURVES_MAX = 4  # groups of cells that are drawn; the tables have all
PERCENTILES_MIN = 3  # fewer do not make a curve
_NAME = re.compile(r"p([\d_]+)$")


def latency_curves(summary: Summary) -> list[Chart]:
    """One chart for each chosen group of cells that differ in the contender only."""
    metrics = [str(m["name"]) for m in summary.run.metrics if m.get("combine") == "histogram"]
    groups = _spread(_groups(summary))
    charts = [_chart(summary, metric, cells) for metric in metrics for cells in groups]
    return [chart for chart in charts if chart]


def _groups(summary: Summary) -> list[list[Cell]]:
    axis = contender_axis(summary)
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in summary.measured:
        rest = tuple(value for name, value in cell.axes.items() if name != axis)
        groups.setdefault(rest, []).append(cell)
    return list(groups.values())


def _spread(groups: list[list[Cell]]) -> list[list[Cell]]:
    """The first, the last and some between them."""
    if len(groups) <= CURVES_MAX:
        return groups
    step = (len(groups) - 1) / (CURVES_MAX - 1)
    return [groups[round(number * step)] for number in range(CURVES_MAX)]


def _chart(summary: Summary, metric: str, cells: list[Cell]) -> Chart | None:
    axis = contender_axis(summary) or ""
    lines, names = [], {}
    for cell in cells[:SERIES_MAX]:
        points = []
        for place, name, key in _percentiles(cell, metric):
            value = cell.median(key)
            if value is not None:
                points.append(Point(place, value, tuple(cell.values(key))))
                names[place] = name
        if len(points) >= PERCENTILES_MIN:
            label = str(cell.axes.get(axis, metric))
            lines.append(Series(label, colour(summary, axis, cell.axes.get(axis)), tuple(points)))
    if not lines:
        return None
    values = [p.y for line in lines for p in line.points]
    is_ms = wording.is_long(max(values))
    shown = wording.measure(f"{metric}.max", is_ms=is_ms)
    lines = [_scaled(line, shown.scale) for line in lines]
    is_log = min(values) > 0 and max(values) / min(values) > LOG_FROM
    where = wording.place(cells[0], without=[axis])
    labels = Labels(
        f"{metric} by percentile, {where}", "percentile",
        f"{metric}, {shown.unit}" + (" (log)" if is_log else ""),
    )  # fmt: skip
    svg = plot.curve_chart(lines, sorted(names.items()), labels, is_log=is_log)
    return Chart(svg, f"{where}: medians of the trials; small dots: every valid trial.")


def _percentiles(cell: Cell, metric: str) -> list[tuple[float, str, str]]:
    """(place on the axis, its name, key of the metric), rising; the maximum one nine further."""
    points = []
    keys = {key for trial in cell.trials for key in trial.metrics}
    for key in keys:
        match = _NAME.fullmatch(key.removeprefix(metric + ".")) if key.startswith(metric) else None
        if match:
            percent = float(match[1].replace("_", "."))
            if percent < 100:
                points.append((-math.log10(1 - percent / 100), f"{percent:g}", key))
    points.sort()
    if points and f"{metric}.max" in keys:
        points.append((points[-1][0] + 1, "max", f"{metric}.max"))
    return points


def _scaled(line: Series, scale: float) -> Series:
    points = (Point(p.x, p.y * scale, tuple(y * scale for y in p.repeats)) for p in line.points)
    return Series(line.name, line.colour, tuple(points))
