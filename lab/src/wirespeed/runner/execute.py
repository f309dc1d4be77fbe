"""Runs a schedule: sessions in order, trials in each, retries, and an end that leaves nothing."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import shutil
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import stdev
from typing import IO, Any, TypeVar

from wirespeed import interrupts
from wirespeed.agent import clock
from wirespeed.agent.facts import machine_id
from wirespeed.analysis.summary import idle_held
from wirespeed.errors import (
    BusyError,
    LastingError,
    LostHostError,
    ProcessError,
    ResultsError,
    RunError,
    StorageError,
    WirespeedError,
)
from wirespeed.fleet.fleet import Fleet
from wirespeed.interrupts import held_back
from wirespeed.results import store
from wirespeed.results.model import PlannedTrial, Run, RunState, Trial
from wirespeed.runner import headroom, known
from wirespeed.runner import trial as trials
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.counters import Counting
from wirespeed.runner.disturbance import SHARE_MAX, NoiseMonitor
from wirespeed.runner.files import scratch_folder
from wirespeed.runner.plan import Schedule
from wirespeed.runner.server_session import ServerSession, StartError
from wirespeed.runner.time_budget import TimeBudget, allowed_s
from wirespeed.runner.trial import Attempt, RunContext
from wirespeed.runner.watcher import Progress, Watcher
from wirespeed.stats.comparison import PAIRS_MIN
from wirespeed.units import duration_for_people

RETRIES_MAX = 2  # of a trial that was too noisy to count
SAME_FAILURES = 3
VERDICT_LATE_MAX = 1.25  # rounds that a verdict needs may take so much of the allowed time
DISK_FREE_BYTES_MIN = 1 << 20  # below this a failing program failed because of the disk
AGENT_LOST = "agent_lost"  # an event, with the key of the trial that was on its way
ATTEMPT_PREFIX = "attempt-"  # folders of the attempts that were repeated
LOCK_FILE = "lock"
HOLD_S = 20.0  # a command that only asks whether a run is held lets go as soon as it gets a core


AnySession = TypeVar("AnySession", bound=ServerSession)


class Runner:
    """One run from its directory to its end."""

    def __init__(self, run_dir: Path, schedule: Schedule, fleet: Fleet, watcher: Watcher) -> None:
        self.run_dir, self.schedule, self.fleet, self.watcher = run_dir, schedule, fleet, watcher
        self.lines = store.read_plan(run_dir)
        self.planned = {cell.cell.id: cell for cell in schedule.cells}
        before = store.read_trials(run_dir)
        self.done = {trial.key for trial in before}
        self.total = sum(line.state == "planned" for line in self.lines)
        left = self.total - len(self.done)
        self.time_budget = TimeBudget(
            schedule.seconds, allowed_s(schedule.seconds, schedule.budget_s), left
        )
        facts = store.read_run(run_dir).facts
        before_this = known.of_machine(facts)
        noise = NoiseMonitor(
            self.time_budget, schedule.accept_noise, known_best_ms=before_this.best_ms,
            usual_spread=before_this.spread or 0.0,
        )  # fmt: skip
        noise.remember(before)
        # A budget is a promise, and counting would break it.
        self.context = RunContext(noise, Counting(is_wanted=schedule.budget_s is None))
        self.have_figures = {trial.cell for trial in before if trial.valid}
        self.failures = Failures(before)
        self.invalid: list[Trial] = []
        self.sessions_started = 0
        self.started_again: set[int] = set()  # sessions whose first start failed
        self.answer_s: dict[str, float] = {}
        self.reached: dict[str, float | None] = {}
        self.queue: list[tuple[PlannedTrial, PlannedCell]] = []  # of the session that is measured

    def all_sessions(self) -> None:
        self.watcher.began(self.run_dir, self.schedule, self.progress())
        sessions = self._open_sessions()
        left_out = 0
        for number, whole in enumerate(sessions):
            lines = self._worth_trying(whole)
            if lines and self._fits(sessions[number:]):
                self.queue = [(line, self.planned[line.cell]) for line in lines]
                self._one_session(list(self.queue))
            else:
                left_out += len(lines)
                self.time_budget.trials -= len(lines)
        if left_out:
            store.append_event(self.run_dir, "left_out", trials=left_out)
            self.watcher.notify(left_out_text(left_out, self.total, self.schedule.budget_s))

    def _worth_trying(self, lines: list[PlannedTrial]) -> list[PlannedTrial]:
        """Without the cells that have failed the same way each time they were tried."""
        hopeless = [line for line in lines if self.failures.is_hopeless(line.cell)]
        self.time_budget.trials -= len(hopeless)
        for line in hopeless:
            if text := self.failures.to_report(line):
                self.watcher.notify(text)
        return [line for line in lines if line not in hopeless]

    def _fits(self, sessions: list[list[PlannedTrial]]) -> bool:
        """Whether the first of these sessions is measured. A cell without a figure always is, and
        the rounds without which no verdict can come while the time is not far over."""
        if any(line.cell not in self.have_figures for line in sessions[0]):
            return True
        if sessions[0][0].round <= PAIRS_MIN and self.time_budget.fits(
            len(sessions[0]), VERDICT_LATE_MAX
        ):
            return True
        if self.schedule.recipe.plan.order == "interleaved":
            return self.time_budget.fits(len(sessions[0]))
        # Blocks: what counts is whether every cell can still have this round.
        number = sessions[0][0].round
        return self.time_budget.fits(
            sum(len(session) for session in sessions if session[0].round <= number)
        )

    def progress(self) -> Progress:
        """Time left: learned from this run's own trials once there are some."""
        return Progress(len(self.done), self.total, self.time_budget.left_s)

    def _open_sessions(self) -> list[list[PlannedTrial]]:
        sessions: dict[int, list[PlannedTrial]] = {}
        for line in self.lines:
            if line.state == "planned" and line.key not in self.done:
                sessions.setdefault(line.life, []).append(line)
        return list(sessions.values())

    def _one_session(self, queue: list[tuple[PlannedTrial, PlannedCell]]) -> None:
        """Runs the trials of one session; a server that dies is started again for the rest."""
        self._find_headroom(queue)
        while queue:
            interrupts.check()
            session = self._new_session(queue)
            try:
                self._begin(session, queue)
                self._trials_of(session, queue)
            except StartError as error:
                self._start_failed(queue, str(error))
            finally:
                killed = session.end()
            if killed:
                self.watcher.notify(f"{', '.join(killed)} did not end on SIGTERM and was killed")

    def _start_failed(self, queue: list[tuple[PlannedTrial, PlannedCell]], reason: str) -> None:
        """A server that did not come up is started once more; then its trials have failed, and the
        run goes on. Before any cell has a figure the next would fail alike, so the run ends."""
        self._check_agents()
        if not self.have_figures:
            raise StartError(reason)
        if queue[0][0].life not in self.started_again:
            self.started_again.add(queue[0][0].life)
            self.watcher.notify(f"{place_of(queue[0][0])}: {reason}; it is started once more")
            return
        while queue:
            line, planned = queue.pop(0)
            folder = self._trial_folder(line)
            order = Attempt(line, planned, folder, kept_attempts(folder) + 1, False)
            self.watcher.notify(f"{place_of(line)} failed: {reason}")
            self._record(order, trials.failed(order, reason, clock.now(), clock.now()))

    def _new_session(self, queue: list[tuple[PlannedTrial, PlannedCell]]) -> ServerSession:
        self.sessions_started += 1
        line, planned = queue[0]
        return self._session_of(
            planned, f"{line.position:06d}-{self.sessions_started}", ServerSession
        )

    def _session_of(self, planned: PlannedCell, name: str, kind: type[AnySession]) -> AnySession:
        # Without what a run that was cut off left there: readiness may be a line of this output.
        shutil.rmtree(self.run_dir / "servers" / name, ignore_errors=True)
        folder = make_folder(self.run_dir / "servers" / name)
        scratch = scratch_folder(self.run_dir.name)
        session = kind(self.fleet, self.schedule, planned, folder, scratch)
        session.answer_s, session.reached = self.answer_s, self.reached
        return session

    def _find_headroom(self, queue: list[tuple[PlannedTrial, PlannedCell]]) -> None:
        """Before cells are measured for the first time whose generators' cores will not show it."""
        for line, planned in queue:
            session = self._session_of(planned, "headroom", headroom.NullSession)
            key = headroom.key_of(session, planned)
            if key and key not in self.reached:
                began = time.monotonic()
                self.watcher.phase(line, "finding the generator's headroom", self.progress())
                folder = make_folder(session.folder / "load")
                self.reached[key] = headroom.reached(session, planned, folder)
                self.time_budget.leave_out(time.monotonic() - began)
            shutil.rmtree(session.folder, ignore_errors=True)

    def _begin(self, session: ServerSession, queue: list[tuple[PlannedTrial, PlannedCell]]) -> None:
        self.watcher.phase(queue[0][0], "starting", self.progress())
        try:
            session.begin([planned for _, planned in queue])
        except ProcessError as error:
            raise self._disk_or(error) from error

    def _trials_of(
        self, session: ServerSession, queue: list[tuple[PlannedTrial, PlannedCell]]
    ) -> None:
        """Takes trials off the queue until it is empty or a fresh server is needed."""
        is_first = True
        while queue:
            line, planned = queue[0]
            folder = self._trial_folder(line)
            attempt = kept_attempts(folder) + 1
            order = Attempt(line, planned, folder, attempt, is_first)
            is_first = False
            measured, alive = self._attempt(session, order)
            again = is_refused(measured) and attempt <= RETRIES_MAX and self._may_retry(measured)
            if again:
                self._keep_attempt(order, measured)
            else:
                queue.pop(0)
                self._record(order, measured)
            self._cool_down(queue)
            if not alive or (again and self.schedule.recipe.plan.restart == "trial"):
                return

    def _may_retry(self, measured: Trial) -> bool:
        """Repeats come out of the run's time, but every cell is owed a figure."""
        cost_s = self.time_budget.each_s
        is_owed = measured.cell not in self.have_figures
        is_first_or_in_time = measured.attempt == 1 or self.time_budget.until_end_s > 0
        if not (is_owed and is_first_or_in_time) and not self.time_budget.may_repeat(cost_s):
            return False
        self.time_budget.repeated(cost_s)
        return True

    def _attempt(self, session: ServerSession, order: Attempt) -> tuple[Trial, bool]:
        """(the trial, whether the servers still live)."""
        interrupts.check()
        self.watcher.phase(
            order.line, "warming up" if order.is_first_of_session else "measuring", self.progress()
        )
        began = clock.now()
        try:
            return trials.measure(session, order, self.context), True
        except ProcessError as error:
            problem = self._disk_or(error)
            if isinstance(problem, StorageError):
                raise problem from error
            interrupts.check()  # its programs may have failed in the end of an interrupted trial
            self._check_agents()
            reason = str(error)
            if isinstance(error, LastingError):
                self.failures.lasting.add(order.line.cell)
        try:
            session.check_alive()
            alive = True
        except ProcessError:
            alive = False
        return trials.failed(order, reason, began, clock.now()), alive

    def _check_agents(self) -> None:
        """Raises LostHostError: a server dies with its agent, which is not the server's failure."""
        self.fleet.each(self.fleet.all(), "clock")

    def agent_lost(self, why: str) -> None:
        """All that ran with it has ended, and its trial is measured again. A trial that loses an
        agent a second time has failed: its server may be what ends them (memory, for example)."""
        open_ = [entry for entry in self.queue if entry[0].key not in self.done]
        if not open_:
            return
        line, planned = open_[0]
        before = has_lost_agents(self.run_dir, line.key)
        store.append_event(self.run_dir, AGENT_LOST, key=line.key, why=why)
        if before:
            folder = self._trial_folder(line)
            order = Attempt(line, planned, folder, kept_attempts(folder) + 1, False)
            reason = f"an agent was lost twice: {why}"
            self._record(order, trials.failed(order, reason, clock.now(), clock.now()))

    def _keep_attempt(self, order: Attempt, measured: Trial) -> None:
        """Moves the files of a rejected attempt aside, so that the next has the folder alone."""
        aside = make_folder(order.folder / f"{ATTEMPT_PREFIX}{order.attempt}")
        for path in list(order.folder.iterdir()):
            if not path.name.startswith(ATTEMPT_PREFIX):
                store.move(path, aside / path.name)
        # Never in the trial's own folder: a run that is killed here would take it for the result.
        store.write_trial(aside, measured)
        reasons = "; ".join(measured.reasons)
        store.append_event(
            self.run_dir, "retry", key=measured.key, attempt=order.attempt, why=reasons
        )
        self.watcher.notify(f"{place_of(order.line)} is repeated: {reasons}")

    def _record(self, order: Attempt, measured: Trial) -> None:
        store.write_trial(order.folder, measured)
        # The trial's own file is on the disk, and this says no more.
        store.append_event(self.run_dir, "trial", False, key=measured.key, valid=measured.valid)
        self.done.add(measured.key)
        self.time_budget.finished()
        if measured.valid:
            self.have_figures.add(measured.cell)
        else:
            self.invalid.append(measured)
        self.failures.saw(measured)
        if text := self.context.noise.to_report():
            self.watcher.notify(text)
        self.watcher.recorded(measured, self.progress())

    def _cool_down(self, queue: list[tuple[PlannedTrial, PlannedCell]]) -> None:
        deadline = time.monotonic() + (self.schedule.times.cooldown_s if queue else 0.0)
        while (left := deadline - time.monotonic()) > 0:
            self.fleet.poll(left)

    def _trial_folder(self, line: PlannedTrial) -> Path:
        """The trial's folder, without what an interrupted run left in it."""
        folder = store.trial_dir(self.run_dir, line.position, line.key)
        make_folder(folder)
        for path in list(folder.iterdir()):
            if path.is_file():
                path.unlink()
            elif path.name.startswith(trials.WINDOW_PREFIX):
                shutil.rmtree(path)
        return folder

    def _disk_or(self, error: ProcessError) -> RunError:
        """A program that fails on a full disk names many reasons; the disk is the one to report."""
        if shutil.disk_usage(self.run_dir).free < DISK_FREE_BYTES_MIN:
            return StorageError(
                f"cannot write {self.run_dir}: the disk is full; "
                "free some space and go on with --resume"
            )
        return error


