"""The verdict on one comparison, and its reason."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

from wirespeed.stats import student
from wirespeed.stats.comparison import (
    CONFIDENCE,
    P_MAX,
    PAIRS_MIN,
    Q_MAX,
    THRESHOLD,
    Comparison,
)
from wirespeed.stats.rounds import ROUNDS_MAX
from wirespeed.stats.spending import SINGLE, Spending

WORDS = ("gain", "loss", "no difference", "not decided", "not comparable")
LEAST = -1 + 1e-15  # of an interval: of a figure that two rounds differ in by a thousandfold
WIDEST = math.log(1e6)  # half an interval: an analysis that may spend next to nothing shows no more


@dataclass(frozen=True)
class Verdict:
    """The verdict on one comparison."""

    word: str  # one of WORDS
    reason: str
    more_rounds: int | None = None  # about so many more would decide it
    bound: str = ""  # "≥" or "≤" when a side was held back by something else than the server
    scope: str = ""  # "latency-bound" (of a pooled verdict also "partly …"): holds for so few
    # connections, not for the server's limit
    decided_at: int = 0  # rounds of the earlier analysis that decided it; 0: this one, or none did


@dataclass(frozen=True)
class Terms:
    """Under which terms a comparison is judged.

    `withheld` says why a side was not at its own limit, `bound` on which side of the figure the
    true gain lies then, and `is_bound_only` that nothing else can be said: the other side is known
    at its number of connections only (`scope`). `interference` is the share of its figure that the
    contender lost to other processes and a slow host beyond what the baseline lost, negative where
    the baseline lost more: the pairs hold what both lost alike. A verdict must hold with that share
    given back.
    """

    q: float = 0.0
    better: str = "higher"
    withheld: str = ""
    bound: str = ""
    scope: str = ""
    is_bound_only: bool = False
    interference: float = 0.0
    threshold: float = THRESHOLD
    spending: Spending = SINGLE

    @property
    def is_claimable(self) -> bool:
        """Whether anything may be said about it: only such comparisons can be false positives."""
        return not self.withheld or bool(self.bound)

    def given_back(self, low: float, high: float) -> tuple[float, float]:
        """An interval of the gain as wide as the interference leaves it."""
        share = min(1.0, abs(self.interference))
        if self.interference < 0:
            return (1 + low) * (1 - share) - 1, high
        return low, (1 + high) / (1 - share) - 1 if share < 1 else math.inf


def decide(found: Comparison | None, terms: Terms) -> Verdict:
    """The verdict on one comparison."""
    if terms.withheld and not terms.bound:
        return Verdict("not comparable", terms.withheld)
    plain = replace(_decide(found, terms), scope=terms.scope)
    if not terms.bound:
        return plain
    # The side that was held back could have done more: only what it shows already is sure.
    is_up = found is not None and found.gain > 0
    reason = f"{plain.reason}; {terms.withheld}"
    if plain.word in ("gain", "loss") and is_up == (terms.bound == "≥"):
        scope = terms.scope if terms.is_bound_only else ""
        return replace(plain, reason=reason, bound=terms.bound, scope=scope)
    if terms.scope and not terms.is_bound_only:  # it holds for so many connections
        return replace(plain, reason=reason)
    return Verdict("not comparable", terms.withheld, bound=terms.bound, scope=terms.scope)


def kept(now: Verdict, found: Comparison | None, terms: Terms, earlier: Verdict) -> Verdict:
    """The verdict of an earlier analysis stands where a later one, which may spend less, decides
    nothing and its figure says nothing else: the chances of an error that all of them may spend
    are of a decision by any of them."""
    if now.word != "not decided" or found is None:
        return now
    if earlier.word == "no difference":
        is_same = abs(found.gain) <= terms.threshold
    else:
        is_same = earlier.word == _direction(found, terms)
    if not is_same:
        return now
    reason = f"decided after {earlier.decided_at} rounds; with all of them {now.reason}"
    return replace(earlier, reason=reason, scope=now.scope)


def _decide(found: Comparison | None, terms: Terms) -> Verdict:
    if found is None:
        return Verdict("not decided", "no round has a valid trial on both sides")
    if found.low is None or found.high is None or found.rounds < PAIRS_MIN:
        missing = PAIRS_MIN - found.rounds
        more = missing if missing <= terms.spending.rounds_left else None
        return Verdict("not decided", f"fewer than {PAIRS_MIN} rounds", more)
    limit, share = terms.threshold, terms.spending.share
    low, high = terms.given_back(*interval_at(found, share))
    if -limit <= low and high <= limit:
        return Verdict("no difference", f"the whole interval is within ±{percent(limit)}")
    is_sure = share > 0 and terms.q <= Q_MAX * share and found.p <= P_MAX * share
    size = min(map(abs, terms.given_back(found.gain, found.gain)))
    if is_sure and (low > 0 or high < 0) and size >= limit:
        return Verdict(_direction(found, terms), "the interval excludes 0")
    return Verdict("not decided", _reason(found, terms, is_sure), _more_rounds(found, terms))


def percent(share: float) -> str:
    """A threshold as text: 2%, 0.5%."""
    return f"{share * 100:g}%"


def _direction(found: Comparison, terms: Terms) -> str:
    return "gain" if (found.gain > 0) == (terms.better == "higher") else "loss"


def interval_at(found: Comparison, share: float) -> tuple[float, float]:
    """The interval at the level that an interim analysis may spend; 95 % with the others."""
    assert found.low is not None and found.high is not None
    if share >= 1.0 or found.df <= 0:
        return found.low, found.high
    df = round(found.df, 1)
    low, high = math.log1p(max(found.low, LEAST)), math.log1p(found.high)
    centre, half = (low + high) / 2, (high - low) / 2
    widest = max(half, WIDEST)
    if share > 0:
        alpha = 1 - CONFIDENCE
        wider = student.critical(df, alpha * share) / student.critical(df, alpha)
        widest = min(half * wider, widest)
    return math.expm1(centre - widest), math.expm1(centre + widest)


def _reason(found: Comparison, terms: Terms, is_sure: bool) -> str:
    assert found.low is not None and found.high is not None
    low, high = interval_at(found, terms.spending.share if is_sure else 1.0)
    if low <= 0 <= high:
        return "the interval contains 0"
    if not is_sure:
        return f"chance gives this once in {max(2, round(1 / max(terms.q, found.p, 1e-9))):,} times"
    if abs(found.gain) < terms.threshold:
        return f"the interval reaches over ±{percent(terms.threshold)}"
    side = "contender" if terms.interference > 0 else "baseline"
    return f"interference took up to {abs(terms.interference):.0%} more from the {side}"


def _more_rounds(found: Comparison, terms: Terms) -> int | None:
    """Rounds until the next interim analysis, if it sees the same gain and spread, decides it.

    None where that takes more than ROUNDS_MAX or than the run may have, and where more rounds do
    not help: they make the chance of an error smaller, not what interference took from one side.
    """
    assert found.low is not None and found.high is not None
    if terms.interference and not found.low <= 0 <= found.high:
        return None
    centre, limit = math.log1p(found.gain), math.log1p(terms.threshold)
    gain, below = abs(centre), math.log1p(-min(terms.threshold, 0.99))
    if found.error <= 0:
        return None
    rank = found.p / terms.q if terms.q > found.p else 1.0  # what other comparisons leave of q
    bar = min(P_MAX, Q_MAX * rank) if gain >= limit else 1 - CONFIDENCE
    reach = gain if gain >= limit else max(0.0, min(limit - centre, centre - below))

    def chance_after(more: int) -> float:
        error = found.error * math.sqrt(found.rounds / (found.rounds + more))
        return student.two_sided_p(reach / error, found.df + more)

    # More rounds make the chance smaller, and an interim analysis never has more than the bar.
    numbers = range(1, int(min(ROUNDS_MAX, terms.spending.rounds_left)) + 1)
    least = bisect_left(numbers, True, key=lambda more: chance_after(more) <= bar)
    for more in numbers[least:]:
        if chance_after(more) <= bar * terms.spending.share_after(more):
            return more
    return None
