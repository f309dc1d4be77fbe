"""What may be said about one comparison, and why no more."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from wirespeed.results.comparison import P_MAX, PAIRS_MIN, Q_MAX, THRESHOLD, Comparison
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
    looks: int = 1  # after each look at the verdicts of a run that then went on they are stricter


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
    if -limit <= _less(low, terms.disturbed) and _more(high, terms.disturbed) <= limit:
        return Verdict("no difference", f"the whole interval is within ±{limit:.0%}")
    is_sure = terms.q * terms.looks <= Q_MAX and found.p * terms.looks <= P_MAX
    size = _less(found.gain, terms.disturbed) if found.gain > 0 else 0.0
    size = abs(_more(found.gain, terms.disturbed)) if found.gain < 0 else size
    stands = _less(low, terms.disturbed) > 0 or _more(high, terms.disturbed) < 0
    if is_sure and stands and size >= max(limit, terms.floor):
        is_gain = (found.gain > 0) == (terms.better == "higher")
        word = "gain" if is_gain else "loss"
        return Verdict(word, "the interval excludes 0")
    return Verdict("not decided", _reason(found, terms, is_sure), _more_rounds(found, terms))


def _less(gain: float, disturbed: float) -> float:
    """The gain, had only the other side lost that share."""
    return (1 + gain) * (1 - disturbed) - 1


def _more(gain: float, disturbed: float) -> float:
    """The gain, had only this side lost that share."""
    return (1 + gain) / (1 - disturbed) - 1


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
    """Rounds until the interval excludes 0 or fits the threshold; width goes as 1/sqrt(n)."""
    assert found.low is not None and found.high is not None
    if terms.disturbed > 0 and not found.low <= 0 <= found.high:
        return None  # more rounds would be disturbed as well
    gain = abs(math.log1p(found.gain))
    half = (math.log1p(found.high) - math.log1p(found.low)) / 2
    limit = math.log1p(terms.threshold)
    target = max(gain if gain >= limit else 0.0, limit - gain)
    if target <= 0 or half <= 0:
        return None
    more = max(1, math.ceil(found.rounds * (half / target) ** 2 - found.rounds))
    return more if more <= ROUNDS_MAX else None
