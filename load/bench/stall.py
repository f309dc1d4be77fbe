#!/usr/bin/env python3
"""Which generator reports true latencies of a server that stalls periodically?

The server (stall_server.py) is a queue: capacity MU, stopped for S at the start of each period
P, and every response leaves after a constant delay. The latency of independent users follows from
arithmetic (docs/honest-latency.md), so each generator's percentiles can be compared with the truth.

    load/bench/stall.py --load target/release/wirespeed-load --stall 0.1 --period 1 --rho 0.3
    load/bench/stall.py … --stall 1 --period 10 --seconds 20 --only wirespeed --only wrk2
    load/bench/stall.py … --save load/bench/stall.json; load/bench/stall_chart.py

Generators that are not installed are skipped; --tools names folders in which to look for them.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from isolate import isolated
from stall_server import StallServer

PERCENTILES = [50, 90, 99, 99.9]
COLUMNS = [*map(str, PERCENTILES), "max"]


def truth(rho, stall, period, base):
    """The percentiles that independent users see, in seconds (and the maximum)."""
    share = stall / ((1 - rho) * period)

    def at(q):
        return base if q <= 1 - share else base + stall * (1 - (1 - q) / share)
    return {**{str(p): at(p / 100) for p in PERCENTILES}, "max": base + stall}


def seconds(text):
    """`1.23ms` in seconds."""
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60}[unit]


def output_of(command):
    """The output of a program."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def ours(arguments, url):
    """Percentiles of wirespeed-load, from its result file."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        # a window that begins amid a stall would miss earlier requests in it: start one period ahead
        priority = ["--realtime"] if arguments.realtime else []
        output_of([arguments.load, *priority, "-t1", f"-c{arguments.connections}", f"-R{arguments.rate}",
                   f"-d{arguments.seconds}s", f"--warmup={arguments.period}s", "-T5s",
                   "--json", file.name, url])
        result = json.loads(Path(file.name).read_text())
    found = result["latency"]["response"]
    names = {str(p): f"{p / 100:g}" for p in PERCENTILES}
    known = {p: found["quantiles"][name] for p, name in names.items()}
    warnings = [f"{warning['id']} {warning['value']:.3g}" for warning in result["warnings"]]
    if warnings:
        print(f"<!-- wirespeed-load warned: {', '.join(warnings)} -->")
    return {**{p: value and value / 1e9 for p, value in known.items()}, "max": found["max"] / 1e9}


def wrk_like(command):
    """Percentiles from wrk's or wrk2's output; wrk has no 99.9th."""
    text = output_of(command)
    found = {}
    rows = re.findall(r"^\s+([\d.]+)%\s+([\d.]+(?:us|ms|s|m))\s*$", text, re.MULTILINE)
    for percent, value in rows:
        found.setdefault(f"{float(percent):g}", seconds(value))
    most = re.search(r"Latency\s+\S+\s+\S+\s+([\d.]+(?:us|ms|s|m))", text)
    return {**{str(p): found.get(f"{p:g}") for p in PERCENTILES}, "max": seconds(most.group(1))}


def h2load(command):
    """Percentiles of the times in h2load's log."""
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        output_of([*command[:-1], f"--log-file={file.name}", command[-1]])
        lines = [line.split() for line in Path(file.name).read_text().splitlines()]
    times = sorted(int(line[2]) / 1e6 for line in lines if len(line) == 3)
    at = {str(p): times[min(int(len(times) * p / 100), len(times) - 1)] for p in PERCENTILES}
    return {**at, "max": times[-1]}


def oha(command):
    """Percentiles from oha's JSON."""
    result = json.loads(output_of(command))
    own = result["latencyPercentiles"]
    return {**{str(p): own.get(f"p{p:g}") for p in PERCENTILES}, "max": result["summary"]["slowest"]}


def generators(arguments, url, base):
    """Name → function that measures; a closed loop gets the connections that give the rate."""
    c, d, rate = arguments.connections, arguments.seconds, arguments.rate
    few = max(1, round(rate * base))
    path = os.pathsep.join([*arguments.tools, os.environ["PATH"]])
    tool = {name: shutil.which(name, path=path) for name in ("wrk", "wrk2", "oha", "h2load")}
    # wirespeed-load sets its own priority; the others get it here
    first = ["chrt", "--fifo", "10"] if arguments.realtime else []
    known = {
        "wirespeed-load -R": lambda: ours(arguments, url),
        # wrk2 discards the results of its first 10 s and 5 ms per connection
        "wrk2 -R": lambda: wrk_like([*first, tool["wrk2"], "-t1", f"-c{c}", f"-d{d + 10 + c // 200}s",
                                     f"-R{round(rate)}", "-L", "-T5s", url]),
        f"wrk, {few} connections": lambda: wrk_like([*first, tool["wrk"], "-t1", f"-c{few}", f"-d{d}s",
                                                     "--latency", "-T5s", url]),
        "h2load --rps": lambda: h2load([*first, tool["h2load"], "--h1", "-t1", f"-c{c}", f"-D{d}",
                                        f"--rps={rate / c:.4f}", url]),
        "oha -q --latency-correction": lambda: oha(
            [*first, tool["oha"], "--no-tui", "--output-format", "json", f"-c{c}", f"-z{d}s",
             f"-q{round(rate)}", "--latency-correction", url]),
    }
    absent = [name for name, place in tool.items() if not place]
    if absent:
        print(f"<!-- not installed: {', '.join(absent)} -->")
    return {name: run for name, run in known.items()
            if re.split(r"[ ,]", name)[0] not in absent
            and any(part in name for part in arguments.only or [""])
            and not any(part in name for part in arguments.without)}


