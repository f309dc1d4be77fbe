"""The report as one HTML file that opens from a mail: no script is needed, nothing is loaded.

Everything is drawn once from the Summary; when the page would be larger than PAGE_BYTES_MAX
the parts with the least to say give way (Detail), and the page says so.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from wirespeed.analysis.summary import Family, Gain, Sheet, Summary, load, scaling
from wirespeed.analysis.verdict import WORDS
from wirespeed.errors import COMMAND
from wirespeed.report import (
    charts,
    curves,
    files,
    heat,
    plot,
    profile,
    source,
    story,
    strips,
    tables,
    wording,
)
from wirespeed.report.cards import Cards
from wirespeed.report.charts import Chart
from wirespeed.report.tables import Grid
from wirespeed.results.model import Process, Trial

PAGE_BYTES_MAX = 400_000  # opens from a mail, and on a phone
INVALID_MAX = 60
PROGRAMS = ("wirespeed", "python")  # the latter: the folder of an installed lab

BOTTLENECK_KEY = (
    "Letters under a chart name what held the cell back: S the server, C the load generator "
    "(client), B both of them, L the link, N server not busy (too few connections, or it waits), "
    "? unknown."
)


@dataclass(frozen=True)
class Detail:
    """How much a page holds besides its tables and charts, which are always whole."""

    resources: int  # resource charts a table
    bars: int  # comparisons of one kind in the list
    has_notes: bool  # every repeat in the tooltip of its median
    has_data: bool  # medians and verdicts as JSON, for programs
    carried: Literal["all", "declared", "nothing"]  # metrics of its run, for `reproduce`
    command_bytes: int


DETAILS = (  # tried from rich to bare
    Detail(4, 60, True, True, "all", 60_000),
    Detail(2, 60, True, True, "all", 30_000),
    Detail(0, 40, True, False, "declared", 20_000),
    Detail(0, 6, False, False, "declared", 2_000),
    Detail(0, 6, False, False, "nothing", 2_000),
)


@dataclass(frozen=True)
class Section:
    """One table of the recipe with its charts."""

    anchor: str
    sheet: Sheet
    grid: Grid
    is_measured: bool
    charts: list[Chart]
    resources: list[Chart]
    scaling: list[tuple[str, list[tuple[str, str]]]]

    @property
    def is_pair(self) -> bool:
        """One chart may stand next to its table, where the table leaves room."""
        return len(self.charts) == 1


@dataclass(frozen=True)
class Bar:
    """One comparison as a row of the gains table."""

    place: str
    svg: str
    gain: str
    interval: str
    entry: tables.Entry
    verdict: str


@dataclass(frozen=True)
class Bars:
    """The comparisons of one contender with one baseline."""

    name: str
    rows: list[Bar]
    hidden: int


def write(run_dir: Path) -> Path:
    """Writes derived/report.html of a run and returns its path."""
    return write_page(load(run_dir))


def write_page(summary: Summary) -> Path:
    """The same from a summary that is already there."""
    path = summary.run_dir / "derived" / "report.html"
    files.save(path, html(summary))
    return path


def html(summary: Summary) -> str:
    """The whole page. A level of detail is not drawn when its copy of the run alone is too large:
    a run of thousands of trials would be drawn once for each level."""
    text, copies = "", dict[str, str]()
    for detail in DETAILS:
        if detail.carried not in copies:
            copies[detail.carried] = _carried(summary, detail)
        carried = copies[detail.carried]
        if len(carried) > PAGE_BYTES_MAX:
            continue
        text = _render(summary, detail, carried)
        if len(text.encode()) <= PAGE_BYTES_MAX:
            break
    return text


def _render(summary: Summary, detail: Detail, carried: str) -> str:
    return rendered("report.html.j2", **_facts(summary, detail, carried))


def rendered(template: str, **values: Any) -> str:
    """A page of this package with the style of all of them."""
    environment = Environment(
        loader=PackageLoader("wirespeed.report"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawn"] = Markup  # our own SVG, whose texts plot.py has escaped
    environment.filters["number"] = wording.number
    style = {"style": plot.STYLE, "light": plot.LIGHT, "dark": plot.DARK}
    return environment.get_template(template).render(**style, **values)


def _facts(summary: Summary, detail: Detail, carried: str) -> dict[str, Any]:
    run = summary.run
    over_time, which = charts.resources_over_time(summary)
    return {
        "run": run,
        "headlines": [_sentence(text) for text in story.headlines(summary)],
        "front": [_sentence(text) for text in story.front(summary)],
        "warnings": story.warnings(summary),
        "doubts": story.doubts(summary),
        "method": story.method(summary),
        "tiles": _tiles(summary),
        "terms": story.terms(summary),
        "families": summary.families,
        "words": _words(summary),
        "compared_heads": list(COMPARED_HEADS),
        "compared": [_compared(summary, family) for family in summary.families],
        "bars": gain_bars(summary, detail.bars),
        "maps": heat.maps(summary),
        "shapes": tables.shapes(summary),
        "sections": [_section(summary, sheet, detail) for sheet in summary.sheets],
        "cards": _cards(summary),
        "is_reduced": detail is not DETAILS[0],
        "curves": curves.latency_curves(summary) if detail.resources else [],
        "profile": profile.of(summary, has_flames=detail.resources > 0),
        "strip": charts.trials_over_time(summary),
        "strips": strips.cells_over_time(summary) if detail.resources else None,
        "audit": run.audit,
        "over_time": over_time,
        "over_time_cell": which,
        "unmeasured": story.unmeasured(summary),
        "invalid": [_invalid_row(trial) for trial in summary.invalid[:INVALID_MAX]],
        "invalid_hidden": max(0, len(summary.invalid) - INVALID_MAX),
        "facts": [(name.replace("_mib", ", MiB"), run.facts[name]) for name in sorted(run.facts)],
        "commands": commands(summary, detail.command_bytes),
        "recipe": _text(summary.run_dir / "recipe.toml"),
        "site": _text(summary.run_dir / "site.toml") or _text(summary.run_dir / "site.json"),
        "repeat": repeat_command(summary),
        "bottleneck_key": BOTTLENECK_KEY,
        "data": _data(summary) if detail.has_data else "{}",
        "source": carried,
    }


def _carried(summary: Summary, detail: Detail) -> str:
    if detail.carried == "nothing":
        return ""
    return source.packed(summary, detail.carried == "all")


COMPARED_HEADS = ("metric", "geometric mean", "interval", "verdict", "best", "worst")


@dataclass(frozen=True)
class Compared:
    """One comparison over all its cells, as a row of the first table."""

    name: str
    entries: tuple[tables.Entry, ...]
    counts: tuple[int, ...]


def _words(summary: Summary) -> list[str]:
    """The verdicts that were given at all: empty columns would push others out of sight."""
    return [word for word in WORDS if any(family.count(word) for family in summary.families)]


def _compared(summary: Summary, family: Family) -> Compared:
    judged = family.judged
    times = wording.in_times(gain.found.gain for gain in judged if gain.found)
    kind = tables.VERDICT_KINDS[family.verdict.word]
    texts = [wording.measure(family.metric).label, wording.figure(family, times)]
    entries = [tables.Entry(text) for text in [*texts, wording.interval(family.found, times)]]
    word = wording.verdict_word(family) + wording.more_rounds(family)
    entries.append(tables.Entry(word, kind, family.verdict.reason))
    for choose in (max, min):
        one = choose(judged, key=story.merit) if judged else None
        entries.append(tables.verdict_entry(one, times) if one else tables.Entry(wording.NONE))
    name = f"{family.contender} against {family.over}"
    return Compared(name, tuple(entries), tuple(family.count(word) for word in _words(summary)))


def _sentence(text: str) -> tuple[str, str]:
    """A sentence of the front: what it is about, and the rest."""
    head, mark, rest = text.replace(" %", "\u00a0%").partition(": ")
    return (f"{head}:", rest) if mark else ("", text)


def _tiles(summary: Summary) -> list[tuple[str, str, str]]:
    """The counts on the front: figure, what it counts, and its kind."""
    words = [gain.verdict.word for gain in summary.gains]
    tiles = [
        (str(words.count(word)), story.VERDICT_COUNTS[word][words.count(word) != 1], kind)
        for word, kind in tables.VERDICT_KINDS.items()
        if words.count(word)
    ]
    valid, invalid = len(summary.valid), len(summary.invalid)
    tiles.append((f"{len(summary.measured)} / {len(summary.cells)}", "cells measured", "plain"))
    tiles.append((f"{valid:,}", "valid trial" if valid == 1 else "valid trials", "plain"))
    if summary.noisy:
        tiles.append((f"{len(summary.noisy):,}", "with interference", "open"))
    if invalid:
        word = "invalid trial" if invalid == 1 else "invalid trials"
        tiles.append((f"{invalid:,}", word, "loss"))
    floor = summary.floors.get(summary.primary)
    if floor is not None:
        tiles.append((f"{floor:.1%}".replace("%", " %"), "noise floor", "plain"))
    return tiles


def _cards(summary: Summary) -> Cards:
    """Every table's, so that the rules can stand before the first."""
    found = Cards()
    found.attribute([], [*COMPARED_HEADS, *_words(summary)])
    for sheet in summary.sheets:
        grid = tables.grid(summary, sheet)
        found.attribute(grid.heads, grid.card_labels)
    return found


