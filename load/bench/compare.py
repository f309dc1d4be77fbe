#!/usr/bin/env python3
"""Compares wirespeed-load with other generators: A B … B A on one server, ratios of medians.

The server is bound to core 0, a generator with one thread to core 1, idle states are held off. One with
two threads (-t2) has the cores 1 and 2, or on a machine of two cores both: one of its threads then shares
core 0 with the server, so its requests/s are those of the pair, while requests per CPU second still compare
the tools. Requests/s are
made of what each tool says itself, requests and time; CPU time is rusage of the tool's process, and
so are its sleeps for a request (voluntary context switches). "server µs" is the CPU time that the
server took for a request of this tool: waking a generator that sleeps is a part of it.
A cell is CONNECTIONSxBYTES; with -close one connection per request, with -lua a static script,
with -dynamic one that makes each request (tools without scripts are left out), with -chunked a body
of chunks, with -tls encryption, with -urls two URLs in turn (wrk needs a script for that), with -vary
a head that is another each time, with -h2sN HTTP/2 with N streams at once on each connection, with -h3sN
HTTP/3 (--server quinn), and behind these with -t2 two threads.
--set holdout has cells that nothing was tuned on: 137 bytes, 333 connections, chunks; --set all has
every kind of cell, for one table and a summary within 20 minutes:

    load/bench/compare.py --set all --tools wrk,oha,h2load --rounds 2 --seconds 1 --brief

Against nginx the server is mostly the slower side, so
requests/s mean little there; --server sink is faster than any generator. --server quinn speaks HTTP/1.1,
HTTP/2 and HTTP/3 at one port; cargo makes it: cargo build --release -p load-cli --example http3_server

With --before PATH another build of wirespeed-load takes part too.

    load/bench/compare.py [--cell 50x0] [--tools wrk,ab] [--rounds 5] [--bin wrk2=PATH]

With --json FILE every run is kept, and runs that are already in FILE count too: rounds can be
split into several short sessions with the same build.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import peers

# A tool that runs longer than requested is ended, and its run does not count.
RUN_SECONDS_MAX = 30
SETS = {
    "usual": ["50x0", "1000x0", "50x1024", "1000x1024", "50x0-close", "50x0-lua"],
    "holdout": ["50x137", "333x0", "333x137", "50x1024-chunked", "333x137-chunked"],
    "http2": ["1x0-h2s1", "50x0-h2s1", "50x0-h2s10", "10x1024-h2s100", "50x1024-h2s10"],
    "http3": ["1x0-h3s1", "50x0-h3s1", "50x0-h3s10", "10x1024-h3s100", "50x16384-h3s10"],
    "wrk": [f"{connections}x{size}" for size in (0, 1024, 10240) for connections in (1, 50, 333, 1000)],
    "all": [
        *(f"{connections}x{size}" for size in (0, 1024, 16384, 102400, 1048576)
          for connections in (1, 50, 1000)),
        "10000x0", "10000x1024", "10000x16384",
        *(f"{connections}x{size}-tls" for size in (0, 16384, 102400) for connections in (1, 50, 1000)),
        "50x1048576-tls",
        *(f"{connections}x{size}-chunked" for size in (1024, 16384) for connections in (50, 1000)),
        *(f"{connections}x1024-{kind}" for kind in ("urls", "vary", "dynamic")
          for connections in (1, 50, 1000)),
        "50x0-close",
        "1x0-h2s1", "50x0-h2s1", "50x1024-h2s10", "10x1024-h2s100",
        *(f"{connections}x{size}-t2" for size in (0, 1024, 16384, 102400, 1048576)
          for connections in (50, 1000)),
        *(f"{cell}-t2" for cell in (
            "10000x0", "10000x1024", "10000x16384",
            "50x0-tls", "50x16384-tls", "50x102400-tls", "1000x16384-tls",
            "50x1024-chunked", "50x16384-chunked",
            "50x1024-urls", "50x1024-vary", "50x1024-dynamic", "50x0-close",
            "50x0-h2s1", "50x1024-h2s10")),
    ],
}
#: Groups of cells in the summary: name, the tool that ours is compared with, and whether a cell belongs to it.
GROUPS = [
    ("all cells", "wrk", lambda cell: not cell.streams),
    ("one thread", "wrk", lambda cell: not cell.streams and cell.threads == 1),
    ("two threads", "wrk", lambda cell: not cell.streams and cell.threads == 2),
    ("TLS", "wrk", lambda cell: cell.kind == "tls"),
    ("64 KiB and more", "wrk", lambda cell: not cell.streams and int(cell.size) >= 65536),
    ("all cells", "oha", lambda cell: not cell.streams),
    ("HTTP/1.1", "h2load", lambda cell: not cell.streams),
    ("HTTP/2", "h2load", lambda cell: cell.streams > 0),
]
#: So many of the worst cells are named.
NAMED = 5
#: Pages out of nginx's memory, and pages out of files.
SIZES = [0, 137, 1024, 10240]
FILE_SIZES = [16384, 102400, 1048576]
#: Opening so many takes a part of a second: such runs are longer by this factor.
MANY_CONNECTIONS, LONGER = 10_000, 3
# An HTTP server that has nothing in common with nginx.
NODE = """
const http = require("http");
http.createServer((request, response) => {
  const path = request.url.split("/");
  const body = "x".repeat(Number(path.pop()));
  if (path.pop() === "chunked") { response.write(body); response.end(); return; }
  response.setHeader("Content-Length", body.length);
  response.end(body);
}).listen(%d, "127.0.0.1", 16384);
"""
CONFIG = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log crit;
worker_rlimit_nofile 40000;
events {{ worker_connections 30000; multi_accept on; }}
http {{
  access_log off; http2_max_concurrent_streams 200; keepalive_requests 1000000000; keepalive_timeout 600;
  server {{
    listen 127.0.0.1:{port} backlog=16384;
    listen 127.0.0.1:{h2_port} http2 backlog=16384; default_type text/plain;
    listen 127.0.0.1:{tls_port} ssl backlog=16384;
    ssl_certificate {folder}/cert.pem; ssl_certificate_key {folder}/key.pem;
    {locations}
    # a page that includes have gone over has no known length
    location /chunked {{ root {folder}; ssi on; ssi_types text/plain; }}
    location /vary {{ add_header X-Request-ID $request_id; alias {folder}/chunked; }}
    location /other {{ alias {folder}/chunked; }}
    location / {{ root {folder}/chunked; }}
    sendfile on; open_file_cache max=100;
  }}
}}
"""


