#!/usr/bin/env python3
"""Compares wirespeed-load with other generators: A B A B on one server, ratios of medians.

The server (nginx) is bound to core 0, each generator to core 1, idle states are held off. Figures
are requests/s and, from the generator's own CPU time (rusage), requests per CPU second and user
time per request. Tools that are not installed are left out and named.

    load/bench/compare.py --load target/release/wirespeed-load [--cell 50x0] [--rounds 5]
"""

import argparse
import json
import os
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CELLS = ["50x0", "1000x0", "50x1024", "1000x1024", "50x0-close"]
CONFIG = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log crit;
worker_rlimit_nofile 40000;
events {{ worker_connections 30000; multi_accept on; }}
http {{
  access_log off; keepalive_requests 1000000000; keepalive_timeout 600;
  server {{
    listen 127.0.0.1:{port} backlog=16384; default_type text/plain;
    location = /0 {{ return 200 ""; }}
    location = /1024 {{ return 200 "{body}"; }}
  }}
}}
"""


def free_port():
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """nginx on core 0 as long as the block lasts."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="wirespeed-bench-")
        self.port = free_port()
        config = Path(self.folder, "nginx.conf")
        config.write_text(CONFIG.format(folder=self.folder, port=self.port, body="x" * 1024))
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        self.process = subprocess.Popen(["taskset", "-c", "0", nginx, "-c", str(config)])
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise SystemExit("nginx did not start")

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        shutil.rmtree(self.folder)


def hold_idle_states():
    """Keeps cores awake while the descriptor is open."""
    try:
        held = os.open("/dev/cpu_dma_latency", os.O_WRONLY)
        os.write(held, struct.pack("i", 0))
    except OSError:
        print("idle states are not held: not root")


def tools(arguments):
    """Name → command of each tool that is here, for (connections, seconds, close, url)."""
    def close_field(close):
        return ["-H", "Connection: close"] if close else []

    known = {
        "wirespeed-load": lambda c, d, close, url:
            [arguments.load, "-t1", f"-c{c}", f"-d{d}s", *close_field(close), url],
        "wrk": lambda c, d, close, url:
            ["wrk", "-t1", f"-c{c}", f"-d{d}s", *close_field(close), url],
        "wrk2": lambda c, d, close, url:
            ["wrk2", "-t1", f"-c{c}", f"-d{d}s", "-R10M", *close_field(close), url],
        "h2load": lambda c, d, close, url:
            ["h2load", "--h1", "-t1", f"-c{c}", f"-D{d}", *close_field(close), url],
        "ab": lambda c, d, close, url:
            ["ab", "-q", *([] if close else ["-k"]), f"-c{c}", f"-t{d}", "-n100000000", url],
        "httperf": lambda c, d, close, url:
            ["httperf", "--hog", "--server=127.0.0.1", f"--port={url.split(':')[2].split('/')[0]}",
             f"--uri=/{url.rsplit('/', 1)[1]}", f"--num-conns={d * 20000}"] if close else None,
        "oha": lambda c, d, close, url:
            ["oha", "--no-tui", f"-c{c}", f"-z{d}s",
             *(["--disable-keepalive"] if close else []), url],
        "bombardier": lambda c, d, close, url:
            ["bombardier", "-l", f"-c{c}", f"-d{d}s", *close_field(close), url],
        "hey": lambda c, d, close, url:
            ["hey", "-c", str(c), "-z", f"{d}s", *(["-disable-keepalive"] if close else []), url],
        "fortio": lambda c, d, close, url:
            ["fortio", "load", "-qps=0", f"-c={c}", f"-t={d}s",
             *(["-keepalive=false"] if close else []), url],
    }
    peers = arguments.tools.split(",") if arguments.tools else list(known)
    wanted = ["wirespeed-load", *(name for name in peers if name != "wirespeed-load")]
    here = [name for name in wanted if name == "wirespeed-load" or shutil.which(name)]
    absent = [name for name in wanted if name not in here]
    if absent:
        print("not installed:", ", ".join(absent))
    return {name: known[name] for name in here}


REQUESTS = [  # (pattern, what it is): requests, or requests per second
    (r"(\d+) requests in", "count"),
    (r"Complete requests:\s+(\d+)", "count"),
    (r"requests: \d+ total, \d+ started, (\d+) done", "count"),
    (r"\[200\]\s+(\d+) responses", "count"),
    (r"2xx - (\d+)", "count"),
    (r"Code 200 : (\d+)", "count"),
    (r"replies (\d+) test-duration", "count"),
]


def measure(command):
    """Requests, elapsed, user and system seconds of one run on core 1."""
    environment = dict(os.environ, GOMAXPROCS="1")
    started = time.monotonic()
    process = subprocess.Popen(
        ["taskset", "-c", "1", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, env=environment)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    elapsed = time.monotonic() - started
    for pattern, _ in REQUESTS:
        found = re.search(pattern, output)
        if found:
            return int(found.group(1)), elapsed, usage.ru_utime, usage.ru_stime
    print(f"cannot read the output of {command[0]}:\n{output[-500:]}", file=sys.stderr)
    return None


def cell(name, commands, server, arguments):
    """All rounds of one cell; a table of medians and ratios."""
    shape = re.fullmatch(r"(\d+)x(\d+)(-close)?", name)
    connections, size, close = int(shape[1]), shape[2], bool(shape[3])
    url = f"http://127.0.0.1:{server.port}/{size}"
    runs = {tool: [] for tool in commands}
    for round_number in range(arguments.rounds):
        order = list(commands)
        if round_number % 2:
            order.reverse()
        for tool in order:
            command = commands[tool](connections, arguments.seconds, close, url)
            figures = command and measure(command)
            if figures:
                requests, _, user, system = figures
                runs[tool].append({
                    "rps": requests / arguments.seconds,
                    "per_cpu_s": requests / (user + system),
                    "user_us": user / requests * 1e6,
                    "cpu_us": (user + system) / requests * 1e6,
                })
    table(name, runs)
    return runs


def table(name, runs):
    """Prints medians, and the ratio of ours to each tool's."""
    median = {
        tool: {key: statistics.median(run[key] for run in own) for key in own[0]}
        for tool, own in runs.items() if own
    }
    ours = median["wirespeed-load"]
    print(f"\n{name}\n| tool | requests/s | requests per CPU s | user us | CPU us "
          "| ours/its requests/s | ours/its per CPU s | ours/its user us |")
    print("|---|---|---|---|---|---|---|---|")
    for tool, own in median.items():
        print(f"| {tool} | {own['rps']:.0f} | {own['per_cpu_s']:.0f} | {own['user_us']:.2f} "
              f"| {own['cpu_us']:.2f} | {ours['rps'] / own['rps']:.2f} "
              f"| {ours['per_cpu_s'] / own['per_cpu_s']:.2f} "
              f"| {ours['user_us'] / max(own['user_us'], 1e-9):.2f} |", flush=True)


def main():
    """Measures the cells that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load", default="target/release/wirespeed-load")
    parser.add_argument("--cell", action="append", help=f"one of {', '.join(CELLS)}, or like them")
    parser.add_argument("--tools", help="names beside wirespeed-load, separated by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--json", help="write every run to this file")
    arguments = parser.parse_args()
    hold_idle_states()
    commands = tools(arguments)
    results = {}
    with Server() as server:
        for name in arguments.cell or CELLS:
            results[name] = cell(name, commands, server, arguments)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
