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
from wirespeed.analysis.cells import full_name, is_value, known_name, prefix, values_of
from wirespeed.analysis.summary import Summary, load
from wirespeed.cli import output
from wirespeed.cli.run import EXIT_GATE, label
from wirespeed.errors import InputError, ResultsError
from wirespeed.report import wording
from wirespeed.results import store
from wirespeed.runner import execute

PIPE_COLUMNS = 120


@dataclass(frozen=True)
class Choice:
    """Which runs and cells."""

    names: list[str]
    recipe: str
    where: str
    labels: list[str]

    def covers(self, axes: Mapping[str, object]) -> bool:
        pairs = values_of("--where", self.where)
        return all(is_value(axes.get(axis), text) for axis, text in pairs)


def trend(choice: Choice, runs: Path, metric: str, fail_on: str, as_json: bool) -> int:
    """Prints each cell's course and changes; 3 when the last run shows one for the worse first."""
    if fail_on not in ("", "worse"):
        raise InputError(f"--fail-on: unknown value {fail_on!r} (worse)")
    summaries, damaged = _history(choice, runs)
    metric = metric or summaries[-1].primary
    cells = [cell for one in summaries for cell in one.measured]
    metric = known_name(cells, metric) or full_name(metric)
    histories = [one for one in trends.series(summaries, metric) if choice.covers(one.axes)]
    if not histories:
        raise ResultsError(f"no measured cell of these runs has {metric!r} and fits --where")
    if as_json:
        output.write(output.records(histories))
    else:
        _show(histories, wording.measure(metric, summaries[-1].unit(metric)), len(summaries))
    lines = _broken(summaries, histories, metric, choice) if fail_on else []
    newest = summaries[-1].run_dir.name
    lines += [f"{name} cannot be read" for name in damaged if fail_on and name > newest]
    for line in lines:
        print(f"wirespeed: {line}", file=sys.stderr)
    return EXIT_GATE if lines else 0


def _broken(
    summaries: list[Summary], histories: list[trends.MetricHistory], metric: str, choice: Choice
) -> list[str]:
    """Changes that the last run shows first, so that an accepted change passes."""
    last = summaries[-1].run
    lines = [] if last.state == "done" else [f"{last.run_id} did not end: {last.state}"]
    lines += [
        f"{prefix(one.axes)}{wording.change(change)}"
        for one in histories
        for change in one.changes
        if change.is_new and change.word == "worse"
    ]
    lost = (one for one in trends.lost(summaries, metric) if choice.covers(one.axes))
    return lines + [f"{prefix(one.axes)}{metric}: {one.reason}" for one in lost]


def _history(choice: Choice, runs: Path) -> tuple[list[Summary], list[str]]:
    """The runs that were named, or all finished ones of a recipe, oldest first; and the names of
    damaged ones, which are left out."""
    damaged: list[str] = []
    labels = set(map(label, choice.labels))
    if choice.names:
        folders = [store.find_run(runs, name) for name in choice.names]
        named = [load(run_dir) for run_dir in dict.fromkeys(one.resolve() for one in folders)]
        summaries = [one for one in named if labels <= one.run.labels.items()]
    else:
        recipe = choice.recipe or store.read_run(store.find_run(runs, "latest")).recipe
        summaries = []
        for run_dir in store.list_runs(runs):
            try:
                summaries += [load(run_dir)] if _is_of(run_dir, recipe, labels) else []
            except ResultsError as error:
                print(f"wirespeed: left out: {error}", file=sys.stderr)
                damaged.append(run_dir.name)
    summaries = _without_copies(summaries)
    if len(summaries) < 2:
        raise ResultsError(f"a trend needs at least two runs, and there are {len(summaries)}")
    return trends.in_order(summaries), damaged


def _without_copies(summaries: list[Summary]) -> list[Summary]:
    """Each run once: with a copy of its folder, the last run would seem to change nothing."""
    kept: dict[str, Summary] = {}
    for one in sorted(summaries, key=lambda one: one.run_dir.name != one.run.run_id):
        first = kept.setdefault(one.run.run_id, one)
        if first is not one:
            names = f"{one.run_dir.name} is a copy of {first.run_dir.name}"
            print(f"wirespeed: left out: {names}", file=sys.stderr)
    return list(kept.values())


def _is_of(run_dir: Path, recipe: str, labels: set[tuple[str, str]]) -> bool:
    """A run that is still measured is none of its history; one that was killed is. Raises
    ResultsError of a damaged one, of which only the folder's name says what it measured."""
    try:
        run = store.read_run(run_dir)
    except ResultsError:
        if run_dir.name.partition("-")[2].rpartition("-")[0] == recipe:
            raise
        return False
    if run.recipe != recipe or not labels <= run.labels.items():
        return False
    return run.state != "running" or execute.is_cut_off(run_dir)


def _show(histories: list[trends.MetricHistory], measure: wording.Measure, count: int) -> None:
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPE_COLUMNS)
    table = Table(box=None, pad_edge=False, header_style="bold")
    axes = list(dict.fromkeys(axis for one in histories for axis in one.axes))
    for axis in axes:
        table.add_column(axis)
    for head in ("runs", "course", "first", "last", "all in all"):
        table.add_column(head, justify="left" if head == "course" else "right")
    table.add_column("changes")
    for one in histories:
        first, last = one.points[0].value, one.points[-1].value
        table.add_row(
            *(escape(str(one.axes.get(axis, ""))) for axis in axes), str(len(one.points)),
            wording.course(point.value for point in one.points),
            wording.number(first * measure.scale),
            wording.number(last * measure.scale), wording.signed(last / first - 1),
            escape("; ".join(wording.change(c) for c in one.changes)) or "–",
        )  # fmt: skip
    console.print(f"{measure.head} over {count} runs", soft_wrap=True)
    console.print(table)
    if count < trends.RUNS_MIN:
        console.print(f"Fewer than {trends.RUNS_MIN} runs show no change point.")
