#!/usr/bin/env python3
"""What a wait costs as an epoll set grows: connections, client processes and threads; kernel, balanced and performance.

    bypass/bench/waits.py [--rounds 3] [--seconds 1]

One server on core 0, its clients on core 1; one connection exchanges a byte in turn, all others are idle, but with 64
threads on one set all of 64 connections do. Prints a table in Markdown: the time of an epoll_wait that finds nothing and
may not sleep, exchanges per second, and CPU time of the server for each; medians of the rounds. An accelerated run in
which a connection was on the kernel ends the bench. Standard library only; needs a C compiler and the release build.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from figures import ROOT, hold_idle_states, kernel_unpaced

PROFILES = {"kernel": None, "balanced": "throughput", "performance": "latency"}
#: Name, then connections, client processes, threads of the server, active connections.
CASES = {
    "1 connection": (1, 1, 1, 1),
    "50 connections of one process": (50, 1, 1, 1),
    "500 connections of one process": (500, 1, 1, 1),
    "50 client processes": (50, 50, 1, 1),
    "500 client processes": (500, 500, 1, 1),
    "64 connections, one thread": (64, 1, 1, 64),
    "64 connections, 64 threads": (64, 1, 64, 64),
}


def run(options, program, stack, case):
    """Nanoseconds of a look, exchanges per second, nanoseconds of CPU time for each."""
    profile = PROFILES[stack]
    launcher = [options.release / "bypass", "run", "-p", profile, "--"] if profile else []
    words = [*launcher, program, *CASES[case], options.seconds]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=120, check=False)
    fields = [float(word) for word in done.stdout.split()]
    if done.returncode or len(fields) != 4:
        sys.exit(f"waits.py: {case}, {stack}: {done.stderr.strip()[-300:] or done.stdout}")
    accelerated, *figures = fields
    if profile and accelerated < CASES[case][0]:
        sys.exit(f"waits.py: {case}, {stack}: {accelerated:.0f} of {CASES[case][0]} connections were accelerated")
    return figures


def show(found):
    """The table."""
    names = ("look ns", "exchanges /s", "server CPU ns")
    titles = ["case", *(f"{name}, {' / '.join(PROFILES)}" for name in names)]
    print(f"\n| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for case in CASES:
        medians = [[statistics.median(column) for column in zip(*found[case, stack])] for stack in PROFILES]
        cells = [" / ".join(f"{value:,.0f}" for value in values) for values in zip(*medians)]
        print(f"| {case} | {' | '.join(cells)} |")


def main():
    """Every case in rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=1, help="length of a window")
    parser.add_argument("--release", type=Path, default=ROOT / "target" / "release", help="folder of the build to measure")
    options = parser.parse_args()
    if not (options.release / "bypass").exists():
        parser.error(f"no bypass in {options.release}: run ./wirespeed build bypass")
    found = defaultdict(list)
    with kernel_unpaced() as control, tempfile.TemporaryDirectory(prefix="bypass-waits-") as folder:
        program = Path(folder, "waits")
        source = Path(__file__).with_name("waits.c")
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program, source], check=True)
        print(f"idle states {hold_idle_states()}, {options.rounds} rounds of {options.seconds} s, {control}")
        for _ in range(options.rounds):
            for case in CASES:
                for stack in PROFILES:
                    found[case, stack].append(run(options, program, stack, case))
    show(found)


if __name__ == "__main__":
    main()