def _section(summary: Summary, sheet: Sheet, detail: Detail) -> Section:
    measured = any(cell.trials for cell in sheet.cells.values())
    resources = charts.resource_charts(summary, sheet) if detail.resources else []
    grid = tables.grid(summary, sheet)
    return Section(
        anchor=f"table-{sheet.number}",
        sheet=sheet,
        grid=grid if detail.has_notes else _without_notes(grid),
        is_measured=measured,
        charts=charts.sheet_charts(summary, sheet) if measured else [],
        resources=resources[: detail.resources] if measured else [],
        scaling=_scaling_rows(sheet),
    )


def _without_notes(grid: Grid) -> Grid:
    rows = tuple(
        (labels, tuple(replace(entry, note="") for entry in entries))
        for labels, entries in grid.rows
    )
    return replace(grid, rows=rows)


def _scaling_rows(sheet: Sheet) -> list[tuple[str, list[tuple[str, str]]]]:
    rows = []
    for column in sheet.columns:
        points = scaling(sheet, column, sheet.metrics[0])
        if points:
            texts = [(str(row[0]), f"{value:.2f}") for row, value in points.items()]
            rows.append((str(column), texts))
    return rows


def gain_bars(summary: Summary, most: int) -> list[Bars]:
    """Every comparison with its bar: by family, best first."""
    return [
        _family_bars(family, _bars_reach(summary, family.metric), most, summary)
        for family in summary.families
    ]


