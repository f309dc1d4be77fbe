"""The files of a report for other programs: tables.md, results.csv, cells.csv, verdict.json."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from pathlib import Path
from typing import Any

from wirespeed.analysis.summary import Cell, Family, Gain, Summary, load
from wirespeed.errors import COMMAND, StorageError
from wirespeed.report import story, wording
from wirespeed.report.tables import OURS, Column, Entry, Grid, grid
from wirespeed.results.model import Trial


def write(run_dir: Path) -> None:
    """Writes tables.md, results.csv, cells.csv and verdict.json below the run's derived/."""
    write_files(load(run_dir))


def write_files(summary: Summary) -> None:
    """The same from a summary that is already there."""
    derived = summary.run_dir / "derived"
    save(derived / "tables.md", markdown(summary))
    save(derived / "results.csv", results_csv(summary))
    save(derived / "cells.csv", cells_csv(summary))
    save(derived / "verdict.json", json.dumps(verdicts(summary), indent=1, allow_nan=False) + "\n")


def save(path: Path, data: str | bytes) -> None:
    """Writes a derived file whole or not at all, while other commands report the same run."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(exist_ok=True)
        temporary.write_bytes(data.encode() if isinstance(data, str) else data)
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        remedy = error.strerror or str(error)
        raise StorageError(
            f"cannot write {path}: {remedy}; make room or allow it, then `{COMMAND} report "
            f"{path.parent.parent.name}`"
        ) from error


def markdown(summary: Summary) -> str:
    """Every table of the run as Markdown."""
    run = summary.run
    parts = [f"# {run.title or run.recipe}", f"Run `{run.run_id}`, started {run.started}."]
    parts += story.front(summary)
    for sheet in summary.sheets:
        parts.append(grid_markdown(grid(summary, sheet)))
    return "\n\n".join(parts) + "\n"


def grid_markdown(table: Grid) -> str:
    heads = [*table.heads, *(_markdown_head(column) for column in table.columns)]
    align = ["---:"] * len(heads)
    lines = [_markdown_row(heads), _markdown_row(align)]
    for labels, entries in table.rows:
        lines.append(_markdown_row([*labels, *map(_markdown_text, entries)]))
    parts = [f"## {table.title}", *([f"Figures: {table.figures}."] if table.figures else [])]
    parts.append("\n".join(lines))
    parts += [" ".join(table.notes)] if table.notes else []
    parts += ["\n".join(f"- {reason}" for reason in table.open)] if table.open else []
    return "\n\n".join(parts)


def _markdown_text(entry: Entry) -> str:
    return f"{entry.text} ({entry.interval})" if entry.interval else entry.text


def _markdown_head(column: Column) -> str:
    """The column with its unit; ours need not say whose they are."""
    group = column.group.removeprefix(OURS).removeprefix(", ")
    return f"{column.label}<br>{group}" if group else column.label


def _markdown_row(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def results_csv(summary: Summary) -> str:
    """One row a trial with every metric, and one row a cell that was not measured."""
    axes = list(summary.run.axes)
    trials = sorted((*summary.valid, *summary.invalid), key=lambda trial: trial.position)
    metrics = sorted({name for trial in trials for name in trial.metrics})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["position", "round", "cell", "state", "reason", *axes, "valid", "bottleneck",
         "shared_cores", "disturbed", "windows_discarded", "window_start_unix_ns",
         "window_length_ns", *metrics]
    )  # fmt: skip
    writer.writerows(_trial_row(trial, axes, metrics) for trial in trials)
    for cell in summary.unmeasured:
        if not cell.invalid:
            values = [cell.axes.get(axis, "") for axis in axes]
            writer.writerow(["", "", cell.key, cell.state, cell.reason, *values])
    return out.getvalue()


def _trial_row(trial: Trial, axes: list[str], metrics: list[str]) -> list[Any]:
    window = (trial.window.start_unix_ns, trial.window.length_ns) if trial.window else ("", "")
    return [
        trial.position, trial.round, trial.cell, "measured", "; ".join(trial.reasons),
        *(trial.axes.get(axis, "") for axis in axes),
        trial.valid, trial.bottleneck, trial.shared_cores, trial.disturbed, len(trial.discarded),
        *window,
        *("" if trial.metrics.get(name) is None else trial.metrics[name] for name in metrics),
    ]  # fmt: skip


def cells_csv(summary: Summary) -> str:
    """One row a cell: what became of it, and the median of every figure, named with its unit."""
    axes = list(summary.run.axes)
    metrics = sorted({name for trial in summary.valid for name in trial.metrics})
    declared = {str(m["name"]): str(m.get("unit") or "") for m in summary.run.metrics}
    heads = [_csv_head(name, declared.get(name, "")) for name in metrics]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["cell", *axes, "state", "reason", "limit", "valid_trials", "failed_trials", "disturbed",
         *heads]
    )  # fmt: skip
    writer.writerows(_cell_row(cell, axes, metrics) for cell in summary.cells)
    return out.getvalue()


def _csv_head(metric: str, unit: str) -> str:
    unit = wording.measure(metric, unit).stored_unit
    return f"{metric} ({unit})" if unit else metric


def _cell_row(cell: Cell, axes: list[str], metrics: list[str]) -> list[Any]:
    medians = (cell.median(name) for name in metrics)
    return [
        cell.key, *(cell.axes.get(axis, "") for axis in axes), cell.state, cell.reason,
        cell.bottleneck if cell.trials else "", len(cell.trials), len(cell.failed),
        round(cell.disturbed, 4), *("" if value is None else value for value in medians),
    ]  # fmt: skip


def verdicts(summary: Summary) -> dict[str, Any]:
    """Every comparison for programs: gain, interval, q, verdict, floor; and the pooled ones."""
    return {
        "format": 1,
        "run_id": summary.run.run_id,
        "noise_floor": dict(summary.floors),
        "pooled": [_pooled_json(family) for family in summary.families],
        "comparisons": [_verdict_json(gain) for gain in summary.gains],
    }


def _pooled_json(family: Family) -> dict[str, Any]:
    return {
        "contender": family.contender, "over": family.over, "metric": family.metric,
        "cells": len(family.pooled), "bounds_left_out": family.bounded, **_found_json(family),
    }  # fmt: skip


def _verdict_json(gain: Gain) -> dict[str, Any]:
    return {
        "cell": gain.cell.key, "against": gain.base.key, "axes": gain.cell.axes,
        "axis": gain.axis, "over": gain.over, "metric": gain.metric,
        "gain_of_medians": gain.of_medians, "q": gain.q, "method": gain.method, **_found_json(gain),
    }  # fmt: skip


def _found_json(judged: Gain | Family) -> dict[str, Any]:
    found, verdict = judged.found, judged.verdict
    return {
        "gain": found.gain if found else None,
        "low": found.low if found else None, "high": found.high if found else None,
        "coverage": found.coverage if found else None, "rounds": found.rounds if found else 0,
        "verdict": verdict.word, "scope": verdict.scope, "reason": verdict.reason,
        "bound": verdict.bound, "more_rounds": verdict.more_rounds,
    }  # fmt: skip
