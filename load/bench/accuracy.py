#!/usr/bin/env python3
"""Does the generator keep its schedule, and how much memory does a connection need?

1. rate: half of the capacity of one core; requests sent and answered, compared with the schedule.
2. wire: the same rate; send times from a packet capture (the kernel's timestamps) compared with the
   schedule k/R.
3. memory: resident memory with 10,000 connections, compared with wrk's.

Each run can be made in several ways: plain, nice (priority -20), realtime, and each of them after
other threads were moved off the core (isolate.py). Each result is printed with the time that a loop
that only reads the clock lost on the same core, in the same way, just before.

    load/bench/accuracy.py --load target/release/wirespeed-load --part wire --seconds 60
    load/bench/accuracy.py ... --part wire --seconds 20 --way plain --way isolate+nice
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path

from compare import Server, hold_idle_states
from gaps import gaps_of
from isolate import isolated

SNAPPED_BYTES = 16
MEMORY_FOLDER = "/dev/shm"
#: For each way of running: commands before the generator and before the empty loop, and options.
PRIORITIES = {"plain": ([], [], []), "nice": (["nice", "-n", "-20"], ["nice", "-n", "-20"], []),
              "realtime": ([], ["chrt", "-f", "10"], ["--realtime"])}
WAYS = [*PRIORITIES, "isolate", *(f"isolate+{name}" for name in PRIORITIES if name != "plain")]
GAPS_SECONDS = 4


def result_of(load, *options, before=()):
    """The result file of one run on core 1."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(["taskset", "-c", "1", *before, load, "--json", file.name, *options],
                       check=True, stdout=subprocess.DEVNULL)
        return json.loads(Path(file.name).read_text())


def half_capacity(load, url):
    """Half of the rate that a closed loop has just reached."""
    capacity = result_of(load, "-t1", "-c50", "-d2s", url)["rps"]
    print(f"capacity {capacity:,.0f}/s, half of it {round(capacity / 2):,}/s")
    return round(capacity / 2)


@contextlib.contextmanager
def core_of(way):
    """Prepares the core for a way of running; yields the words of its priority (PRIORITIES)."""
    cleared, priority = way.rpartition("isolate")[1:]
    with isolated(1) if cleared else contextlib.nullcontext():
        yield PRIORITIES[priority.lstrip("+") or "plain"]


def stolen(core):
    """Seconds of a core that the hypervisor took since its start."""
    ticks = re.search(rf"^cpu{core} (.*)$", Path("/proc/stat").read_text(), re.MULTILINE)
    return int(ticks[1].split()[7]) / os.sysconf("SC_CLK_TCK")


def at_rate(arguments, url, rate, way):
    """A run at a rate, by the generator's own report and the responses: the cells of its row."""
    with core_of(way) as (before, before_loop, options):
        core = gaps_of(1, GAPS_SECONDS, before_loop, rests=bool(options))
        stolen_s = stolen(1)
        result = result_of(arguments.load, *options, "-t1", f"-c{arguments.connections}",
                           f"-d{arguments.seconds}s", f"-R{rate}", url, before=before)
        stolen_s = stolen(1) - stolen_s
    totals, times = result["totals"], result["latency"]
    seconds = [second["completed"] / rate - 1 for second in result["seconds"]]
    told = ", ".join(warning["id"] for warning in result["warnings"]) or "none"
    waited = sum(thread["waited"] for thread in result["threads"])
    return [
        f"{rate:,}/s, {arguments.seconds} s, {arguments.connections} connections, {way}", str(core),
        f"{totals['due']:,} = {totals['sent'] - totals['due']:+d}, "
        f"{totals['completed'] - totals['due']:+d}",
        f"{(result['rps'] / rate - 1) * 100:+.4f} %, {max(seconds, key=abs) * 100:+.2f} %",
        spread(times["lateness"]), spread(times["queue"]),
        f"{waited * 100:.1f} %, {stolen_s / arguments.seconds * 100:.2f} %", told]


COLUMNS = ["run", "taken from an empty loop: share; wait p99, p99.9, max", "due = sent, answered",
           "rate off by, worst second",
           "late by its own fault: p50, p99, max", "late as no connection was free: p50, p99, max",
           "core taken by others, by the hypervisor", "warnings"]
WIRE_COLUMNS = ["late on the wire: p50, p99, p99.9, max", "packets' rate off by",
                "packets, lost by the capture"]


def spread(figures):
    """Microseconds of a distribution; nothing for an empty one."""
    if not figures or not figures["count"]:
        return "-"
    at = [figures["quantiles"].get(name) for name in ("0.5", "0.99")] + [figures["max"]]
    return ", ".join("-" if value is None else f"{value / 1e3:,.1f}" for value in at) + " us"


def head(columns):
    """The first lines of a table."""
    print("\n| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|", flush=True)


def row(cells):
    """One line of a table."""
    print("| " + " | ".join(cells) + " |", flush=True)


