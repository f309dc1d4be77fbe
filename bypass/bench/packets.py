#!/usr/bin/env python3
"""HTTP over a veth pair: the kernel's stack against a shard, A B A B in one run.

Two namespaces, the server in one on core 0, wrk in the other on core 1. Prints requests per second of each
round, medians, and ratios to the kernel. Needs root, wrk and: cargo build --release -p bypass-shard --example http
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "target" / "release" / "examples" / "http"
SERVERS = {
    "kernel": ["kernel"],
    "native": ["serve", "--interface", "vb"],
    "busy-poll": ["serve", "--interface", "vb", "--busy-poll", "20"],
    "generic": ["serve", "--interface", "vb", "--generic"],
    "trains": ["serve", "--interface", "vb", "--trains"],
}
ADDRESS, PORT = "10.77.0.2", 8080


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


class Link:
    """Two namespaces joined by va and vb; gone at the end, however it comes."""

    def __init__(self, mtu):
        self.names = [f"packets-{side}-{os.getpid()}" for side in "ab"]
        self.mtu = mtu

    def __enter__(self):
        a, b = self.names
        for name in self.names:
            run("ip", "netns", "add", name)
        run("ip", "-n", a, "link", "add", "va", "type", "veth", "peer", "name", "vb", "netns", b)
        for name, end, host in ((a, "va", 1), (b, "vb", 2)):
            run("ip", "-n", name, "link", "set", end, "mtu", str(self.mtu), "up")
            run("ip", "-n", name, "addr", "add", f"10.77.0.{host}/24", "dev", end)
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)

    def inside(self, side, core, *words):
        return ["ip", "netns", "exec", self.names[side], "taskset", "-c", str(core), *words]


def measure(link, server, options):
    """Requests per second of one round with a fresh server."""
    command = [str(PROGRAM), *SERVERS[server], "--port", str(PORT), "--size", str(options.size),
               "--spin", str(options.spin)]
    process = subprocess.Popen(link.inside(1, 0, *command), stderr=subprocess.PIPE, text=True)
    try:
        if "serves" not in (line := process.stderr.readline()):
            sys.exit(f"{server}: {line or 'ended'}{process.stderr.read()}")
        load = ["wrk", "-t1", f"-c{options.connections}", f"-d{options.seconds}s"]
        if options.close:
            load += ["-H", "Connection: close"]
        load.append(f"http://{ADDRESS}:{PORT}/")
        done = subprocess.run(link.inside(0, 1, *load), capture_output=True, text=True, check=True)
        wrong = re.search(r"(Non-2xx.*|Socket errors: .*)", done.stdout)
        if wrong and not options.close:
            print(f"  {server}: {wrong[1]}")
        return float(re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)[1])
    finally:
        process.kill()
        process.wait()
        time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", default=list(SERVERS), help="among " + ", ".join(SERVERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--spin", type=int, default=1_000_000, help="microseconds; both servers spin alike")
    parser.add_argument("--close", action="store_true", help="one connection a request")
    options = parser.parse_args()
    if unknown := set(options.servers) - set(SERVERS):
        parser.error(f"no such server: {', '.join(sorted(unknown))}")
    if not PROGRAM.exists():
        sys.exit(f"{PROGRAM.relative_to(ROOT)} is missing: "
                 "cargo build --release -p bypass-shard --example http")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    figures = {server: [] for server in dict.fromkeys(["kernel", *options.servers])}
    with Link(options.mtu) as link:
        for _ in range(options.rounds):
            for server, found in figures.items():
                found.append(measure(link, server, options))
    base = statistics.median(figures["kernel"])
    print(f"{options.size} B, {options.connections} connections, MTU {options.mtu}"
          f"{', one connection a request' if options.close else ''}")
    for server, found in figures.items():
        median = statistics.median(found)
        spread = f"{min(found):,.0f}–{max(found):,.0f}"
        print(f"{server:10} {median:10,.0f} requests/s  ({spread})  {median / base:.2f} × kernel")


if __name__ == "__main__":
    main()
