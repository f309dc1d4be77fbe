"""`wirespeed trend`: one metric over many runs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wirespeed.analysis import trend as trends
from wirespeed.analysis.cells import full_name, place
from wirespeed.analysis.summary import Summary, load
from wirespeed.cli import output
from wirespeed.cli.run import EXIT_GATE, label
from wirespeed.errors import InputError, ResultsError
from wirespeed.report import wording
from wirespeed.results import store
from wirespeed.units import BYTE_RATES

BARS = "▁▂▃▄▅▆▇█"
PIPE_COLUMNS = 120


@dataclass(frozen=True)
class Choice:
    """Which runs and cells."""

    names: list[str]
    recipe: str
    where: str
    labels: list[str]

    def covers(self, axes: Mapping[str, object]) -> bool:
        wanted = [part.partition("=") for part in self.where.split(",") if part]
        return all(str(axes.get(axis.strip())) == value.strip() for axis, _, value in wanted)


def trend(choice: Choice, runs: Path, metric: str, fail_on: str, as_json: bool) -> int:
    """Prints each cell's course and changes; 3 when the last run shows one for the worse first."""
    if fail_on not in ("", "worse"):
        raise InputError(f"--fail-on: unknown value {fail_on!r} (worse)")
    summaries = _summaries(choice, runs)
    metric = full_name(metric) if metric else summaries[-1].primary
    told_in = dict.fromkeys(one.unit(metric) for one in summaries)
    if len({BYTE_RATES.get(unit, 1.0) for unit in told_in}) > 1:
        units = " and ".join(unit or "no unit" for unit in told_in)
        raise ResultsError(
            f"--metric: these runs measure {metric} in {units} (choose runs of one unit)"
        )
    found = [one for one in trends.series(summaries, metric) if choice.covers(one.axes)]
    if not found:
        raise ResultsError(f"no measured cell of these runs has {metric!r} and fits --where")
    if as_json:
        output.write(output.records(found))
    else:
        _show(found, wording.measure(metric, summaries[-1].unit(metric)), len(summaries))
    lines = _broken(summaries, found, metric, choice) if fail_on else []
    for line in lines:
        print(f"wirespeed: {line}", file=sys.stderr)
    return EXIT_GATE if lines else 0


def _broken(
    summaries: list[Summary], found: list[trends.MetricHistory], metric: str, choice: Choice
) -> list[str]:
    """Changes that the last run shows first, so that an accepted change passes."""
    last = summaries[-1].run
    lines = [] if last.state == "done" else [f"{last.run_id} did not end: {last.state}"]
    lines += [
        f"{place(one.axes)}: {_change(change)}"
        for one in found
        for change in one.changes
        if change.is_new and change.word == "worse"
    ]
    lost = (one for one in trends.lost(summaries, metric) if choice.covers(one.axes))
    return lines + [f"{place(one.axes)}: {metric}: {one.reason}" for one in lost]


def _summaries(choice: Choice, runs: Path) -> list[Summary]:
    """The runs that were named, or all finished ones of a recipe; oldest first."""
    if choice.names:
        folders = [store.find_run(runs, name) for name in choice.names]
    else:
        name = choice.recipe or store.read_run(store.find_run(runs, "latest")).recipe
        folders = [d for d in store.list_runs(runs) if _is_of(d, name)]
    found = [load(run_dir) for run_dir in folders]
    for key, value in map(label, choice.labels):
        found = [one for one in found if one.run.labels.get(key) == value]
    if len(found) < 2:
        raise ResultsError(f"a trend needs at least two runs, and there are {len(found)}")
    return sorted(found, key=lambda one: one.run.started)


def _is_of(run_dir: Path, recipe: str) -> bool:
    try:
        run = store.read_run(run_dir)
        return run.recipe == recipe and run.state != "running"
    except ResultsError:
        return False


def _show(found: list[trends.MetricHistory], measure: wording.Measure, count: int) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPE_COLUMNS)
    table = Table(box=None, pad_edge=False, header_style="bold")
    axes = list(dict.fromkeys(axis for one in found for axis in one.axes))
    for axis in axes:
        table.add_column(axis)
    for head in ("runs", "course", "first", "last", "all in all"):
        table.add_column(head, justify="left" if head == "course" else "right")
    table.add_column("changes")
    for one in found:
        first, last = one.points[0].value, one.points[-1].value
        table.add_row(
            *(escape(str(one.axes.get(axis, ""))) for axis in axes), str(len(one.points)),
            _course(one), wording.number(first * measure.scale),
            wording.number(last * measure.scale), wording.signed(last / first - 1),
            escape("; ".join(_change(c) for c in one.changes)) or "–",
        )  # fmt: skip
    console.print(f"{measure.head} over {count} runs", soft_wrap=True)
    console.print(table)
    if count < trends.RUNS_MIN:
        console.print(f"Fewer than {trends.RUNS_MIN} runs show no change point.")


def _course(one: trends.MetricHistory) -> str:
    values = [point.value for point in one.points]
    low, reach = min(values), max(values) - min(values)
    top = len(BARS) - 1
    return "".join(BARS[round((value - low) / reach * top) if reach else 0] for value in values)


def _change(change: trends.Change) -> str:
    commit = f" ({change.commit})" if change.commit else ""
    return f"{wording.signed(change.change)} from {change.run}{commit} on, {change.word}"