@contextlib.contextmanager
def capture(port):
    """Captures the packets that carry requests; yields the file and, in the end, the drops."""
    folder = MEMORY_FOLDER if Path(MEMORY_FOLDER).is_dir() else None
    with tempfile.NamedTemporaryFile(suffix=".pcap", dir=folder) as file:
        process = subprocess.Popen(
            ["taskset", "-c", "0", shutil.which("tcpdump"), "-i", "lo", "-s", str(SNAPPED_BYTES),
             "-w", file.name, "--time-stamp-precision=nano", "-B", "65536", "-Z", "root",
             f"dst port {port} and tcp[tcpflags] & tcp-push != 0"],
            stderr=subprocess.PIPE, text=True)
        process.stderr.readline()
        seen = {"file": file.name, "dropped": None}
        try:
            yield seen
        finally:
            # the kernel delivers the last block of the ring after a second
            time.sleep(2)
            process.terminate()
            told = process.communicate()[1]
            dropped = re.search(r"(\d+) packets? dropped by kernel", told)
            seen["dropped"] = int(dropped.group(1)) if dropped else None
            seen["times"] = packet_times(file.name)


def packet_times(path):
    """Timestamps of a capture file in seconds from its first packet, in order."""
    data = memoryview(Path(path).read_bytes())[24:]
    record = struct.Struct(f"<II8x{SNAPPED_BYTES}x")
    whole = len(data) // record.size * record.size
    first, times = None, array("d")
    for seconds, nanoseconds in record.iter_unpack(data[:whole]):
        first = seconds if first is None else first
        times.append(seconds - first + nanoseconds / 1e9)
    return sorted(times)


def on_the_wire(arguments, server, rate, way):
    """Send times by the kernel's timestamps against k/R; the earliest packet fixes the zero."""
    with capture(server.port) as seen:
        cells = at_rate(arguments, f"http://127.0.0.1:{server.port}/0", rate, way)
    times = seen["times"]
    late = [at - number / rate for number, at in enumerate(times)]
    zero = min(late)
    late = sorted(lateness - zero for lateness in late)
    at = [late[int(len(late) * share)] for share in (0.5, 0.99, 0.999)] + [late[-1]]
    measured = (len(times) - 1) / (times[-1] - times[0])
    return [*cells, ", ".join(f"{lateness * 1e6:,.1f}" for lateness in at) + " us",
            f"{(measured / rate - 1) * 100:+.4f} %", f"{len(times):,}, {seen['dropped']}"]


def schedule(arguments, parts, server, rate):
    """The runs at a constant rate, in each requested way, as tables."""
    url = f"http://127.0.0.1:{server.port}/0"
    ways = arguments.way or ["plain"]
    if "rate" in parts:
        head(COLUMNS)
        for way in ways:
            row(at_rate(arguments, url, rate, way))
    if "wire" in parts and not shutil.which("tcpdump"):
        print("tcpdump is not installed: no send times from packets")
    elif "wire" in parts:
        head([*COLUMNS, *WIRE_COLUMNS])
        for way in ways:
            row(on_the_wire(arguments, server, rate, way))


def memory(command, pattern=r"VmRSS:\s+(\d+)"):
    """Resident kilobytes of a program while it runs."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    seen = []
    while process.poll() is None:
        try:
            found = re.search(pattern, Path(f"/proc/{process.pid}/status").read_text())
        except OSError:
            break
        if found:
            seen.append(int(found.group(1)))
        time.sleep(0.1)
    return max(seen)


def connections(load, url):
    """Resident memory with 10,000 connections less that with 10, per connection."""
    for name, program in (("wirespeed-load", load), ("wrk", shutil.which("wrk"))):
        if not program:
            continue
        few, many = (
            statistics.median(memory([program, "-t1", f"-c{count}", "-d3s", url]) for _ in range(3))
            for count in (10, 10_000))
        print(f"{name}: {many / 1024:.1f} MiB with 10000 connections, {few / 1024:.1f} MiB with 10:"
              f" {(many - few) * 1024 / 9990:.0f} bytes per connection")


def main():
    """Runs the requested parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load", default="target/release/wirespeed-load")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, help="requests/s in place of half the capacity")
    parser.add_argument("--connections", type=int, default=50,
                        help="of the runs at a rate; with few of them a pause of the server keeps"
                        " requests from being sent")
    parser.add_argument("--way", choices=WAYS, action="append",
                        help="priority of the generator, and whether its core is cleared (root)")
    parser.add_argument("--part", choices=["rate", "wire", "memory"], action="append")
    arguments = parser.parse_args()
    parts = arguments.part or ["rate", "wire", "memory"]
    # a signal to this program ends the server and the capture too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    hold_idle_states()
    with Server() as server:
        url = f"http://127.0.0.1:{server.port}/0"
        timed = {"rate", "wire"} & set(parts)
        rate = arguments.rate or (timed and half_capacity(arguments.load, url))
        if timed:
            schedule(arguments, parts, server, rate)
        if "memory" in parts:
            subprocess.run(["prlimit", f"--pid={os.getpid()}", "--nofile=40000"],
                           check=False)
            connections(arguments.load, url)


if __name__ == "__main__":
    main()
