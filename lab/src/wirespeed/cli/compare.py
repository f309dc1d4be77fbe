"""`wirespeed compare A B`: two runs beside each other."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wirespeed.report import wording
from wirespeed.results import apart, store
from wirespeed.results.summary import load

PIPE_COLUMNS = 120  # where nobody told the width


def compare(names: tuple[str, str], runs: Path, metrics: list[str], as_json: bool) -> None:
    """Prints what differs between the hosts, then each cell of both runs."""
    first, second = (load(store.find_run(runs, name)) for name in names)
    found = apart.compare(first, second, metrics or [first.primary])
    if as_json:
        print(json.dumps(asdict(found), indent=1))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPE_COLUMNS)
    if found.facts:
        console.print(_facts(found))
    else:
        console.print("Nothing that is known of hosts and method differs.")
    console.print(_cells(found, list(first.run.axes)))
    words = [one.word for one in found.differences]
    counted = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    missing = "".join(
        f" {wording.count(count, 'cell')} only in the {which}."
        for count, which in zip(found.only, ("first", "second"), strict=True)
        if count
    )
    console.print(
        f"{counted}.{missing} The runs were not interleaved: what the machine did in between is in "
        "every difference. For a verdict, put both sides into one recipe.",
        soft_wrap=True,
    )


def _facts(found: apart.Apart) -> Table:
    table = Table(title="What differs", title_justify="left", box=None, pad_edge=False)
    for head in ("", "first", "second"):
        table.add_column(head, overflow="fold")
    for name, (ours, theirs) in found.facts.items():
        table.add_row(name, escape(str(ours)), escape(str(theirs)))
    return table


def _cells(found: apart.Apart, axes: list[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for axis in axes:
        table.add_column(axis)
    for head in ("metric", "first", "second", "difference", "95 % interval", ""):
        table.add_column(head, justify="left" if head in ("", "metric") else "right")
    for one in found.differences:
        measure = wording.measure(one.metric)
        interval = "–"
        if one.low is not None and one.high is not None:
            interval = f"{wording.signed(one.low)} … {wording.signed(one.high)}"
        table.add_row(
            *(escape(str(one.axes.get(axis, ""))) for axis in axes), measure.head,
            wording.number(one.first * measure.scale), wording.number(one.second * measure.scale),
            wording.signed(one.change), interval, one.word,
        )  # fmt: skip
    return table
