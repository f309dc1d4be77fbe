"""The accepted chance of an error that each analysis of an ongoing run may spend.

Verdicts that are read while a run goes on have had several chances to be wrong. A run that was
begun as one that goes on (`--until-decided`) knows how many rounds it may come to at most, and
spends by O'Brien and Fleming's function (Lan and DeMets 1983, doi:10.1093/biomet/70.3.659) of the
share of those rounds that is done: little at first, nearly all at the end. Each analysis spends the
difference to the one before, so that all of them together keep the promise of a single one by
Bonferroni's inequality, whatever the rounds have in common.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from wirespeed.stats.comparison import P_MAX

_NORMAL = NormalDist()


def spent(share_done: float) -> float:
    """Of the accepted chance: what may be spent by the time this share of the rounds is done."""
    if share_done >= 1:
        return 1.0
    if share_done <= 0:
        return 0.0
    bar = _NORMAL.inv_cdf(1 - P_MAX / 2) / math.sqrt(share_done)
    return 2 * (1 - _NORMAL.cdf(bar)) / P_MAX


@dataclass(frozen=True)
class Spending:
    """The analyses of a run so far.

    `analysed_at` are the rounds at each of them, of `rounds_max` at most. Without these it is a
    run whose rounds were planned at once: its first analysis spends everything, and one after
    rounds that were added later half of what is left, which adds half as much again at most. Runs
    of earlier builds halved from the start when they went on until they were decided.
    """

    analyses: int = 1
    is_halving: bool = False
    analysed_at: tuple[int, ...] = ()
    rounds_max: int = 0

    @property
    def is_planned(self) -> bool:
        return self.rounds_max > 0 and bool(self.analysed_at)

    @property
    def rounds_left(self) -> float:
        """How many more rounds the run may have."""
        return self.rounds_max - self.analysed_at[-1] if self.is_planned else math.inf

    @property
    def share(self) -> float:
        """The share that the current analysis may spend."""
        if self.is_planned:
            *before, now = self.analysed_at
            return self._between(before[-1] if before else 0, now)
        return 1.0 if self.analyses == 1 and not self.is_halving else 0.5**self.analyses

    def share_after(self, more: int) -> float:
        """The share that the next analysis could spend after so many more rounds."""
        if self.is_planned:
            return self._between(self.analysed_at[-1], self.analysed_at[-1] + more)
        return 0.5 ** (self.analyses + 1)

    def _between(self, before: int, now: int) -> float:
        return max(0.0, spent(now / self.rounds_max) - spent(before / self.rounds_max))


SINGLE = Spending()
