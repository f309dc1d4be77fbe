"""Runs a schedule: lives in order, trials in each, retries, and an end that leaves nothing."""

from __future__ import annotations

import fcntl
import shutil
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from wirespeed.errors import ProcessError, RunError, StorageError, WirespeedError
from wirespeed.host.base import Host
from wirespeed.results import store
from wirespeed.results.model import PlannedTrial, Run, RunState, Trial
from wirespeed.runner import trial as trials
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.disturbance import Weather
from wirespeed.runner.files import scratch_folder
from wirespeed.runner.life import Life
from wirespeed.runner.pace import Pace, allowed_s
from wirespeed.runner.plan import Schedule
from wirespeed.runner.trial import Memory, Order
from wirespeed.runner.watcher import Progress, Watcher
from wirespeed.units import duration_for_people

RETRIES_MAX = 2
DISK_FREE_BYTES_MIN = 1 << 20  # below this a failing program failed because of the disk
LOCK_FILE = "lock"


class Runner:
    """One run from its directory to its end."""

    def __init__(self, run_dir: Path, schedule: Schedule, host: Host, watcher: Watcher) -> None:
        self.run_dir, self.schedule, self.host, self.watcher = run_dir, schedule, host, watcher
        self.lines = store.read_plan(run_dir)
        self.done = {trial.key for trial in store.read_trials(run_dir)}
        self.total = sum(line.state == "planned" for line in self.lines)
        left = self.total - len(self.done)
        self.pace = Pace(schedule.seconds, allowed_s(schedule.seconds, schedule.budget_s), left)
        self.memory = Memory(Weather(self.pace, schedule.accept_noise))
        self.have_figures = {t.cell for t in store.read_trials(run_dir) if t.valid}
        self.invalid: list[Trial] = []
        self.lives_started = 0

    def all_lives(self) -> None:
        self.watcher.began(self.run_dir, self.schedule, self.progress())
        planned = {cell.cell.id: cell for cell in self.schedule.cells}
        lives = self._open_lives()
        left_out = 0
        for number, lines in enumerate(lives):
            if self._fits(lives[number:]):
                self._one_life([(line, planned[line.cell]) for line in lines])
            else:
                left_out += len(lines)
                self.pace.trials -= len(lines)
        if left_out:
            store.append_event(self.run_dir, "left_out", trials=left_out)
            self.watcher.told(left_out_text(left_out, self.total, self.schedule.budget_s))

    def _fits(self, lives: list[list[PlannedTrial]]) -> bool:
        """Whether the first of these lives is measured; a cell without a figure always is."""
        if any(line.cell not in self.have_figures for line in lives[0]):
            return True
        if self.schedule.recipe.plan.order == "interleaved":
            return self.pace.fits(len(lives[0]))
        # Blocks: what counts is whether every cell can still have this round.
        number = lives[0][0].round
        return self.pace.fits(sum(len(life) for life in lives if life[0].round <= number))

    def progress(self) -> Progress:
        """Time left: learned from this run's own trials once there are some."""
        return Progress(len(self.done), self.total, self.pace.left_s)

    def _open_lives(self) -> list[list[PlannedTrial]]:
        lives: dict[int, list[PlannedTrial]] = {}
        for line in self.lines:
            if line.state == "planned" and line.key not in self.done:
                lives.setdefault(line.life, []).append(line)
        return list(lives.values())

    def _one_life(self, queue: list[tuple[PlannedTrial, PlannedCell]]) -> None:
        """Runs the trials of one life; a server that dies is started again for the rest."""
        attempts: dict[str, int] = {}
        while queue:
            life = self._new_life(queue)
            try:
                self._begin(life, queue)
                self._trials_of(life, queue, attempts)
            finally:
                killed = life.end()
            if killed:
                self.watcher.told(f"{', '.join(killed)} did not heed TERM and had to be killed")

    def _new_life(self, queue: list[tuple[PlannedTrial, PlannedCell]]) -> Life:
        self.lives_started += 1
        line, planned = queue[0]
        name = f"{line.position:06d}-{self.lives_started}"
        folder = make_folder(self.run_dir / "servers" / name)
        scratch = scratch_folder(self.run_dir.name)
        return Life(self.host, self.schedule, planned, folder, scratch)

    def _begin(self, life: Life, queue: list[tuple[PlannedTrial, PlannedCell]]) -> None:
        self.watcher.phase(queue[0][0], "starting", self.progress())
        try:
            life.begin([planned for _, planned in queue])
        except ProcessError as error:
            raise self._disk_or(error) from error

    def _trials_of(
        self,
        life: Life,
        queue: list[tuple[PlannedTrial, PlannedCell]],
        attempts: dict[str, int],
    ) -> None:
        """Takes trials off the queue until it is empty or a fresh server is needed."""
        is_first = True
        while queue:
            line, planned = queue[0]
            attempt = attempts[line.key] = attempts.get(line.key, 0) + 1
            order = Order(line, planned, self._trial_folder(line), attempt, is_first)
            is_first = False
            measured, alive = self._attempt(life, order)
            again = not measured.valid and attempt <= RETRIES_MAX and self._may_retry(measured)
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
        cost_s = self.pace.each_s
        is_owed = measured.cell not in self.have_figures
        is_first_or_in_time = measured.attempt == 1 or self.pace.until_end_s > 0
        if not (is_owed and is_first_or_in_time) and not self.pace.may_repeat(cost_s):
            return False
        self.pace.repeated(cost_s)
        return True

    def _attempt(self, life: Life, order: Order) -> tuple[Trial, bool]:
        """(the trial, whether the servers still live)."""
        self.watcher.phase(
            order.line, "warming up" if order.is_first_of_life else "measuring", self.progress()
        )
        began = time.time()
        try:
            return trials.measure(life, order, self.memory), True
        except ProcessError as error:
            problem = self._disk_or(error)
            if isinstance(problem, StorageError):
                raise problem from error
            reason = str(error)
        try:
            life.check_alive()
            alive = True
        except ProcessError:
            alive = False
        return trials.failed(order, reason, began, time.time()), alive

    def _keep_attempt(self, order: Order, measured: Trial) -> None:
        """Moves the files of a rejected attempt aside, so that the next has the folder alone."""
        aside = order.folder / f"attempt-{order.attempt}"
        store.write_trial(order.folder, measured)
        aside.mkdir(exist_ok=True)
        for path in list(order.folder.iterdir()):
            if not path.name.startswith("attempt-"):
                path.rename(aside / path.name)
        reasons = "; ".join(measured.reasons)
        store.append_event(
            self.run_dir, "retry", key=measured.key, attempt=order.attempt, why=reasons
        )
        self.watcher.told(f"trial {order.line.position} is repeated: {reasons}")

    def _record(self, order: Order, measured: Trial) -> None:
        store.write_trial(order.folder, measured)
        store.append_event(self.run_dir, "trial", key=measured.key, valid=measured.valid)
        self.done.add(measured.key)
        self.pace.finished()
        if measured.valid:
            self.have_figures.add(measured.cell)
        else:
            self.invalid.append(measured)
        if text := self.memory.weather.to_tell():
            self.watcher.told(text)
        self.watcher.recorded(measured, self.progress())

    def _cool_down(self, queue: list[tuple[PlannedTrial, PlannedCell]]) -> None:
        deadline = time.monotonic() + (self.schedule.times.cooldown_s if queue else 0.0)
        while (left := deadline - time.monotonic()) > 0:
            self.host.poll(left)

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
        """A program that fails on a full disk names many reasons; the disk is the one to tell."""
        if shutil.disk_usage(self.run_dir).free < DISK_FREE_BYTES_MIN:
            return StorageError(
                f"cannot write {self.run_dir}: the disk is full; "
                "free some space and go on with --resume"
            )
        return error


