"""Maps of gains: one coloured cell for each comparison, a table's rows against its `each`.

They show at a glance where a stack gains and where it loses; the figures are in the cells,
so colour carries nothing alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wirespeed.analysis.summary import Gain, Sheet, Summary
from wirespeed.report import wording
from wirespeed.report.tables import verdict_entry

FULL_AT = 0.5  # a gain or loss from here on has the full colour
SHADE_LEAST, SHADE_MOST = 6, 45  # percent of colour; text stays readable on both


@dataclass(frozen=True)
class Tile:
    """One comparison."""

    text: str
    kind: str  # good, bad or none
    shade: int
    note: str


@dataclass(frozen=True)
class Map:
    """All comparisons of one contender in the sheets of one recipe table."""

    title: str
    row_head: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Tile, ...]], ...]


def maps(summary: Summary) -> list[Map]:
    """A map for each contender of each recipe table that has at least two rows and columns."""
    groups: dict[int, list[Sheet]] = {}
    for sheet in summary.sheets:
        if sheet.gains:
            groups.setdefault(id(sheet.spec), []).append(sheet)
    return [
        _map(sheets, contender)
        for sheets in groups.values()
        for contender in dict.fromkeys(column for sheet in sheets for _, column in sheet.gains)
        if len(sheets) > 1 and len(_rows(sheets, contender)) > 1
    ]


def _rows(sheets: list[Sheet], contender: Any) -> list[tuple[Any, ...]]:
    """The rows in which the contender has a gain in any sheet, in the recipe's order."""
    return [row for row in sheets[0].rows if any((row, contender) in s.gains for s in sheets)]


def _map(sheets: list[Sheet], contender: Any) -> Map:
    first = sheets[0]
    rows = _rows(sheets, contender)
    gains = [gain for s in sheets for (_, column), gain in s.gains.items() if column == contender]
    times = wording.in_times(gain.found.gain for gain in gains if gain.found)
    lines = tuple(
        (
            ", ".join(str(value) for value in sheet.fixed.values()),
            tuple(_tile(sheet.gains.get((row, contender)), times) for row in rows),
        )
        for sheet in sheets
    )
    metric = wording.measure(first.metrics[0]).label
    across = " and ".join(first.row_axes)
    return Map(
        f"{contender} against {first.over}, {metric}, over {across}",
        ", ".join(first.fixed),
        tuple(", ".join(str(value) for value in row) for row in rows),
        lines,
    )


def _tile(gain: Gain | None, times: bool) -> Tile:
    if gain is None or gain.found is None:
        return Tile(wording.NONE, "none", 0, "")
    found, entry = gain.found.gain, verdict_entry(gain, times)
    merit = found if gain.better == "higher" else -found
    size = min(1.0, abs(merit) / FULL_AT)
    shade = round(SHADE_LEAST + size * (SHADE_MOST - SHADE_LEAST))
    kind = (
        "none"
        if gain.verdict.word in ("not comparable", "not decided")
        else "good"
        if merit > 0
        else "bad"
    )
    mark = "" if gain.verdict.word in ("gain", "loss") else "?"
    text = f"{gain.verdict.bound}{wording.signed(found, times)}{mark}"
    return Tile(text, kind, shade, f"{gain.verdict.word}: {entry.note}")