def has_lost_agents(run_dir: Path, key: str = "") -> bool:
    """Whether an agent was lost while this trial, or any of the run's, was on its way."""
    events = (event for event in store.read_events(run_dir) if event["event"] == AGENT_LOST)
    return any(not key or event.get("key") == key for event in events)


class Failures:
    """How often each cell has failed. A failure is a result and is not repeated; a cell that
    fails each time in the same words is not tried to the end."""

    def __init__(self, before: Iterable[Trial]) -> None:
        self.reasons: dict[str, list[str]] = {}
        self.good: set[str] = set()
        self.lasting: set[str] = set()  # cells that no other attempt would help
        self.reported: set[str] = set()
        for trial in before:
            self.saw(trial)

    def saw(self, trial: Trial) -> None:
        if trial.valid:
            self.good.add(trial.cell)
        elif not is_refused(trial):
            kind = re.sub(r"\d+", "#", "; ".join(trial.reasons))
            self.reasons.setdefault(trial.cell, []).append(kind)

    def is_hopeless(self, cell: str) -> bool:
        """Never of a cell that has worked in this run: it does not fail the same way each time."""
        seen = self.reasons.get(cell, [])
        is_same = len(seen) >= SAME_FAILURES and len(set(seen)) == 1
        return cell not in self.good and (cell in self.lasting or is_same)

    def to_report(self, line: PlannedTrial) -> str:
        """Once for each cell; once for each reason that lasts."""
        reason = self.reasons[line.cell][-1]
        key = reason if line.cell in self.lasting else line.cell
        if key in self.reported:
            return ""
        self.reported.add(key)
        if line.cell in self.lasting:
            return f"{place_of(line)} would fail the same way each time and is left"
        return f"{place_of(line)} failed {SAME_FAILURES} times the same way and is left"


