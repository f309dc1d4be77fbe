#!/usr/bin/env python3
"""Gateways side by side, A B A B in one run: CPU per request, capacity, tail, churn, memory.

Every gateway runs from the start on core 0 and is idle while another is measured; generator and
origin share core 1. Ratios are taken inside a round, the figure is the median over rounds.

  servers/bench/gateway.py --cell cpu                                 # nginx, netty, haproxy
  servers/bench/gateway.py --cell tail --only nginx netty --rounds 5
  servers/bench/gateway.py --cell cpu --only nginx netty zuul2 --contenders zuul.toml

Cells: cpu (closed loop, 50 ms origin), capacity (closed loop, an origin without latency), tail
(open loop at --share of the capacity that --of has, the same rate for all), churn (Connection:
close), memory (2000 connections, small heap). gateway_contenders.py says how to add a gateway.
Standard library only; needs wirespeed-load (cargo build --release), nginx and, for its rows,
haproxy; holding idle states off needs root.
"""

import argparse
import contextlib
import json
import os
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

import gateway_contenders as contenders
import gateway_load as loads

SERVERS = Path(__file__).resolve().parent.parent
STATIC = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.err;
worker_rlimit_nofile 65536;
events {{ worker_connections 20000; }}
http {{ access_log off; keepalive_requests 100000000; default_type text/plain;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 "BODY"; }} }} }}
"""
# Per cell: connections, gateways, whether the origin answers at once.
CELLS = {
    "cpu": ([1000, 2000], ["nginx", "netty", "haproxy"], False),
    "capacity": ([1000], ["nginx", "netty", "haproxy"], True),
    "tail": ([1000], ["nginx", "netty", "haproxy"], True),
    "churn": ([1000], ["nginx", "netty", "haproxy"], False),
    "memory": ([2000], ["nginx", "netty-small", "netty"], False),
}


@contextlib.contextmanager
def no_idle_states():
    """As long as the file is open, cores do not sleep deeply."""
    try:
        with open("/dev/cpu_dma_latency", "wb", buffering=0) as file:
            file.write(struct.pack("i", 0))
            yield
    except PermissionError:
        print("idle states stay on: /dev/cpu_dma_latency needs root", file=sys.stderr)
        yield


def origins(options, port, folder, log):
    """Starts the origin of the cell on core 1; the answer is the process."""
    if not options.static:
        jar = SERVERS / "stub-origin" / "target" / "stub-origin.jar"
        flags = contenders.jvm_flags(SERVERS / "stub-origin" / "jvm.options", options.java)
        command = [options.java, *flags, "-jar", str(jar), "--port", str(port),
                   "--payload", "1KiB", "--latency", options.latency]
    else:
        own = folder / "origin"
        own.mkdir()
        (own / "nginx.conf").write_text(
            STATIC.format(folder=own, port=port).replace("BODY", "x" * 1024))
        command = [shutil.which("nginx") or "/usr/sbin/nginx", "-c", str(own / "nginx.conf")]
    return subprocess.Popen(["taskset", "-c", "1", *command], stdout=log, stderr=log,
                            start_new_session=True)


def await_port(name, process, port, settle_s, log):
    end = time.monotonic() + settle_s
    while time.monotonic() < end and process.poll() is None:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit(f"{name} does not listen on port {port}:\n" + Path(log.name).read_text())


def warm(contender, options):
    if contender.kind != "jvm":
        loads.send(options.load, contender.port, options.connections[0], 1, options.close)
        return
    # In pieces, with pauses in which the compiler gets the core for itself.
    for _ in range(max(1, options.warm // 5)):
        loads.send(options.load, contender.port, options.connections[0], 5, options.close)
        time.sleep(0.5)


def common_rate(running, options):
    """The rate of a tail: a share of the capacity that one of the gateways shows now."""
    if options.rate:
        return options.rate
    one = next((c for c in running if c.name == options.of), None)
    if not one:
        raise SystemExit(f"--of {options.of}: not one of {' '.join(options.only)}")
    row = loads.measure(one, options.load, options.connections[0], options.seconds)
    print(f"capacity of {one.name}: {row['rps']:.0f}/s, core 0 busy {row['busy'][0]:.2f}, core 1"
          f" {row['busy'][1]:.2f}; rate of the tail: {options.share * row['rps']:.0f}/s")
    return options.share * row["rps"]


def rounds(running, options):
    rate = common_rate(running, options) if options.cell == "tail" else None
    rows = []
    for connections in options.connections:
        for _ in range(options.rounds):
            for contender in running:
                row = loads.measure(contender, options.load, connections, options.seconds,
                                    options.close, rate)
                rows.append(row)
                if options.verbose:
                    print({key: row[key] for key in row if key != "seconds"}, file=sys.stderr)
    return rows


def ratios(rows, options, connections, name, key):
    own = [r[key] for r in rows if r["name"] == name and r["connections"] == connections]
    base = [r[key] for r in rows
            if r["name"] == options.only[0] and r["connections"] == connections]
    return [a / b for a, b in zip(own, base)]


def summary_of(rows, options, connections, name):
    own = [r for r in rows if r["name"] == name and r["connections"] == connections]
    middle = {key: statistics.median(r[key] for r in own)
              for key in ("cpu_us", "rps", "p50_ms", "p99_ms")}
    little = [abs(r["little"]) for r in own if r["little"] is not None]
    return {"name": name, "connections": connections, **middle,
            "ratios": ratios(rows, options, connections, name, "cpu_us"),
            "p99_ratios": ratios(rows, options, connections, name, "p99_ms"),
            "rps_ratios": ratios(rows, options, connections, name, "rps"),
            "busy": [statistics.median(r["busy"][core] for r in own) for core in (0, 1)],
            "little": max(little) if little else None,
            "errors": sum(r["errors"] for r in own), "rss_mib": max(r["rss_mib"] for r in own)}


def each(values):
    return f"**{statistics.median(values):.2f}** ({' '.join(f'{v:.2f}' for v in values)})"


def table(summary, options):
    base = options.only[0]
    print(f"\n| gateway | connections | CPU us/request | x {base} | requests/s | x {base} | p50 ms"
          f" | p99 ms | x {base} | core 0, 1 busy | Little | errors | MiB |\n|{'---|' * 13}")
    for row in summary:
        little = "" if row["little"] is None else f"{row['little'] * 100:.1f} %"
        print(f"| {row['name']} | {row['connections']} | {row['cpu_us']:.1f} |"
              f" {each(row['ratios'])} | {row['rps']:,.0f} | {each(row['rps_ratios'])} |"
              f" {row['p50_ms']:.1f} | {row['p99_ms']:.1f} | {each(row['p99_ratios'])} |"
              f" {row['busy'][0]:.2f}, {row['busy'][1]:.2f} | {little} | {row['errors']} |"
              f" {row['rss_mib']:.0f} |")


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=list(CELLS), default="cpu")
    parser.add_argument("--only", nargs="+", help="in this order; ratios are to the first")
    parser.add_argument("--contenders", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--connections", nargs="+", type=int)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--warm", type=int, default=20, help="seconds of load on each JVM before")
    parser.add_argument("--latency", default="50ms", help="of the stub origin")
    parser.add_argument("--origin", choices=["stub", "static"], help="another origin for a cell")
    parser.add_argument("--share", type=float, default=0.8, help="of the capacity, for a tail")
    parser.add_argument("--of", default="netty", help="whose capacity, for a tail")
    parser.add_argument("--rate", type=float, help="requests/s of a tail instead")
    parser.add_argument("--java", default=shutil.which("java"))
    parser.add_argument("--load", default=str(SERVERS.parent / "target/release/wirespeed-load"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--verbose", action="store_true", help="each run to standard error")
    options = parser.parse_args(arguments)
    connections, names, static = CELLS[options.cell]
    options.connections = options.connections or connections
    options.only = options.only or names
    options.static = options.origin == "static" if options.origin else static
    options.close = options.cell == "churn"
    if not os.access(options.load, os.X_OK):
        parser.error(f"{options.load} is missing: cargo build --release -p wirespeed-load")
    return options


def end(processes):
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)


def compare(options, folder, log, processes):
    ports = contenders.free_ports()
    origin_port = next(ports)
    origin = origins(options, origin_port, folder, log)
    processes.append(origin)
    running = contenders.chosen(options.only, options.contenders, options.java, ports)
    for contender in running:
        contender.start(options.java, origin_port, folder / contender.name.replace("/", "_"), 0,
                        log)
        processes.append(contender.process)
    await_port("the origin", origin, origin_port, 30, log)
    for contender in running:
        await_port(contender.name, contender.process, contender.port, contender.settle_s, log)
        warm(contender, options)
    rows = rounds(running, options)
    summary = [summary_of(rows, options, connections, name)
               for connections in options.connections for name in options.only]
    table(summary, options)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "summary": summary}, indent=1))


def main(arguments):
    options = options_of(arguments)
    # Ended from outside, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    processes = []
    with tempfile.TemporaryDirectory() as name, open(Path(name) / "log", "w") as log, \
            no_idle_states():
        try:
            compare(options, Path(name), log, processes)
        finally:
            end(processes)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
