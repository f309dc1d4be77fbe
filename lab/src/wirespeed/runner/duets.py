"""Runs a schedule in which some cells take turns with their baseline's (duet.py)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from wirespeed import interrupts
from wirespeed.errors import ProcessError, StorageError
from wirespeed.fleet.fleet import Fleet
from wirespeed.results.model import Duet, PlannedTrial, Trial
from wirespeed.runner import turns, warm
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.duet import SIDE
from wirespeed.runner.execute import (
    RETRIES_MAX,
    Runner,
    is_refused,
    kept_attempts,
    make_folder,
    place_of,
)
from wirespeed.runner.plan import Schedule
from wirespeed.runner.server_session import ServerSession, StartError
from wirespeed.runner.trial import Attempt
from wirespeed.runner.watcher import Watcher

Entry = tuple[PlannedTrial, PlannedCell]


class DuetRunner(Runner):
    """A duet's session is two: the baseline's servers and the contender's."""

    def __init__(self, run_dir: Path, schedule: Schedule, fleet: Fleet, watcher: Watcher) -> None:
        super().__init__(run_dir, schedule, fleet, watcher)
        self.alone: dict[str, str] = {}  # cells that cannot take turns after all → why

    def _one_session(self, queue: list[Entry]) -> None:
        if self._has_turns(queue):
            self._find_headroom(queue)
        while self._has_turns(queue):
            interrupts.check()
            pair = self._new_pair(queue)
            try:
                self._begin_pair(pair, queue)
                self._trials_of_pair(pair, queue)
            except StartError as error:
                self._start_failed(queue, str(error))
            except turns.NoTurnsError as error:
                self._give_up_turns(queue, str(error))
            finally:
                killed = pair.end()
            if killed:
                self.watcher.notify(f"{', '.join(killed)} did not end on SIGTERM and was killed")
        self._one_by_one(queue)

    def _has_turns(self, queue: list[Entry]) -> bool:
        return any(line.over and line.cell not in self.alone for line, _ in queue)

    def _one_by_one(self, queue: list[Entry]) -> None:
        """Separate trials: each side in a server of its own, the baseline's first."""
        for is_contender in (False, True):
            side = [entry for entry in queue if bool(entry[0].over) == is_contender]
            if side:
                super()._one_session(side)
        queue.clear()

    def _give_up_turns(self, queue: list[Entry], reason: str) -> None:
        """The rest of these cells, in this round and later, is measured in separate trials."""
        for line, _ in queue:
            if line.over:
                self.alone[line.cell] = reason
        self.watcher.notify(f"{place_of(queue[0][0])}: no duet, separate trials instead: {reason}")

    def _new_pair(self, queue: list[Entry]) -> turns.SessionPair:
        line, planned = next(entry for entry in queue if entry[0].over)
        self.sessions_started += 1
        name = f"{line.position:06d}-{self.sessions_started}"
        base = self._session_of(self.planned[line.over], name, ServerSession)
        contender = self._session_of(planned, f"{name}-{SIDE}", ServerSession)
        contender.side, contender.scratch = SIDE, contender.scratch / SIDE
        return turns.SessionPair(base, contender)

    def _begin_pair(self, pair: turns.SessionPair, queue: list[Entry]) -> None:
        self.watcher.phase(queue[0][0], "starting", self.progress())
        contenders = [planned for line, planned in queue if line.over]
        bases = [self.planned[line.over] for line, _ in queue if line.over]
        try:
            pair.begin(bases, contenders)
        except turns.NoTurnsError:
            raise
        except ProcessError as error:
            raise self._disk_or(error) from error

    def _trials_of_pair(self, pair: turns.SessionPair, queue: list[Entry]) -> None:
        """Takes entries off the queue until it is empty or fresh servers are needed. Each is
        recorded as soon as it is complete, so that a run that is cut off keeps it."""
        fresh = {id(session) for session in pair.both}
        while queue:
            line, _ = queue[0]
            session = pair.contender if line.over else pair.base
            pair.only(session)
            order, measured, alive = self._settled(session, queue[0], id(session) in fresh)
            fresh.discard(id(session))
            if alive and line.over and (measured.valid or is_refused(measured)):
                measured, alive = self._with_duet(pair, order, measured, fresh)
            queue.pop(0)
            self._record(order, measured)
            self._cool_down(queue)
            if not alive:
                return

    def _settled(
        self, session: ServerSession, entry: Entry, is_first: bool
    ) -> tuple[Attempt, Trial, bool]:
        """A side's trial alone, repeated where something from outside spoiled it."""
        line, planned = entry
        folder = self._trial_folder(line)
        while True:
            attempt = kept_attempts(folder) + 1
            order = Attempt(line, planned, folder, attempt, is_first)
            measured, alive = self._attempt(session, order)
            is_first = False
            again = is_refused(measured) and attempt <= RETRIES_MAX and self._may_retry(measured)
            if not (again and alive):
                return order, measured, alive
            self._keep_attempt(order, measured)

    def _with_duet(
        self, pair: turns.SessionPair, order: Attempt, measured: Trial, fresh: set[int]
    ) -> tuple[Trial, bool]:
        """(the contender's trial with what the turns gave, whether the servers still live)."""
        line = order.line
        base = self.planned[line.over]
        self.watcher.phase(line, "taking turns", self.progress())
        seed = self.schedule.seed + line.position
        try:
            if id(pair.base) in fresh:  # its trial of this round was kept by a run that was cut off
                pair.only(pair.base)
                warm.warm(pair.base, base, make_folder(order.folder / "warm-up"))
                fresh.discard(id(pair.base))
            duet, longer_s = turns.play(
                pair, (base, order.planned), order.folder, seed, self.time_budget.longer_left_s
            )
        except ProcessError as error:
            problem = self._disk_or(error)
            if isinstance(problem, StorageError):
                raise problem from error
            self._check_agents()
            self.watcher.notify(f"{place_of(line)}: no duet: {error}")
            is_failure = not isinstance(error, turns.NoTurnsError)
            return replace(measured, duet=_none(line, str(error), is_failure)), False
        self.time_budget.went_on(longer_s)
        if duet.problem:
            self.watcher.notify(f"{place_of(line)}: no duet: {duet.problem}")
        return replace(measured, duet=duet), True

    def _record(self, order: Attempt, measured: Trial) -> None:
        reason = self.alone.get(measured.cell)
        if reason and order.line.over and measured.duet is None:
            measured = replace(measured, duet=_none(order.line, reason, is_failure=False))
        super()._record(order, measured)


def _none(line: PlannedTrial, problem: str, is_failure: bool) -> Duet:
    """In place of a duet that did not take place."""
    return Duet(over=line.over, problem=problem, is_failure=is_failure)