@contextlib.contextmanager
def serving(arguments):
    """The server on core 0; yields its URL and a function that returns the lateness of its responses."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    here, there = multiprocessing.Pipe()
    server = StallServer(listener, arguments.rate / arguments.rho, arguments.stall,
                         arguments.period, arguments.delay)
    process = multiprocessing.Process(target=server.serve, args=(0, there), daemon=True)
    process.start()
    if arguments.realtime:
        os.sched_setscheduler(process.pid, os.SCHED_FIFO, os.sched_param(10))

    def lateness():
        here.send("how late?")
        return here.recv()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/", lateness
    finally:
        process.kill()
        process.join()


def hold_idle_states():
    """Holds idle states off until this program ends: a core's wake-up would add to every response."""
    try:
        held = os.open("/dev/cpu_dma_latency", os.O_WRONLY)
        os.write(held, struct.pack("i", 0))
    except OSError:
        print("<!-- idle states are not held: not root -->")


def save(file, arguments, expected, found):
    """Adds this case to a file of cases."""
    path = Path(file)
    cases = json.loads(path.read_text()) if path.exists() else []
    key = {"stall_s": arguments.stall, "period_s": arguments.period, "rho": arguments.rho}
    case = next((case for case in cases if key.items() <= case.items()), None)
    if case is None:
        case = {**key, "generators": {}}
        cases.append(case)
    case.update(rate_rps=arguments.rate, seconds=arguments.seconds, delay_s=arguments.delay,
                truth=expected)
    case["generators"].update(found)
    path.write_text(json.dumps(cases, indent=1) + "\n")


def options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load", default="target/release/wirespeed-load")
    parser.add_argument("--stall", type=float, default=0.1)
    parser.add_argument("--period", type=float, default=1.0)
    parser.add_argument("--rho", type=float, default=0.3)
    parser.add_argument("--rate", type=float, default=997.37,
                        help="requests/s; times the period no whole number, or phases repeat")
    parser.add_argument("--delay", type=float, default=0.005, help="constant part of each answer")
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=11)
    parser.add_argument("--realtime", action="store_true",
                        help="real-time priority for the generators and for the server")
    parser.add_argument("--isolate", action="store_true",
                        help="moves other threads off core 1 for the time of the runs (root)")
    parser.add_argument("--only", action="append", help="part of a generator's name")
    parser.add_argument("--tools", action="append", default=[], help="folder of other generators")
    parser.add_argument("--without", action="append", default=[],
                        help="part of the name of a generator that is left out")
    parser.add_argument("--save", help="file of cases for stall_chart.py")
    return parser.parse_args()


def cells(found, expected):
    """A row in milliseconds with its errors."""
    return ["-" if found[c] is None else
            f"{found[c] * 1e3:.2f} ({(found[c] / expected[c] - 1) * 100:+.1f} %)" for c in COLUMNS]


def main():
    """Serves, measures, prints a table in milliseconds."""
    arguments = options()
    hold_idle_states()
    base = arguments.rho / arguments.rate + arguments.delay
    expected = truth(arguments.rho, arguments.stall, arguments.period, base)
    results = {}
    # ended from outside, the server is ended and the core given back
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cleared = isolated(1) if arguments.isolate else contextlib.nullcontext()
    with cleared, serving(arguments) as (url, lateness):
        os.sched_setaffinity(0, {1})
        print(f"stall {arguments.stall} s every {arguments.period} s, rho {arguments.rho}, "
              f"{arguments.rate} requests/s, {arguments.seconds} s; milliseconds (error)\n")
        print("| generator | " + " | ".join(COLUMNS) + " |")
        print("|---" * (len(COLUMNS) + 1) + "|")
        print("| the truth | " + " | ".join(f"{expected[c] * 1e3:.2f}" for c in COLUMNS) + " |")
        for name, run in generators(arguments, url, base).items():
            try:
                found = results[name] = run()
            except subprocess.CalledProcessError as error:
                print(f"| {name} | ended with {error.returncode} | | | | |", flush=True)
                continue
            print(f"| {name} | " + " | ".join(cells(found, expected)) + " |", flush=True)
            late = lateness()
            print(f"<!-- the server's answers left late by p50 {late[len(late) // 2] * 1e6:.0f} us, "
                  f"p99 {late[int(len(late) * 0.99)] * 1e6:.0f} us, max {late[-1] * 1e3:.2f} ms; "
                  f"{len(late)} answers -->", flush=True)
    if arguments.save:
        save(arguments.save, arguments, expected, results)


if __name__ == "__main__":
    main()
