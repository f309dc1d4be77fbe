#!/usr/bin/env python3
"""Long transfers: iperf3 and large files of nginx, kernel and accelerated interleaved, as ratios.

    bypass/bench/bulk.py [CELL...] [--rounds 3] [--seconds 2] [--other LIBRARY]

Cells: `iperf3` (1 and 8 streams of write), `sendfile` and `write` (nginx with sendfile on and off, 1 MB,
10 MB and 100 MB over 1, 4 and 50 connections), `netty` (http-server with 16 KiB, 100 connections). The
server runs on core 0, its client on core 1, idle states held off. `--other` adds a second build of the
library. Prints Markdown: medians of all rounds, those with near and with far cores
apart (figures.py), and their ratio to the kernel's. Standard library only;
needs nginx, iperf3, a JDK and the release build.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path

from figures import ROOT, Distance, await_listener, hold_idle_states, kernel_unpaced, port_that_is_free

GENERATOR = ROOT / "target" / "release" / "wirespeed-load"
WEB = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log crit;
events {{ worker_connections 1024; accept_mutex off; }}
http {{ access_log off; sendfile {sendfile}; output_buffers 2 512k; keepalive_requests 1000000000;
  open_file_cache max=100 inactive=600s; server {{ listen 127.0.0.1:{port}; root {folder}; }} }}
"""
SIZES = {"1 MB": 10**6, "10 MB": 10**7, "100 MB": 10**8}


class Bench:
    """Starts programs on a stack: `kernel`, or the name of a library."""

    def __init__(self, options, folder, stacks):
        self.options, self.folder, self.stacks = options, Path(folder), stacks

    def start(self, stack, core, words, **more):
        """A program on a core."""
        environment = dict(os.environ)
        if self.stacks[stack]:
            environment |= {"LD_PRELOAD": str(self.stacks[stack]), "EF_POLL_USEC": str(self.options.spin_us)}
        return subprocess.Popen(["taskset", "-c", str(core), *map(str, words)], env=environment, **more)

    @contextmanager
    def server(self, stack, port, words):
        """A server that listens on `port` as long as the block lasts."""
        process = self.start(stack, 0, words, stdout=subprocess.DEVNULL)
        try:
            await_listener(port, process)
            yield
        finally:
            process.terminate()
            process.wait()

    def load(self, stack, connections, url, seconds=None):
        """The results of one window from the generator's JSON."""
        result = self.folder / "load.json"
        seconds = seconds or self.options.seconds
        words = [GENERATOR, "-t1", f"-c{connections}", f"-d{seconds}s", "--json", result, url]
        if self.start(stack, 1, words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).wait() != 0:
            sys.exit(f"bulk.py: {GENERATOR.name} failed on {url}")
        return json.loads(result.read_text())


def found(tree, name):
    """The first value of that name anywhere in a JSON document."""
    branches = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    if isinstance(tree, dict) and name in tree:
        return tree[name]
    return next((hit for hit in (found(branch, name) for branch in branches) if hit is not None), None)


def iperf3(bench):
    """Streams of 128 KiB writes; GB/s at the receiver."""
    for streams in (1, 8):
        for stack in bench.stacks:
            port = port_that_is_free()
            server = bench.start(stack, 0, ["iperf3", "-s", "-1", "-p", port], stdout=subprocess.DEVNULL)
            time.sleep(0.5)
            words = ["iperf3", "-c", "127.0.0.1", "-p", port, "-t", bench.options.seconds, "-P", streams, "-J"]
            report = json.loads(bench.start(stack, 1, words, stdout=subprocess.PIPE, text=True).communicate()[0])
            server.wait()
            yield f"iperf3, {streams} streams, GB/s", stack, report["end"]["sum_received"]["bits_per_second"] / 8e9


