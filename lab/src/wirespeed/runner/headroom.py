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
from wirespeed.runner.life import Life

WINDOW_S = 0.4
WINDOWS = 3  # a machine's speed changes within one of them, and the limit is a hard one
ANSWER_S = 10.0  # the longest wait for an answer of the null server


class NullLife(Life):
    """The life of a null server. It needs no origin, and nothing to settle."""

    def instances_of(self, role: str) -> list[Instance]:
        root = self.schedule.place.root
        servers = super().instances_of(role) if role == "server" else []
        return [null.in_place_of(root, one) for one in servers]

    def _settle(self) -> None:
        pass


def key_of(life: Life, planned: PlannedCell) -> str:
    """The same for cells in which the generators reach the same; empty where that is unknown, or
    not needed."""
    instances = life.resolver(planned).instances(planned.seats)
    return null.key_of(life.schedule.place.root, instances)


def reached(life: NullLife, planned: PlannedCell, folder: Path) -> float | None:
    """Requests per second, the median of several windows; None where the null server cannot stand
    in, for whatever reason."""
    rates: list[float | None] = []
    try:
        life.begin([planned])
        before = proof.served(life)
        life.fleet.hold_idle()
        step_s = life.schedule.times.step_warmup_s
        for _ in range(WINDOWS):
            done = generate(life, planned, folder, WINDOW_S, step_s, timeout_s=ANSWER_S)
            rates.append(_rate(done))
        after = proof.served(life)
    except ProcessError:
        return None
    finally:
        life.fleet.release_idle()
        life.end()
    is_on_stack = before is None or after is None or not after.since(before).problem(None)
    known = [rate for rate in rates if rate is not None]
    return median(known) if is_on_stack and len(known) == WINDOWS else None


def _rate(done: Generated) -> float | None:
    figures = done.figures.values()
    failed = sum(one.errors + one.non_2xx for one in figures)
    return sum(one.rps for one in figures) or None if not failed else None


def of_window(life: Life, planned: PlannedCell, done: Generated) -> float | None:
    """How many times the rate of a window its generators can reach; None where that is not known,
    as of answers that are larger than those of the null server."""
    rate = sum(one.rps for one in done.figures.values())
    most = life.reached.get(key_of(life, planned)) if life.reached else None
    if most is None or rate <= 0:
        return None
    answer_bytes = sum(one.bytes_per_second for one in done.figures.values()) / rate
    return most / rate if answer_bytes <= null.ANSWER_BYTES_MAX else None
