"""Some seconds before a run that show which differences this machine can decide now.

Nothing measured runs yet, so whatever uses the cores is somebody else. The spread of short
identical pieces of work is what the machine adds to every trial; what trials of former runs spread
by is known too (runner/known.py). The larger says which differences are within reach.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median, stdev
from typing import Any

from wirespeed.fleet.fleet import Fleet
from wirespeed.probe.parse import snapshot
from wirespeed.runner import known
from wirespeed.runner.disturbance import FOREIGN_MAX, SLOW_MAX, STEAL_MAX
from wirespeed.runner.plan import Schedule
from wirespeed.stats import rounds
from wirespeed.stats.comparison import PAIRS_MIN
from wirespeed.topology import Seat
from wirespeed.units import duration_for_people

WORTH_S = 60.0  # a shorter run is its own preflight
WATCH_S = 2.0
CALIBRATIONS = 20
PAUSE_S = 0.03
AGAIN_S = 5.0
SMALL = 0.03  # the difference whose rounds are printed
SPREAD_LEAST = 0.005  # no machine's trials vary less than this


@dataclass(frozen=True)
class Preflight:
    """The observations; shares of a core, the worst of the measured ones."""

    steal: float
    others: float
    slow: float  # how much slower than the machine's best fixed work was
    spread: float  # standard deviation of the log time of fixed work
    trial_spread: float | None  # what trials of former runs on this machine spread by

    @property
    def is_quiet(self) -> bool:
        return self.steal <= STEAL_MAX and self.others <= FOREIGN_MAX and self.slow <= SLOW_MAX

    @property
    def expected(self) -> float:
        """What a trial of this run will spread by, as far as is known."""
        return max(self.spread, self.trial_spread or rounds.QUIET_SPREAD, SPREAD_LEAST)

    def text(self, schedule: Schedule) -> str:
        seen = (
            f"CPU steal {self.steal:.1%}, other processes {self.others:.1%} of a core, calibration "
            f"loop spreads by {self.spread:.1%} and takes {max(0.0, self.slow):.0%} more than its "
            "best"
        )
        seen += f", trials of former runs by {self.trial_spread:.1%}" if self.trial_spread else ""
        noise = "" if self.is_quiet else "; noisy now (--wait-for-quiet TIME waits)"
        return f"preflight: {seen}{noise}{self._reach(schedule)}"

    def _reach(self, schedule: Schedule) -> str:
        compared = schedule.comparisons
        if not compared or schedule.repeat < PAIRS_MIN:
            return ""
        least = rounds.smallest(schedule.repeat, compared, compared, self.expected, 0.8)
        text = (
            f"; in {schedule.repeat} rounds differences below about {math.expm1(least):.0%} will "
            "not be decided"
        )
        needed = rounds.needed(SMALL, 0.8, compared, compared, self.expected)
        if math.expm1(least) <= SMALL:
            return text
        many = f"more than {rounds.ROUNDS_MAX}" if needed is None else str(needed)
        return f"{text}, {SMALL:.0%} needs {many} rounds"


def look(fleet: Fleet, schedule: Schedule, facts: dict[str, Any]) -> Preflight:
    """Some three seconds of watching the measured cores."""
    groups = (group for cell in schedule.cells for group in cell.seats.values())
    seats = sorted({seat for group in groups for seat in group},
                   key=lambda seat: (seat.host, seat.core))  # fmt: skip
    machine = known.of_machine(facts)
    steal, others = _watched(fleet, seats)
    times_ms = list(_calibrations(fleet, _server_seat(schedule) or seats[0])) if seats else []
    best_ms = min([*times_ms, *([machine.best_ms] if machine.best_ms else [])], default=0.0)
    slow = median(times_ms) / best_ms - 1 if times_ms and best_ms else 0.0
    spread = stdev(map(math.log, times_ms)) if len(times_ms) > 2 else 0.0
    return Preflight(steal, others, slow, spread, machine.spread)


def wait_for_quiet(
    fleet: Fleet, schedule: Schedule, facts: dict[str, Any], most_s: float,
    notify: Callable[[str], None],
) -> Preflight:  # fmt: skip
    """Looks until the machine is quiet or the time is over."""
    deadline = time.monotonic() + most_s
    seen = look(fleet, schedule, facts)
    if not seen.is_quiet and most_s > 0:
        notify(f"waiting up to {duration_for_people(most_s)} for a quiet machine")
    while not seen.is_quiet and time.monotonic() < deadline:
        fleet.poll(min(AGAIN_S, max(0.0, deadline - time.monotonic())))
        seen = look(fleet, schedule, facts)
    return seen


def _watched(fleet: Fleet, seats: list[Seat]) -> tuple[float, float]:
    """(steal, what others used) of the worst measured core, while nothing measured runs."""
    steal = others = 0.0
    for host in {fleet[seat.host].name: fleet[seat.host] for seat in seats}.values():
        cores = {seat.core for seat in seats if fleet[seat.host].name == host.name}
        host.ask("sample_start", names=[], every_s=WATCH_S, instants=[], lab_core=None)
        end = time.monotonic() + WATCH_S
        while (left := end - time.monotonic()) > 0:
            fleet.poll(left)
        shots = [snapshot(raw) for raw in host.ask("sample_stop")]
        if len(shots) < 2:
            continue
        first, last = shots[0], shots[-1]
        seconds = max(0.1, (last.t_ns - first.t_ns) / 1e9)
        for core in cores & first.idle_s.keys() & last.idle_s.keys():
            stolen = (last.steal_s[core] - first.steal_s[core]) / seconds
            idle = (last.idle_s[core] - first.idle_s[core]) / seconds
            steal, others = max(steal, stolen), max(others, 1 - idle - stolen)
    return steal, max(0.0, others)


def _calibrations(fleet: Fleet, seat: Seat) -> Iterator[float]:
    host = fleet[seat.host]
    for _ in range(CALIBRATIONS):
        ms = host.ask("calibration", core=seat.core)["ms"]
        if ms is not None:
            yield float(ms)
        fleet.poll(PAUSE_S)


def _server_seat(schedule: Schedule) -> Seat | None:
    servers = [p.name for p in schedule.recipe.process if p.role == "server"]
    for cell in schedule.cells:
        for label, seats in cell.seats.items():
            if seats and label.rpartition("-")[0] in servers:
                return seats[0]
    return None
