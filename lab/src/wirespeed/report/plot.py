"""Draws charts as SVG text: scales, axes, lines with every repeat, strips. Knows no run.

Colours are classes (s0 … s5), so one drawing serves light, dark and print. Sizes are in
the units of the view box; a chart is as wide as a phone shows legibly, the page enlarges it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

from wirespeed.report.wording import MINUS, compact

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 44, 40
CHAR = 6.4  # mean width of a letter of 12 units; only used to lay out legends
SERIES_MAX = 6
STRIP_ROW = 15
ROW_HEIGHT, ROW_REACH = 44, 10
MARKS_MAX = 150  # more trials of a series than this are dots in the strip

STYLE = """
.chart text{font:12px system-ui,sans-serif;fill:var(--ink-2)}
.chart .title{font-weight:600;font-size:14px;fill:var(--ink)}
.chart .letter{font-size:9px;font-weight:600;fill:var(--paper)}
.chart .grid{stroke:var(--line);stroke-width:1}
.chart .axis{stroke:var(--ink-2);stroke-width:1}
.chart .s0{--c:var(--s0)}.chart .s1{--c:var(--s1)}.chart .s2{--c:var(--s2)}
.chart .s3{--c:var(--s3)}.chart .s4{--c:var(--s4)}.chart .s5{--c:var(--s5)}
.chart polyline{fill:none;stroke:var(--c);stroke-width:2;stroke-linejoin:round}
.chart.thin polyline,.chart .thin polyline{stroke-width:1.5}
.chart .dot{fill:none;stroke:var(--c);stroke-width:4.6;stroke-linecap:round;opacity:.45}
.chart .mark{fill:var(--c);stroke:var(--paper);stroke-width:1}
.chart .cross{stroke:var(--bad);stroke-width:1.5}
.chart .server{fill:var(--s0)}.chart .client,.chart .both{fill:var(--bad)}
.chart .link{fill:var(--s4)}.chart .concurrency{fill:var(--s5)}.chart .unknown{fill:var(--ink-2)}
"""
LIGHT = (
    "--paper:#fff;--panel:#f6f7f9;--ink:#1b2129;--ink-2:#566070;--line:#dde1e7;--bad:#c62828;"
    "--good:#10743f;--warn:#8a5a00;--link:#0b5cad;--s0:#68717f;--s1:#0b6bcb;--s2:#c2500b;"
    "--s3:#0f8a5f;--s4:#8a3fd1;--s5:#9a7400"
)
DARK = (
    "--paper:#14181e;--panel:#1c222a;--ink:#e8ebef;--ink-2:#a5afbd;--line:#323a45;--bad:#ff7b72;"
    "--good:#56d394;--warn:#e3b341;--link:#79b8ff;--s0:#9aa5b4;--s1:#6cb2ff;--s2:#ff9a62;"
    "--s3:#4fd1a0;--s4:#c9a2ff;--s5:#e6c34a"
)


@dataclass(frozen=True)
class Point:
    """One cell on a line: where, how high, every repeat, and what held it back."""

    x: float | str
    y: float
    repeats: tuple[float, ...] = ()
    held_by: str = ""


@dataclass(frozen=True)
class Series:
    name: str
    colour: int
    points: tuple[Point, ...]
    is_marked: bool = True  # samples are too many for marks


@dataclass(frozen=True)
class StripRow:
    """One cell of a chart of rows: its name, its figure, and its trials around the middle."""

    name: str
    text: str
    colour: int
    points: tuple[Point, ...]
    crosses: tuple[Point, ...]


@dataclass(frozen=True)
class Frame:
    """The drawing area and its two scales."""

    x: Callable[[float], float]
    y: Callable[[float], float]
    left: float = LEFT
    right: float = WIDTH - RIGHT
    top: float = TOP
    bottom: float = HEIGHT - BOTTOM


@dataclass(frozen=True)
class Labels:
    """The texts around a chart. `title` is spoken; with `captions` it is also drawn."""

    title: str
    x: str
    y: str
    captions: tuple[str, ...] = field(default=())


def line_chart(
    series: Sequence[Series], labels: Labels, *, is_thin: bool = False, is_log: bool = False
) -> str:
    """Lines over an axis of numbers, or marks over an axis of names, with every repeat."""
    positions, x_of, is_numeric = _x_axis(series)
    height = [y for s in series for p in s.points for y in (p.y, *p.repeats)]
    legend, legend_height = _legend(series)
    lift = legend_height + sum(18 for _ in labels.captions)
    top, foot = TOP - 14 + lift, HEIGHT - BOTTOM + lift
    y_of = _log_scale(height, top, foot) if is_log else _y_scale(height, top, foot)
    frame = Frame(lambda v: v, y_of, top=top, bottom=foot)
    marks = decades(height) if is_log else ticks_above(max(height, default=1.0))
    body = [*_grid(frame, marks, labels.y, compact), *_x_ticks(frame, positions, x_of, labels.x)]
    for s in series:
        body.append(_line(s, frame, x_of, is_numeric))
    bottom = frame.bottom + BOTTOM
    if any(p.held_by for s in series for p in s.points):
        body.append(_held_strip(series, x_of, bottom + 4))
        bottom += 8 + STRIP_ROW * len(series)
    heading = _captions(labels)
    shift = 18 * len(labels.captions)
    legend_group = f'<g transform="translate(0 {shift})">{legend}</g>' if shift else legend
    return _svg(labels.title, bottom, [heading, legend_group, *body], is_thin)


def curve_chart(
    series: Sequence[Series], names: Sequence[tuple[float, str]], labels: Labels, *, is_log: bool
) -> str:
    """Lines over an axis of named numbers, such as percentiles."""
    height = [y for s in series for p in s.points for y in (p.y, *p.repeats)]
    legend, lift = _legend(series)
    top, foot = TOP - 14 + lift, HEIGHT - BOTTOM + lift
    y_of = _log_scale(height, top, foot) if is_log else _y_scale(height, top, foot)
    frame = Frame(lambda v: v, y_of, top=top, bottom=foot)
    marks = decades(height) if is_log else ticks_above(max(height, default=1.0))
    low, high = names[0][0], names[-1][0]
    wide = WIDTH - RIGHT - LEFT - 40

    def x_of(place: float | str) -> float:
        return LEFT + 20 + (float(place) - low) / ((high - low) or 1.0) * wide

    ticked = [
        f'<text x="{x_of(place):.1f}" y="{foot + 16}" text-anchor="middle">{escape(name)}</text>'
        for place, name in names
    ]
    body = [*_grid(frame, marks, labels.y, compact), *ticked, _x_title(frame, labels.x)]
    body += [_line(s, frame, x_of, True) for s in series]
    return _svg(labels.title, frame.bottom + BOTTOM, [legend, *body], True)


def strip_chart(series: Sequence[Series], crosses: Sequence[Point], line: Series | None,
                labels: Labels) -> str:  # fmt: skip
    """Every trial in time order as a mark; invalid ones as crosses; one line with them."""
    points = [p for s in series for p in s.points] + list(crosses)
    every = points + list(line.points if line else ())
    span = max((float(p.x) for p in every), default=1.0) or 1.0
    reach = max([abs(p.y) for p in every] + [2.0]) * 1.08
    legend, legend_height = _legend([*series, *([line] if line else [])])
    top, bottom = TOP - 14 + legend_height, HEIGHT - BOTTOM + legend_height
    frame = Frame(
        lambda v: LEFT + 6 + v / span * (WIDTH - RIGHT - LEFT - 12),
        lambda v: top + (reach - v) / (2 * reach) * (bottom - top), top=top, bottom=bottom,
    )  # fmt: skip
    body = [*_grid(frame, ticks(-reach, reach), labels.y, _signed_tick)]
    inside = [tick for tick in ticks(0, span) if tick <= span]
    body += [
        f'<text x="{frame.x(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>'
        for tick in inside
    ]
    body.append(_x_title(frame, labels.x))
    if line:
        body.append(_path(line, frame.x, frame.y))
    for s in series:
        places = [(frame.x(float(p.x)), frame.y(p.y)) for p in s.points]
        marks = _marks(s.colour, places, 3.2) if len(places) <= MARKS_MAX else _dots(places)
        body.append(f'<g class="s{s.colour}">{marks}</g>')
    body += [_cross(frame.x(float(p.x)), frame.y(p.y)) for p in crosses]
    return _svg(labels.title, bottom + BOTTOM, [legend, *body], True)


def rows_chart(rows: Sequence[StripRow], reach: float, labels: Labels) -> str:
    """A strip for each row, all over the same time; its name above it, its figure at the right."""
    span = max((float(p.x) for row in rows for p in (*row.points, *row.crosses)), default=0) or 1.0

    def x_of(minute: float) -> float:
        return 8 + minute / span * (WIDTH - 16)

    body = []
    for number, row in enumerate(rows):
        middle = number * ROW_HEIGHT + 26.0

        def y_of(value: float, middle: float = middle) -> float:
            return middle - min(max(value / reach, -1.0), 1.0) * ROW_REACH

        places = [(x_of(float(p.x)), y_of(p.y)) for p in row.points]
        body += [
            f'<line class="grid" x1="0" x2="{WIDTH}" y1="{middle}" y2="{middle}"/>',
            f'<text x="0" y="{middle - 14}">{escape(_cut_to(row.name, row.text))}</text>',
            f'<text x="{WIDTH}" y="{middle - 14}" text-anchor="end">{escape(row.text)}</text>',
            f'<g class="s{row.colour}">{_marks(row.colour, places, 2.8)}</g>',
            *(_cross(x_of(float(p.x)), y_of(p.y)) for p in row.crosses),
        ]
    foot = len(rows) * ROW_HEIGHT + 4.0
    body += [
        f'<text x="{x_of(tick):.1f}" y="{foot + 12}" text-anchor="middle">{tick:g}</text>'
        for tick in ticks(0, span)
        if tick <= span
    ]
    body.append(_x_title(Frame(x_of, lambda v: v, bottom=foot - 4), labels.x))
    return _svg(labels.title, foot + 34, body, True)


def _cut_to(name: str, text: str) -> str:
    """The part of a row's name that fits next to its figure."""
    most = int((WIDTH - len(text) * CHAR) / CHAR) - 3
    return name if len(name) <= most else f"{name[: most - 1].rstrip(' ,')}…"


