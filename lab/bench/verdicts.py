"""How often a verdict is wrong: simulated tables with a known gain, in the lab's own statistics.

    python lab/bench/verdicts.py [EXPERIMENTS]

One experiment is a table of 4 rows, baseline against contender, 5 rounds. Noise is drawn for
every trial in time order, so that drift and slow phases of a machine hit what they would hit.
The last rows have a disturbing program: most windows lose a part of their core to it, the contender
loses all of that part and the baseline half of it, and the calmest of two windows counts, as it
does in a run whose machine is never calm.
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Iterator

from wirespeed.results.statistics import benjamini_hochberg, compare, decide, odd_even_floor

ROWS, ROUNDS = 4, 5
WORDS = ("gain", "loss", "no difference", "not decided")
Trial = tuple[int, int]  # row, 0 = baseline or 1 = contender


def still(rng: random.Random, _: float, _before: float) -> float:
    return rng.gauss(0, 0.02)


def slow_phases(rng: random.Random, _: float, before: float) -> float:
    """Autocorrelated noise like that of a busy guest: CV 12 %, lag-1 correlation 0.5."""
    return 0.5 * before + rng.gauss(0, 0.12 * math.sqrt(1 - 0.25))


def drift(rng: random.Random, progress: float, _: float) -> float:
    """The machine loses a tenth of its speed over the run."""
    return -0.1 * progress + rng.gauss(0, 0.02)


def outliers(rng: random.Random, _: float, _before: float) -> float:
    """One trial in ten is a quarter slower."""
    return rng.gauss(0, 0.02) - (0.29 if rng.random() < 0.1 else 0)


def order(rng: random.Random, is_blocked: bool) -> Iterator[Trial]:
    cells = [(row, side) for row in range(ROWS) for side in (0, 1)]
    if is_blocked:
        for side in (0, 1):
            for row in range(ROWS):
                yield from [(row, side)] * ROUNDS
        return
    for _ in range(ROUNDS):
        rng.shuffle(cells)
        yield from cells


def no_program(_: random.Random) -> float:
    return 0.0


def bursts(rng: random.Random) -> float:
    """A kernel thread: two of three windows lose 3 to 15 % of a core."""
    return rng.uniform(0.03, 0.15) if rng.random() < 0.67 else 0.0


def heavy(rng: random.Random) -> float:
    """A neighbour: nine of ten windows lose 5 to 40 %."""
    return rng.uniform(0.05, 0.4) if rng.random() < 0.9 else 0.0


def experiment(
    rng: random.Random, noise, gain: float, is_blocked: bool, program=no_program
) -> Counter[str]:
    values: dict[Trial, list[float]] = {}
    lost: dict[Trial, list[float]] = {}
    before, total = 0.0, 2 * ROWS * ROUNDS
    for position, cell in enumerate(order(rng, is_blocked)):
        before = noise(rng, position / total, before)
        taken = min(program(rng), program(rng))
        level = 1000 * (1 + gain) ** cell[1] * (1 - taken * (1.0 if cell[1] else 0.5))
        values.setdefault(cell, []).append(level * math.exp(before))
        lost.setdefault(cell, []).append(taken)
    found = [compare(values[row, 1], values[row, 0]) for row in range(ROWS)]
    qs = benjamini_hochberg([one.p for one in found])
    floor = odd_even_floor([values[row, 0] for row in range(ROWS)])
    shares = [max(sum(lost[row, side]) / ROUNDS for side in (0, 1)) for row in range(ROWS)]
    return Counter(
        decide(one, q=q, floor=floor, disturbed=share).word
        for one, q, share in zip(found, qs, shares, strict=True)
    )


def cases() -> Iterator[tuple]:
    """(noise, program, whether in blocks)."""
    for noise in (still, outliers, slow_phases, drift):
        for is_blocked in (False, True):
            yield noise, no_program, is_blocked
    for noise in (still, slow_phases):
        for program in (bursts, heavy):
            yield noise, program, False


def main() -> None:
    experiments = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    print("| noise | order | true gain | " + " | ".join(WORDS) + " |")
    print("| --- | --- | ---: |" + " ---: |" * len(WORDS))
    for noise, program, is_blocked in cases():
        for gain in (0.0, 0.05, 0.3):
            rng = random.Random(7)
            words: Counter[str] = Counter()
            for _ in range(experiments):
                words += experiment(rng, noise, gain, is_blocked, program)
            total = sum(words.values())
            shares = " | ".join(f"{words[word] / total:.1%}" for word in WORDS)
            name = noise.__name__.replace("_", " ")
            name += "" if program is no_program else f" and {program.__name__}"
            kind = "blocked" if is_blocked else "interleaved"
            print(f"| {name} | {kind} | {gain:.0%} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
