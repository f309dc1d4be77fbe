"""What may be said about one comparison, and why no more."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from wirespeed.results import student
from wirespeed.results.comparison import (
    CONFIDENCE,
    P_MAX,
    PAIRS_MIN,
    Q_MAX,
    THRESHOLD,
    Comparison,
)
from wirespeed.results.rounds import ROUNDS_MAX

WORDS = ("gain", "loss", "no difference", "not decided", "not comparable")


@dataclass(frozen=True)
class Verdict:
    """The verdict on one comparison."""

    word: str  # one of WORDS
    reason: str
    more_rounds: int | None = None  # about so many more would decide it
    bound: str = ""  # "≥" or "≤" when a side was held back by something else than the server
    scope: str = ""  # "latency-bound" (of a pooled verdict also "partly …"): holds for so few
    # connections, not for the server's limit


@dataclass(frozen=True)
class Terms:
    """Under which terms a comparison is judged.

    `withheld` says why a side was not at its own limit, `bound` on which side of the figure the
    true gain lies then. `disturbed` is the share of its speed that a side may have lost to
    something from outside: it may have hit one side only, so a verdict must hold when all of it is
    given to the other side.
    """

    q: float = 0.0
    floor: float = 0.0
    better: str = "higher"
    withheld: str = ""
    bound: str = ""
    scope: str = ""
    disturbed: float = 0.0
    threshold: float = THRESHOLD
    looks: int = 1  # how often the verdicts of the run stood to be read
    is_sequential: bool = False  # begun as a run that goes on until it is decided

    @property
    def share(self) -> float:
        """Of the accepted chance of an error: what this look may spend.

        A run that goes on until it is decided spends half of what is left at each look, so all of
        them together keep the promise of a single one. A plain run spends all at its only look;
        those after rounds that were added later cost half as much again at most.
        """
        return 1.0 if self.looks == 1 and not self.is_sequential else 0.5**self.looks

    @property
    def share_of_next(self) -> float:
        return 0.5 ** (self.looks + 1)


def decide(found: Comparison | None, terms: Terms) -> Verdict:
    """The verdict on one comparison."""
    if terms.withheld and not terms.bound:
        return Verdict("not comparable", terms.withheld)
    plain = replace(_decide(found, terms), scope=terms.scope)
    if not terms.bound:
        return plain
    # The side that was held back could have done more: only what it shows already is sure.
    is_up = found is not None and found.gain > 0
    if plain.word in ("gain", "loss") and is_up == (terms.bound == "≥"):
        return replace(plain, reason=f"{plain.reason}; {terms.withheld}", bound=terms.bound)
    return Verdict("not comparable", terms.withheld, bound=terms.bound)


def _decide(found: Comparison | None, terms: Terms) -> Verdict:
    if found is None:
        return Verdict("not decided", "no round has a valid trial on both sides")
    if found.low is None or found.high is None or found.rounds < PAIRS_MIN:
        missing = PAIRS_MIN - found.rounds
        return Verdict("not decided", f"fewer than {PAIRS_MIN} rounds", missing)
    limit, low, high = terms.threshold, found.low, found.high
    widest = _widened(found, terms.share)
    if -limit <= _less(widest[0], terms.disturbed) and _more(widest[1], terms.disturbed) <= limit:
        return Verdict("no difference", f"the whole interval is within ±{limit:.0%}")
    is_sure = terms.q <= Q_MAX * terms.share and found.p <= P_MAX * terms.share
    size = _less(found.gain, terms.disturbed) if found.gain > 0 else 0.0
    size = abs(_more(found.gain, terms.disturbed)) if found.gain < 0 else size
    stands = _less(low, terms.disturbed) > 0 or _more(high, terms.disturbed) < 0
    if is_sure and stands and size >= max(limit, terms.floor):
        is_gain = (found.gain > 0) == (terms.better == "higher")
        word = "gain" if is_gain else "loss"
        return Verdict(word, "the interval excludes 0")
    return Verdict("not decided", _reason(found, terms, is_sure), _more_rounds(found, terms))


def _widened(found: Comparison, share: float) -> tuple[float, float]:
    """The interval at the level that a look may spend."""
    assert found.low is not None and found.high is not None
    if share == 1.0:
        return found.low, found.high
    df = round(found.df, 1)
    wider = student.critical(df, (1 - CONFIDENCE) * share) / student.critical(df, 1 - CONFIDENCE)
    low, high = math.log1p(found.low), math.log1p(found.high)
    centre, half = (low + high) / 2, (high - low) / 2 * wider
    return math.expm1(centre - half), math.expm1(centre + half)


def _less(gain: float, disturbed: float) -> float:
    """The gain, had only the other side lost that share."""
    return (1 + gain) * (1 - disturbed) - 1


def _more(gain: float, disturbed: float) -> float:
    """The gain, had only this side lost that share; of all of it nothing bounds the gain."""
    return (1 + gain) / (1 - disturbed) - 1 if disturbed < 1 else math.inf


def _reason(found: Comparison, terms: Terms, is_sure: bool) -> str:
    assert found.low is not None and found.high is not None
    if found.low <= 0 <= found.high:
        return "the interval contains 0"
    if not is_sure:
        return f"chance gives this once in {max(2, round(1 / max(terms.q, found.p, 1e-9))):,} times"
    if abs(found.gain) < terms.threshold:
        return f"the interval reaches over ±{terms.threshold:.0%}"
    if abs(found.gain) < terms.floor:
        return f"below this run's noise floor of {terms.floor:.1%}"
    return f"its trials were disturbed from outside, which may be up to {terms.disturbed:.0%} of it"


def _more_rounds(found: Comparison, terms: Terms) -> int | None:
    """Rounds until the next look, if it sees the same gain and spread, decides it.

    None where that takes more than ROUNDS_MAX, and where more rounds do not help: what they may
    make smaller is the chance of an error, not a disturbance and not the noise floor.
    """
    assert found.low is not None and found.high is not None
    if terms.disturbed > 0 and not found.low <= 0 <= found.high:
        return None  # more rounds would be disturbed as well
    centre, limit = math.log1p(found.gain), math.log1p(terms.threshold)
    gain, below = abs(centre), math.log1p(-min(terms.threshold, 0.99))
    if limit <= gain < math.log1p(terms.floor) or found.error <= 0:
        return None
    rank = found.p / terms.q if terms.q > found.p else 1.0  # what other comparisons leave of q
    bar = min(P_MAX, Q_MAX * rank) if gain >= limit else 1 - CONFIDENCE
    reach = gain if gain >= limit else max(0.0, min(limit - centre, centre - below))
    for more in range(1, ROUNDS_MAX + 1):
        error = found.error * math.sqrt(found.rounds / (found.rounds + more))
        if student.two_sided_p(reach / error, found.df + more) <= bar * terms.share_of_next:
            return more
    return None
