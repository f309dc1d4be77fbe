"""`wirespeed doctor`: what this machine lacks, or why a run could not decide."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wirespeed.analysis import diagnosis
from wirespeed.analysis.summary import load
from wirespeed.cli import output
from wirespeed.errors import COMMAND
from wirespeed.report import wording
from wirespeed.results import store
from wirespeed.runner import abilities, place

MARKS = {"can": "[green]✔[/green]", "limited": "[yellow]·[/yellow]", "cannot": "[red]✘[/red]"}
CELLS_SHOWN_MAX = 4
PIPE_COLUMNS = 120


def of_machine(as_json: bool) -> int:
    """1 when something is missing without which nothing can be measured."""
    judged = abilities.of_machine(place.root())
    if as_json:
        output.write(output.records(judged))
    else:
        _show(judged)
    return int(any(one.state == "cannot" for one in judged))


def _show(judged: list[abilities.Ability]) -> None:
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for one in judged:
        words = escape(one.found) + (f"\n[dim]{escape(one.remedy)}[/dim]" if one.remedy else "")
        table.add_row(MARKS[one.state], one.what, words)
    console = _console()
    console.print(table)
    counts = [sum(one.state == state for one in judged) for state in MARKS]
    console.print(f"{counts[0]} work, {counts[1]} with limits, {counts[2]} do not")
    console.print(f"`{COMMAND} audit` lists what makes measurements noisy here.")


def _console() -> Console:
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPE_COLUMNS)
    return console


def of_run(name: str, runs: Path, as_json: bool) -> None:
    """Why cells are undecided, invalid or not comparable, and what would change it."""
    summary = load(store.find_run(runs, name))
    causes = diagnosis.of_run(summary)
    if as_json:
        output.write(output.records(causes))
        return
    console = _console()
    if not causes:
        name = escape(summary.run.run_id)
        console.print(f"{name}: every cell is measured and every comparison decided")
    for one in causes:
        count = f" ({wording.count(len(one.cells), 'cell')})" if one.cells else ""
        console.print(f"[bold]{escape(one.what)}[/bold]{count}: {escape(one.why)}", soft_wrap=True)
        if one.remedy:
            console.print(f"  try: {escape(one.remedy)}", soft_wrap=True)
        for cell in one.cells[:CELLS_SHOWN_MAX]:
            console.print(f"  {escape(cell)}", soft_wrap=True)
        if len(one.cells) > CELLS_SHOWN_MAX:
            console.print(f"  … {len(one.cells) - CELLS_SHOWN_MAX} more")
