#!/usr/bin/env python3
"""UDP over a veth pair: the kernel's against datagrams in the program (EF_UDP=1), A B A B in one run.

Two namespaces, an echo server on core 0 and a client on core 1 that keeps a window of datagrams in flight
(datagrams.c). Prints responses per second and round trips, medians and ratios to the first stack, and an error if
the kernel carried a datagram of a stack over packets. All processes that it starts end with it.

    ./wirespeed build bypass                        once; needs root and a C compiler
    bypass/bench/datagrams.py                       64 B, one at a time: 5 rounds of 2 s, about 1 min
    bypass/bench/datagrams.py --window 64 --size 64 1400
    bypass/bench/datagrams.py --wait epoll kernel balanced both

kernel                      server and client on the kernel
balanced, performance       the server over packets, without and with spinning
both                        both ends over packets, spinning
"""

import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from figures import Distance
from packets import ADDRESS, BYPASS, LIBRARY, PORT, Link, idle_states_held, started

STACKS = ("kernel", "balanced", "performance", "both")
COLUMNS = ("answers/s", "µs p50", "µs p99", "µs p99.9")
#: A spin that no pause of the other end outlasts.
SPIN = "EF_POLL_USEC=100000"


def accelerated(interface, spins):
    options = ["EF_UDP=1", f"EF_INTERFACE_WHITELIST={interface}", f"LD_PRELOAD={LIBRARY}"]
    return ["env", *options, *([SPIN] if spins else [])]


def carried(link, group):
    """Datagrams in and out over packets of the processes of a session."""
    text = subprocess.run(link.inside(1, 1, BYPASS, "stat", "--json"), capture_output=True, text=True, check=False).stdout
    total = [0, 0]
    for entry in re.split(r'(?="pid":)', text)[1:]:
        if os.getpgid(int(re.match(r'"pid":(\d+)', entry)[1])) == group:
            found = [re.search(rf'"datagrams_{way}":(\d+)', entry) for way in ("in", "out")]
            total = [known + int(one[1]) for known, one in zip(total, found)]
    return total


def measure(link, stack, size, program, options):
    """Answers per second, percentiles in microseconds, and datagrams that had no answer."""
    server = [program, "serve", options.wait, PORT]
    client = [program, "ask", ADDRESS, PORT, size, options.window]
    if stack != "kernel":
        server = [*accelerated("vb", stack != "balanced"), *server]
    if stack == "both":
        client = [*accelerated("va", True), *client]

    def ask(seconds):
        return subprocess.run(link.inside(0, 1, *client, seconds), capture_output=True, text=True, timeout=60)

    with started(link.inside(1, 0, *server)) as (process, said):
        deadline = time.monotonic() + 10
        while ask(0.05).returncode:
            if process.poll() is not None or time.monotonic() > deadline:
                said.seek(0)
                sys.exit(f"{stack} does not answer: {said.read() or 'it says nothing'}")
        before = carried(link, process.pid)
        done = ask(options.seconds)
        after = carried(link, process.pid)
    if done.returncode:
        sys.exit(f"{stack}: {done.stderr}")
    rate, *times, lost = map(float, done.stdout.split())
    answered = rate * options.seconds
    if stack != "kernel" and min(now - then for now, then in zip(after, before)) < 0.99 * answered:
        sys.exit(f"{stack}: of {answered:,.0f} datagrams {before} to {after} were over packets: no figure")
    return [rate, *(ns / 1000 for ns in times)], lost / (answered + lost)


def table(size, program, options):
    distance, rounds = Distance(program.parent), defaultdict(list)
    for _ in range(options.rounds):
        before, found = distance.now(), {}
        for stack in options.stacks:
            with Link(options.mtu) as link:
                found[stack] = measure(link, stack, size, program, options)
        rounds[before if distance.now() == before else "moved"].append(found)
    print(f"UDP, {size} B, {options.window} on their way, {options.wait}, MTU {options.mtu}, "
          f"{options.rounds} rounds of {options.seconds} s")
    for where, group in rounds.items():
        print(f"cores {where}, {len(group)} of {options.rounds} rounds")
        show(group, options)


def show(rounds, options):
    """Medians, and those of each round's ratio to the first stack."""
    first = options.stacks[0]
    for column, unit in enumerate(COLUMNS):
        for stack in options.stacks:
            found = [of[stack][0][column] for of in rounds]
            ratios = [of[stack][0][column] / of[first][0][column] for of in rounds]
            ratio = f"  {statistics.median(ratios):.2f} × {first} ({min(ratios):.2f}–{max(ratios):.2f})"
            lost = max(of[stack][1] for of in rounds)
            print(f"{stack:12} {statistics.median(found):10,.{1 if column else 0}f} {unit}"
                  f"  ({min(found):,.0f}–{max(found):,.0f}){'' if stack == first else ratio}"
                  f"{f'  {lost:.2%} lost' if lost and not column else ''}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stacks", nargs="*", default=list(STACKS), help="the first is what the others are compared with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--window", type=int, default=1, help="datagrams on their way")
    parser.add_argument("--size", type=int, nargs="+", default=[64], help="bytes of a datagram, 8 at least")
    parser.add_argument("--wait", choices=("block", "poll", "epoll"), default="block", help="how the server waits")
    parser.add_argument("--mtu", type=int, default=1500)
    options = parser.parse_args()
    if unknown := set(options.stacks) - set(STACKS):
        parser.error(f"no such stack: {', '.join(sorted(unknown))}")
    needed = [tool for tool in ("ip", "cc", "taskset") if not shutil.which(tool)]
    needed += [path.name for path in (BYPASS, LIBRARY) if not path.exists()]
    if needed:
        sys.exit(f"missing: {', '.join(needed)} (datagrams.py --help)")
    if os.geteuid() != 0:
        sys.exit("root is needed: namespaces and AF_XDP")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with idle_states_held(), tempfile.TemporaryDirectory(prefix="datagrams-") as folder:
        program = Path(folder, "datagrams")
        source = Path(__file__).with_name("datagrams.c")
        subprocess.run(["cc", "-O2", "-o", program, source], check=True)
        for size in options.size:
            table(size, program, options)


if __name__ == "__main__":
    main()
