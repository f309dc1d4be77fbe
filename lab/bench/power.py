"""How often a comparison of so many pairs would find a planted cost, estimated from recorded pairs.

Each pair has servers of its own, so a comparison is a draw of so many pairs, and whatever pairs
were recorded stand for all that could have been (Efron 1979). From eight sessions on, of which each
has the pairs of a comparison, a session is drawn and then its pairs, as a real comparison is made
within one; before, the pairs of all sessions are one lot. Pairs of a server with itself are centred
at 0. Comparisons that are drawn from the
same pairs are not repeats: more of them make the estimate no surer. How sure it is depends on the
number of recorded pairs, so the estimate is made again from pairs drawn again from the recorded
ones, or from sessions drawn again, and the interval holds 95 % of these.
What happens in fewer than one of the recorded pairs is in neither.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import StatisticsError, correlation, fmean

from wirespeed.analysis.verdict import Terms, Verdict, decide
from wirespeed.runner.duet import PAIRS
from wirespeed.runner.extend import ROUNDS_AT_ONCE_MIN
from wirespeed.stats import comparison
from wirespeed.stats.spending import SINGLE, Spending

Pair = Mapping[str, float]  # the log ratio of each metric; of a pair that failed none
SESSIONS_MIN = 8  # fewer say little about how sessions differ
TAIL = 0.025
SEED = 1


@dataclass(frozen=True)
class Draws:
    """How many comparisons are drawn."""

    once: int = 1000  # behind the estimate
    again: int = 200  # estimates behind its interval
    each: int = 50  # behind each of these


DRAWS = Draws()


def judge(
    logs: Sequence[float], better: str, spending: Spending = SINGLE,
    threshold: float = comparison.THRESHOLD,
) -> tuple[Verdict, comparison.Comparison | None]:  # fmt: skip
    """The verdict that a run of this comparison alone would print."""
    (found,) = comparison.compare([logs])
    q = found.p if found else 1.0
    terms = Terms(q=q, better=better, spending=spending, threshold=threshold)
    return decide(found, terms), found


def is_hit(word: str, percent: float) -> bool:
    """Of a server with itself any claim, and it is false; of a slower one the loss."""
    return word == "loss" if percent else word in ("gain", "loss")


def is_found(
    pairs: Sequence[Pair], percent: float, metrics: Mapping[str, str], spending: Spending = SINGLE,
    threshold: float = comparison.THRESHOLD,
) -> bool:  # fmt: skip
    """In either metric, as a run's gate sees it."""
    return any(
        is_hit(judge(_logs(pairs, metric), better, spending, threshold)[0].word, percent)
        for metric, better in metrics.items()
    )


def is_found_on_the_way(
    pairs: Sequence[Pair], percent: float, metrics: Mapping[str, str], primary: str,
    threshold: float = comparison.THRESHOLD,
) -> bool:  # fmt: skip
    """The same with interim analyses, as `--until-decided` has them: after the usual pairs, and
    when the pairs that seemed to be missing in the primary metric are there."""
    at: tuple[int, ...] = (min(PAIRS, len(pairs)),)
    while True:
        so_far = pairs[: at[-1]]
        spending = Spending(len(at), True, at, len(pairs))
        if is_found(so_far, percent, metrics, spending, threshold):
            return True
        verdict, _ = judge(_logs(so_far, primary), metrics[primary], spending, threshold)
        left, more = len(pairs) - at[-1], verdict.more_rounds
        if not more or more > left:
            return False
        at = (*at, at[-1] + min(left, max(ROUNDS_AT_ONCE_MIN, more)))


def share(
    chance: random.Random, groups: Sequence[Sequence[Pair]], pairs: int, draws: int, find
) -> float:
    """Of comparisons that are drawn each from the pairs of one group, how many find it."""
    found = sum(find(chance.choices(chance.choice(groups), k=pairs)) for _ in range(draws))
    return found / draws


