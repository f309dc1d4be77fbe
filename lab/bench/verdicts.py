"""How often a verdict is wrong, and how often it is right: simulated runs with a known gain,
judged by the lab's own statistics.

    python lab/bench/verdicts.py [TABLES [PART ...]]
    parts: same, planted, lone, withheld, families, sequential, limits, boundaries

A run is a number of comparisons measured in interleaved rounds, as many as the plan chooses. Noise
is drawn for every trial in time order, so that drift and slow phases hit what they would hit. Sizes
are those of the shipped recipes: 1, 4, 12 (aa, netty, nginx on two cores), 18 (quickstart), 30
(zuul), 60 (netty on six instances) and 288 (nginx measured whole).
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from wirespeed.analysis.cells import Cell
from wirespeed.analysis.comparisons import DUET, LATENCY_BOUND, Pair, held_back, loosened, qs, slack
from wirespeed.analysis.verdict import Terms, Verdict, decide
from wirespeed.results.model import Duet, DuetRatio, Trial
from wirespeed.stats.comparison import (
    P_MAX,
    Q_MAX,
    benjamini_hochberg,
    compare,
    over_cells,
    prior_df_max,
)
from wirespeed.stats.rounds import QUIET_SPREAD, planned
from wirespeed.stats.spending import Spending
from wirespeed.stats.student import critical

SIZES = (1, 4, 12, 18, 30, 60, 288)
COMPARED_MAX = 60_000  # in one line of a table: runs of many comparisons are simulated less often
WORDS = ("gain", "loss", "no difference", "not decided")

Noise = Callable[[random.Random, int, int, float, float], float]


def quiet(rng, _row, _side, _progress, _before):
    return rng.gauss(0, QUIET_SPREAD)


def noisy(rng, _row, _side, _progress, _before):
    return rng.gauss(0, 0.04)


def slow_phases(rng, _row, _side, _progress, before):
    """Autocorrelated noise like that of a busy guest: 12 %, lag-1 correlation 0.5."""
    return 0.5 * before + rng.gauss(0, 0.12 * math.sqrt(0.75))


def drift(rng, _row, _side, progress, _before):
    """The machine loses a tenth of its speed over the run."""
    return -0.1 * progress + rng.gauss(0, 0.02)


def outliers(rng, _row, _side, _progress, _before):
    """One trial in ten is a quarter slower."""
    return rng.gauss(0, 0.02) - (0.29 if rng.random() < 0.1 else 0)


def heavy_tails(rng, _row, _side, _progress, _before):
    """Student's t with three degrees of freedom."""
    chi = sum(rng.gauss(0, 1) ** 2 for _ in range(3))
    return 0.02 * rng.gauss(0, 1) / math.sqrt(chi / 3)


def two_states(rng, _row, _side, _progress, _before):
    """One trial in five is 1.8 times as fast."""
    return rng.gauss(0, 0.02) + (math.log(1.8) if rng.random() < 0.2 else 0)


def unequal_sides(rng, _row, side, _progress, _before):
    """The baseline spreads by 10 %, the contender by 1 %."""
    return rng.gauss(0, 0.01 if side else 0.10)


def unequal_rows(rng, row, _side, _progress, _before):
    """Comparisons spread by 1, 2, 5 and 10 %."""
    return rng.gauss(0, (0.01, 0.02, 0.05, 0.10)[row % 4])


def every_other_row(rng, row, _side, _progress, _before):
    """Every other comparison spreads four times as much."""
    return rng.gauss(0, 0.01 if row % 2 else 0.04)


NOISES = (quiet, noisy, slow_phases, drift, outliers, heavy_tails, two_states, unequal_sides,
          unequal_rows, every_other_row)  # fmt: skip


def run(rng: random.Random, noise: Noise, gains: list[float], rounds: int) -> list[list[float]]:
    """Log ratios by comparison, and the baseline's logs, of one simulated run."""
    rows = len(gains)
    ratios: list[list[float]] = [[] for _ in gains]
    base: list[dict[int, float]] = [{} for _ in gains]
    before, position, total = 0.0, 0, 2 * rows * rounds
    for number in range(rounds):
        order = list(range(rows))
        rng.shuffle(order)
        for row in order:
            sides = [0, 1]
            rng.shuffle(sides)
            values = [0.0, 0.0]
            for side in sides:
                before = values[side] = noise(rng, row, side, position / total, before)
                position += 1
            ratios[row].append(values[1] - values[0] + math.log1p(gains[row]))
            base[row][number] = math.exp(values[0])
    return ratios, base


