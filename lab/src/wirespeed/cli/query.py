"""`wirespeed query RUN "select …"`: SQL over the trials of a run."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wirespeed.analysis import index
from wirespeed.cli import output
from wirespeed.errors import InputError
from wirespeed.results import query, store


def query_run(name: str, runs: Path, question: str, as_json: bool, as_csv: bool) -> None:
    """Prints the rows as a table, or for programs."""
    _print(*query.ask(store.find_run(runs, name), question), as_json, as_csv)


def query_all(runs: Path, question: str, as_json: bool, as_csv: bool) -> None:
    """The same over all runs, from their index."""
    unread: dict[str, str] = {}
    with index.database(runs, unread) as tables:
        _print(*query.answer(tables, question), as_json, as_csv)
        mixed = index.mixed_units(tables) if query.columns(tables, "runs")[1:] else {}
    for name, units in mixed.items():
        if name in question:
            both = " and ".join(units)
            print(f"wirespeed: {name} is in {both}: see the runs' column `units`", file=sys.stderr)
    for name, why in unread.items():
        print(f"wirespeed: run {name} is left out: {why}", file=sys.stderr)


def _print(heads: list[str], rows: list[query.Row], as_json: bool, as_csv: bool) -> None:
    if as_json:
        if twice := [head for number, head in enumerate(heads) if head in heads[:number]]:
            raise InputError(f"query: two columns are called {twice[0]!r} (rename one with AS)")
        output.write([dict(zip(heads, row, strict=True)) for row in rows])
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(heads)
        writer.writerows(rows)
    else:
        Console(emoji=False).print(_table(heads, rows))


def _table(heads: list[str], rows: list[query.Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, head in enumerate(heads):
        numbers = all(isinstance(row[place], int | float | None) for row in rows)
        table.add_column(escape(head), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(_shown(value)) for value in row))
    return table


def _shown(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,.6g}" if isinstance(value, float) else str(value)
