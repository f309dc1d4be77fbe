#!/usr/bin/env python3
"""Is the schedule kept, and what does a connection cost?

1. A constant rate of half of what one core can do: requests sent and answered against what was due.
2. Send times out of a packet capture (the kernel's timestamps, not ours) against the schedule k/R.
3. Resident memory with 10,000 connections, beside wrk's.

    load/bench/accuracy.py --load target/release/wirespeed-load
"""

import argparse
import json
import os
import re
import shutil
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

from compare import Server, hold_idle_states


def result_of(load, *options):
    """The result file of one run on core 1."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(["taskset", "-c", "1", load, "--json", file.name, *options],
                       check=True, stdout=subprocess.DEVNULL)
        return json.loads(Path(file.name).read_text())


def half_capacity(load, url, length):
    """The rate over `length` seconds at half of the capacity just measured."""
    capacity = result_of(load, "-t1", "-c50", "-d2s", url)["rps"]
    rate = round(capacity / 2)
    result = result_of(load, "-t1", "-c50", f"-d{length}s", f"-R{rate}", url)
    totals, times = result["totals"], result["latency"]
    print(f"capacity {capacity:.0f}/s; at {rate}/s for {length} s:")
    print(f"  due {totals['due']}, sent {totals['sent']}, answered {totals['completed']}; "
          f"rate off by {(result['rps'] / rate - 1) * 100:+.4f} %")
    print(f"  lateness by its own clock: p50 {times['lateness']['quantiles']['0.5'] / 1e3:.1f} us, "
          f"p99 {times['lateness']['quantiles']['0.99'] / 1e3:.1f} us, "
          f"max {times['lateness']['max'] / 1e3:.0f} us")
    seconds = [second["completed"] / rate - 1 for second in result["seconds"]]
    print(f"  worst second: {max(seconds, key=abs) * 100:+.3f} %")


def packet_times(path):
    """Timestamps of a capture file in seconds."""
    data = Path(path).read_bytes()
    nanoseconds = struct.unpack("<I", data[:4])[0] == 0xA1B23C4D
    offset, times = 24, []
    while offset + 16 <= len(data):
        seconds, fraction, length, _ = struct.unpack_from("<IIII", data, offset)
        times.append(seconds + fraction / (1e9 if nanoseconds else 1e6))
        offset += 16 + length
    return times


def on_the_wire(load, server, rate, length):
    """Send times by the kernel's timestamps against k/R; the earliest packet fixes the zero."""
    if not shutil.which("tcpdump"):
        print("tcpdump is not installed: no send times from packets")
        return
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        capture = subprocess.Popen(
            ["taskset", "-c", "0", "tcpdump", "-q", "-i", "lo", "-s", "64", "-w", file.name,
             "--time-stamp-precision=nano", "-B", "65536",
             f"dst port {server.port} and tcp[tcpflags] & tcp-push != 0"],
            stderr=subprocess.DEVNULL)
        time.sleep(1)
        result_of(load, "-t1", "-c50", f"-d{length}s", f"-R{rate}",
                  f"http://127.0.0.1:{server.port}/0")
        time.sleep(0.5)
        capture.terminate()
        capture.wait()
        times = sorted(packet_times(file.name))
    late = [at - number / rate for number, at in enumerate(times)]
    zero = min(late)
    late = sorted(lateness - zero for lateness in late)
    at = [late[int(len(late) * share)] * 1e6 for share in (0.5, 0.99, 0.999)]
    print(f"send times on the wire at {rate}/s for {length} s: {len(times)} packets of "
          f"{rate * length} due; late by p50 {at[0]:.1f} us, p99 {at[1]:.1f} us, "
          f"p99.9 {at[2]:.1f} us, max {late[-1] * 1e6:.0f} us")


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
              f" {(many - few) * 1024 / 9990:.0f} bytes a connection")


def main():
    """All three."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load", default="target/release/wirespeed-load")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--part", choices=["rate", "wire", "memory"], action="append")
    arguments = parser.parse_args()
    parts = arguments.part or ["rate", "wire", "memory"]
    hold_idle_states()
    with Server() as server:
        url = f"http://127.0.0.1:{server.port}/0"
        if "rate" in parts:
            half_capacity(arguments.load, url, arguments.seconds)
        if "wire" in parts:
            on_the_wire(arguments.load, server, 10_000, 10)
        if "memory" in parts:
            subprocess.run(["prlimit", f"--pid={os.getpid()}", "--nofile=40000"],
                           check=False)
            connections(arguments.load, url)


if __name__ == "__main__":
    main()