def time_chart(series: Sequence[Series], labels: Labels) -> str:
    """Lines over seconds, without marks: samples are many."""
    height = [p.y for s in series for p in s.points]
    span = max(float(p.x) for s in series for p in s.points) or 1.0
    legend, legend_height = _legend(series)
    top, bottom = TOP - 14 + legend_height, HEIGHT - 90 + legend_height
    frame = Frame(lambda v: LEFT + v / span * (WIDTH - RIGHT - LEFT),
                  _y_scale(height, top, bottom), top=top, bottom=bottom)  # fmt: skip
    seconds = [
        f'<text x="{frame.x(tick):.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{tick:g}</text>'
        for tick in ticks(0, span)
    ]
    lines = [_path(s, frame.x, frame.y) for s in series]
    body = [legend, *_y_axis(frame, height, labels.y), *seconds, _x_title(frame, labels.x), *lines]
    return _svg(labels.title, bottom + BOTTOM, body, True)


def gain_bar(low: float | None, gain: float, high: float | None, reach: tuple[float, float],
             kind: str) -> str:  # fmt: skip
    """One bar from 0 to a gain with its interval, for a row of a table."""
    least, most = reach
    width, span = 200.0, (most - least) or 1.0

    def at(value: float) -> float:
        return round((min(max(value, least), most) - least) / span * (width - 8) + 4, 1)

    zero, end = at(0.0), at(gain)
    parts = [
        f'<line class="axis" x1="{zero}" x2="{zero}" y1="0" y2="18"/>',
        f'<rect class="{kind}" x="{min(zero, end)}" y="4" width="{abs(end - zero):.1f}" '
        'height="10" rx="1"/>',
    ]
    if low is not None and high is not None:
        a, b = at(low), at(high)
        parts.append(f'<path class="whisker" d="M{a} 9H{b}M{a} 5V13M{b} 5V13"/>')
    return (
        f'<svg class="bar" viewBox="0 0 {width:g} 18" aria-hidden="true" '
        f'preserveAspectRatio="none">{"".join(parts)}</svg>'
    )


