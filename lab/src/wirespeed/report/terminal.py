"""The tables of a run in the terminal, and the path of its report."""

from __future__ import annotations

from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from wirespeed.analysis.summary import Summary, load
from wirespeed.report import story, tables, wording
from wirespeed.report.tables import OURS, Column, Entry, Grid

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
    """The same from a summary that is already there: one line for each contender comes first."""
    for headline in story.headlines(summary):
        console.print(headline, highlight=False, markup=False)
    for sheet in summary.sheets:
        table = tables.grid(summary, sheet)
        if any(cell.trials for cell in sheet.cells.values()):
            shown = _fitting(table, console.width)
            console.print(_table(table, shown))
            _print_notes(table, shown, console)
        else:
            states = sorted({wording.state(cell) for cell in sheet.cells.values()})
            line = Text.assemble((table.title, "bold"), f": {', '.join(states)}")
            console.print(line, highlight=False)
    for sentence in story.front(summary):
        console.print(sentence, highlight=False, markup=False)


def _table(grid: Grid, shown: list[int]) -> Table:
    # Of strings, brackets in a title or a value would be read as markup.
    out = Table(
        title=Text(grid.title, style="bold"), title_justify="left", box=box.SIMPLE_HEAD,
        show_edge=False, pad_edge=False,
    )  # fmt: skip
    for head in grid.heads:
        out.add_column(Text(head), justify="right", no_wrap=True)
    for index in shown:
        top = Text(_head(grid.columns[index]))
        out.add_column(top, justify="right", min_width=_least(grid, index))
    for labels, entries in grid.rows:
        if _is_bare(entries):
            continue
        cells = [Text(entries[i].text, style=STYLES.get(entries[i].kind, "")) for i in shown]
        out.add_row(*map(Text, labels), *cells)
    return out


def _is_bare(entries: tuple[Entry, ...]) -> bool:
    """A row that has no figure, neither ours nor a document's, is named in a note."""
    return all(entry.kind == "state" or entry.text == wording.NONE for entry in entries)


def _head(column: Column) -> str:
    group = column.group.removeprefix(OURS).removeprefix(", ")
    return f"{column.label}\n{group}" if group else column.label


def _fitting(grid: Grid, width: int) -> list[int]:
    """The columns that fit. One without a single figure is named in a note; published figures
    give way first, from the right."""
    indexes = [i for i in range(len(grid.columns)) if not _states(grid, i)]
    while len(indexes) > 1 and _width(grid, indexes) > width:
        indexes.pop()
    return indexes


def _states(grid: Grid, index: int) -> str:
    """What a column says that has no figure at all."""
    shown = [entries[index] for _, entries in grid.rows]
    is_bare = all(entry.kind == "state" for entry in shown)
    return ", ".join(dict.fromkeys(entry.text for entry in shown)) if is_bare else ""


def _width(grid: Grid, indexes: list[int]) -> int:
    total = 2
    for place, head in enumerate(grid.heads):
        total += 3 + max(len(head), *(len(labels[place]) for labels, _ in grid.rows))
    return total + sum(3 + _least(grid, index) for index in indexes)


def _least(grid: Grid, index: int) -> int:
    """Figures and the words of a head are never broken."""
    words = _head(grid.columns[index]).split()
    return max(len(text) for text in [*words, *(entries[index].text for _, entries in grid.rows)])


def _print_notes(grid: Grid, shown: list[int], console: Console) -> None:
    bare = {i: _states(grid, i) for i in range(len(grid.columns))}
    notes = [f"{grid.columns[i].label}: {text}." for i, text in bare.items() if text]
    rows = [entries for _, entries in grid.rows if _is_bare(entries)]
    if rows:
        states = ", ".join(dict.fromkeys(entries[0].text for entries in rows))
        also = wording.count(len(rows), "row")
        notes.append(f"{also} without a figure in tables.md and report.html: {states}.")
    notes += grid.notes
    hidden = sum(not text for text in bare.values()) - len(shown)
    if hidden:
        notes.append(f"{wording.count(hidden, 'more column')} in tables.md and report.html.")
    for note in [*notes, *grid.open]:
        console.print(Text(f"  {note}", style="dim"), highlight=False)
    console.print()