def judged(ratios, _base):
    """(comparison, verdict) of each, and the pooled ones."""
    found = compare(ratios)
    each_q = benjamini_hochberg([one.p for one in found])
    each = [(one, decide(one, Terms(q=q))) for one, q in zip(found, each_q, strict=True)]
    pooled = over_cells([dict(enumerate(row)) for row in ratios])
    return each, (pooled, decide(pooled, Terms(q=pooled.p)))


def seed_of(*parts) -> random.Random:
    return random.Random("/".join(map(str, parts)))


def name_of(noise: Noise) -> str:
    return noise.__name__.replace("_", " ")


def tables_of(tables: int, size: int) -> int:
    return max(100, min(tables, COMPARED_MAX // size))


def same(tables: int) -> None:
    print("\n## A stack against itself\n")
    print(
        "| noise | comparisons | rounds | runs | gain | loss | no difference | runs with any | "
        "pooled gain or loss | interval covers |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for noise in NOISES:
        for size, rounds in [*((size, planned(size)) for size in SIZES), (5, 3), (12, 3)]:
            rng, words = seed_of(noise.__name__, size), Counter()
            any_found = pooled_found = covered = 0
            count = tables_of(tables, size)
            for _ in range(count):
                each, (_, pooled) = judged(*run(rng, noise, [0.0] * size, rounds))
                words.update(verdict.word for _, verdict in each)
                any_found += any(verdict.word in ("gain", "loss") for _, verdict in each)
                pooled_found += pooled.word in ("gain", "loss")
                covered += sum(one.low <= 0 <= one.high for one, _ in each)
            total = count * size
            print(
                f"| {name_of(noise)} | {size} | {rounds} | {count} | "
                + " | ".join(f"{words[w] / total:.2%}" for w in WORDS[:3])
                + f" | {any_found / count:.1%} | {pooled_found / count:.1%} | "
                f"{covered / total:.1%} |",
                flush=True,
            )


def planted(tables: int) -> None:
    print("\n## A slowdown in all cells, rounds as the plan chooses\n")
    print(
        "| noise | comparisons | rounds | slower by | found | called no difference | called gain | "
        "pooled verdict: loss |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for noise in (quiet, drift, unequal_rows, noisy):
        for size in SIZES:
            for slower in (0.03, 0.05, 0.10):
                rng, words, pooled_found = seed_of(noise.__name__, size, slower), Counter(), 0
                count = tables_of(tables // 2, size)
                for _ in range(count):
                    gains = [-slower] * size
                    each, (_, pooled) = judged(*run(rng, noise, gains, planned(size)))
                    words.update(verdict.word for _, verdict in each)
                    pooled_found += pooled.word == "loss"
                total = count * size
                print(
                    f"| {name_of(noise)} | {size} | {planned(size)} | {slower:.0%} | "
                    f"{words['loss'] / total:.1%} | {words['no difference'] / total:.2%} | "
                    f"{words['gain'] / total:.2%} | {pooled_found / count:.1%} |",
                    flush=True,
                )


def lone(tables: int) -> None:
    print("\n## A slowdown in a single cell\n")
    print("| noise | comparisons | rounds | slower by | found | false verdicts on the others |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for noise in (quiet, noisy, every_other_row):
        for size in SIZES[1:]:
            for slower in (0.03, 0.05, 0.10, 0.50):
                rng, found, wrong = seed_of(noise.__name__, size, slower), 0, 0
                count = tables_of(tables // 2, size)
                for _ in range(count):
                    gains = [-slower] + [0.0] * (size - 1)
                    each, _ = judged(*run(rng, noise, gains, planned(size)))
                    found += each[0][1].word == "loss"
                    wrong += sum(verdict.word in ("gain", "loss") for _, verdict in each[1:])
                print(
                    f"| {name_of(noise)} | {size} | {planned(size)} | {slower:.0%} | "
                    f"{found / count:.1%} | {wrong / count / (size - 1):.2%} |",
                    flush=True,
                )


def withheld(tables: int) -> None:
    """Gains of x5 of which nothing may be claimed, among ten nulls: do they let a null pass?"""
    print("\n## Ten nulls among withheld gains\n")
    print(
        "| withheld | runs with a false verdict: all count for q | verdicts that may be claimed |"
    )
    print("| ---: | ---: | ---: |")
    for held in (0, 5, 20, 60):
        rng, wrong = seed_of("withheld", held), [0, 0]
        count = tables_of(tables, held + 10)
        for _ in range(count):
            ratios, _ = run(rng, quiet, [4.0] * held + [0.0] * 10, 5)
            found = compare(ratios)
            terms = [Terms(withheld="x")] * held + [Terms()] * 10
            for way, each in enumerate((benjamini_hochberg([one.p for one in found]),
                                        qs(found, terms))):  # fmt: skip
                words = [
                    decide(one, Terms(q=q)).word
                    for one, q in zip(found[held:], each[held:], strict=True)
                ]
                wrong[way] += "gain" in words or "loss" in words
        print(f"| {held} | {wrong[0] / count:.1%} | {wrong[1] / count:.1%} |", flush=True)


def families(tables: int) -> None:
    """Pooled verdicts of nulls, each by its own p or together."""
    print("\n## Families of nulls, four cells each\n")
    print("| noise | families | runs with a false pooled verdict: each alone | together |")
    print("| --- | ---: | ---: | ---: |")
    for noise in (quiet, slow_phases, drift):
        for number in (1, 2, 4, 8, 16):
            rng, wrong = seed_of("families", noise.__name__, number), [0, 0]
            count = tables_of(tables, 4 * number)
            for _ in range(count):
                ratios, _ = run(rng, noise, [0.0] * 4 * number, 5)
                pooled = [
                    over_cells([dict(enumerate(row)) for row in ratios[at : at + 4]])
                    for at in range(0, 4 * number, 4)
                ]
                terms = [Terms()] * number
                for way, each in enumerate(([one.p for one in pooled], qs(pooled, terms))):
                    words = [
                        decide(one, Terms(q=q)).word for one, q in zip(pooled, each, strict=True)
                    ]
                    wrong[way] += "gain" in words or "loss" in words
            print(
                f"| {name_of(noise)} | {number} | {wrong[0] / count:.1%} | "
                f"{wrong[1] / count:.1%} |", flush=True,
            )  # fmt: skip


def sequential(tables: int) -> None:
    """One comparison that goes on until it is decided, from five rounds by three to twenty."""
    print("\n## One comparison, analysed after 5, 8, … 20 rounds\n")
    print("| difference | by | decided | rounds on average |")
    print("| ---: | --- | ---: | ---: |")
    for gain in (0.0, 0.03, 0.05, 0.10):
        for name, rounds_max in (("halving", 0), ("O'Brien and Fleming", 20)):
            rng, decided, spent = seed_of("sequential", gain, name), 0, 0
            for _ in range(tables):
                at, row = [], [rng.gauss(math.log1p(gain), 0.04) for _ in range(5)]
                while True:
                    at.append(len(row))
                    (one,) = compare([row])
                    spending = Spending(len(at), True, tuple(at), rounds_max)
                    word = decide(one, Terms(q=one.p, spending=spending)).word
                    if word in ("gain", "loss") or len(row) >= 20:
                        break
                    row += [rng.gauss(math.log1p(gain), 0.04) for _ in range(3)]
                decided += word in ("gain", "loss")
                spent += len(row)
            print(
                f"| {gain:.0%} | {name} | {decided / tables:.1%} | {spent / tables:.1f} |",
                flush=True,
            )


@dataclass(frozen=True)
class Truth:
    """One side of a made-up cell: what its server carries at most, what it carries at this number
    of connections, and what its generator and the link do."""

    server: float
    connections: float
    generator: float
    link: float

    @property
    def seen(self) -> float:
        return min(self.server, self.connections, self.generator, self.link)

    @property
    def limit(self) -> str:
        names = {"server": self.server, "concurrency": self.connections,
                 "client": self.generator, "link": self.link}  # fmt: skip
        name = min(names, key=names.__getitem__)
        return "both" if name == "server" and self.generator * 0.95 < self.server else name


def truths(rng: random.Random, gain: float) -> tuple[Truth, Truth]:
    """Contender and baseline whose servers differ by `gain` only, and whose generators and links
    differ by anything."""
    server, connections = rng.lognormvariate(0, 0.4), rng.lognormvariate(0.3, 0.6)
    sides = [
        Truth(server * ratio, connections * ratio, rng.lognormvariate(0.4, 0.6),
              rng.lognormvariate(0.7, 0.6))
        for ratio in (1 + gain, 1.0)
    ]  # fmt: skip
    return sides[0], sides[1]


def made(rng: random.Random, sides: tuple[Truth, Truth], method: str, rounds: int = 6) -> Pair:
    """The same as a run records it. Every third limit is not known; the generators of every fourth
    such side ran partly alone, and of another fourth Little's law does not hold."""
    cells = []
    for number, side in enumerate(sides):
        limit = "unknown" if rng.random() < 1 / 3 else side.limit
        kind = rng.randrange(4) if limit == "unknown" and method != DUET else 3
        trials = []
        for at in range(rounds):
            busy = [None if rng.random() < 0.2 else one.seen / one.server for one in sides[::-1]]
            log = math.log(sides[0].seen / sides[1].seen) + rng.gauss(0, 0.01)
            duet = Duet("1", {"rps": DuetRatio(log, None, 1)}, busy=busy)
            rate = side.seen * math.exp(rng.gauss(0, 0.01))
            if kind == 0:  # each had the server for itself, and their rates were added
                rate = min(side.server, 1.5 * side.seen) * (1.0 + 0.5 * rng.random())
            notes = ["the generators ran together for 60% of their windows only"] * (kind == 0)
            residual = -0.5 if kind == 1 else 0.0
            trials.append(
                Trial(str(at), str(number), at, at, bottleneck=limit, notes=notes,
                      metrics={"rps": rate, "little_residual": residual},
                      duet=duet if method == DUET and number == 0 else None)
            )  # fmt: skip
        cells.append(Cell(str(number), {}, "measured", "", tuple(trials)))
    return Pair(cells[0], cells[1], "", "rps")


def said(pair: Pair) -> Verdict:
    terms = Terms(q=0.0, **held_back(pair, "higher", True, ("contender", "baseline"))._asdict())
    (found,) = compare([list(pair.ratios().values())])
    return decide(loosened(found, slack([pair], terms)), terms)


def is_false(verdict: Verdict, sides: tuple[Truth, Truth]) -> bool:
    """Whether a claim contradicts what the servers can do, or can do with so many connections."""
    if verdict.word not in ("gain", "loss"):
        return False
    carried = [min(one.server, one.connections) if verdict.scope == LATENCY_BOUND else one.server
               for one in sides]  # fmt: skip
    return carried[0] <= carried[1] if verdict.word == "gain" else carried[0] >= carried[1]


def limits(tables: int) -> None:
    """Generators and links that hold back one side, limits that are not known: is a gain claimed
    that the servers do not have?"""
    print("\n## Sides that something else than their server holds back\n")
    print("| method | servers differ by | comparisons | false gain or loss | of them bounds | "
          "gain or loss | as a bound | not comparable |")  # fmt: skip
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for method in (DUET, "separate trials"):
        for gain in (0.0, 0.10, 1.0, 4.0):
            counts = of_limits(tables, method, gain)
            shares = " | ".join(f"{counts[name] / tables:.2%}" for name in COUNTED)
            print(f"| {method} | {gain:.0%} | {tables} | {shares} |", flush=True)


COUNTED = ("false", "false bound", "claimed", "bound", "not comparable")


def of_limits(tables: int, method: str, gain: float) -> Counter[str]:
    rng, counts = seed_of("limits", method, gain), Counter()
    for _ in range(tables):
        sides = truths(rng, gain)
        verdict = said(made(rng, sides, method))
        is_claim = verdict.word in ("gain", "loss")
        wrong = is_false(verdict, sides)
        counts.update({"false": wrong, "false bound": wrong and bool(verdict.bound),
                       "claimed": is_claim, "bound": is_claim and bool(verdict.bound),
                       "not comparable": verdict.word == "not comparable"})  # fmt: skip
    return counts


def bars(size: int, at: list[int], rounds_max: int) -> tuple[float, float]:
    """The p that a verdict needs at the last of these analyses: of a difference that all of so many
    comparisons have, and of one that a single comparison has."""
    share = Spending(len(at), rounds_max > 0, tuple(at) if rounds_max else (), rounds_max).share
    return min(P_MAX, Q_MAX) * share, min(P_MAX, Q_MAX / size) * share


def smallest_found(size: int, rounds: int, bar: float) -> float:
    """The difference that is found half of the time with such a p on a quiet machine."""
    df = rounds - 1 + prior_df_max(size, rounds - 1)
    error = math.sqrt(2 / rounds) * QUIET_SPREAD
    return math.expm1(critical(round(df, 1), bar) * error)


def boundaries(_tables: int) -> None:
    """What a verdict needs at the shipped sizes, in one analysis and in four of --until-decided."""
    print("\n## What a verdict needs\n")
    print("| comparisons | rounds | analysis | p, all differ | found | p, one differs | found |")
    print("| ---: | ---: | --- | ---: | ---: | ---: | ---: |")
    for size in SIZES:
        first = planned(size)
        looks = [([first], 0, "the only one")]
        at = [first * number for number in range(1, 5)]
        looks += [(at[:n], at[-1], f"{n} of 4") for n in range(1, 5)]
        for done, rounds_max, name in looks:
            every, one = bars(size, done, rounds_max)
            found = [f"{smallest_found(size, done[-1], bar):.1%}" for bar in (every, one)]
            print(
                f"| {size} | {done[-1]} | {name} | {every:.2g} | {found[0]} | {one:.2g} | "
                f"{found[1]} |"
            )


def main() -> None:
    tables = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    parts = (same, planted, lone, withheld, families, sequential, limits, boundaries)
    known = {one.__name__: one for one in parts}
    for name in sys.argv[2:] or known:
        known[name](tables)


if __name__ == "__main__":
    main()
