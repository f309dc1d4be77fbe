"""The rates that a cell's generators reach with the null server in the server's place."""

from __future__ import annotations

from pathlib import Path
from statistics import median

from wirespeed.driver import null
from wirespeed.errors import ProcessError
from wirespeed.recipe.resolve import Instance
from wirespeed.runner import proof
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.generate import Generated, generate
from wirespeed.runner.server_session import ServerSession

WINDOW_S = 0.4
WINDOWS = 3  # a machine's speed changes within one of them, and the limit is a hard one
ANSWER_S = 10.0  # the longest wait for an answer of the null server


class NullSession(ServerSession):
    """The session of a null server. It needs no origin, and nothing to settle."""

    def instances_of(self, role: str) -> list[Instance]:
        root = self.schedule.place.root
        servers = super().instances_of(role) if role == "server" else []
        return [null.in_place_of(root, one) for one in servers]

    def _settle(self) -> None:
        pass


def key_of(session: ServerSession, planned: PlannedCell) -> str:
    """The same for cells in which the generators reach the same; empty where that is unknown, or
    not needed."""
    instances = session.resolver(planned).instances(planned.seats)
    return null.key_of(session.schedule.place.root, instances)


def reached(session: NullSession, planned: PlannedCell, folder: Path) -> float | None:
    """Requests per second, the median of several windows; None where the null server cannot stand
    in, for whatever reason."""
    rates: list[float | None] = []
    try:
        session.begin([planned])
        before = proof.served(session)
        session.fleet.hold_idle()
        step_s = session.schedule.times.step_warmup_s
        for _ in range(WINDOWS):
            done = generate(session, planned, folder, WINDOW_S, step_s, timeout_s=ANSWER_S)
            rates.append(_rate(done))
        after = proof.served(session)
    except ProcessError:
        return None
    finally:
        session.fleet.release_idle()
        session.end()
    is_on_stack = before is None or after is None or not after.since(before).problem(None)
    known = [rate for rate in rates if rate is not None]
    return median(known) if is_on_stack and len(known) == WINDOWS else None


def _rate(done: Generated) -> float | None:
    figures = done.figures.values()
    failed = sum(one.errors + one.non_2xx for one in figures)
    return sum(one.rps for one in figures) or None if not failed else None


def of_window(session: ServerSession, planned: PlannedCell, done: Generated) -> float | None:
    """How many times the rate of a window its generators can reach; None where that is not known,
    as of answers that are larger than those of the null server."""
    rate = sum(one.rps for one in done.figures.values())
    most = session.reached.get(key_of(session, planned)) if session.reached else None
    if most is None or rate <= 0:
        return None
    answer_bytes = sum(one.bytes_per_second for one in done.figures.values()) / rate
    return most / rate if answer_bytes <= null.ANSWER_BYTES_MAX else None
