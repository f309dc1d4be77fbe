"""Part of the agent: time since 1970 that runs on evenly when somebody sets the clock.

The wall clock is read once; from then on the monotonic clock counts. Both are slewed alike, so they
part only where the wall clock is set: by NTP, by hand, by a host that wakes a guest.
Standard library of Python 3.9 only: see main.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

READINGS = 5  # the pair that was read closest together counts
QUICK_S = 0.002  # a reading that took longer was held up
SET_S = 0.005  # clocks that parted by less were read a little apart


def ahead_s() -> float:
    """The wall clock minus the monotonic one."""
    readings = [timed(time.time, 0.0) for _ in range(READINGS)]
    _, at_s, wall_s = min(readings)
    return float(wall_s) - at_s


def timed(read: Callable[[], Value], quick_s: float = QUICK_S) -> tuple[float, float, Value]:
    """(how long it took, when it was on the monotonic clock, what `read` returned).

    On a busy machine a program is held up between its look at a counter and its look at the clock;
    what took long is read again, and the quickest reading counts.
    """
    best: tuple[float, float, Value] | None = None
    for _ in range(READINGS):
        before, value, after = time.monotonic(), read(), time.monotonic()
        if best is None or after - before < best[0]:
            best = (after - before, (before + after) / 2, value)
        if best[0] <= quick_s:
            break
    assert best
    return best


class Steady:
    """The even time of this process. Agents on the lab's kernel count from the lab's beginning."""

    def __init__(self) -> None:
        self.since_s = ahead_s()

    def now(self) -> float:
        return self.at(time.monotonic())

    def at(self, monotonic_s: float) -> float:
        return self.since_s + monotonic_s

    def set_by_s(self) -> float:
        """The wall clock minus this one: how far it has been set since the beginning."""
        return ahead_s() - self.since_s


STEADY = Steady()
now = STEADY.now
set_by_s = STEADY.set_by_s
