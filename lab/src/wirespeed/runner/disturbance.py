"""Interference with a window from outside, and what a run does about it.

Interference is what other programs, the host's steal or a slow host took of a window, beyond the
errors of these figures. Three rules, all decided from them alone and never from a result:

* A window with interference is measured again with the same server; the one with least counts.
* Where some stays, the window counts, marked with the share that it may have lost.
* When most windows of a run have it, measuring again buys little, and is done once only.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from wirespeed.probe.window import Usage
from wirespeed.results.model import Calibration, Trial
from wirespeed.runner.time_budget import TimeBudget

STEAL_MAX = 0.01
FOREIGN_MAX = 0.02
SLOW_NOTE = 0.05
SLOW_MAX = 0.25  # the loop of 10 ms is noisy: a trial is noisy only beyond this
SHARE_MAX = 0.5  # a window that lost more than this says nothing and is not admitted
WINDOWS_MAX = 4
WINDOWS_MAX_LASTING = 2
RECENT = 20  # windows that show whether a disturbance lasts
RECENT_MIN = 8
LASTING_SHARE = 0.5
WORTH_SHARE = 0.5  # of the usual spread: a loss below it hardly changes a figure's error
CALIBRATIONS_MIN = 5  # before so many of its own a run knows only the machine's best of former runs
BEST_QUANTILE = 0.1  # not the fastest one: a single loop may be lucky
CALIBRATION_SLOW = "the calibration loop took"
QUOTA_WORDS = "the CPU quota of this container or service"
NAMED_MIN = 0.005  # of a core: smaller users are not named

Others = Sequence[tuple[str, float]] | None  # (name, share of a core), the largest first


@dataclass(frozen=True)
class Disturbance:
    """`share` is what the window may have lost of its speed; 0 with no words is a quiet one."""

    share: float = 0.0
    words: tuple[str, ...] = ()
    slowed: float = 0.0  # the part of it that a slow host took


def of_window(
    usage: Usage | None,
    calibration: Calibration | None,
    best_ms: float | None,
    others: Others = None,
    clock_step_s: float = 0.0,
) -> Disturbance:
    shares: list[float] = []
    words: list[str] = []
    if clock_step_s:  # some load tools time with the clock that was set
        shares.append(1.0)
        words.append(f"a clock was set by {clock_step_s:.3g} s")
    if usage is not None:
        steal = usage.values["steal"]
        if steal > STEAL_MAX + usage.foreign_error:
            shares.append(steal)
            words.append(f"CPU steal: {steal:.1%} of a core")
        held_back = min(1.0, usage.values.get("held_back", 0.0))
        if held_back > STEAL_MAX:
            shares.append(held_back)
            words.append(f"{QUOTA_WORDS} throttled programs for {held_back:.1%} of a core")
        core, share = _others_share(usage, others)
        if share:
            shares.append(share)
            words.append(f"other processes used {share:.1%} of core {core}{_named(others)}")
    slow = slowness(calibration, best_ms)
    slowed = 0.0
    if calibration is not None and slow > SLOW_MAX:
        # The lost share is that of the whole trial, so both ends of it count.
        mean_ms = (calibration.before_ms + calibration.after_ms) / 2
        slowed = max(0.0, 1 - (best_ms or mean_ms) / mean_ms)
        shares.append(slowed)
        words.append(
            f"{CALIBRATION_SLOW} {slow:.0%} more than this machine's best: a slow host"
        )
    share = 1 - math.prod(1 - min(1.0, share) for share in shares)
    return Disturbance(share, tuple(words), slowed)


def _others_share(usage: Usage, others: Others) -> tuple[object, float]:
    """(the core of which others took most, the share that they took); 0 below the limit.

    A core's busy time comes in ticks, and in a short window two of them are more than the limit. A
    census counts nanoseconds, but not on which core they were spent. So it decides where the busy
    time alone is within two ticks of the limit; both are upper bounds, and the smaller one counts.
    """
    core, share = max(usage.foreign.items(), key=lambda item: item[1], default=(None, 0.0))
    if share > FOREIGN_MAX + usage.foreign_error:
        return core, share
    share = min(share, sum(used for _, used in others or ()))
    return core, share if share > FOREIGN_MAX else 0.0


def slowness(calibration: Calibration | None, best_ms: float | None) -> float:
    """How much slower than at its best the machine was, by the slower loop of the trial."""
    if calibration is None or not best_ms:
        return 0.0
    return max(calibration.before_ms, calibration.after_ms) / best_ms - 1


def _named(others: Others) -> str:
    named = [f"{name} {share:.1%}" for name, share in others or () if share >= NAMED_MIN]
    return f" ({', '.join(named[:3])})" if named else ""


@dataclass
class NoiseMonitor:
    """What a run knows of its disturbances from trial to trial."""

    time_budget: TimeBudget
    accept_noise: bool = False
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT))
    known_best_ms: float | None = None  # of former runs on this machine
    calibrations_ms: list[float] = field(default_factory=list)  # kept sorted
    has_reported: bool = False
    usual_spread: float = 0.0  # of a trial's rate, from former runs on this machine

    @property
    def own_best_ms(self) -> float | None:
        """What this run's machine can do when nothing slows it."""
        if len(self.calibrations_ms) < CALIBRATIONS_MIN:
            return None
        return self.calibrations_ms[int(BEST_QUANTILE * len(self.calibrations_ms))]

    @property
    def best_ms(self) -> float | None:
        """The better of what this run saw and what the machine did before: a host that is slow
        from the first trial to the last must not pass as this machine's usual self."""
        known = [ms for ms in (self.own_best_ms, self.known_best_ms) if ms is not None]
        return min(known) if known else None

    @property
    def is_lasting(self) -> bool:
        seen = len(self.recent)
        return seen >= RECENT_MIN and sum(self.recent) >= LASTING_SHARE * seen

    @property
    def wants_names(self) -> bool:
        """A census costs milliseconds outside the window; quiet machines need none."""
        return any(self.recent)

    def remember(self, trials: Iterable[Trial]) -> None:
        """What a run that goes on saw before: its host may be slow from here on to its end."""
        for trial in sorted(trials, key=lambda trial: trial.t_start):
            if trial.metrics:
                self.saw(trial.calibration, trial.disturbed > 0 or bool(trial.discarded), True)

    def saw(
        self, calibration: Calibration | None, is_disturbed: bool, is_first_window: bool
    ) -> None:
        """Only first windows show how often this machine disturbs: later ones follow a bad one."""
        if calibration:
            insort(self.calibrations_ms, calibration.before_ms)
            insort(self.calibrations_ms, calibration.after_ms)
        if is_first_window:
            self.recent.append(is_disturbed)

    def wants_another(self, windows: int, window_s: float, share: float = 1.0) -> bool:
        """Whether a window that lost this share is measured again, after so many of this trial.

        A loss that is small next to what trials differ by anyway is not worth a window: it is
        marked, and its time buys more as part of a round.
        """
        if share < WORTH_SHARE * self.usual_spread:
            return False
        most = WINDOWS_MAX_LASTING if self.is_lasting else WINDOWS_MAX
        if self.accept_noise or windows >= most or not self.time_budget.may_repeat(window_s):
            return False
        self.time_budget.repeated(window_s)
        return True

    def to_report(self) -> str:
        """One line, once a run, when a disturbance turns out to last."""
        if self.has_reported or self.accept_noise or not self.is_lasting:
            return ""
        self.has_reported = True
        return (
            "noisy machine: most windows have interference (other processes, CPU steal, a slow "
            "host), so each is repeated only once and then counts, marked with ~; a gain must "
            "exceed the estimated loss"
        )