def kept_attempts(folder: Path) -> int:
    """The number of the last attempt that was moved aside, also by a run that was cut off."""
    names = [path.name.removeprefix(ATTEMPT_PREFIX) for path in folder.glob(f"{ATTEMPT_PREFIX}*")]
    return max((int(name) for name in names if name.isdigit()), default=0)


def is_refused(trial: Trial) -> bool:
    """Whether something from outside spoiled the trial; else its own programs failed."""
    return not trial.valid and trial.disturbed > SHARE_MAX


def place_of(line: PlannedTrial) -> str:
    """`trial 7 (connections 100, stack kernel)`."""
    axes = ", ".join(f"{name} {value}" for name, value in line.axes.items())
    return f"trial {line.position} ({axes})" if axes else f"trial {line.position}"


def left_out_text(trials_left_out: int, total: int, budget_s: float | None) -> str:
    why = (
        f"to keep the budget of {duration_for_people(budget_s)}"
        if budget_s
        else "to end near the planned time"
    )
    return f"{trials_left_out} of {total} trials, of the last rounds, were left out {why}"


def make_folder(folder: Path) -> Path:
    with store.storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def hold(run_dir: Path) -> IO[str]:
    """Marks the run as being worked on: the kernel lets go however this process ends."""
    with store.storage(run_dir / LOCK_FILE):  # held as long as the run goes on
        handle = open(run_dir / LOCK_FILE, "a", encoding="utf-8")  # noqa: SIM115
    deadline = time.monotonic() + HOLD_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise BusyError(f"another command is at work on {run_dir.name}") from None
            time.sleep(0.02)
    # On a full disk the run will say so itself; a buffer would be written again by close().
    with contextlib.suppress(OSError):
        os.ftruncate(handle.fileno(), 0)
        os.pwrite(handle.fileno(), machine_id().encode(), 0)
    return handle