def free_port():
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def location(size):
    """A page of so many bytes out of nginx's memory; one of its strings has 4,096 at most."""
    kib, rest = divmod(size, 1024)
    body = "$kib" * kib + "x" * rest
    return f'location = /{size} {{ set $kib "{"x" * 1024}"; return 200 "{body}"; }}\n'


def make_certificate(folder):
    """A self-signed certificate, and its key."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
         "-days", "2", "-subj", "/CN=localhost", "-keyout", f"{folder}/key.pem", "-out",
         f"{folder}/cert.pem"], check=True, capture_output=True)


def quinn(load):
    """The server of HTTP/3, which lies next to our program."""
    path = Path(load).resolve().parent / "examples" / "http3_server"
    if not path.exists():
        raise SystemExit(f"{path}: not there (cargo build --release -p load-cli --example http3_server)")
    return path


class Server:
    """nginx, or the null server of a generator, on core 0 as long as the block lasts."""

    def __init__(self, kind="nginx", sink=None):
        self.kind, self.sink = kind, sink

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="wirespeed-bench-")
        self.port, self.h2_port, self.tls_port = free_port(), free_port(), free_port()
        self.process = subprocess.Popen(["taskset", "-c", "0", *self.command()],
                                        stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                    if self.kind == "quinn":
                        return self
                    # a master listens before its worker answers, and the first run would miss that
                    probe.sendall(b"GET /0 HTTP/1.1\r\nHost: probe\r\n\r\n")
                    if probe.recv(1):
                        return self
            except OSError:
                time.sleep(0.05)
        raise SystemExit("the server did not start")

    def command(self):
        """The server's command line."""
        if self.kind == "sink":
            return [self.sink, "sink", f"127.0.0.1:{self.port}"]
        if self.kind == "quinn":
            return [str(quinn(self.sink)), str(self.port)]
        if self.kind == "node":
            return [shutil.which("node"), "-e", NODE % self.port]
        config, pages = Path(self.folder, "nginx.conf"), Path(self.folder, "chunked")
        # the worker gives up root
        Path(self.folder).chmod(0o755)
        pages.mkdir()
        for size in SIZES + FILE_SIZES:
            Path(pages, str(size)).write_text("x" * size)
        make_certificate(self.folder)
        locations = "".join(map(location, SIZES))
        config.write_text(CONFIG.format(
            folder=self.folder, port=self.port, h2_port=self.h2_port, tls_port=self.tls_port,
            locations=locations))
        return [shutil.which("nginx") or "/usr/sbin/nginx", "-c", str(config)]

    def root_of(self, cell):
        """Where the cell's pages are."""
        if self.kind == "quinn":
            return f"https://127.0.0.1:{self.port}"
        if cell.kind == "tls":
            return f"https://127.0.0.1:{self.tls_port}"
        return f"http://127.0.0.1:{self.h2_port if cell.streams else self.port}"

    def cpu_s(self):
        """CPU time that the server has used: nanoseconds of the scheduler, not ticks."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        used_ns = 0
        for pid in [self.process.pid, *children.split()]:
            for task in Path(f"/proc/{pid}/task").iterdir():
                used_ns += int((task / "schedstat").read_text().split()[0])
        return used_ns / 1e9

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


def cores_of(threads):
    """Cores of a generator: off the server's, where there are enough."""
    first = 1 if threads < os.cpu_count() else 0
    return ",".join(str(first + number) for number in range(threads))