def _bars_reach(summary: Summary, metric: str) -> tuple[float, float]:
    """The scale that all bars of one metric share."""
    ends = [0.0]
    for found in (gain.found for gain in summary.gains if gain.metric == metric and gain.found):
        ends += [found.gain, found.low or 0.0, found.high or 0.0]
    return min(ends), max(ends) or (0.1 if min(ends) == 0 else 0.0)


def _family_bars(family: Family, reach: tuple[float, float], most: int, summary: Summary) -> Bars:
    gains = sorted((g for g in family.gains if g.found), key=story.merit, reverse=True)
    hidden = max(0, len(gains) - most)
    if hidden:
        gains = gains[: most // 2] + gains[-(most // 2) :]
    times = wording.in_times(gain.found.gain for gain in gains if gain.found)
    name = f"{family.contender} against {family.over}, {wording.measure(family.metric).label}"
    return Bars(name, [_bar(summary, gain, reach, times) for gain in gains], hidden)


def _bar(summary: Summary, gain: Gain, reach: tuple[float, float], times: bool) -> Bar:
    found = gain.found
    assert found is not None
    entry = tables.verdict_entry(gain, times)
    return Bar(
        place=story.varying_place(summary, gain),
        svg=plot.gain_bar(found.low, found.gain, found.high, reach, entry.kind),
        gain=wording.figure(gain, times),
        interval=wording.interval(found, times),
        entry=entry,
        verdict=wording.verdict_word(gain) + wording.more_rounds(gain),
    )


def _invalid_row(trial: Trial) -> tuple[int, str, str]:
    place = ", ".join(f"{name} {value}" for name, value in trial.axes.items())
    return trial.position, place, "; ".join(trial.reasons)


def commands(summary: Summary, bytes_max: int) -> tuple[list[tuple[str, list[str]]], int]:
    """The command lines of each measured cell, and how many cells found no room."""
    found, size = [], 0
    for cell in summary.measured:
        lines = _cell_commands(cell.trials[0].processes)
        size += sum(map(len, lines))
        if size > bytes_max:
            break
        found.append((wording.place(cell), lines))
    return found, len(summary.measured) - len(found)


def _cell_commands(processes: list[Process]) -> list[str]:
    """Instance 0 of each process stands for its siblings, whose cores and ports count up."""
    lines = []
    for process in processes:
        if process.index == 0:
            siblings = sum(other.name == process.name for other in processes)
            times = f"  # {siblings} instances" if siblings > 1 else ""
            cores = ",".join(map(str, process.cores))
            pin = f"cores {cores}: " if cores else ""
            lines.append(f"{process.name}: {pin}{shlex.join(process.argv)}{times}")
    return lines


def repeat_command(summary: Summary) -> str:
    """How to measure the same again: in the same order, where the command takes a seed or the run
    is still there."""
    argv = summary.run.argv
    is_typed = bool(argv) and Path(argv[0]).name in PROGRAMS
    words = [*argv[1:]] if is_typed else []
    words = words or ["run", summary.run.recipe]
    is_of_commands = words[0] == "compare" and not any(word.startswith("--rev") for word in words)
    if is_of_commands:
        words = ["reproduce", summary.run.run_id, *_runs_option(words)]
    elif words[0] == "run" and not any(word.startswith("--seed") for word in words):
        words += ["--seed", str(summary.run.seed)]
    # Not the path that was typed: others read the page, next to a checkout of theirs.
    is_installed = is_typed and "/" not in COMMAND
    return shlex.join(["wirespeed" if is_installed else "./wirespeed", *words])


def _runs_option(words: list[str]) -> list[str]:
    """`--runs DIR` as it was typed."""
    for at, word in enumerate(words):
        if word == "--runs" or word.startswith("--runs="):
            return words[at : at + (2 if word == "--runs" else 1)]
    return []


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _data(summary: Summary) -> str:
    """Data that programs may read from the page: the run, its medians and its verdicts."""
    cells = [
        {"axes": cell.axes, "state": cell.state, "median": cell.median(summary.primary)}
        for cell in summary.cells
    ]
    plain = {**files.verdicts(summary), "metric": summary.primary, "cells": cells}
    return json.dumps(plain, separators=(",", ":")).replace("<", "\\u003c")
