"""`wirespeed run` and `report`: the live display around a run, and the tables after it."""

from __future__ import annotations

import math
import sys
import time
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from wirespeed import extensions
from wirespeed.analysis import gate as gating
from wirespeed.analysis.summary import Summary, load
from wirespeed.cli import output, streams
from wirespeed.cli.live import Display
from wirespeed.errors import COMMAND, InputError, RunError, StorageError
from wirespeed.interrupts import Terminated, signals_as_interrupts
from wirespeed.results import store
from wirespeed.results.model import Trial
from wirespeed.runner import extend, recover, session, tune
from wirespeed.runner.plan import PlanOptions
from wirespeed.runner.session import More

if TYPE_CHECKING:
    from wirespeed.report.otlp import Collector

EXIT_FAILED = 1
EXIT_GATE = 3
EXIT_INTERRUPTED = 130
EXIT_SIGNAL = 128  # and the signal's number, as a shell says it


@dataclass(frozen=True)
class Ended:
    """How a command that measures ended, and its run; another one may be the latest by then."""

    code: int
    run_dir: Path | None = None


def code_of(stop: KeyboardInterrupt) -> int:
    """The exit code of a command that a signal ended."""
    return EXIT_SIGNAL + stop.number if isinstance(stop, Terminated) else EXIT_INTERRUPTED


def label(text: str) -> tuple[str, str]:
    """`branch=main` of `--label`; raises InputError."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise InputError(f"--label {text!r}: not KEY=VALUE (for example branch=main)")
    return key.strip(), value.strip()


def measure(
    origin: session.Source,
    options: PlanOptions,
    runs: Path,
    until_decided: bool = False,
    as_json: bool = False,
    can_resume: bool = True,
) -> Ended:
    """`can_resume` is False where what is measured goes away with this command."""
    _mention_cut_off(runs)
    _put_back()
    options = replace(options, until_decided=until_decided)

    def run(display: Display) -> tuple[Path, list[Trial]]:
        more = More(until_decided=until_decided, accept_noise=options.accept_noise)
        end_s = time.monotonic() + options.for_s if options.for_s else math.inf
        return _extended(session.start(origin, options, runs, display), display, more, end_s)

    return _shown(run, as_json, can_resume)


def resume(name: str, runs: Path, more: More, as_json: bool = False) -> Ended:
    run_dir = store.find_run(runs, name)
    recorded = store.read_run(run_dir)
    is_done = recorded.state == "done"
    rounds = more.add_rounds
    if rounds:
        extend.check(recorded, rounds)
    if is_done and more.until_decided:
        rounds = rounds or extend.rounds_to_decide(load(run_dir))
    if is_done and not rounds:
        way = "--add-rounds N measures every cell N more times"
        if extend.is_used_up(recorded):
            way = extend.used_up(recorded)
        raise InputError(
            f"{run_dir.name} is complete; `{COMMAND} report {run_dir.name}` shows it, {way}"
        )
    _put_back()
    more = replace(more, runs=runs)

    def run(display: Display) -> tuple[Path, list[Trial]]:
        first = session.resume(run_dir, display, replace(more, add_rounds=rounds))
        return _extended(first, display, more)

    return _shown(run, as_json)


def _extended(
    first: tuple[Path, list[Trial]], display: Display, more: More, end_s: float = math.inf
) -> tuple[Path, list[Trial]]:
    """Goes on until every verdict within reach is there, or its rounds or its time are used up."""
    run_dir, invalid = first
    while (
        more.until_decided
        and time.monotonic() < end_s
        and (rounds := extend.rounds_to_decide(load(run_dir)))
    ):
        display.notify(f"{rounds} more rounds to decide what is open")
        _, added = session.resume(run_dir, display, replace(more, add_rounds=rounds))
        invalid = [*invalid, *added]
    return run_dir, invalid


def report(run_dir: Path, as_json: bool = False) -> None:
    write_report(run_dir, Console(emoji=False), as_json)


def send(run_dir: Path, to: Collector) -> int:
    """Exit code 1, with a line, when the collector does not take the run."""
    from wirespeed.report import otlp

    try:
        otlp.send(load(run_dir), to)
    except RunError as error:
        print(f"wirespeed: {error}", file=sys.stderr)
        return EXIT_FAILED
    return 0


def open_page(run_dir: Path) -> None:
    """Shows a report that was just written; a machine without a browser is one line."""
    path = run_dir / "derived" / "report.html"
    if not webbrowser.open(path.as_uri()):
        raise RunError(f"no browser was found here; open {path} on a machine that has one")


def check_of(fail_on: str, require: list[str], allow_missing: bool = False) -> gating.Criteria:
    """Checked before anything is measured; raises InputError."""
    words = tuple(word.strip() for word in fail_on.split(",") if word.strip())
    wrong = [word for word in words if word not in gating.FAIL_ON]
    if wrong:
        raise InputError(f"--fail-on: unknown value {wrong[0]!r} ({', '.join(gating.FAIL_ON)})")
    rules = tuple(gating.rule(text) for text in require)
    if allow_missing and not (words or rules):
        raise InputError("--allow-missing: needs --fail-on or --require")
    return gating.Criteria(words, rules, allow_missing)


def gate(run_dir: Path, check: gating.Criteria) -> int:
    """Exit code 3, with a line for each reason, when the run does not show what it must."""
    lines = gating.broken(load(run_dir), check) if check.is_asked else []
    for line in lines:
        print(f"wirespeed: {line}", file=sys.stderr)
    return EXIT_GATE if lines else 0


def write_ci(run_dir: Path, folder: str, check: gating.Criteria) -> None:
    """The files of a run for CI systems, with what fails the check."""
    from wirespeed.report import ci

    ci.write(load(run_dir), Path(folder), check)


def write_report(run_dir: Path, console: Console, as_json: bool = False) -> None:
    """The report's files and its tables; where the files cannot be written, the tables first."""
    from wirespeed.report import terminal

    problem = None
    summary = load(run_dir)
    try:
        path = _write_files(summary)
    except StorageError as error:
        problem = error
    if as_json:
        output.write(output.result(summary))
    else:
        terminal.show_summary(summary, console)
    if problem:
        raise problem
    if not as_json:
        console.print(f"Report: {shortened(path)}", soft_wrap=True, markup=False)


