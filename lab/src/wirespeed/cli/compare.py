"""`wirespeed compare A B`: two runs beside each other."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wirespeed.cli import output
from wirespeed.cli import run as runs_of
from wirespeed.cli.init import argv_of, check_path, connections_of
from wirespeed.cli.run import EXIT_GATE
from wirespeed.errors import InputError
from wirespeed.recipe import draft
from wirespeed.report import wording
from wirespeed.results import apart, store
from wirespeed.results.summary import Summary, load
from wirespeed.runner import session, tryout
from wirespeed.runner.plan import PlanOptions

PIPE_COLUMNS = 120  # where nobody told the width


FAIL_ON = {"worse": "worse", "loss": "worse", "undecided": "not decided"}


def compare(
    names: tuple[str, str], runs: Path, metrics: list[str], as_json: bool, fail_on: str = ""
) -> int:
    """Prints what differs between the hosts, then each cell of both runs; 3 on `fail_on`."""
    wrong = [word for word in fail_on.split(",") if word and word not in FAIL_ON]
    if wrong:
        raise InputError(f"--fail-on takes worse and undecided, not {wrong[0]!r}")
    first, second = (load(store.find_run(runs, name)) for name in names)
    found = apart.compare(first, second, metrics or [first.primary])
    if as_json:
        output.write(asdict(found))
    else:
        show(first, found)
    shut = {FAIL_ON[word] for word in fail_on.split(",") if word}
    return EXIT_GATE if any(one.word in shut for one in found.differences) else 0


def show(first: Summary, found: apart.Apart) -> None:
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


@dataclass(frozen=True)
class CompareOptions:
    """What `compare --run A --run B` was given."""

    commands: list[str]
    path: str
    port: int
    connections: str
    duration: str


def measure(
    given: CompareOptions, runs: Path, options: PlanOptions, fail_on: str, as_json: bool = False
) -> int:
    """Lets the commands take turns in one run, so that there is a verdict."""
    rules = runs_of.gate_rules(fail_on.replace("worse", "loss"), [])
    filled = [
        [word.replace("{port}", str(given.port)) for word in argv_of("--run", command)]
        for command in given.commands
    ]
    check_path(given.path)
    connections = connections_of(given.connections)
    answers = [tryout.ask(argv, given.port, given.path) for argv in filled]
    filled_in = draft.ComparisonDraft(
        filled, given.port, given.path, connections, given.duration,
        answers[0].status, draft.literal(str(Path.cwd())),
    )  # fmt: skip
    for name, argv in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", filled, strict=False):
        print(f"{name}: {' '.join(argv)}", file=sys.stderr if as_json else sys.stdout)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "compare.toml"
        file.write_text(draft.comparison(filled_in))
        code = runs_of.measure(session.source(str(file), "here"), options, runs, as_json=as_json)
    return code or runs_of.gate("latest", runs, fail_on.replace("worse", "loss"), rules)


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
