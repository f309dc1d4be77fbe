"""A strip for each cell: its repeats in the order of measuring, which shows drift.

The chart of every trial (charts.trials_over_time) shows when something happened; these rows show
to which cell. Where there are too many cells for a page, those with the widest spread are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence

from wirespeed.analysis.summary import Cell, Summary
from wirespeed.report import charts, plot, wording
from wirespeed.report.charts import Chart
from wirespeed.report.plot import Labels, Point, StripRow

ROWS_MAX = 40
TRIALS_MIN = 2  # a single trial has no order


def cells_over_time(summary: Summary) -> Chart | None:
    """None when no cell has been repeated."""
    metric = summary.primary
    repeated = [cell for cell in summary.measured if len(_values(cell, metric)) >= TRIALS_MIN]
    if not repeated:
        return None
    first = min(trial.t_start for trial in (*summary.valid, *summary.invalid))
    chosen = _widest(repeated, metric)
    rows = [_row(summary, cell, metric, first) for cell in chosen]
    reach = charts.reach([point for row in rows for point in row.points])
    title = "The repeats of each cell in time order"
    labels = Labels(title, "minutes since the first trial", f"±{reach:.0f} %")
    return Chart(plot.rows_chart(rows, reach, labels), _caption(metric, reach, repeated, rows))


def _widest(cells: Sequence[Cell], metric: str) -> list[Cell]:
    """In the run's order; the steadiest are left out where there are too many."""
    chosen = sorted(cells, key=lambda cell: _spread(cell, metric), reverse=True)[:ROWS_MAX]
    return [cell for cell in cells if cell in chosen]


def _values(cell: Cell, metric: str) -> list[float]:
    """A response that takes longer than the window gives none."""
    return [value for value in cell.values(metric) if value]


def _spread(cell: Cell, metric: str) -> float:
    values = _values(cell, metric)
    return max(values) / min(values) if values and min(values) > 0 else 0.0


def _row(summary: Summary, cell: Cell, metric: str, first: float) -> StripRow:
    axis, middle = charts.contender_axis(summary) or "", cell.median(metric)
    points: list[Point] = []
    crosses: list[Point] = []
    for trial in (*cell.trials, *cell.invalid):
        if point := charts.deviation(trial, metric, middle, first):
            (points if trial.valid else crosses).append(point)
    shown = wording.measure(metric)
    text = wording.number(middle * shown.scale) if middle else wording.NONE
    shade = charts.colour(summary, axis, cell.axes.get(axis))
    # An axis with one value distinguishes no rows.
    fixed = [axis for axis, values in summary.run.axes.items() if len(values) < 2]
    name = wording.place(cell, without=fixed) or wording.place(cell) or "the only cell"
    return StripRow(name, text, shade, tuple(sorted(points, key=_when)), tuple(crosses))


def _when(point: Point) -> float:
    return float(point.x)


def _caption(metric: str, reach: float, cells: Sequence[Cell], rows: Sequence[StripRow]) -> str:
    parts = [
        "One row per cell, with its median at the right; a mark is above or below the line by its "
        f"distance from it, ±{reach:.0f} % in {wording.measure(metric).label} at most, farther "
        "ones at the edge."
    ]
    if any(row.crosses for row in rows):
        parts.append("Crosses are invalid trials.")
    if len(cells) > len(rows):
        left = wording.count(len(cells) - len(rows), "steadier cell")
        parts.append(f"{left} not drawn.")
    return " ".join(parts)