def left_out_text(trials_left_out: int, total: int, budget_s: float | None) -> str:
    why = (
        f"to keep the budget of {duration_for_people(budget_s)}"
        if budget_s
        else "to end near the planned time"
    )
    return f"{trials_left_out} of {total} trials, of the last rounds, were left out {why}"


def make_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror}") from error
    return folder


def hold(run_dir: Path) -> IO[str]:
    """Marks the run as being worked on: the kernel lets go however this process ends."""
    handle = open(run_dir / LOCK_FILE, "w")  # noqa: SIM115 - held for the run's whole life
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle


def is_held(run_dir: Path) -> bool:
    path = run_dir / LOCK_FILE
    if not path.exists():
        return False
    with open(path) as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def execute(
    run_dir: Path, schedule: Schedule, host: Host, watcher: Watcher, run: Run
) -> list[Trial]:
    """Runs what is open of the plan; whatever happens, run.json says how it ended.

    Returns the trials that stayed invalid.
    """
    holder = hold(run_dir)
    state: RunState = "failed"
    runner = Runner(run_dir, schedule, host, watcher)
    try:
        runner.all_lives()
        state = "done"
    except KeyboardInterrupt:
        state = "interrupted"
        raise
    except WirespeedError as error:
        tell(run_dir, "error", str(error))
        raise
    finally:
        _finish(run_dir, run, state, runner.memory.idle_held and runner.lives_started > 0)
        holder.close()
    return runner.invalid


def _finish(run_dir: Path, run: Run, state: RunState, idle_held: bool) -> None:
    """A full disk must not hide the reason for the end, so its refusals are swallowed here."""
    shutil.rmtree(scratch_folder(run_dir.name), ignore_errors=True)
    remove_unfinished(run_dir)
    try:
        store.write_run(run_dir, replace(run, state=state, ended=now(), idle_held=idle_held))
        tell(run_dir, state, "")
    except StorageError:
        pass


def tell(run_dir: Path, event: str, text: str) -> None:
    try:
        store.append_event(run_dir, event, **({"text": text} if text else {}))
    except StorageError:
        pass


def remove_unfinished(run_dir: Path) -> None:
    """A trial without trial.json never happened."""
    for folder in (run_dir / "trials").glob("*"):
        if not (folder / "trial.json").exists() and not any(folder.glob("attempt-*")):
            shutil.rmtree(folder, ignore_errors=True)