def _signed_tick(value: float) -> str:
    return f"{value:+.3g}".replace("-", MINUS) if value else "0"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to at least high."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return [low]
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    count = math.floor(high / step + 1e-9) - first
    return [round((first + i) * step, 12) for i in range(count + 1)]


def _x_axis(
    series: Sequence[Series],
) -> tuple[list[float | str], Callable[[float | str], float], bool]:
    """The places of the x axis, where they lie, and whether they are numbers."""
    places = list(dict.fromkeys(p.x for s in series for p in s.points))
    left, right = LEFT + 16, WIDTH - RIGHT - 16
    numbers = [v for v in places if isinstance(v, int | float)]
    if len(numbers) < len(places) or len(places) < 2:
        step = (right - left) / max(1, len(places))
        where = {place: left + step * (i + 0.5) for i, place in enumerate(places)}
        return places, lambda v: where[v], False
    numbers.sort()
    scale: Callable[[float], float] = math.log if _is_geometric(numbers) else float
    low, span = scale(numbers[0]), scale(numbers[-1]) - scale(numbers[0])
    return (
        list(numbers),
        lambda v: left + (scale(float(v)) - low) / span * (right - left),
        True,
    )


def _is_geometric(numbers: Sequence[float]) -> bool:
    """Doubling or more from point to point suits a logarithmic axis."""
    if numbers[0] <= 0 or len(numbers) < 3:
        return False
    ratios = sorted(b / a for a, b in pairwise(numbers))
    return ratios[len(ratios) // 2] >= 1.7


def _y_scale(values: Sequence[float], top: float, bottom: float) -> Callable[[float], float]:
    highest = ticks_above(max(values, default=1.0))[-1] or 1.0
    return lambda v: bottom - v / highest * (bottom - top)


def _log_scale(values: Sequence[float], top: float, bottom: float) -> Callable[[float], float]:
    marks = decades(values)
    low, high = math.log(marks[0]), math.log(marks[-1])
    return lambda v: bottom - (math.log(max(v, marks[0])) - low) / (high - low) * (bottom - top)


def decades(values: Sequence[float]) -> list[float]:
    """Powers of ten around the values."""
    positive = [v for v in values if v > 0]
    first, last = math.floor(math.log10(min(positive))), math.ceil(math.log10(max(positive)))
    return [10.0**power for power in range(first, max(last, first + 1) + 1)]


def ticks_above(highest: float) -> list[float]:
    """Round numbers from 0 to the first one that is not below the highest value."""
    if highest <= 0:
        return [0.0, 1.0]
    marks = ticks(0.0, highest)
    if marks[-1] < highest * 0.999:
        marks.append(round(marks[-1] + marks[1] - marks[0], 12))
    return marks


def _y_axis(frame: Frame, values: Sequence[float], label: str) -> list[str]:
    return _grid(frame, ticks_above(max(values, default=1.0)), label, compact)


def _grid(
    frame: Frame, marks: Sequence[float], label: str, text: Callable[[float], str]
) -> list[str]:
    parts = []
    for mark in marks:
        y = round(frame.y(mark), 1)
        parts.append(
            f'<line class="{"axis" if mark == 0 else "grid"}" x1="{frame.left}" '
            f'x2="{frame.right}" y1="{y}" y2="{y}"/>'
            f'<text x="{frame.left - 6}" y="{y + 4:.1f}" text-anchor="end">{text(mark)}</text>'
        )
    parts.append(f'<text x="0" y="{frame.top - 13}">{escape(label)}</text>')
    return parts


def _x_ticks(
    frame: Frame,
    places: Sequence[float | str],
    x_of: Callable[[float | str], float],
    label: str,
) -> list[str]:
    parts, free_from = [], -math.inf
    for place in places:
        text = compact(place) if isinstance(place, int | float) and place >= 10_000 else str(place)
        x, half = x_of(place), len(text) * CHAR / 2 + 3
        if x - half < free_from:
            continue
        free_from = x + half
        parts.append(
            f'<text x="{x:.1f}" y="{frame.bottom + 16}" text-anchor="middle">{escape(text)}</text>'
        )
    return [*parts, _x_title(frame, label)]


def _x_title(frame: Frame, label: str) -> str:
    middle = (frame.left + frame.right) / 2
    at = f'x="{middle:.0f}" y="{frame.bottom + 33}"'
    return f'<text {at} text-anchor="middle">{escape(label)}</text>'


def _line(s: Series, frame: Frame, x_of: Callable[[float | str], float], is_numeric: bool) -> str:
    ordered = sorted(s.points, key=lambda p: x_of(p.x))
    aside = 0.0 if is_numeric else (s.colour - 1.5) * 7
    dots = _dots((x_of(p.x) + aside, frame.y(y)) for p in ordered for y in p.repeats)
    marks = _marks(s.colour, ((x_of(p.x) + aside, frame.y(p.y)) for p in ordered), 4.2)
    line = ""
    if is_numeric and len(ordered) > 1:
        path = " ".join(f"{x_of(p.x):.1f},{frame.y(p.y):.1f}" for p in ordered)
        line = f'<polyline points="{path}"/>'
    return f'<g class="s{s.colour}">{dots}{line}{marks}</g>'


def _path(s: Series, x: Callable[[float], float], y: Callable[[float], float]) -> str:
    path = " ".join(f"{x(float(p.x)):.1f},{y(p.y):.1f}" for p in s.points)
    return f'<g class="s{s.colour} thin"><polyline points="{path}"/></g>'


def _marks(colour: int, places: Iterable[tuple[float, float]], r: float) -> str:
    """All marks of a series as one path, which is a quarter of the bytes of single shapes."""
    return f'<path class="mark" d="{"".join(_outline(colour, x, y, r) for x, y in places)}"/>'


def _outline(colour: int, x: float, y: float, r: float) -> str:
    """Each series has its own shape, so that colour is never the only difference."""
    shape = colour % 4
    if shape == 0:
        return f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r:g} 0a{r} {r} 0 1 0 {-2 * r:g} 0z"
    if shape == 1:
        side = r * 1.8
        return f"M{x - side / 2:.1f} {y - side / 2:.1f}h{side:.3g}v{side:.3g}h{-side:.3g}z"
    up = r * 1.2
    if shape == 2:
        return f"M{x:.1f} {y - up:.1f}l{r * 1.15:.3g} {r * 2:.3g}h{-r * 2.3:.3g}z"
    return f"M{x:.1f} {y - up:.1f}l{up:.3g} {up:.3g} {-up:.3g} {up:.3g} {-up:.3g} {-up:.3g}z"


