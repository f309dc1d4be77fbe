"""How often a comparison of so many pairs would find a planted cost, estimated from recorded pairs.

Each pair has servers of its own, so a comparison is a draw of so many pairs, and whatever pairs
were recorded stand for all that could have been (Efron 1979). Comparisons that are drawn from the
same pairs are not repeats: more of them make the estimate no surer. How sure it is depends on the
number of recorded pairs, so the estimate is made again from pairs drawn again from the recorded
ones, or from sessions drawn again where there are enough, and the interval holds 95 % of these.
What happens in fewer than one of the recorded pairs is in neither.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from statistics import StatisticsError, correlation

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
    logs: Sequence[float], better: str, spending: Spending = SINGLE
) -> tuple[Verdict, comparison.Comparison | None]:
    """The verdict that a run of this comparison alone would print."""
    (found,) = comparison.compare([logs])
    terms = Terms(q=found.p if found else 1.0, better=better, spending=spending)
    return decide(found, terms), found


def is_hit(word: str, percent: float) -> bool:
    """Of a server with itself any claim, and it is false; of a slower one the loss."""
    return word == "loss" if percent else word in ("gain", "loss")


def is_found(
    pairs: Sequence[Pair], percent: float, metrics: Mapping[str, str], spending: Spending = SINGLE
) -> bool:
    """In either metric, as a run's gate sees it."""
    return any(
        is_hit(judge(_logs(pairs, metric), better, spending)[0].word, percent)
        for metric, better in metrics.items()
    )


def is_found_on_the_way(
    pairs: Sequence[Pair], percent: float, metrics: Mapping[str, str], primary: str
) -> bool:
    """The same with interim analyses, as `--until-decided` has them: after the usual pairs, and
    when the pairs that seemed to be missing in the primary metric are there."""
    at: tuple[int, ...] = (min(PAIRS, len(pairs)),)
    while True:
        so_far = pairs[: at[-1]]
        spending = Spending(len(at), True, at, len(pairs))
        if is_found(so_far, percent, metrics, spending):
            return True
        verdict, _ = judge(_logs(so_far, primary), metrics[primary], spending)
        left, more = len(pairs) - at[-1], verdict.more_rounds
        if not more or more > left:
            return False
        at = (*at, at[-1] + min(left, max(ROUNDS_AT_ONCE_MIN, more)))


def share(chance: random.Random, recorded: Sequence[Pair], pairs: int, draws: int, find) -> float:
    """Of comparisons drawn from the recorded pairs, how many find it."""
    return sum(find(chance.choices(recorded, k=pairs)) for _ in range(draws)) / draws


def estimate(
    sessions: Sequence[Sequence[Pair]], pairs: int, find, draws: Draws = DRAWS, seed: int = SEED
) -> tuple[float, float, float]:
    """The share that is found, and the interval that so few recorded pairs leave."""
    chance = random.Random(seed)
    recorded = list(chain.from_iterable(sessions))
    middle = share(chance, recorded, pairs, draws.once, find)
    others = sorted(
        share(chance, _again(chance, sessions), pairs, draws.each, find) for _ in range(draws.again)
    )
    cut = int(TAIL * draws.again)
    return middle, min(middle, others[cut]), max(middle, others[-1 - cut])


def _again(chance: random.Random, sessions: Sequence[Sequence[Pair]]) -> list[Pair]:
    if len(sessions) >= SESSIONS_MIN:
        return list(chain.from_iterable(chance.choices(sessions, k=len(sessions))))
    recorded = list(chain.from_iterable(sessions))
    return chance.choices(recorded, k=len(recorded))


def told(
    sessions: Sequence[Sequence[Pair]], percent: float, pairs: int, metrics: Mapping[str, str],
    primary: str, draws: Draws = DRAWS,
) -> list[str]:  # fmt: skip
    """What is said of one planted share."""
    count = sum(map(len, sessions))
    where = f"planted {percent:g} %, {count} recorded pairs in {len(sessions)} session"
    where += "s" * (len(sessions) != 1)
    if count < pairs:
        return [f"{where}: too few, {pairs - count} more make one comparison"]
    over = "sessions" if len(sessions) >= SESSIONS_MIN else "pairs"
    what = "found" if percent else "called different"
    ways = {
        "in one analysis": lambda drawn: is_found(drawn, percent, metrics),
        "with interim analyses": lambda drawn: is_found_on_the_way(
            drawn, percent, metrics, primary
        ),
    }
    lines = []
    for way, find in ways.items():
        middle, low, high = estimate(sessions, pairs, find, draws)
        lines.append(
            f"{where}: estimated to be {what} {way} by {middle:.0%} of such comparisons "
            f"(95 % by bootstrap over {over}: {low:.0%} … {high:.0%})"
        )
    return [*lines, *_successive(sessions, primary)]


def _successive(sessions: Sequence[Sequence[Pair]], metric: str) -> list[str]:
    """Whether pairs of one session are as independent as the estimate takes them to be."""
    each = [_logs(session, metric) for session in sessions]
    befores, afters = [], []
    for logs in each:
        for before, after in pairwise(logs):
            befores.append(before)
            afters.append(after)
    try:
        found = correlation(befores, afters)
    except StatisticsError:
        return []
    return [f"  correlation of successive pairs in {metric}: {found:+.2f}"]


def _logs(pairs: Sequence[Pair], metric: str) -> list[float]:
    return [pair[metric] for pair in pairs if metric in pair]
