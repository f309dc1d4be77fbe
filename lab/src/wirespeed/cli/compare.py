"""`wirespeed compare A B`: compares two runs."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wirespeed import units
from wirespeed.analysis import two_runs
from wirespeed.analysis.cells import place, prefix
from wirespeed.analysis.gate import Criteria, refuse_too_few
from wirespeed.analysis.summary import Summary, load
from wirespeed.cli import output
from wirespeed.cli import run as runs_of
from wirespeed.cli.init import argv_of, check_path, connections_of, cores_note
from wirespeed.cli.options import seconds
from wirespeed.cli.run import EXIT_GATE
from wirespeed.errors import InputError, UnitError
from wirespeed.recipe import draft
from wirespeed.recipe.model import threshold_share
from wirespeed.report import difference
from wirespeed.results import store
from wirespeed.runner import session, tryout
from wirespeed.runner.plan import PlanOptions

LENGTHS_APART = 32  # bytes of a date or a counter in a response
PIPE_COLUMNS = 120  # where the width is not known
MISSING_MAX = 20  # cells that are named; the number stands below them


UNDECIDED = ("not decided", "not comparable")
FAIL_ON = {"worse": ("worse",), "loss": ("worse",), "undecided": UNDECIDED}


def compare(
    names: tuple[str, str],
    runs: Path,
    metrics: list[str],
    as_json: bool,
    fail_on: str = "",
    html: str = "",
) -> int:
    """Prints what differs between the hosts, then each cell of both runs; 3 on `fail_on`."""
    words = [word.strip() for word in fail_on.split(",") if word.strip()]
    if wrong := [word for word in words if word not in FAIL_ON]:
        raise InputError(f"--fail-on: unknown value {wrong[0]!r} (worse, undecided)")
    first, second = (load(store.find_run(runs, name)) for name in names)
    if words and first.run.run_id == second.run.run_id:  # a copy of its folder, too
        raise InputError(f"{names[0]} and {names[1]} are the same run, which shows no difference")
    differences = two_runs.compare(first, second, metrics or [first.primary])
    if as_json:
        output.write({"verdict": differences.verdict, **asdict(differences)})
    else:
        show(first, differences)
    if html:
        difference.write(first, second, differences, Path(html))
    lines = [*_unended(first, second), *broken(differences, words)] if words else []
    for line in lines:
        print(f"wirespeed: {line}", file=sys.stderr)
    return EXIT_GATE if lines else 0


def _unended(first: Summary, second: Summary) -> list[str]:
    return [
        f"the {which} run did not end: {one.run.state}"
        for which, one in (("first", first), ("second", second))
        if one.run.state != "done"
    ]


def broken(differences: two_runs.RunDifferences, fail_on: Sequence[str]) -> list[str]:
    """One line for each thing that fails the check. A cell or figure that the second run lost fails
    it always: what was not measured is not better, and a stack that no longer starts is a loss."""
    words = {word for name in fail_on for word in FAIL_ON[name]}
    lines = [f"{prefix(axes)}not measured in the second run" for axes in differences.missing]
    if fail_on and differences.undecidable:
        lines.append(differences.undecidable)
    lines += [
        f"{place(one.axes) or 'over all cells'}: {one.metric}: {one.word}"
        + (f" but {one.change:+.0%}" if one.seems and one.change else "")
        + (f" ({one.reason})" if one.reason else "")
        for one in (*differences.differences, *differences.pooled)
        if one.word in words or one.is_lost or one.seems in words
    ]
    return lines


def show(first: Summary, differences: two_runs.RunDifferences) -> None:
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, PIPE_COLUMNS)
    if differences.facts:
        console.print(_facts(differences))
    else:
        console.print("Nothing that is known of hosts and method differs.")
    console.print(_cells(differences, first))
    for one in differences.pooled:
        console.print(difference.over_all(one), soft_wrap=True)
    for axes in differences.missing[:MISSING_MAX]:
        console.print(escape(f"Only in the first: {place(axes) or 'its cell'}"), soft_wrap=True)
    console.print(f"{difference.counted(differences)} {difference.NOT_INTERLEAVED}", soft_wrap=True)


METHODS = ("duet", "trials")
NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of the commands


@dataclass(frozen=True)
class CompareOptions:
    """What `compare --run A --run B` was given."""

    commands: list[str]
    path: str
    port: int
    connections: str
    duration: str
    method: str = "duet"
    server_cores: int | None = None
    rate: int | None = None  # of an open loop for all of them; None: as fast as they can
    ci_folder: str = ""  # where files for a CI system go
    threshold: str = "2%"
    can_resume: bool = True  # the commands' programs outlive this command


@dataclass(frozen=True)
class Variant:
    """One contender of `compare --run` or `--rev`."""

    name: str
    argv: list[str]
    folder: str


def checked(
    given: CompareOptions, fail_on: str, options: PlanOptions
) -> tuple[Criteria, list[int]]:
    """The check and the connections, before anything is built or started; raises InputError."""
    check = runs_of.check_of(fail_on.replace("worse", "loss"), [])
    refuse_too_few(check, options.repeat)
    if given.method not in METHODS:
        raise InputError(f"--method takes {' and '.join(METHODS)}, not {given.method!r}")
    if len(given.commands) > len(NAMES):
        raise InputError(f"--run: {len(given.commands)} commands, {len(NAMES)} at most")
    check_path(given.path)
    seconds("--duration", given.duration)
    try:
        threshold_share(given.threshold)
    except ValueError as error:
        raise InputError(f"--threshold: {error}") from None
    cores_note(given.server_cores)
    return check, connections_of(given.connections)


def measure(
    given: CompareOptions, runs: Path, options: PlanOptions, fail_on: str, as_json: bool = False
) -> int:
    """Interleaves the commands in one run, so that there is a verdict."""
    variants = [
        Variant(name, argv_of("--run", command), str(Path.cwd()))
        for name, command in zip(NAMES, given.commands, strict=False)
    ]
    return measure_variants(given, variants, runs, options, fail_on, as_json)


def measure_variants(
    given: CompareOptions, variants: Sequence[Variant], runs: Path, options: PlanOptions,
    fail_on: str, as_json: bool,
) -> int:  # fmt: skip
    """The same for commands that each have a name and a folder; the first is the baseline."""
    check, connections = checked(given, fail_on, options)
    argvs = [variant.argv for variant in variants]
    filled = [[word.replace("{port}", str(given.port)) for word in argv] for argv in argvs]
    if line := cores_note(given.server_cores):
        print(f"wirespeed: {line}", file=sys.stderr)
    answers = [
        tryout.ask(argv, given.port, given.path, variant.folder)
        for argv, variant in zip(filled, variants, strict=True)
    ]
    if line := lengths_note([variant.name for variant in variants], answers):
        options = replace(options, remarks=(*options.remarks, line))
    filled_in = draft.ComparisonDraft(
        argvs, given.port, given.path, connections, given.duration, answers[0].status,
        [draft.literal(variant.folder) for variant in variants],
        "trials" if given.rate else given.method,  # an open loop cannot be held back for turns
        given.server_cores, [variant.name for variant in variants], given.rate, given.threshold,
    )  # fmt: skip
    for variant, argv in zip(variants, filled, strict=True):
        line = f"{variant.name}: {' '.join(argv)}"
        print(line, file=sys.stderr if as_json else sys.stdout)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "compare.toml"
        file.write_text(draft.comparison(filled_in), encoding="utf-8")
        origin = session.source(str(file), "here")
        ended = runs_of.measure(origin, options, runs, as_json=as_json, can_resume=given.can_resume)
    if given.ci_folder and ended.run_dir is not None:
        runs_of.write_ci(ended.run_dir, given.ci_folder, check)
    if ended.code or ended.run_dir is None:
        return ended.code
    return runs_of.gate(ended.run_dir, check)


def lengths_note(names: Sequence[str], answers: Sequence[tryout.Answer]) -> str:
    """Where servers do not answer with the same: a shorter response is faster, and maybe wrong."""
    lengths = [answer.length for answer in answers]
    is_same = max(lengths) - min(lengths) <= LENGTHS_APART and bool(min(lengths)) == any(lengths)
    if is_same:
        return ""
    listed = ", ".join(
        f"{name} with {length:,} bytes" for name, length in zip(names, lengths, strict=True)
    )
    return f"The servers do not answer with the same: {listed}."


def rate_of(text: str) -> int | None:
    """Of `--rate`; raises InputError."""
    try:
        rate = units.count(text) if text else None
    except UnitError as error:
        raise InputError(f"--rate: {error}") from None
    if rate is not None and rate < 1:
        raise InputError(f"--rate {text}: not a rate (requests per second, such as 5000 or 20k)")
    return rate


def _facts(differences: two_runs.RunDifferences) -> Table:
    table = Table(title="What differs", title_justify="left", box=None, pad_edge=False)
    for head in ("", "first", "second"):
        table.add_column(head, overflow="fold")
    for name, (ours, theirs) in differences.facts.items():
        table.add_row(*map(escape, (name, str(ours), str(theirs))))
    return table


def _cells(differences: two_runs.RunDifferences, first: Summary) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for axis in first.run.axes:
        table.add_column(axis)
    for head in difference.HEADS:
        table.add_column(head, justify="left" if head in ("", "metric") else "right")
    for one in differences.differences:
        axes = (str(one.axes.get(axis, "")) for axis in first.run.axes)
        table.add_row(*map(escape, (*axes, *difference.texts(first, one))))
    return table