def run(path, tool, job, server):
    """The figures of one run; nothing if the tool does not take part in this cell."""
    arguments = tool.arguments(job)
    if arguments is None:
        return None
    server_before_s = server.cpu_s()
    process = subprocess.Popen(
        ["taskset", "-c", cores_of(job.cell.threads), path, *arguments], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, env=dict(os.environ, GOMAXPROCS=str(job.cell.threads)))
    overdue = threading.Timer(RUN_SECONDS_MAX + job.seconds, process.kill)
    overdue.start()
    try:
        output = process.stdout.read()
        _, process.returncode, usage = os.wait4(process.pid, 0)
    finally:
        overdue.cancel()
        if process.returncode is None:
            process.kill()
    server_used_s = server.cpu_s() - server_before_s
    figures = peers.read(tool, output, job.seconds)
    if not figures or not figures[0]:
        print(f"{path}: no figures in its output:\n{output[-500:]}", file=sys.stderr)
        return None
    requests, elapsed_s = figures
    cpu_s = usage.ru_utime + usage.ru_stime
    return {
        "rps": requests / elapsed_s,
        "per_cpu_s": requests / cpu_s,
        "user_us": usage.ru_utime / requests * 1e6,
        "cpu_us": cpu_s / requests * 1e6,
        "busy": cpu_s / elapsed_s,
        "sleeps": usage.ru_nvcsw / requests,
        "server_us": server_used_s / requests * 1e6,
    }


def go_first():
    """Server and tools go before what else runs: in the kernel's groups of sessions too."""
    with contextlib.suppress(PermissionError):
        # not possible for the leader of a group, which then keeps its session
        os.setsid()
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    group = Path("/proc/self/autogroup")
    if group.exists():
        group.write_text("-20")


def measure(cell, tools, server, options):
    """All rounds of one cell, in alternating order: tool → its runs."""
    with tempfile.TemporaryDirectory() as folder:
        static, dynamic = Path(folder, "static.lua"), Path(folder, "dynamic.lua")
        static.write_text(peers.SCRIPT)
        is_list = cell.kind == "urls"
        dynamic.write_text(peers.alternating(cell.paths) if is_list else peers.DYNAMIC)
        urls = [f"{server.root_of(cell)}/{path}" for path in cell.paths]
        longer = LONGER if cell.connections >= MANY_CONNECTIONS else 1
        job = peers.Job(cell, options.seconds * longer, urls, str(static), str(dynamic))
        runs = {name: [] for name in tools}
        for number in range(options.rounds):
            for name in list(tools) if number % 2 == 0 else reversed(list(tools)):
                figures = run(*tools[name], job, server)
                if figures:
                    runs[name].append(figures)
    return {name: own for name, own in runs.items() if own}


def medians(runs):
    """Tool → the medians of its figures."""
    return {
        name: {key: statistics.median(run.get(key, float("nan")) for run in own)
               for key in own[-1]}
        for name, own in runs.items()
    }


def table(title, runs):
    """Prints medians, and the ratio of ours to each tool's."""
    median = medians(runs)
    ours = median.get("wirespeed-load")
    if not ours:
        print(f"\n{title}: wirespeed-load gave no figures")
        return
    rounds = ", ".join(f"{name} {len(own)}" for name, own in runs.items())
    print(f"\n{title}; medians of so many rounds: {rounds}\n\n| tool | requests/s "
          "| requests per CPU s | user µs | CPU µs | busy | sleeps | server µs "
          "| ours / its requests/s | ours / its per CPU s | our user time / its |")
    print("|" + "---|" * 11)
    for name, own in median.items():
        print(f"| {name} | {own['rps']:,.0f} | {own['per_cpu_s']:,.0f} | {own['user_us']:.2f} "
              f"| {own['cpu_us']:.2f} | {own['busy']:.2f} | {own['sleeps']:.3f} "
              f"| {own['server_us']:.2f} | {ours['rps'] / own['rps']:.2f} "
              f"| {ours['per_cpu_s'] / own['per_cpu_s']:.2f} "
              f"| {ours['user_us'] / max(own['user_us'], 1e-9):.2f} |", flush=True)


def ratio(median, name):
    """Our requests per CPU second over another tool's; nothing where one of both gave no figures."""
    if "wirespeed-load" in median and name in median:
        return median["wirespeed-load"]["per_cpu_s"] / median[name]["per_cpu_s"]
    return None


