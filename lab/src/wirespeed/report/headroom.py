"""Headroom: what generator and origin reach without the server, next to what went through it.

A recipe's `ceiling` names such cells. Their highest rate is what the rest of the setup can carry;
a contender that comes near it may have been held back by the setup.
"""

from __future__ import annotations

from collections.abc import Iterator

from wirespeed.analysis.summary import Cell, Summary, is_ceiling
from wirespeed.report import wording

HEADROOM_MIN = 1.3  # below, the rest of the setup takes part in the figure


def sentences(summary: Summary) -> list[str]:
    """One verdict for each group of cells that differ in ramp and contender only."""
    return [text for key in dict.fromkeys(_keys(summary)) for text in _verdict(summary, key)]


def _keys(summary: Summary) -> Iterator[tuple[tuple[str, str], ...]]:
    for cell in summary.measured:
        if is_ceiling(summary.run, cell):
            yield _setting(summary, cell)


def _setting(summary: Summary, cell: Cell) -> tuple[tuple[str, str], ...]:
    """The axes that are neither contender nor ascending numbers: the client's behaviour."""
    return tuple(
        (name, str(value))
        for name, value in cell.axes.items()
        if name not in summary.run.plan.ceiling
        and not all(isinstance(v, int | float) for v in summary.run.axes.get(name, []))
    )


def _verdict(summary: Summary, key: tuple[tuple[str, str], ...]) -> list[str]:
    cells = [cell for cell in summary.measured if _setting(summary, cell) == key]
    ceiling = _highest(summary, [c for c in cells if is_ceiling(summary.run, c)])
    axis = next(iter(summary.run.plan.ceiling))
    names = dict.fromkeys(c.axes.get(axis) for c in cells if not is_ceiling(summary.run, c))
    highest = {
        str(name): _highest(summary, [c for c in cells if c.axes.get(axis) == name])
        for name in names
    }
    if not ceiling or not highest:
        return []
    parts = [
        f"{name} {rate:,.0f} ({ceiling / rate:.2f}×)" for name, rate in highest.items() if rate
    ]
    short = [name for name, rate in highest.items() if rate and ceiling / rate < HEADROOM_MIN]
    end = (
        f"below {HEADROOM_MIN}×, generator and origin take part in the highest figures of "
        f"{', '.join(short)}"
        if short
        else f"all above {HEADROOM_MIN}×, so generator and origin are not the limit"
    )
    what = wording.measure(summary.primary).head
    return [
        f"Headroom: without a server, generator and origin reach {ceiling:,.0f} {what}; "
        f"highest through it: {', '.join(parts)}; {end}."
    ]


def _highest(summary: Summary, cells: list[Cell]) -> float:
    return max((cell.median(summary.primary) or 0.0 for cell in cells), default=0.0)