def is_of_another_machine(run_dir: Path) -> bool:
    """Whether the last command at work on it ran elsewhere, on a folder that machines share: not
    every network file system passes on who holds a file."""
    try:
        holder = (run_dir / LOCK_FILE).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False
    return holder not in ("", machine_id())


def is_held(run_dir: Path) -> bool:
    try:
        with open(run_dir / LOCK_FILE, "rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)  # others may ask at the same time
    except FileNotFoundError:
        return False
    except OSError:  # taken, or another user's, which cannot be checked here
        return True
    return False


def is_cut_off(run_dir: Path) -> bool:
    """Whether the run says that it is running although no process works on it; never of another
    machine's run, which may be at work on it.

    A run is held before it says so, and let go after it has said how it ended: what is not held is
    read again, as it may have ended between the two looks.
    """
    return _is_left_running(run_dir) and not is_of_another_machine(run_dir)


def may_run_elsewhere(run_dir: Path) -> bool:
    """Whether the run says that it is running, and only its machine can know."""
    return _is_left_running(run_dir) and is_of_another_machine(run_dir)


def _is_left_running(run_dir: Path) -> bool:
    return _says_running(run_dir) and not is_held(run_dir) and _says_running(run_dir)


def _says_running(run_dir: Path) -> bool:
    try:
        return store.read_run(run_dir).state == "running"
    except ResultsError:
        return False


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def execute(
    run_dir: Path,
    schedule: Schedule,
    fleet: Fleet,
    watcher: Watcher,
    run: Run,
    holder: IO[str],
    kind: type[Runner] = Runner,
) -> list[Trial]:
    """Runs what is open of the plan; whatever happens, run.json says how it ended, and only then
    the run is let go by closing `holder` (see `hold`).

    Returns the trials that stayed invalid.
    """
    state: RunState = "failed"
    runner = kind(run_dir, schedule, fleet, watcher)
    try:
        runner.all_sessions()
        state = "done"
    except KeyboardInterrupt:
        state = "interrupted"
        raise
    except WirespeedError as error:
        if interrupts.have_come():
            state = "interrupted"
        note_event(run_dir, "error", str(error))
        if isinstance(error, LostHostError):
            runner.agent_lost(str(error))
        raise
    finally:
        with held_back():
            _finish(run_dir, run, state)
            holder.close()
            if state == "done" and not schedule.accept_noise:
                known.learn(run.facts, runner.context.noise.own_best_ms, typical_spread(run_dir))
    return runner.invalid


def typical_spread(run_dir: Path) -> float | None:
    """The run's typical standard deviation of a trial's log rate within its cell."""
    cells: dict[str, list[float]] = {}
    for trial in store.read_trials(run_dir):
        rps = trial.metrics.get("rps")
        if trial.valid and rps:
            cells.setdefault(trial.cell, []).append(math.log(rps))
    spreads = sorted(stdev(values) for values in cells.values() if len(values) >= PAIRS_MIN)
    return spreads[len(spreads) // 2] if spreads else None


def _finish(run_dir: Path, run: Run, state: RunState) -> None:
    """A full disk must not hide the reason for the end, so its refusals are swallowed here."""
    shutil.rmtree(scratch_folder(run_dir.name), ignore_errors=True)
    remove_unfinished(run_dir)
    try:
        held = idle_held(run, store.read_trials(run_dir))
        store.write_run(run_dir, replace(run, state=state, ended=now(), idle_held=held))
        note_event(run_dir, state, "")
    except (StorageError, ResultsError):
        pass


def note_event(run_dir: Path, event: str, text: str) -> None:
    details: dict[str, Any] = {"text": text} if text else {}
    try:
        store.append_event(run_dir, event, **details)
    except StorageError:
        pass


def remove_unfinished(run_dir: Path) -> None:
    """A trial without trial.json never happened."""
    for folder in (run_dir / "trials").glob("*"):
        if not (folder / "trial.json").exists() and not kept_attempts(folder):
            shutil.rmtree(folder, ignore_errors=True)
