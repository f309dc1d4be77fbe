"""`wirespeed plan`, `list`, `runs`, `audit` and `recover`: they show things and measure nothing."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wirespeed.cli import output
from wirespeed.errors import RecipeError, ResultsError
from wirespeed.recipe import read
from wirespeed.results import store
from wirespeed.runner import build, commands, execute, place, session, tune
from wirespeed.runner.build import Missing
from wirespeed.runner.plan import PlanOptions, Schedule, verdict_text
from wirespeed.topology import LOCAL, Seat
from wirespeed.units import duration_for_people

RUNS_COLUMNS = 120  # in a pipe, where the width is unknown
CELLS_SHOWN_MAX = 400  # a plan longer than this is summed up


def plan(
    origin: session.Source, options: PlanOptions, with_commands: bool = False, as_json: bool = False
) -> None:
    schedule = session.planned(origin, options)
    unbuilt = build.missing(origin.root, session.parts_of(schedule))
    if as_json:
        output.write(_plan_document(schedule, unbuilt, options, with_commands))
        return
    console = Console(emoji=False)
    console.print(_cells(schedule))
    for line in summary(schedule) + built_first(unbuilt) + tune.foreseen(schedule, options.tune):
        console.print(escape(line), soft_wrap=True, highlight=False)
    for line in commands.of_schedule(schedule) if with_commands else ():
        console.print(escape(line), soft_wrap=True, highlight=False)


def built_first(unbuilt: Missing) -> list[str]:
    if not unbuilt.parts:
        return []
    names, many = ", ".join(unbuilt.parts), len(unbuilt.parts) > 1
    return [
        f"{names} {'are' if many else 'is'} built on first use: about "
        f"{duration_for_people(unbuilt.seconds)} before the run"
    ]


def _plan_document(
    schedule: Schedule, unbuilt: Missing, options: PlanOptions, with_commands: bool
) -> dict[str, object]:
    return {
        "recipe": schedule.recipe.name,
        "trials": schedule.trials,
        "rounds": schedule.repeat,
        "seconds": round(schedule.seconds, 1),
        "build": {"parts": unbuilt.parts, "seconds": unbuilt.seconds},
        "cells": [
            {
                "axes": one.cell.axes,
                "state": one.state,
                "reason": one.reason,
                "cores": {label: [s.core for s in seats] for label, seats in one.seats.items()},
            }
            for one in schedule.cells
        ],
        "notes": summary(schedule) + built_first(unbuilt) + tune.foreseen(schedule, options.tune),
        "commands": commands.of_schedule(schedule) if with_commands else [],
    }


def schema() -> None:
    """Taplo, Even Better TOML and others take it: `#:schema FILE` on a recipe's first line."""
    print(json.dumps(read.json_schema(), indent=1))


def summary(schedule: Schedule) -> list[str]:
    times = schedule.times
    states = Counter(cell.state for cell in schedule.cells)
    counted = ", ".join(f"{number} {state}" for state, number in states.items())
    lines = [
        f"{len(schedule.cells)} cells: {counted}",
        f"{schedule.trials} trials ({schedule.repeat} of each cell, {schedule.recipe.plan.order}): "
        f"warm-up {times.warmup_s:g} s, measured {times.duration_s:g} s, "
        f"a new server per {schedule.recipe.plan.restart}",
        f"about {duration_for_people(schedule.seconds)} in all",
    ]
    duets = sum(bool(cell.over) and cell.is_measured for cell in schedule.cells)
    if duets:
        plan = schedule.recipe.plan.duet
        lines.append(
            f"{duets} of {schedule.comparisons} comparisons by duets: {schedule.repeat} pairs of "
            f"fresh servers, each of which takes turns of {plan.slice * 1e3:g} ms for "
            f"{duration_for_people(plan.pair)}"
        )
    if duets < schedule.comparisons or not duets:
        lines.append(verdict_text(schedule.comparisons, schedule.repeat, schedule.spread))
    return lines + schedule.thinned