def brief(results, names):
    """All cells in one Markdown table, a row for each, and what they come to."""
    others = [name for name in names if name != "wirespeed-load"]
    heads = ["cell", "requests/s", "requests per CPU s", "user µs", "busy",
             *(f"per CPU s, over {name}" for name in others)]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    cells = {}
    for title, runs in results.items():
        median = medians(runs)
        cells[title] = median
        ratios = [ratio(median, other) for other in others]
        ours = median.get("wirespeed-load")
        own = (f"{ours['rps']:,.0f} | {ours['per_cpu_s']:,.0f} | {ours['user_us']:.2f} | {ours['busy']:.2f}"
               if ours else "- | - | - | -")
        lines.append(f"| {title} | {own} | {' | '.join(f'{one:.2f}' if one else '-' for one in ratios)} |")
    counted = [line for group in GROUPS if group[1] in others for line in counts(cells, *group)]
    return "\n".join([*lines, "", *counted]) + "\n"


def counts(cells, group, other, belongs):
    """In how many cells of a group ours has so many times the other's requests per CPU second."""
    found = {title: ratio(median, other) for title, median in cells.items()
             if belongs(peers.Cell.parse(title.partition(" ")[0]))}
    known = sorted((one, title) for title, one in found.items() if one)
    if not known:
        return []
    shares = ", ".join(f"{least} × in {sum(one >= least for one, _ in known)}" for least in (1.3, 1.2, 1.0))
    worst = ", ".join(f"{title} {one:.2f}" for one, title in known[:NAMED])
    median = statistics.median(one for one, _ in known)
    return [f"- {other}, {group}: at least {shares} of {len(known)} cells, median {median:.2f} ×; "
            f"lowest: {worst}."]


def allow_files():
    """Tools that open many connections may."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, PermissionError):
        most = max(most, 40_000)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def options_of():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load", help="our program; without it PATH, then target/release",
                        default=shutil.which("wirespeed-load") or "target/release/wirespeed-load")
    parser.add_argument("--cell", action="append", help=f"one of {', '.join(SETS['usual'])}, or like them")
    parser.add_argument("--set", choices=SETS, default="usual", help="cells, if none are named")
    parser.add_argument("--tools", help="names besides wirespeed-load, separated by commas; "
                        f"default: all installed ones of {', '.join(peers.TOOLS)}")
    parser.add_argument("--bin", action="append", default=[], metavar="NAME=PATH",
                        help="where a program is that is not on PATH")
    parser.add_argument("--before", metavar="PATH", help="another build of ours, to compare with")
    parser.add_argument("--server", choices=["nginx", "sink", "node", "quinn"], default="nginx")
    parser.add_argument("--nice", action="store_true",
                        help="server and tools go before what else runs on the machine (root)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--brief", action="store_true",
                        help="one table of all cells and a summary, at the end, instead of a table for each")
    parser.add_argument("--json", help="file of runs: its runs count too, and new ones are added")
    return parser.parse_args()


def main():
    """Measures the cells that were asked for."""
    # Ended from outside, the server is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = options_of()
    places = dict(pair.partition("=")[::2] for pair in options.bin)
    names = options.tools.split(",") if options.tools else list(peers.TOOLS)
    names = ["wirespeed-load", *(name for name in names if name != "wirespeed-load")]
    tools, absent = peers.find(names, {"wirespeed-load": options.load, **places})
    if options.before:
        tools["wirespeed-load before"] = (options.before, peers.TOOLS["wirespeed-load"])
    if absent:
        print(f"Not found, so not compared: {', '.join(absent)}.\n")
    if "wirespeed-load" not in tools:
        raise SystemExit(f"{options.load}: not there; build it or say --load PATH")
    hold_idle_states()
    allow_files()
    if options.nice:
        go_first()
    kept = Path(options.json) if options.json else None
    results = json.loads(kept.read_text()) if kept and kept.exists() else {}
    cells = [peers.Cell.parse(name) for name in options.cell or SETS[options.set]]
    if options.server != "quinn" and any(cell.http3 for cell in cells):
        raise SystemExit("cells of HTTP/3 need --server quinn")
    if any(cell.threads > 1 for cell in cells):
        print(f"Server on core 0; two threads of a generator on cores {cores_of(2)}.\n")
    for cell in cells:
        title = f"{cell.name} ({options.server})"
        # a new server for each cell: what one leaves behind does not touch the next
        with Server(options.server, tools["wirespeed-load"][0]) as server:
            for name, runs in measure(cell, tools, server, options).items():
                results.setdefault(title, {}).setdefault(name, []).extend(runs)
        if options.brief:
            print(title, file=sys.stderr)
        else:
            table(title, results.get(title, {}))
        if kept:
            kept.write_text(json.dumps(results, indent=1) + "\n")
    if options.brief:
        print(brief(results, list(tools)), end="")


if __name__ == "__main__":
    main()