def _write_files(summary: Summary) -> Path:
    from wirespeed.report import files, page, spreadsheet

    files.write_files(summary)
    spreadsheet.write(summary)
    path = page.write_page(summary)
    _call_reporters(summary, path.parent)
    return path


def _call_reporters(summary: Summary, folder: Path) -> None:
    """The reporters of installed packages. One that fails costs no report: a line names it."""
    for name in extensions.names(extensions.REPORTERS):
        try:
            extensions.load(extensions.REPORTERS, name)(summary, folder)
        except Exception as error:
            problem = str(error).splitlines()[0] if str(error) else type(error).__name__
            line = f"wirespeed: reporter {name}: {problem} (the report is complete)"
            print(line, file=sys.stderr)


def shortened(path: Path) -> str:
    """Relative to where the user is, when that is shorter."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _shown(
    run: Callable[[Display], tuple[Path, list[Trial]]], as_json: bool, can_resume: bool = True
) -> Ended:
    """Runs with the live display; Ctrl-C and TERM end in one line that says how to go on."""
    console, errors = Console(emoji=False), Console(stderr=True, emoji=False)
    display = Display(errors)
    try:
        with signals_as_interrupts(), display:
            run_dir, invalid = run(display)
    except KeyboardInterrupt as stop:
        _say(errors, f"stopped; {_how_to_go_on(display, can_resume)}")
        return Ended(code_of(stop), display.run_dir)
    except Exception:
        if display.run_dir and display.done:
            _say(errors, _how_to_go_on(display, can_resume))
        raise
    write_report(run_dir, console, as_json)
    if streams.problem():
        report = shortened(run_dir / "derived" / "report.html")
        _say(errors, f"not all of this was read; the report: {report}")
    if invalid:
        reasons = dict.fromkeys(reason for trial in invalid for reason in trial.reasons)
        _say(errors, f"{len(invalid)} trials stayed invalid: {'; '.join(list(reasons)[:3])}")
    return Ended(EXIT_FAILED if has_failed(run_dir) else 0, run_dir)


def _say(errors: Console, text: str) -> None:
    """Brackets are a program's own: NGINX begins its errors with [emerg]."""
    errors.print(f"wirespeed: {text}", soft_wrap=True, markup=False, emoji=False)


def has_failed(run_dir: Path) -> bool:
    """A trial that gave no figures, or a cell that is left without a valid one: of the whole run,
    also of the part that was measured before it was resumed."""
    trials = store.read_trials(run_dir)
    valid = {trial.cell for trial in trials if trial.valid}
    invalid = [trial for trial in trials if not trial.valid]
    return any(not trial.metrics or trial.cell not in valid for trial in invalid)


def _how_to_go_on(display: Display, can_resume: bool) -> str:
    if display.run_dir is None:
        return "nothing was measured"
    name = display.run_dir.name
    if not can_resume:
        return (
            f"{display.done} finished trials are kept in {name}; the work trees are removed, so "
            "the same command measures from the beginning"
        )
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