def _cells(schedule: Schedule) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = list(schedule.recipe.axes)
    for name in names:
        table.add_column(name)
    table.add_column("cores")
    table.add_column("state", overflow="fold")
    for planned in schedule.cells[:CELLS_SHOWN_MAX]:
        values = [escape(str(planned.cell.axes[name])) for name in names]
        state = planned.reason or planned.state
        table.add_row(*values, _pins(planned.seats), escape(state))
    if len(schedule.cells) > CELLS_SHOWN_MAX:
        table.add_row(f"… {len(schedule.cells) - CELLS_SHOWN_MAX} more")
    return table


def _pins(seats: dict[str, list[Seat]]) -> str:
    shown = [f"{label}:{_cores(cores)}" for label, cores in list(seats.items())[:3]]
    return " ".join(shown) + (" …" if len(seats) > 3 else "")


def _cores(seats: list[Seat]) -> str:
    host = "" if seats[0].host == LOCAL else f"{seats[0].host}/"
    return host + ",".join(str(seat.core) for seat in seats)


def recipes(as_json: bool) -> None:
    if as_json:
        output.write([_recipe_document(path) for path in _recipe_files()])
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("recipe", "what it measures", "where the method comes from"):
        table.add_column(heading, overflow="fold")
    for path in _recipe_files():
        try:
            recipe = read.read(path)
        except RecipeError as error:
            table.add_row(path.stem, f"[red]{escape(str(error))}[/red]", "")
            continue
        table.add_row(path.stem, escape(recipe.title), escape(recipe.method))
    Console(emoji=False).print(table)


def _recipe_files() -> list[Path]:
    return sorted((place.root() / "recipes").glob("*.toml"))


def _recipe_document(path: Path) -> dict[str, object]:
    try:
        recipe = read.read(path)
    except RecipeError as error:
        return {"name": path.stem, "file": path, "error": str(error)}
    texts = {"title": recipe.title, "method": recipe.method}
    return {"name": path.stem, "file": path, **texts, "axes": recipe.axis_values()}


@dataclass(frozen=True)
class _Row:
    """One run directory, as `runs` shows it."""

    run: str
    recipe: str = ""
    state: str = ""
    trials: int = 0
    planned: int = 0
    commit: str = ""
    started: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    note: str = ""
    error: str = ""


def _row(run_dir: Path) -> _Row:
    try:
        run, plan = store.read_run(run_dir), store.read_plan(run_dir)
    except ResultsError as error:
        return _Row(run_dir.name, error=str(error))
    done = sum(1 for _ in (run_dir / "trials").glob("*/trial.json"))
    total = sum(line.state == "planned" for line in plan)
    is_cut_off = run.state == "running" and execute.is_cut_off(run_dir)
    state = "cut off" if is_cut_off else run.state
    return _Row(
        run_dir.name, run.recipe, state, done, total, run.commit, run.started, run.labels, run.note
    )


def _marks(row: _Row) -> str:
    return escape(" ".join([*(f"{key}={value}" for key, value in row.labels.items()), row.note]))


def runs(folder: Path, as_json: bool) -> None:
    rows = [_row(run_dir) for run_dir in store.list_runs(folder)]
    if as_json:
        output.write(output.records(rows))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("run", "recipe", "state", "trials", "commit", "labels and note"):
        # The run's name is an argument of the next command, so never cut it.
        table.add_column(heading, no_wrap=True)
    for row in rows:
        if row.error:
            table.add_row(escape(row.run), "", escape(row.error), "", "", "")
            continue
        table.columns[0].min_width = max(table.columns[0].min_width or 0, len(row.run))
        trials = f"{row.trials} of {row.planned}"
        shown = map(escape, (row.run, row.recipe, row.state, trials, row.commit))
        table.add_row(*shown, _marks(row))
    console = Console(emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, RUNS_COLUMNS)
    console.print(table if table.row_count else escape(f"no runs in {folder}"))
