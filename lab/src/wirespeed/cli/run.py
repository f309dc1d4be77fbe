"""`wirespeed run` and `report`: the live display around a run, and the tables after it."""

from __future__ import annotations

import signal
import sys
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from rich.console import Console

from wirespeed.cli import output, streams
from wirespeed.cli.live import Display
from wirespeed.errors import COMMAND, InputError, ResultsError, RunError
from wirespeed.results import gate as gating
from wirespeed.results import store
from wirespeed.results.model import Trial
from wirespeed.results.summary import load
from wirespeed.runner import extend, recover, session, tune
from wirespeed.runner.plan import PlanOptions

EXIT_FAILED = 1
EXIT_GATE = 3
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143  # 128 + SIGTERM, as a shell says it


def label(text: str) -> tuple[str, str]:
    """`branch=main` of `--label`; raises InputError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--label {text!r}: write KEY=VALUE, for example branch=main")
    return key.strip(), value.strip()


def measure(
    origin: session.Source,
    options: PlanOptions,
    runs: Path,
    until_decided: bool = False,
    as_json: bool = False,
) -> int:
    _mention_cut_off(runs)
    _put_back()
    options = replace(options, until_decided=until_decided)

    def run(display: Display) -> tuple[Path, list[Trial]]:
        more = More(until_decided=until_decided, accept_noise=options.accept_noise)
        return _extended(session.start(origin, options, runs, display), display, more)

    return _shown(run, as_json)


@dataclass(frozen=True)
class More:
    """What a run that goes on shall measure beyond its plan, and what it may overlook."""

    add_rounds: int = 0
    until_decided: bool = False
    force: bool = False
    accept_noise: bool = False


def resume(name: str, runs: Path, more: More, as_json: bool = False) -> int:
    run_dir = store.find_run(runs, name)
    is_done = store.read_run(run_dir).state == "done"
    rounds = more.add_rounds
    if more.until_decided and not is_done:
        extend.begin_sequence(run_dir)
    if is_done and more.until_decided:
        rounds = rounds or extend.rounds_to_decide(load(run_dir))
    if is_done and not rounds:
        raise InputError(
            f"{run_dir.name} is complete; `{COMMAND} report {run_dir.name}` shows it, "
            "--add-rounds N measures every cell N more times"
        )
    _put_back()

    def run(display: Display) -> tuple[Path, list[Trial]]:
        if rounds:
            first = _added(run_dir, rounds, display, more)
        else:
            first = session.resume(run_dir, display, more.force, more.accept_noise)
        return _extended(first, display, more)

    return _shown(run, as_json)


def _added(run_dir: Path, rounds: int, display: Display, more: More) -> tuple[Path, list[Trial]]:
    """So many rounds more; a run that is refused them stays as it was."""
    run, lines = store.read_run(run_dir), store.read_plan(run_dir)
    done = len(store.read_trials(run_dir))
    extend.add_rounds(run_dir, rounds)
    try:
        return session.resume(run_dir, display, more.force, more.accept_noise)
    except ResultsError:
        if len(store.read_trials(run_dir)) == done:
            store.write_plan(run_dir, lines)
            store.write_run(run_dir, run)
        raise


def _extended(
    first: tuple[Path, list[Trial]], display: Display, more: More
) -> tuple[Path, list[Trial]]:
    """Goes on until every verdict within reach is there, or the looks at them are used up."""
    run_dir, invalid = first
    while more.until_decided and (rounds := extend.rounds_to_decide(load(run_dir))):
        display.told(f"{rounds} more rounds to decide what is open")
        _, added = _added(run_dir, rounds, display, more)
        invalid = [*invalid, *added]
    return run_dir, invalid


def report(name: str, runs: Path, as_json: bool = False) -> None:
    write_report(store.find_run(runs, name), Console(), as_json)


def open_page(name: str, runs: Path) -> None:
    """Shows a report that was just written; a machine without a browser is one line."""
    path = store.find_run(runs, name) / "derived" / "report.html"
    if not webbrowser.open(path.as_uri()):
        raise RunError(f"no browser was found here; open {path} on a machine that has one")


def gate_rules(fail_on: str, require: list[str]) -> list[gating.Rule]:
    """Checked before anything is measured; raises InputError."""
    wrong = [word for word in fail_on.split(",") if word and word not in gating.FAIL_ON]
    if wrong:
        raise InputError(f"--fail-on takes {' and '.join(gating.FAIL_ON)}, not {wrong[0]!r}")
    return [gating.rule(text) for text in require]


def gate(name: str, runs: Path, fail_on: str, rules: list[gating.Rule]) -> int:
    """Exit code 3, with a line for each reason, when the run does not show what it must."""
    if not fail_on and not rules:
        return 0
    lines = gating.broken(load(store.find_run(runs, name)), fail_on.split(","), rules)
    for line in lines:
        print(f"wirespeed: {line}", file=sys.stderr)
    return EXIT_GATE if lines else 0


def write_report(run_dir: Path, console: Console, as_json: bool = False) -> None:
    from wirespeed.report import files, page, spreadsheet, terminal

    files.write(run_dir)
    spreadsheet.write(load(run_dir))
    path = page.write(run_dir)
    if as_json:
        output.write(output.result(run_dir))
        return
    terminal.show(run_dir, console)
    console.print(f"Report: {shortened(path)}", soft_wrap=True)


def shortened(path: Path) -> str:
    """Relative to where the user is, when that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _shown(run: Callable[[Display], tuple[Path, list[Trial]]], as_json: bool) -> int:
    """Runs with the live display; Ctrl-C and TERM end in one line that says how to go on."""
    console, errors = Console(), Console(stderr=True)
    display = Display(errors)
    previous = signal.signal(signal.SIGTERM, as_interrupt)
    try:
        with display:
            run_dir, invalid = run(display)
    except KeyboardInterrupt as stop:
        errors.print(f"wirespeed: stopped; {_how_to_go_on(display)}", soft_wrap=True)
        return EXIT_TERMINATED if isinstance(stop, Terminated) else EXIT_INTERRUPTED
    except Exception:
        if display.run_dir and display.done:
            errors.print(f"wirespeed: {_how_to_go_on(display)}", soft_wrap=True)
        raise
    finally:
        signal.signal(signal.SIGTERM, previous)
    write_report(run_dir, console, as_json)
    if streams.problem():
        report = shortened(run_dir / "derived" / "report.html")
        errors.print(f"wirespeed: not all of this was read; the report: {report}", soft_wrap=True)
    if invalid:
        reasons = dict.fromkeys(reason for trial in invalid for reason in trial.reasons)
        errors.print(
            f"wirespeed: {len(invalid)} trials stayed invalid: {'; '.join(list(reasons)[:3])}",
            soft_wrap=True,
        )
    return EXIT_FAILED if has_failed(run_dir, invalid) else 0


