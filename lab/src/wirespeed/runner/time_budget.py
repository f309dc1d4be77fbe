"""The time of a run: what may be spent on repeats, and which sessions no longer fit.

Repeats come out of the time that was planned, so a run on a noisy machine ends about when it
said. What does not fit is left out from the last round backwards: a cell with four trials instead
of five still has an interval, a cell with none has nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

LATE_MAX = 1.25  # without a budget a run may take so much of its planned time
CUT_MIN_S = 60.0  # plans shorter than this are never cut: a slow start is most of them
EARLY_SHARE = 0.15  # of the spare time that the first trials may use ahead of their turn
LONGER_SHARE = 0.08  # of the planned time: what all pairs of a run go on for to have a figure
LEARNED_MIN = 5  # trials before the run's own speed counts more than the plan's guess


@dataclass
class TimeBudget:
    """Time used, time allowed, trials done. `clock` is a parameter for tests only."""

    planned_s: float
    allowed_s: float
    trials: int
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    repeats_s: float = 0.0
    longer_s: float = 0.0
    began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.began_s = self.clock()

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.began_s

    @property
    def each_s(self) -> float:
        """A trial with its share of a server's session, without repeats and what pairs went on."""
        if self.done < LEARNED_MIN:
            return self.planned_s / max(1, self.trials)
        return max(0.0, self.elapsed_s - self.repeats_s - self.longer_s) / self.done

    @property
    def left_s(self) -> float:
        """Until the last planned trial is done, were nothing repeated any more."""
        return min(self.each_s * (self.trials - self.done), self.until_end_s)

    @property
    def until_end_s(self) -> float:
        return max(0.0, self.allowed_s - self.elapsed_s)

    def finished(self, trials: int = 1) -> None:
        self.done += trials

    def leave_out(self, seconds: float) -> None:
        """Time that no trial took, and that says nothing of how long trials take."""
        self.began_s += seconds
        self.allowed_s -= seconds

    def repeated(self, seconds: float) -> None:
        self.repeats_s += seconds

    @property
    def longer_left_s(self) -> float:
        """For how long a pair may go on now."""
        return max(0.0, LONGER_SHARE * self.planned_s * self._turn - self.longer_s)

    def went_on(self, seconds: float) -> None:
        self.longer_s += seconds

    @property
    def _turn(self) -> float:
        """The share of what is spare that may be used by now, so that no round gets all of it."""
        return min(1.0, self.done / max(1, self.trials) + EARLY_SHARE)

    def may_repeat(self, cost_s: float) -> bool:
        """The spare time is dealt out along the run."""
        spare_s = self.allowed_s - self.elapsed_s - self.each_s * (self.trials - self.done)
        if cost_s > spare_s:
            return False
        return self.repeats_s + cost_s <= (self.repeats_s + spare_s) * self._turn

    def fits(self, trials: int, late: float = 1.0) -> bool:
        """Whether so many more trials end in time; half of one may be late."""
        return self.elapsed_s + self.each_s * (trials - 0.5) <= self.allowed_s * late


def allowed_s(planned_s: float, budget_s: float | None) -> float:
    """A budget is a promise; without one the plan's own time is, give or take."""
    if budget_s is not None:
        return max(budget_s, planned_s)
    return planned_s * LATE_MAX if planned_s >= CUT_MIN_S else float("inf")