def _dots(places: Iterable[tuple[float, float]]) -> str:
    """Every repeat as a round dot: points of no length with round ends."""
    return f'<path class="dot" d="{"".join(f"M{x:.0f} {y:.0f}h0" for x, y in places)}"/>'


def _cross(x: float, y: float) -> str:
    return f'<path class="cross" d="M{x - 3:.1f} {y - 3:.1f}l6 6m0 -6l-6 6"/>'


def _legend(series: Sequence[Series]) -> tuple[str, float]:
    """Marks with names above the chart, wrapped to its width."""
    if not series:
        return "", 0.0
    parts, x, y = [], 4.0, 10.0
    for s in series:
        wide = 14 + len(s.name) * CHAR + 16
        if x + wide > WIDTH and x > 4:
            x, y = 4.0, y + 17
        mark = _marks(s.colour, [(x + 4, y)], 4.2)
        if not s.is_marked:
            mark = f'<polyline points="{x - 3:.1f},{y} {x + 9:.1f},{y}"/>'
        parts.append(
            f'<g class="s{s.colour}">{mark}</g>'
            f'<text x="{x + 14:.1f}" y="{y + 4:.1f}">{escape(s.name)}</text>'
        )
        x += wide
    return "".join(parts), y + 8


HELD_WIDE, LETTER_WIDE = 16.0, 8.0  # of a box that says what held a cell back, and its letter
LETTERS = {
    "server": "S",
    "client": "C",
    "both": "B",
    "link": "L",
    "concurrency": "N",
    "unknown": "?",
}


