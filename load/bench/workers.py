#!/usr/bin/env python3
"""Do percentiles show that one of two workers is stopped periodically?

NGINX runs two workers on core 0, each with its own listening socket (SO_REUSEPORT), so that the
kernel distributes connections between them; one is stopped (SIGSTOP) for S of each period P. Of requests
that arrive independently the share h·(S - x)/P waits longer than x, where h is the stopped worker's share
of the connections, counted in /proc during each run.

    load/bench/workers.py --load target/release/wirespeed-load
    load/bench/workers.py --connections 200 --way pinned --way any --seconds 20
    load/bench/workers.py --tools ~/bin --way wrk2

Needs nginx; wrk2 is run if it is found in --tools or PATH.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from stall import COLUMNS, PERCENTILES, wrk_like

#: Name of a way to send → options of wirespeed-load.
WAYS = {
    "pinned": ["--dispatch", "pinned"],
    "random": ["--dispatch", "random"],
    "any": ["--dispatch", "any"],
    "pinned, poisson": ["--dispatch", "pinned", "--arrival", "poisson"],
    "any, poisson": ["--dispatch", "any", "--arrival", "poisson"],
}

CONFIGURATION = """
daemon off; worker_processes 2; worker_cpu_affinity 1 1; pid {folder}/pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100000000; keepalive_timeout 600s;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen 127.0.0.1:{port} reuseport; location / {{ return 200 ok; }} }}
}}
"""


def steady_sockets(processes):
    """Open sockets of processes that have just started, once their number does not change any more."""
    before, now = None, []
    while now != before:
        before = now
        time.sleep(0.2)
        now = [sockets(process) for process in processes]
    return now


def free_port():
    """A free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def children(process):
    """Numbers of a process' children."""
    return [int(word) for word in
            Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def sockets(process):
    """How many sockets a process has open."""
    def is_socket(entry):
        with contextlib.suppress(OSError):
            return os.readlink(entry).startswith("socket:")
        return False
    return sum(map(is_socket, Path(f"/proc/{process}/fd").iterdir()))


@contextlib.contextmanager
def serving():
    """The server; yields its URL and its two workers."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        (Path(folder) / "conf").write_text(CONFIGURATION.format(folder=folder, port=port))
        server = subprocess.Popen(["nginx", "-p", folder, "-c", f"{folder}/conf"])
        try:
            until = time.monotonic() + 10
            while len(children(server.pid)) < 2 and time.monotonic() < until:
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/", children(server.pid)
        finally:
            for worker in children(server.pid):
                os.kill(worker, signal.SIGCONT)
            server.terminate()
            server.wait()


class Stopper(threading.Thread):
    """Stops a worker for `stall` of each `period` until its end is called."""

    def __init__(self, workers, base, stall, period):
        super().__init__(daemon=True)
        self.workers, self.base, self.stall, self.period = workers, base, stall, period
        self.over = threading.Event()
        self.most, self.share = 0, 0.0
        self.lengths = []

    def run(self):
        victim = self.workers[1]
        began, number = time.monotonic(), 0
        while not self.over.wait(max(0, began + number * self.period - time.monotonic())):
            own = [sockets(worker) - base for worker, base in zip(self.workers, self.base)]
            if sum(own) > self.most:
                self.most, self.share = sum(own), own[1] / sum(own)
            os.kill(victim, signal.SIGSTOP)
            stopped = time.monotonic()
            self.over.wait(self.stall)
            os.kill(victim, signal.SIGCONT)
            number += 1
            if not self.over.is_set():
                self.lengths.append(time.monotonic() - stopped)

    def end(self):
        """Ends it, with the worker running."""
        self.over.set()
        self.join()

    def truth(self):
        """The percentiles that belong to the stalls as they were: a busy core makes them longer."""
        stall = sum(self.lengths) / len(self.lengths) if self.lengths else self.stall
        return truth(self.share, stall, self.period)


def truth(share, stall, period):
    """percentiles of independent arrivals in seconds, and the maximum; None where requests do not wait."""
    def at(q):
        wait = stall - (1 - q) * period / share if share else 0
        return wait if wait > 0 else None
    return {**{str(p): at(p / 100) for p in PERCENTILES}, "max": stall}


def ours(arguments, connections, way, url):
    """Percentiles of wirespeed-load, from its result file."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run(
            [arguments.load, *(["--realtime"] if arguments.realtime else []), "-t1",
             f"-c{connections}", f"-R{arguments.rate}",
             f"-d{arguments.seconds}s", f"--warmup={arguments.period}s", "-T10s", *WAYS[way],
             "--json", file.name, url], check=True, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        found = json.loads(Path(file.name).read_text())["latency"]["response"]
    known = {str(p): found["quantiles"][f"{p / 100:g}"] for p in PERCENTILES}
    return {**{p: value and value / 1e9 for p, value in known.items()}, "max": found["max"] / 1e9}


def measure(arguments, connections, way, url, workers, base):
    """A generator's percentiles, the true ones, and the share of connections that were stopped."""
    while [sockets(worker) for worker in workers] != base:
        time.sleep(0.05)  # connections of the run before
    stopper = Stopper(workers, base, arguments.stall, arguments.period)
    stopper.start()
    try:
        if way != "wrk2":
            found = ours(arguments, connections, way, url)
            return found, stopper.truth(), stopper.share
        path = os.pathsep.join([*arguments.tools, os.environ["PATH"]])
        # wrk2 throws away what it measured in its first 10 s
        command = [*(["chrt", "--fifo", "10"] if arguments.realtime else []),
                   shutil.which("wrk2", path=path), "-t1", f"-c{connections}", "-L", "-T10s",
                   f"-d{arguments.seconds + 10}s", f"-R{round(arguments.rate)}", url]
        found = wrk_like(command)
        return found, stopper.truth(), stopper.share
    finally:
        stopper.end()


def cell(found, expected):
    """Milliseconds, with the error against the truth where it has one."""
    if found is None:
        return "-"
    error = f" ({(found / expected - 1) * 100:+.1f} %)" if expected else ""
    return f"{found * 1e3:.1f}{error}"


def options():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load", default="target/release/wirespeed-load")
    parser.add_argument("--stall", type=float, default=1.0)
    parser.add_argument("--period", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=997.37)
    parser.add_argument("--seconds", type=int, default=20, help="of fewer p99.9 is not known")
    parser.add_argument("--connections", type=int, action="append")
    parser.add_argument("--way", action="append", help=f"one of {', '.join([*WAYS, 'wrk2'])}")
    parser.add_argument("--realtime", action="store_true",
                        help="real-time priority for the generators and for the workers")
    parser.add_argument("--tools", action="append", default=[], help="folder of other generators")
    return parser.parse_args()


def main():
    """Serves, stops, measures, prints a table in milliseconds."""
    arguments = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"one of two workers stopped {arguments.stall} s every {arguments.period} s, "
          f"{arguments.rate} requests/s, {arguments.seconds} s; milliseconds (error)\n")
    print("| connections | way | stopped of them | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 3) + "|")
    with serving() as (url, workers):
        base = steady_sockets(workers)
        for worker in workers if arguments.realtime else []:
            os.sched_setscheduler(worker, os.SCHED_FIFO, os.sched_param(10))
        for connections in arguments.connections or [50, 200]:
            for way in arguments.way or list(WAYS):
                found, expected, share = measure(arguments, connections, way, url, workers, base)
                cells = [cell(found[column], expected[column]) for column in COLUMNS]
                print(f"| {connections} | {way} | {share * 100:.0f} % | " + " | ".join(cells) + " |",
                      flush=True)


if __name__ == "__main__":
    main()
