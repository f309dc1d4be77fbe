"""The recipe's tables as sheets: rows over columns, one for each value of `each`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from wirespeed import template
from wirespeed.analysis.cells import Cell, order
from wirespeed.analysis.comparisons import Gain, Pair
from wirespeed.results.model import Axes, Run

SCALING_AXES = ("instances", "workers")  # more of these is more server, so X(n)/(n X(1)) counts
SCALING_SUSPECT = 1.05  # better than linear: the first point was slow

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
    units: Mapping[str, str] = field(default_factory=dict)  # the units that the recipe names
    gains: Mapping[Slot, Gain] = field(default_factory=dict)

    def pairs(self) -> dict[Slot, Pair]:
        """The comparisons of this table: its columns with the one that `gain` names."""
        if self.over is None or self.column_axis is None:
            return {}
        by_slot = {}
        for (row, column), cell in self.cells.items():
            base = self.cells.get((row, self.over))
            if base is not None and column != self.over:
                by_slot[row, column] = Pair(cell, base, self.column_axis, self.metrics[0])
        return by_slot

    @cached_property
    def highest(self) -> dict[str, float]:
        """Of each metric the highest median of its cells: asked once for each cell."""
        cells = self.cells.values()
        return {
            metric: max((cell.median(metric) or 0.0 for cell in cells), default=0.0)
            for metric in self.metrics
        }

    @property
    def over(self) -> Any:
        return self.spec.get("gain", {}).get("over")

    @property
    def gain_decimals(self) -> int:
        return int(self.spec.get("gain", {}).get("round", 0))

    @property
    def shares_cores(self) -> bool:
        return any(cell.shares_cores for cell in self.cells.values())


def of_run(run: Run, cells: Iterable[Cell]) -> list[Sheet]:
    sheets: list[Sheet] = []
    cells = tuple(cells)
    for spec in run.tables:
        where = {axis: _listed(allowed) for axis, allowed in spec.get("where", {}).items()}
        chosen = [
            cell
            for cell in cells
            if all(cell.axes.get(axis) in allowed for axis, allowed in where.items())
        ]
        groups: dict[tuple[Any, ...], list[Cell]] = {}
        each = _each(run, spec, chosen)
        for cell in sorted(chosen, key=lambda cell: order(run, cell.axes, each)):
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
    cells = sorted(cells, key=lambda cell: order(run, cell.axes, placed))
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
    title = _title(run, spec, fixed, metrics, row_axes)
    units = {str(metric["name"]): str(metric.get("unit") or "") for metric in run.metrics}
    return Sheet(
        number, spec, title, fixed, row_axes, column_axis, rows, columns, metrics, slots, units
    )  # fmt: skip


class _AxisValues(dict[str, Any]):
    """Axes in a title; on one machine the link that a recipe leaves open is the loopback."""

    def __missing__(self, name: str) -> str:
        return "Loopback" if name == "link" else "any " + name


def _titled(run: Run, title: str, fixed: Axes) -> str:
    """A title with the axes' values; of format 1 it is a text for `str.format`."""
    values = _AxisValues(fixed)
    try:
        if run.recipe_format == 1:
            return title.format_map(values) if template.has_short_fields(title) else title
        template.names_of_title(title)
        names = {axis: values[axis] for axis in (*run.axes, "link")}
        return template.to_text(template.value_of(title, {**names, "axes": names}))
    except (ValueError, AttributeError, LookupError, TypeError):
        return title


def _title(
    run: Run, spec: Mapping[str, Any], fixed: Axes, metrics: tuple[str, ...], rows: tuple[str, ...]
) -> str:
    if spec.get("title"):
        return _titled(run, str(spec["title"]), fixed)
    names = ", ".join(f"{axis} {value}" for axis, value in fixed.items())
    what = f"{metrics[0]} by {' and '.join(rows)}"
    return f"{what}: {names}" if names else what


def scaling(sheet: Sheet, column: Any, metric: str) -> dict[tuple[Any, ...], float]:
    """X(n) / (n X(1)) by row: 1 is linear, above SCALING_SUSPECT the first point was slow."""
    if len(sheet.row_axes) != 1 or sheet.row_axes[0] not in SCALING_AXES:
        return {}
    points = {}
    for row in sheet.rows:
        cell = sheet.cells.get((row, column))
        value = cell.median(metric) if cell else None
        if value and _is_count(row[0]):  # workers may be "auto", too
            points[row] = value
    if len(points) < 2:
        return {}
    first = min(points, key=lambda row: row[0])
    one = points[first] / first[0]
    return {row: value / (row[0] * one) for row, value in points.items()}


def _is_count(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
