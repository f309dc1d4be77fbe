"""The trials of a run as tables of SQL: SQLite in memory, filled from the run directory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wirespeed.errors import InputError
from wirespeed.results import store
from wirespeed.results.model import Trial

Row = tuple[Any, ...]


def database(run_dir: Path) -> sqlite3.Connection:
    """Tables `trials` (a row a trial, a column an axis and a metric) and `plan` (a row a cell)."""
    made = sqlite3.connect(":memory:")
    fill(made, "trials", [row_of(trial) for trial in store.read_trials(run_dir)])
    cells = {line.cell: line for line in store.read_plan(run_dir)}
    rows = []
    for line in cells.values():
        fixed = {"cell": line.cell, "state": line.state, "reason": line.reason}
        rows.append({"cell": line.cell, **_as_columns(line.axes, fixed), **fixed})
    fill(made, "plan", rows)
    made.commit()
    made.execute("PRAGMA query_only = on")
    return made


def ask(run_dir: Path, question: str) -> tuple[list[str], list[Row]]:
    """Heads and rows of one SELECT; raises InputError with what SQLite says."""
    with database(run_dir) as tables:
        return answer(tables, question)


def answer(tables: sqlite3.Connection, question: str) -> tuple[list[str], list[Row]]:
    """The same of a database that is there."""
    try:
        cursor = tables.execute(question)
        if cursor.description is None:
            raise InputError("query: not a SELECT (a run cannot be changed)")
        return [column[0] for column in cursor.description], cursor.fetchall()
    except (sqlite3.Error, sqlite3.Warning) as error:
        listed = tables.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        names = [name for (name,) in listed]
        known = "; ".join(f"{name}: {', '.join(columns(tables, name))}" for name in names)
        raise InputError(f"query: {error} (tables and columns: {known})") from None


def columns(tables: sqlite3.Connection, name: str) -> list[str]:
    return [row[1] for row in tables.execute(f'PRAGMA table_info("{name}")')]


def row_of(trial: Trial) -> dict[str, Any]:
    """Axes and metrics next to what the trial says of itself; a metric never hides an axis."""
    record = {
        "cell": trial.cell, "round": trial.round, "position": trial.position, "key": trial.key,
        "valid": int(trial.valid), "reasons": "; ".join(trial.reasons),
        "bottleneck": trial.bottleneck, "disturbed": trial.disturbed,
        "t_start": trial.t_start, "t_end": trial.t_end,
    }  # fmt: skip
    return {**trial.metrics, **_as_columns(trial.axes, record), **record}


def _as_columns(axes: Mapping[str, Any], fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Axes as columns; one that is called like a column of the lab's, or like another axis in other
    letter case, is `axis.NAME`, and a third one `axis.axis.NAME`: SQLite's names are the same in
    upper and lower case."""
    columns, taken = {}, set(fixed)
    for name, value in axes.items():
        while name.lower() in taken:
            name = f"axis.{name}"
        columns[name] = value
        taken.add(name.lower())
    return columns


def fill(
    database: sqlite3.Connection,
    name: str,
    rows: Iterable[Mapping[str, Any]],
    first: tuple[str, ...] = ("cell",),  # a table has a column even when nothing was measured
) -> None:
    rows = list(rows)
    heads = list(dict.fromkeys([*first, *(key for row in reversed(rows) for key in row)]))
    # SQLite's names are the same in upper and lower case.
    heads = list({head.lower(): head for head in heads}.values())
    quoted = ", ".join('"' + head.replace('"', '""') + '"' for head in heads)
    database.execute(f'CREATE TABLE "{name}" ({quoted})')
    places = ", ".join("?" * len(heads))
    values = ([_plain(row.get(head)) for head in heads] for row in rows)
    database.executemany(f'INSERT INTO "{name}" VALUES ({places})', values)


def _plain(value: Any) -> Any:
    is_large = isinstance(value, int) and value.bit_length() > 63  # than SQLite's numbers
    return value if isinstance(value, int | float | str | None) and not is_large else str(value)
