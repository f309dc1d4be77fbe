"""One duet as it is run: two servers' sessions, a trial of each alone, then their turns."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirespeed.agent import clock
from wirespeed.analysis import duet as slices_of
from wirespeed.analysis.duet import Slice
from wirespeed.driver import command, stack
from wirespeed.driver.base import LoadRun
from wirespeed.errors import HostError, ProcessError
from wirespeed.process import start, stop
from wirespeed.process.start import Order, Started, StartFailed
from wirespeed.recipe.model import Recipe
from wirespeed.results import store
from wirespeed.results.model import Duet, DuetRatio
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.server_session import ServerSession
from wirespeed.runner.warm import timeout_s

ANSWER_S = 60.0  # beyond the time of the turns, on a machine that is busy
OUTLAST_S = 3600.0  # generators go on until they are stopped
LONGER_TIMES, LONGER_MOST_S = 2.0, 4.0  # so much more of a pair that has no figure yet
SLICES = "slices.jsonl"
ERRORS_MAX = 0.001  # of the requests; as in a trial


class NoTurnsError(ProcessError):
    """Two servers cannot take turns here, through no fault of their own."""


@dataclass
class SessionPair:
    """The baseline's session and the contender's."""

    base: ServerSession
    contender: ServerSession

    @property
    def both(self) -> tuple[ServerSession, ServerSession]:
        return (self.base, self.contender)

    def begin(self, bases: list[PlannedCell], contenders: list[PlannedCell]) -> None:
        """Starts one after the other; the first rests while the second starts."""
        self.base.begin(bases)
        rest(self.base)
        self.contender.begin(contenders)
        rest(self.contender)

    def only(self, session: ServerSession) -> None:
        """This one is awake, the other rests."""
        for one in self.both:
            rest(one) if one is not session else wake(one)

    def end(self) -> list[str]:
        """Stops both, whatever becomes of one; returns the labels that SIGTERM did not end."""
        killed: list[str] = []
        try:
            killed += self.contender.end()
        finally:
            killed += self.base.end()
        return killed


def rest(session: ServerSession) -> None:
    """Freezes the servers of a session; what has died is found where it is next asked for."""
    _ask(session, "freeze")


def wake(session: ServerSession) -> None:
    _ask(session, "thaw")


def _ask(session: ServerSession, op: str) -> None:
    for host, labels in session.fleet.by_host(started.label for started in session.running):
        try:
            host.ask(op, names=labels)
        except HostError as error:
            host.check_lost()
            raise NoTurnsError(str(error)) from error


def play(
    pair: SessionPair, cells: tuple[PlannedCell, PlannedCell], folder: Path, seed: int,
    longer_s: float,
) -> tuple[Duet, float]:  # fmt: skip
    """Lets the two take turns, and go on for at most `longer_s` to have a figure; the slices are
    kept in `folder`. The second value is for how long they went on."""
    fleet = pair.base.fleet
    plan = pair.base.schedule.recipe.plan.duet
    loads: list[list[Started]] = []
    fleet.hold_idle()
    try:
        for session in pair.both:
            wake(session)
        for session, planned in zip(pair.both, cells, strict=True):
            loads.append(_start_loads(session, planned, folder))
        answer = _ask_for_turns(pair, loads, seed, longer_s)
    except StartFailed as error:
        loads.append(error.started)
        raise
    finally:
        started = [one for group in loads for one in group]
        stop.stop(fleet, started, 0.0)
        fleet.forget(one.label for one in started)
        fleet.release_idle()
    slices = [Slice(*row) for row in answer["slices"]]
    _keep(folder, answer["slices"])
    has_cpu = not any(map(_polls, pair.both))
    measured = slices_of.of_slices(slices, plan.block, has_cpu)
    failure = _failure(answer["totals"], slices)
    problem = failure or measured.problem
    found = Duet(
        over=cells[0].cell.id,
        ratios={} if problem else named(measured.ratios, pair.base.schedule.recipe),
        groups=measured.groups,
        left_out=measured.left_out,
        slice_s=plan.slice,
        seconds=round(answer["seconds"], 3),
        how=answer["how"],
        busy=[_busy(*side) for side in zip(pair.both, measured.cores_used, strict=True)],
        is_realtime=answer["realtime"],
        problem=problem,
        is_failure=bool(failure),
    )
    return found, answer["longer_s"]


def named(ratios: dict[str, DuetRatio], recipe: Recipe) -> dict[str, DuetRatio]:
    """With the rate of requests under each name that the recipe has for it; where it has several
    kinds of generators, a metric is of one of them and the turns are of all."""
    loads = [process for process in recipe.process if process.role == "load"]
    if len(loads) != 1:
        return ratios
    own = [one.name for one in recipe.metric if one.combine == "sum" and one.field in ("rps", "")]
    return slices_of.named(ratios, own)


def _start_loads(session: ServerSession, planned: PlannedCell, folder: Path) -> list[Started]:
    here = session.fleet[host_of(session)]
    run = LoadRun(
        folder, OUTLAST_S, 0.0, clock.now() + here.wall_ahead_s, timeout_s(session, planned)
    )
    orders = []
    for one in session.resolver(planned, OUTLAST_S).instances(planned.seats):
        if one.role == "load":
            path = control(session, folder, one.label)
            if here.far.shares_files:
                path.unlink(missing_ok=True)
            made = command.for_duet(session.schedule.place.root, one, run, path)
            orders.append(Order(one, made.argv, made.env, folder, along=made.along))
    return start.start_all(session.fleet, orders, session.ours)


def host_of(session: ServerSession) -> str:
    """The one host of a duet."""
    return session.running[0].instance.host


def control(session: ServerSession, folder: Path, label: str) -> Path:
    """In memory; on a far host among the files of the trial, the one folder there that each pair
    has of its own."""
    host = session.fleet[host_of(session)]
    there = session.scratch if host.far.shares_files else Path(host.folder_there(folder))
    return there / f"control-{label}"


def _ask_for_turns(
    pair: SessionPair, loads: Sequence[Sequence[Started]], seed: int, longer_s: float
) -> dict[str, Any]:
    session, plan = pair.base, pair.base.schedule.recipe.plan.duet
    host = session.fleet[host_of(session)]
    everyone = [s for one in pair.both for s in one.running] + [s for group in loads for s in group]
    message = {
        "sides": [
            {
                "servers": [s.label for s in _servers(one)],
                "loads": [s.label for s in group]
                + [s.label for s in one.running if s.instance.role == "origin"],
            }
            for one, group in zip(pair.both, loads, strict=True)
        ],
        "controls": [
            [str(control(one, s.stdout.parent, s.label)) for s in group]
            for one, group in zip(pair.both, loads, strict=True)
        ],
        "slice_s": plan.slice,
        "skip_s": plan.skip,
        "drain_s": plan.drain,
        "length_s": plan.pair,
        "enough": enough(plan.pair, longer_s),
        "seed": seed,
        "cores": sorted({core for s in everyone for core in s.instance.cores}),
        "core": max((core for s in loads[0] for core in s.instance.cores), default=None),
    }
    try:
        answer: dict[str, Any] = host.ask("duet", plan.pair + ANSWER_S, **message)
    except HostError as error:
        for group in loads:
            for one in group:
                if session.fleet.exit_of(one.label) not in (None, 0):
                    words = one.last_words(session.fleet)
                    raise ProcessError(f"{one.label} failed: {words}") from error
        host.check_lost()
        _check_alive(pair)
        raise NoTurnsError(str(error)) from error
    _check_alive(pair)
    return answer


def enough(pair_s: float, longer_s: float = math.inf) -> dict[str, float]:
    """The groups without which a pair of this length has no figure, and for how long it goes on
    beyond its time to have them, where its run has `longer_s` left for it: a guest with steal does
    not drain some of them in time."""
    return {
        "groups": slices_of.GROUPS_MIN,
        "left_out": slices_of.LEFT_OUT_MAX,
        "settle_share": slices_of.SETTLE_SHARE,
        "settle_s": slices_of.SETTLE_MOST_S,
        "more_s": min(LONGER_TIMES * pair_s, LONGER_MOST_S, longer_s),
    }


def _check_alive(pair: SessionPair) -> None:
    for session in pair.both:
        session.check_alive()


def _busy(session: ServerSession, cores_used: float) -> float | None:
    """How full the servers' cores were, of those whose CPU time is work."""
    cores = {core for one in _servers(session) for core in one.instance.cores}
    return None if _polls(session) or not cores else cores_used / len(cores)


def _polls(session: ServerSession) -> bool:
    root = session.schedule.place.root
    return any(stack.is_polling(root, one.instance.under) for one in _servers(session))


def _servers(session: ServerSession) -> list[Started]:
    return [one for one in session.running if one.instance.role == "server"]


def _failure(totals: Sequence[Sequence[int]], slices: Sequence[Slice]) -> str:
    """Why the programs themselves spoiled the pair; empty when they did not."""
    for side, (sent, _, errors, non_2xx) in zip(("baseline", "contender"), totals, strict=True):
        if errors > ERRORS_MAX * sent:
            return f"{errors} of {sent} requests to the {side} had errors"
        if non_2xx:
            return f"{non_2xx} of {sent} responses of the {side} were not 2xx"
    return "" if slices else "it ended before its first turn"


def _keep(folder: Path, rows: Sequence[Sequence[float]]) -> None:
    with store.storage(folder / SLICES):
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / SLICES).write_text(text, encoding="utf-8")
