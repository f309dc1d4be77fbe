"""Where CPU time goes: a table by kernel, library and program, the functions, and flame graphs.

Everything is in microseconds of server CPU per request: the samples of a contender share out what
its measured trials used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from wirespeed.analysis import profiles
from wirespeed.analysis.cells import Cell
from wirespeed.analysis.profiles import KINDS, Profile, Stack
from wirespeed.analysis.summary import Summary
from wirespeed.report import wording

CPU = "server.cpu_us_per_request"
FUNCTIONS_MAX = 20
WIDTH, ROW = 1100, 17
CHAR = 6.6  # width of a letter of 11 units
SHARE_MIN = 0.004  # of the whole: narrower boxes cannot be read
BOXES_MAX = 300
FULL = 0.5  # a change by half has the full colour
KIND_HEADS = {"kernel": "kernel", "library": "the stack's library", "program": "program"}


@dataclass(frozen=True)
class ProfiledContender:
    """One contender with its samples."""

    name: str
    cell: Cell
    profile: Profile
    us: float  # server CPU per request

    def spent(self, path: Stack) -> float:
        return self.us * self.profile.whole.get(path, 0.0)


@dataclass(frozen=True)
class ProfileSection:
    """The section of the page."""

    place: str
    heads: list[str]
    rows: list[tuple[str, list[str]]]
    function_heads: list[str]
    functions: list[tuple[str, str, list[str]]]
    flames: list[tuple[str, str]]  # (caption, drawing)
    problems: list[str]


def of(summary: Summary, has_flames: bool = True) -> ProfileSection | None:
    """None for a run without --profile."""
    by_cell = {one.cell: one for one in profiles.read(summary.run_dir)}
    axis, over = next(iter(summary.run.plan.baseline.items()), ("", None))
    cells = [cell for cell in summary.measured if cell.key in by_cell]
    cells.sort(key=lambda cell: cell.axes.get(axis) != over)
    if not cells:
        return None
    names = {cell.key: str(cell.axes.get(axis, "")) or wording.place(cell) for cell in cells}
    problems = [
        f"{names[cell.key]}: {by_cell[cell.key].problem or 'its trials have no CPU time'}"
        for cell in cells
        if by_cell[cell.key].problem or not cell.median(CPU)
    ]
    sides = [
        ProfiledContender(names[cell.key], cell, by_cell[cell.key], cell.median(CPU) or 0.0)
        for cell in cells
        if by_cell[cell.key].samples and cell.median(CPU)
    ]
    return ProfileSection(
        place=wording.place(cells[0], [axis]),
        heads=["samples", "CPU per request, µs", *(f"{KIND_HEADS[kind]}, µs" for kind in KINDS)],
        rows=[(side.name, _row(side)) for side in sides],
        function_heads=[f"{side.name}, µs" for side in sides]
        + ["difference, µs"] * (len(sides) == 2),
        functions=_functions(sides),
        flames=_flames(sides) if has_flames else [],
        problems=problems,
    )


def _row(side: ProfiledContender) -> list[str]:
    parts = [wording.number(side.us * side.profile.by_kind[kind]) for kind in KINDS]
    return [f"{side.profile.samples:,}", wording.number(side.us), *parts]


def _functions(sides: Sequence[ProfiledContender]) -> list[tuple[str, str, list[str]]]:
    """(name, kind, µs of each side and their difference): where the sides differ most; of a single
    one, or of several, the largest."""
    spent = {
        frame: [side.us * side.profile.own.get(frame, 0.0) for side in sides]
        for frame in {frame for side in sides for frame in side.profile.own}
    }
    is_pair = len(sides) == 2

    def weight(frame: str) -> float:
        values = spent[frame]
        return abs(values[1] - values[0]) if is_pair else max(values)

    chosen = sorted(spent, key=lambda frame: (-weight(frame), frame))[:FUNCTIONS_MAX]
    rows = []
    for frame in chosen:
        texts = [wording.number(round(value, 3)) for value in spent[frame]]
        if is_pair:
            change = spent[frame][1] - spent[frame][0]
            texts.append(("+" if change > 0 else "") + wording.number(round(change, 3)))
        rows.append((profiles.plain(frame), KIND_HEADS[profiles.kind_of(frame)], texts))
    return rows


def _flames(sides: Sequence[ProfiledContender]) -> list[tuple[str, str]]:
    if not sides:
        return []
    base, most = sides[0], max(side.us for side in sides)
    drawn = [(f"{base.name}: {wording.number(base.us)} µs per request.", flame(base, None, most))]
    for side in sides[1:]:
        caption = (
            f"{side.name}: {wording.number(side.us)} µs per request. Red functions take more CPU "
            f"time than in {base.name}, blue ones less."
        )
        drawn.append((caption, flame(side, base, most)))
    return drawn


def flame(side: ProfiledContender, base: ProfiledContender | None, most_us: float) -> str:
    """A flame graph: a box is a function with all that it calls, as wide as its CPU time; the
    callers are below. With a baseline the colour is the difference."""
    scale = WIDTH / most_us if most_us else 0.0
    boxes = _boxes(side, most_us)
    depth = max((len(path) for path, _ in boxes), default=1)
    height = depth * ROW
    drawn = [_box(side, base, path, left * scale, height, scale) for path, left in boxes]
    title = escape(f"Flame graph of {side.name}")
    return (
        f'<svg class="flame" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">'
        f"{''.join(drawn)}</svg>"
    )


def _boxes(side: ProfiledContender, most_us: float) -> list[tuple[Stack, float]]:
    """(path, µs to the left of it), for the paths that are wide enough."""
    children: dict[Stack, list[Stack]] = {}
    for path in side.profile.whole:
        if side.spent(path) >= SHARE_MIN * most_us:
            children.setdefault(path[:-1], []).append(path)
    boxes: list[tuple[Stack, float]] = []

    def lay(parent: Stack, left: float) -> None:
        for path in sorted(children.get(parent, [])):
            boxes.append((path, left))
            lay(path, left)
            left += side.spent(path)

    lay((), 0.0)
    widest = sorted(boxes, key=lambda one: -side.spent(one[0]))[:BOXES_MAX]
    kept = {path for path, _ in widest}
    return [one for one in boxes if one[0] in kept]


def _box(
    side: ProfiledContender,
    base: ProfiledContender | None,
    path: Stack,
    left: float,
    height: int,
    scale: float,
) -> str:
    us = side.spent(path)
    width = us * scale
    name = profiles.plain(path[-1])
    y = height - len(path) * ROW
    shown = f"{name}: {wording.number(round(us, 3))} µs"
    if base is not None:
        was = base.spent(path)
        change = us - was
        sign = "+" if change > 0 else ""
        shown += f" ({sign}{wording.number(round(change, 3))})"
    letters = int((width - 6) / CHAR)
    text = escape(name if len(name) <= letters else name[: max(0, letters - 1)] + "…")
    label = f'<text x="{left + 3:.1f}" y="{y + 12}">{text}</text>' if letters >= 3 else ""
    return (
        f'<g><title>{escape(shown)}</title><rect class="{profiles.kind_of(path[-1])}'
        f'{_change(side, base, path)}" x="{left:.1f}" y="{y}" width="{max(0.5, width - 0.6):.1f}" '
        f'height="{ROW - 1}"/>{label}</g>'
    )


def _change(side: ProfiledContender, base: ProfiledContender | None, path: Stack) -> str:
    """A class for the difference: ` more3` is much more than the baseline, ` less1` a bit less."""
    if base is None:
        return ""
    us, was = side.spent(path), base.spent(path)
    change = (us - was) / max(us, was)
    level = min(3, int(abs(change) / FULL * 3 + 0.5))
    return f" {'more' if change > 0 else 'less'}{level}" if level else " same"