def estimate(
    sessions: Sequence[Sequence[Pair]], pairs: int, find, draws: Draws = DRAWS, seed: int = SEED,
    is_same: bool = False,
) -> tuple[float, float, float]:  # fmt: skip
    """The share that is found, and the interval that so few recorded pairs leave. `is_same`: of a
    server with itself."""
    chance = random.Random(seed)
    as_they_are = centred if is_same else list
    groups = groups_of(sessions, pairs)
    middle = share(chance, as_they_are(groups), pairs, draws.once, find)
    others = sorted(
        share(chance, as_they_are(_again(chance, groups)), pairs, draws.each, find)
        for _ in range(draws.again)
    )
    cut = int(TAIL * draws.again)
    return middle, min(middle, others[cut]), max(middle, others[-1 - cut])


def groups_of(sessions: Sequence[Sequence[Pair]], pairs: int) -> list[Sequence[Pair]]:
    """The pairs that one comparison may be drawn from. A real one is made within one session, so
    sessions stay apart where enough of them have the pairs of a comparison."""
    whole = [session for session in sessions if len(session) >= pairs]
    return whole if len(whole) >= SESSIONS_MIN else [list(chain.from_iterable(sessions))]


def centred(groups: Sequence[Sequence[Pair]]) -> list[Sequence[Pair]]:
    """With a mean of 0 in each metric, as a server compared with itself has: that of so few pairs
    differs from 0 by chance, and each comparison that is drawn would find it there again. What
    sessions differ by stays."""
    metrics = {name for group in groups for pair in group for name in pair}
    means = {
        metric: fmean(fmean(logs) for group in groups if (logs := _logs(group, metric)))
        for metric in metrics
    }
    return [
        [{name: log - means[name] for name, log in pair.items()} for pair in group]
        for group in groups
    ]


def _again(chance: random.Random, groups: Sequence[Sequence[Pair]]) -> list[Sequence[Pair]]:
    if len(groups) > 1:
        return chance.choices(groups, k=len(groups))
    (only,) = groups
    return [chance.choices(only, k=len(only))]


def told(
    sessions: Sequence[Sequence[Pair]], percent: float, pairs: int, metrics: Mapping[str, str],
    primary: str, draws: Draws = DRAWS, threshold: float = comparison.THRESHOLD,
) -> list[str]:  # fmt: skip
    """What is said of one planted share."""
    groups = groups_of(sessions, pairs)
    is_by_session = len(groups) > 1
    count, number = sum(map(len, groups)), len(groups if is_by_session else sessions)
    where = f"planted {percent:g} %, {count} recorded pairs in {number} session"
    where += "s" * (number != 1)
    if count < pairs:
        return [f"{where}: too few, {pairs - count} more make one comparison"]
    over = "sessions" if is_by_session else "pairs"
    what = "found" if percent else "called different"
    ways = {
        "in one analysis": lambda drawn: is_found(
            drawn, percent, metrics, threshold=threshold
        ),
        "with interim analyses": lambda drawn: is_found_on_the_way(
            drawn, percent, metrics, primary, threshold
        ),
    }
    lines = []
    for way, find in ways.items():
        middle, low, high = estimate(sessions, pairs, find, draws, is_same=not percent)
        lines.append(
            f"{where}: estimated to be {what} {way} by {middle:.0%} of such comparisons "
            f"(95 % by bootstrap over {over}: {low:.0%} … {high:.0%})"
        )
    return lines


def successive(sessions: Sequence[Sequence[tuple[float, Pair]]], metric: str) -> list[str]:
    """Whether pairs of one session are as independent as the estimate takes them to be. With
    shares that take turns the next pair is one of another share, so each is taken without its
    share's mean: pairs of one share alone are further apart than those of a comparison."""
    by_share: dict[float, list[float]] = defaultdict(list)
    for percent, pair in chain.from_iterable(sessions):
        by_share[percent] += _logs([pair], metric)
    means = {percent: fmean(logs) for percent, logs in by_share.items() if logs}
    both = [
        (before[metric] - means[one], after[metric] - means[other])
        for session in sessions
        for (one, before), (other, after) in pairwise(session)
        if metric in before and metric in after
    ]
    if not both:
        return []
    try:
        found = correlation(*zip(*both, strict=True))
    except StatisticsError:  # all alike
        return []
    return [f"correlation of pairs next to each other, of any share, in {metric}: {found:+.2f}"]


def _logs(pairs: Sequence[Pair], metric: str) -> list[float]:
    return [pair[metric] for pair in pairs if metric in pair]
