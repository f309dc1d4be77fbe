#!/usr/bin/env python3
"""Capacity of the stub origin: rate, true latency and CPU time per request, by connections.

The stub runs on one core, wrk on the other; at 50 ms the rate is the connections' own
(connections / latency) as long as the stub is not the limit. Prints also what the stub itself says.

  servers/bench/stub-origin.py 100 1000 2000 9000
"""

import argparse
import os
import re
import resource
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

SERVERS = Path(__file__).resolve().parents[1]
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PORT = 18300


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def measure(options, connections):
    flags = [line for line in (SERVERS / "stub-origin" / "jvm.options").read_text().splitlines()
             if line and not line.startswith("#") and not line.startswith("24+")]
    stub = subprocess.Popen(
        ["taskset", "-c", "0", "java", *flags, "-jar",
         SERVERS / "stub-origin" / "target" / "stub-origin.jar", "--port", str(PORT),
         *options.stub], stdout=subprocess.PIPE, text=True)
    try:
        stub.stdout.readline()
        urllib.request.urlopen(f"http://127.0.0.1:{PORT}/").read()
        load(connections, 4)
        before = cpu_s(stub.pid)
        text = load(connections, options.seconds)
        cpu = cpu_s(stub.pid) - before
        peak = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{stub.pid}/status").read_text()).group(1)
    finally:
        stub.send_signal(signal.SIGTERM)
        totals = stub.stdout.read().strip()
        stub.wait(10)
    count, taken = re.search(r"(\d+) requests in ([\d.]+)s", text).groups()
    latency = re.search(r"Latency\s+(\S+)", text).group(1)
    p99 = re.search(r"99%\s+(\S+)", text).group(1)
    bad = re.search(r"(Socket errors|Non-2xx).*", text)
    print(f"| {connections} | {int(count) / float(taken):,.0f} | {latency} | {p99} "
          f"| {cpu / int(count) * 1e6:.1f} | {cpu / float(taken):.2f} | {int(peak) // 1024} "
          f"| {bad.group() if bad else 'none'} | {totals.partition('latency ')[2]} |", flush=True)


def load(connections, seconds):
    return subprocess.run(["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s",
                           "--latency", f"http://127.0.0.1:{PORT}/"],
                          capture_output=True, text=True, check=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("connections", nargs="+", type=int)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--stub", action="append", default=[], help="an argument of the stub")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    latency = open("/dev/cpu_dma_latency", "wb", buffering=0)
    latency.write(b"\0\0\0\0")
    print("| connections | requests/s | mean | p99 | CPU µs/request | share of its core "
          "| peak MiB | errors | the stub says |\n|---|---|---|---|---|---|---|---|---|")
    for connections in options.connections:
        measure(options, connections)
        time.sleep(1)


main()