def web(bench, sendfile):
    """Large files of nginx; GB/s."""
    for size in SIZES.values():
        path = bench.folder / str(size)
        if not path.exists():
            path.write_bytes(os.urandom(size))
            path.chmod(0o644)
    bench.folder.chmod(0o755)
    for stack in bench.stacks:
        port = port_that_is_free()
        config = bench.folder / "nginx.conf"
        config.write_text(WEB.format(folder=bench.folder, port=port, sendfile=sendfile))
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        with bench.server(stack, port, [nginx, "-c", config, "-e", bench.folder / "error.log"]):
            for name, size in SIZES.items():
                for connections in bench.options.connections:
                    report = bench.load(stack, connections, f"http://127.0.0.1:{port}/{size}")
                    way = "sendfile" if sendfile == "on" else "write"
                    yield f"nginx {way}, {name}, {connections} connections, GB/s", stack, found(report, "bytes_per_second") / 1e9


def netty(bench):
    """The Netty http-server with 16 KiB; requests per second and p99."""
    for transport in ("nio", "epoll"):
        for stack in bench.stacks:
            port = port_that_is_free()
            flags = ["-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-jar", bench.options.jar]
            words = ["--host", "127.0.0.1", "--port", port, "--payload", 16384, "--transport", transport, "--threads", 1]
            with bench.server(stack, port, ["java", *flags, *words]):
                bench.load(stack, 100, f"http://127.0.0.1:{port}/16384", bench.options.warmup)
                report = bench.load(stack, 100, f"http://127.0.0.1:{port}/16384")
                yield f"Netty {transport}, 16 KiB, 100 connections, requests/s", stack, found(report, "rps")
                yield f"Netty {transport}, 16 KiB, 100 connections, p99 ms", stack, report["latency"]["service"]["quantiles"]["0.99"] / 1e6


CELLS = {"iperf3": iperf3, "sendfile": lambda bench: web(bench, "on"), "write": lambda bench: web(bench, "off"), "netty": netty}


def read_options():
    """The command line; a missing build ends with 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="all of them unless said")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=5, help="seconds for a JVM before its window")
    parser.add_argument("--spin-us", type=int, default=100_000)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 4, 50])
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--jar", type=Path, default=ROOT / "servers" / "http-server" / "target" / "http-server.jar")
    parser.add_argument("--library", type=Path, default=ROOT / "target" / "release" / "libbypass_preload.so")
    parser.add_argument("--other", type=Path, help="another build of the library")
    options = parser.parse_args()
    for library in filter(None, (options.library, options.other)):
        if not library.exists():
            parser.error(f"no {library}: run ./wirespeed build bypass load")
    for name in set(options.cells) - set(CELLS):
        parser.error(f"no cell {name}: there are {', '.join(CELLS)}")
    return options


def main():
    """Runs every cell in rounds and prints one table."""
    options = read_options()
    stacks = {"kernel": None, "bypass": options.library} | ({"other": options.other} if options.other else {})
    for name in set(SIZES) - set(options.sizes):
        del SIZES[name]
    figures = defaultdict(list)
    with kernel_unpaced() as control, tempfile.TemporaryDirectory(prefix="bypass-bulk-") as folder:
        print(f"idle states {hold_idle_states()}, {options.rounds} rounds of {options.seconds} s, "
              f"kernel {os.uname().release}, {control}\n")
        distance = Distance(folder)
        for _ in range(options.rounds):
            for name in options.cells or CELLS:
                for case, stack, value in CELLS[name](Bench(options, folder, stacks)):
                    figures[f"{case}, {distance.now()}", stack].append(value)
    others = list(stacks)[1:]
    print("| case | kernel | " + " | ".join(f"{one} | {one} ×" for one in others) + " |")
    print("|" + "---|" * (2 + 2 * len(others)))
    for case in dict.fromkeys(case for case, _ in figures):
        if not all(figures[case, stack] for stack in stacks):
            print(f"| {case}: not of every stack |")
            continue
        base = statistics.median(figures[case, "kernel"])
        values = [statistics.median(figures[case, one]) for one in others]
        print(f"| {case} | {base:,.2f} | " + " | ".join(f"{value:,.2f} | {value / base:.2f}" for value in values) + " |")


if __name__ == "__main__":
    main()