def _held_strip(series: Sequence[Series], x_of: Callable[[float | str], float], top: float) -> str:
    """The bottleneck of each cell: one row per series, a letter as well as a colour."""
    boxes: dict[str, list[str]] = {}
    rows = []
    places = sorted({x_of(p.x) for s in series for p in s.points})
    near = min((b - a for a, b in pairwise(places)), default=HELD_WIDE + 1)
    wide = min(HELD_WIDE, near - 1)  # next to each other, however many points there are
    for row, s in enumerate(series):
        y = top + row * STRIP_ROW
        rows.append(f'<g class="s{s.colour}">{_marks(s.colour, [(LEFT - 12, y + 6)], 3.4)}</g>')
        for p in s.points:
            kind = p.held_by if p.held_by in LETTERS else "unknown"
            box = f"M{x_of(p.x) - wide / 2:.1f} {y}h{wide:.3g}v12h{-wide:.3g}z"
            boxes.setdefault(kind, []).append(box)
        if wide < LETTER_WIDE:
            continue
        xs = " ".join(f"{x_of(p.x):.1f}" for p in s.points)
        letters = "".join(LETTERS.get(p.held_by, "?") for p in s.points)
        rows.append(
            f'<text class="letter" x="{xs}" y="{y + 9.2:.1f}" text-anchor="middle">{letters}</text>'
        )
    drawn = (f'<path class="{kind}" d="{"".join(paths)}"/>' for kind, paths in boxes.items())
    return "".join([*drawn, *rows])


def _captions(labels: Labels) -> str:
    kinds = [' class="title"', *("" for _ in labels.captions[1:])]
    lines = zip(kinds, labels.captions, strict=False)
    return "".join(
        f'<text{kind} x="0" y="{13 + 18 * i}">{escape(text)}</text>'
        for i, (kind, text) in enumerate(lines)
    )


def _svg(title: str, bottom: float, body: Sequence[str], is_thin: bool) -> str:
    kind = "chart thin" if is_thin else "chart"
    return (
        f'<svg class="{kind}" viewBox="0 0 {WIDTH} {bottom:.0f}" role="img" '
        f'aria-label="{escape(title)}">{"".join(body)}</svg>'
    )


def standalone(svg: str, source: str) -> str:
    """The same drawing as a file of its own, with its colours inside and the run it is of."""
    style = (
        f"<style>svg{{{LIGHT};background:var(--paper)}}"
        f"@media(prefers-color-scheme:dark){{svg{{{DARK}}}}}{STYLE}</style>"
    )
    head, rest = svg.split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg"><desc>{escape(source)}</desc>{style}{rest}\n'
