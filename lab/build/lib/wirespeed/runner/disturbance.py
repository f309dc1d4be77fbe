"""What disturbed a window from outside, and what a run does about it.

A window is disturbed when other programs, the host's steal or a slow host took more of it than can
be told from nothing. Three rules, all decided from these figures alone and never from a result:

* A disturbed window is measured again in the same server's life; the calmest of them counts.
* What cannot be had calm counts all the same, marked with the share that it may have lost.
* When most windows of a run are disturbed, measuring again buys little, so it is done once only.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from wirespeed.probe.window import Usage
from wirespeed.results.model import Canary
from wirespeed.runner.pace import Pace

STEAL_MAX = 0.01
FOREIGN_MAX = 0.02
CANARY_NOTE = 0.05
CANARY_SLOW = 0.25  # the canary of 10 ms is noisy: a trial is disturbed only beyond this
SHARE_MAX = 0.5  # a window that lost more than this says nothing and is not admitted
WINDOWS_MAX = 4
WINDOWS_MAX_LASTING = 2
RECENT = 20  # windows that tell whether a disturbance lasts
RECENT_MIN = 8
LASTING_SHARE = 0.5
CANARIES_MIN = 5  # before so many there is no median to compare with
NAMED_MIN = 0.005  # of a core: smaller users are not named

Others = Sequence[tuple[str, float]]  # (name, share of a core), the largest first


@dataclass(frozen=True)
class Disturbance:
    """`share` is what the window may have lost of its speed; 0 with no words is a calm one."""

    share: float = 0.0
    words: tuple[str, ...] = ()


def of_window(
    usage: Usage | None,
    canary: Canary | None,
    median_ms: float | None,
    others: Others = (),
) -> Disturbance:
    shares: list[float] = []
    words: list[str] = []
    if usage is not None:
        steal = usage.values["steal"]
        if steal > STEAL_MAX + usage.foreign_error:
            shares.append(steal)
            words.append(f"the host took {steal:.1%} of a core away (steal)")
        worst = max(usage.foreign.items(), key=lambda item: item[1], default=None)
        if worst and worst[1] > FOREIGN_MAX + usage.foreign_error:
            shares.append(worst[1])
            words.append(f"other programs used {worst[1]:.1%} of core {worst[0]}{_named(others)}")
    slow = slowness(canary, median_ms)
    if canary is not None and slow > CANARY_SLOW:
        # The lost share is that of the whole trial, so both ends of it count.
        mean_ms = (canary.before_ms + canary.after_ms) / 2
        shares.append(max(0.0, 1 - (median_ms or mean_ms) / mean_ms))
        words.append(f"the canary was {slow:.0%} slower than the run's median: the host was slow")
    return Disturbance(1 - math.prod(1 - min(1.0, share) for share in shares), tuple(words))


def slowness(canary: Canary | None, median_ms: float | None) -> float:
    """How much slower than usual the slower canary of the trial was."""
    if canary is None or not median_ms:
        return 0.0
    return max(canary.before_ms, canary.after_ms) / median_ms - 1


def _named(others: Others) -> str:
    named = [f"{name} {share:.1%}" for name, share in others if share >= NAMED_MIN]
    return f" ({', '.join(named[:3])})" if named else ""


@dataclass
class Weather:
    """What a run knows of its disturbances from trial to trial."""

    pace: Pace
    accept_noise: bool = False
    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=RECENT))
    canaries_ms: list[float] = field(default_factory=list)
    has_told: bool = False

    @property
    def median_ms(self) -> float | None:
        enough = len(self.canaries_ms) >= CANARIES_MIN
        return statistics.median(self.canaries_ms) if enough else None

    @property
    def is_lasting(self) -> bool:
        seen = len(self.recent)
        return seen >= RECENT_MIN and sum(self.recent) >= LASTING_SHARE * seen

    @property
    def wants_names(self) -> bool:
        """A census costs milliseconds beside the window; calm machines need none."""
        return any(self.recent)

    def saw(self, canary: Canary | None, is_disturbed: bool, is_first_window: bool) -> None:
        """Only first windows tell how often this machine disturbs: later ones follow a bad one."""
        if canary:
            self.canaries_ms += [canary.before_ms, canary.after_ms]
        if is_first_window:
            self.recent.append(is_disturbed)

    def wants_another(self, windows: int, window_s: float) -> bool:
        """Whether a disturbed window is measured again, after so many of this trial."""
        most = WINDOWS_MAX_LASTING if self.is_lasting else WINDOWS_MAX
        if self.accept_noise or windows >= most or not self.pace.may_repeat(window_s):
            return False
        self.pace.repeated(window_s)
        return True

    def to_tell(self) -> str:
        """One line, once a run, when a disturbance turns out to last."""
        if self.has_told or self.accept_noise or not self.is_lasting:
            return ""
        self.has_told = True
        return (
            "this machine is not calm: most windows are disturbed from outside, so a disturbed one "
            "is measured again only once and then counts, marked with ~; a gain must exceed its "
            "share"
        )
