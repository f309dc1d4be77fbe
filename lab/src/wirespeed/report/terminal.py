"""The tables of a run in the terminal, and where its report lies."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from wirespeed.report import story, tables
from wirespeed.report.tables import OURS, Column, Grid
from wirespeed.results.summary import Summary, load

STYLES = {
    "gain": "green",
    "loss": "red",
    "even": "default",
    "open": "yellow",
    "withheld": "dim",
    "state": "dim",
    "published": "cyan",
}


def show(run_dir: Path, console: Console) -> None:
    """Prints every table of a run, then what may be concluded from them."""
    show_summary(load(run_dir), console)


def show_summary(summary: Summary, console: Console) -> None:
    """The same from a summary that is already there."""
    for sheet in summary.sheets:
        table = tables.grid(summary, sheet)
        if any(cell.trials for cell in sheet.cells.values()):
            console.print(_table(table, console.width))
            _print_notes(table, console)
        else:
            states = sorted({cell.state for cell in sheet.cells.values()})
            console.print(f"[bold]{table.title}[/]: {', '.join(states)}", highlight=False)
    console.print()
    for sentence in story.front(summary):
        console.print(sentence, highlight=False, markup=False)


def _table(grid: Grid, width: int) -> Table:
    shown = _fitting(grid, width)
    out = Table(
        title=grid.title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD,
        pad_edge=False,
    )  # fmt: skip
    for head in grid.heads:
        out.add_column(head, justify="right", no_wrap=True)
    for index in shown:
        out.add_column(_head(grid.columns[index]), justify="right")
    for labels, entries in grid.rows:
        cells = [Text(entries[i].text, style=STYLES.get(entries[i].kind, "")) for i in shown]
        out.add_row(*labels, *cells)
    return out


def _head(column: Column) -> str:
    group = column.group.removeprefix(OURS).removeprefix(", ")
    return f"{column.label}\n{group}" if group else column.label


def _fitting(grid: Grid, width: int) -> list[int]:
    """The columns that fit; published ones give way first, the page has them all."""
    indexes = list(range(len(grid.columns)))
    while len(indexes) > 1 and _width(grid, indexes) > width:
        indexes.pop()
    return indexes


def _width(grid: Grid, indexes: list[int]) -> int:
    total = sum(len(head) + 3 for head in grid.heads)
    for index in indexes:
        texts = [entries[index].text for _, entries in grid.rows]
        words = [*grid.columns[index].label.split(), *grid.columns[index].group.split()]
        total += 2 + max(len(text) for text in [*texts, *words])
    return total


def _print_notes(grid: Grid, console: Console) -> None:
    for note in grid.notes:
        console.print(Text(f"  {note}", style="dim"), highlight=False)
