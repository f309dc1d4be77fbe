"""How often a verdict is wrong in real runs: a stack against itself, and against a slower one.

    python lab/bench/aa.py RUN …                       counts in finished runs
    python lab/bench/aa.py measure MINUTES [SIZE …]    makes the runs first, then counts

Runs of the recipe `aa` have no true difference, so each gain and loss is false. Runs of
`planted.toml` have contenders that are slower by 3, 5 and 10 % of their core (slowed.py). `measure`
makes runs of SIZE comparisons (those of the shipped recipes: 4, 12, 18, 30) in turns, a `planted`
one after each turn, with the rounds that the plan chooses, until MINUTES are over. Needs root.
"""

import os
import subprocess
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import bounds

from wirespeed.analysis import summary

ROOT = Path(__file__).parents[2]
PLANTED = Path(__file__).with_name("planted.toml")
SIZES = (4, 12, 18, 30)
PAUSE_S = 10.0  # another run measures on this machine
WORDS = ("gain", "loss", "no difference", "not decided", "not comparable")


@dataclass
class Counted:
    """The verdicts on one contender in one metric, over all runs."""

    words: Counter = field(default_factory=Counter)
    gains: list = field(default_factory=list)
    pooled: Counter = field(default_factory=Counter)


def counted(run_dirs):
    """{(contender, metric): Counted}, and a line for each run."""
    found, lines = defaultdict(Counted), []
    for run_dir in run_dirs:
        run = summary.load(run_dir)
        for gain in run.gains:
            row = found[gain.contender, gain.metric]
            row.words[gain.verdict.word] += 1
            if gain.found:
                row.gains.append(gain.found.gain * 100)
        for family in run.families:
            found[family.contender, family.metric].pooled[family.verdict.word] += 1
        lines.append(
            f"{run_dir.resolve().name}: {len(run.gains)} comparisons, "
            f"{run.run.plan.repeat} rounds, "
            f"noise floor {run.floors.get(run.primary) or 0:.1%}, "
            f"{len(run.noisy)} of {len(run.valid)} trials noisy"
        )
    return found, lines


def report(run_dirs):
    found, lines = counted(run_dirs)
    print("\n".join(lines))
    for (contender, metric), row in found.items():
        words = ", ".join(f"{row.words[word]} {word}" for word in WORDS if row.words[word])
        pooled = ", ".join(f"{n} {word}" for word, n in row.pooled.items())
        print(f"{contender}, {metric}: {row.words.total()} comparisons: {words}")
        least, most = min(row.gains), max(row.gains)
        print(f"  figure: median {median(row.gains):+.1f} %, {least:+.1f} … {most:+.1f} %")
        print(f"  pooled over a run: {pooled}")
    twins = [row for (contender, _), row in found.items() if contender == "B"]
    total = sum(row.words.total() for row in twins)
    false = sum(row.words["gain"] + row.words["loss"] for row in twins)
    if total:
        low, high = bounds.interval(false, total)
        print(
            f"a stack with itself: {false} false of {total} comparisons ({false / total:.1%}; "
            f"95 % bounds {low:.1%} … {high:.1%}, if comparisons are independent)"
        )


def measured(minutes, sizes, runs):
    """Run directories, made until the time is over; the run under way is finished."""
    until, made = time.monotonic() + minutes * 60, []
    while time.monotonic() < until:
        for size in (*sizes, 0):
            if time.monotonic() < until:
                made += one_run(size, runs)
    return made


def one_run(size, runs):
    """One run of so many comparisons; 0 is the planted one. Nothing when it could not begin."""
    before = (runs / "latest").resolve()
    pairs = f"axes.pair={list(range(1, size + 1))}"
    words = ["aa", "--set", pairs] if size else [str(PLANTED)]
    command = [sys.executable, "-m", "wirespeed", "run", *words, "--runs", runs]
    environment = {**os.environ, "WIRESPEED_ROOT": str(ROOT)}
    subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    made = (runs / "latest").resolve()
    if made == before or not (made / "run.json").exists():
        time.sleep(PAUSE_S)
        return []
    return [made]


def main(words):
    if words[:1] == ["measure"]:
        sizes = [int(word) for word in words[2:]] or SIZES
        report(measured(float(words[1]), sizes, Path("runs").resolve()))
    else:
        report([Path(name) for name in words] or [Path("runs/latest")])


if __name__ == "__main__":
    main(sys.argv[1:])