def has_failed(run_dir: Path, invalid: list[Trial]) -> bool:
    """A trial that gave no figures, or a cell that is left without a valid one."""
    valid = {trial.cell for trial in store.read_trials(run_dir) if trial.valid}
    return any(not trial.metrics or trial.cell not in valid for trial in invalid)


class Terminated(KeyboardInterrupt):
    """TERM ends a run like Ctrl-C, with its own exit code."""


def as_interrupt(_number: int, _frame: FrameType | None) -> None:
    raise Terminated


def _how_to_go_on(display: Display) -> str:
    if display.run_dir is None:
        return "nothing was measured"
    name = display.run_dir.name
    return f"{display.done} finished trials are kept; go on with: {COMMAND} run --resume {name}"


def _put_back() -> None:
    """Before the cores are counted: a run that was killed may have left this shell fewer."""
    recover.wait_for_ending()
    for line in tune.put_back():
        print(f"wirespeed: a run that was killed had tuned this machine: {line}", file=sys.stderr)


def _mention_cut_off(runs: Path) -> None:
    run_dir = recover.is_latest_cut_off(runs)
    if run_dir:
        print(
            f"wirespeed: the run {run_dir.name} was cut off; `{COMMAND} recover` tidies up, "
            f"`{COMMAND} run --resume {run_dir.name}` goes on with it",
            file=sys.stderr,
        )
