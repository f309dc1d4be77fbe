#!/usr/bin/env python3
"""Gateways interleaved, A B A B in one run: CPU per request, capacity, tail, churn, memory.

Every gateway runs from the start on core 0 and is idle while another is measured; generator and
origin share core 1. Ratios are taken inside a round, the figure is the median over rounds.

  servers/bench/gateway.py --cell cpu                                 # nginx, netty, haproxy
  servers/bench/gateway.py --cell tail --only nginx netty --rounds 5
  servers/bench/gateway.py --cell equal-rate --rounds 3 --seconds 6   # against Tomcat and Zuul
  servers/bench/gateway.py --all                                      # one row a cell, in 12 minutes

Cells: cpu (closed loop, 50 ms origin), capacity (closed loop, an origin without latency), tail
(open loop at --share of the lowest capacity of them, the same rate for all), equal-rate (open loop
at --rate, one that each can carry on a core, 50 ms origin), churn and tls-churn (Connection: close),
memory (2000 connections, small heap), websocket (messages to and fro), tls, http2, proxy (X-Forwarded-For,
X-Request-ID and an access log), filters, cache, body-16k, body-1m, plain (cpu, 1000 connections):
gateway_cells.py has the settings of each contender. gateway_contenders.py says
how to add a gateway.
"JVM" is what of the CPU compilers and collectors took: where it is large, --warm was too short.
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
import threading
import time
from pathlib import Path

import gateway_cells
import gateway_contenders as contenders
import gateway_load as loads

SERVERS = Path(__file__).resolve().parent.parent
ECHO = SERVERS / "bench/echo_origin.py"
STATIC = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.err;
worker_rlimit_nofile 65536;
events {{ worker_connections 20000; }}
http {{ access_log off; keepalive_requests 100000000; default_type text/plain;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 "BODY"; }}
    add_header Cache-Control max-age=3600; }} }}
"""
# Requests/s that every contender of equal-rate carries on one core when it is warm.
EQUAL_RATE = 800
LOWEST = "lowest"
WARM_PIECE_S = 5
# Of the answers; a gateway that refuses more than this does other work than the rest.
ERRORS_SHARE_MAX = 0.01
# Share of compilers and collectors of a JVM's CPU below which it counts as warm.
WARM_JVM_SHARE = 0.15


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
    if options.asked.websocket:
        command = [sys.executable, str(ECHO), str(port)]
    elif not options.static:
        jar = SERVERS / "stub-origin" / "target" / "stub-origin.jar"
        flags = contenders.jvm_flags(SERVERS / "stub-origin" / "jvm.options", options.java)
        command = [options.java, *flags, "-jar", str(jar), "--port", str(port),
                   "--payload", options.payload, "--latency", options.latency]
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
        loads.send(options.load, contender, options.connections[0], 1, options.close)
        return
    # In pieces, with pauses in which the compiler gets the core for itself.
    for _ in range(max(1, options.warm // 5)):
        loads.send(options.load, contender, options.connections[0], 5, options.close)
        time.sleep(0.5)


def bind(contender, cores):
    """Moves all threads; a JVM keeps the number of cores that it saw at its start."""
    subprocess.run(["taskset", "-a", "-c", "-p", cores, str(contender.process.pid)], check=True,
                   stdout=subprocess.DEVNULL)


def warm_piece(running, options, rate):
    """All at once for a while; the rows of what they did."""
    rows = []
    threads = [threading.Thread(target=lambda one=one: rows.append(loads.measure(
        one, options.load, options.connections[0], WARM_PIECE_S, False, rate))) for one in running]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return rows


def is_warm(row, rate):
    """It answers at the rate, soon, and its compilers have little left to do."""
    return (row["rps"] > 0.99 * rate and not row["errors"]
            and row["jvm_us"] < WARM_JVM_SHARE * row["cpu_us"])


def warm_together(running, options):
    """At a growing rate on both cores until all are warm; then each is back on its own core."""
    began = time.monotonic()
    for contender in running:
        bind(contender, "0,1")
    everybody = [one.name for one in running]
    rate, cold = options.rate / 8, everybody
    while cold and time.monotonic() - began < options.warm:
        rows = warm_piece(running, options, rate)
        cold = sorted(row["name"] for row in rows if not is_warm(row, rate))
        if options.verbose:
            print(f"{rate:.0f}/s: not warm {cold}", file=sys.stderr)
        if rate < options.rate:
            rate, cold = min(2 * rate, options.rate), everybody
    for contender in running:
        bind(contender, "0")
    state = f"not warm: {' '.join(cold)}" if cold else "all are warm"
    print(f"{state} after {time.monotonic() - began:.0f} s", file=sys.stderr)


def common_rate(running, options):
    """None in a closed loop; else that of --rate, or a share of what one of them can do now."""
    if options.rate or options.cell != "tail":
        return options.rate
    asked = [one for one in running if options.of in (LOWEST, one.name)]
    if not asked:
        raise SystemExit(f"--of {options.of}: neither {LOWEST} nor one of"
                         f" {' '.join(options.only)}")
    rows = [loads.measure(one, options.load, options.connections[0], options.seconds)
            for one in asked]
    for row in rows:
        print(f"capacity of {row['name']}: {row['rps']:.0f}/s, core 0 busy {row['busy'][0]:.2f},"
              f" core 1 {row['busy'][1]:.2f}")
    rate = options.share * min(row["rps"] for row in rows)
    print(f"rate of the tail: {rate:.0f}/s")
    return rate


def in_turn(running, number):
    """Another order in each round: who comes behind whom must not decide."""
    first = number // 2 % len(running)
    turned = running[first:] + running[:first]
    return turned if number % 2 == 0 else turned[::-1]


def rounds(running, options):
    rate = common_rate(running, options)
    rows = []
    for connections in options.connections:
        for number in range(options.rounds):
            for contender in in_turn(running, number):
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
              for key in ("cpu_us", "jvm_us", "rps", "p50_ms", "p99_ms")}
    little = [abs(r["little"]) for r in own if r["little"] is not None]
    short = [1 - r["rps"] / r["offered"] for r in own if r["offered"]]
    return {"name": name, "connections": connections, **middle,
            "ratios": ratios(rows, options, connections, name, "cpu_us"),
            "p99_ratios": ratios(rows, options, connections, name, "p99_ms"),
            "rps_ratios": ratios(rows, options, connections, name, "rps"),
            "busy": [statistics.median(r["busy"][core] for r in own) for core in (0, 1)],
            "little": max(little) if little else None, "short": max(short) if short else None,
            "errors": sum(r["errors"] for r in own), "rss_mib": max(r["rss_mib"] for r in own)}


def each(values):
    return f"**{statistics.median(values):.2f}** ({' '.join(f'{v:.2f}' for v in values)})"


def percent(value):
    return "" if value is None else f"{value * 100:.1f} %"


def table(summary, options):
    base = options.only[0]
    is_open = any(row["short"] is not None for row in summary)
    print(f"\n| gateway | connections | CPU us/request | of it JVM | x {base} | requests/s | x {base}"
          f" | p50 ms | p99 ms | x {base} | core 0, 1 busy |"
          f" {'less than offered' if is_open else 'Little'} | errors | MiB |\n|{'---|' * 14}")
    for row in summary:
        print(f"| {row['name']} | {row['connections']} | {row['cpu_us']:.1f} |"
              f" {row['jvm_us']:.1f} | {each(row['ratios'])} | {row['rps']:,.0f} |"
              f" {each(row['rps_ratios'])} |"
              f" {row['p50_ms']:.1f} | {row['p99_ms']:.1f} | {each(row['p99_ratios'])} |"
              f" {row['busy'][0]:.2f}, {row['busy'][1]:.2f} |"
              f" {percent(row['short'] if is_open else row['little'])} | {row['errors']} |"
              f" {row['rss_mib']:.0f} |")


def row_of_all(cell, summary):
    """A line of the table of --all: CPU per request and p99, as multiples of the first gateway's."""
    base, *others = summary
    cells = [f"{cell}", f"{base['connections']}", f"{base['cpu_us']:.1f}", f"{base['rps']:,.0f}"]
    for row in others:
        cells += [each(row["ratios"]), f"{statistics.median(row['p99_ratios']):.2f}",
                  f"{statistics.median(row['rps_ratios']):.2f}"]
    errors = sum(row["errors"] for row in summary)
    return "| " + " | ".join([*cells, str(errors)]) + " |"


def head_of_all(names):
    base, *others = names
    cells = ["cell", "connections", f"{base}: CPU us/request", "requests/s"]
    for name in others:
        cells += [f"{name}: CPU x {base}", "p99 x", "requests/s x"]
    cells.append("errors")
    return f"| {' | '.join(cells)} |\n|{'---|' * len(cells)}"


def not_comparable(rows):
    """Gateways that responded with errors; a line for each."""
    for name in sorted({row["name"] for row in rows}):
        own = [row for row in rows if row["name"] == name]
        answered = sum(row["rps"] * row["seconds"] for row in own)
        errors = sum(row["errors"] for row in own)
        if errors > ERRORS_SHARE_MAX * answered:
            yield f"{name}: {errors} errors for {answered:.0f} answers: not comparable"


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=list(gateway_cells.CELLS), default="cpu")
    parser.add_argument("--all", action="store_true", help="a row for each of "
                        + " ".join(gateway_cells.ALL))
    parser.add_argument("--cells", nargs="+", help="the rows of --all, in this order",
                        metavar="CELL")
    parser.add_argument("--only", nargs="+", help="in this order; ratios are to the first")
    parser.add_argument("--contenders", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--connections", nargs="+", type=int)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--warm", type=int, default=20, help="seconds of load on each JVM before;"
                        " in equal-rate the most that are spent until all are warm")
    parser.add_argument("--ask", action="store_true", help="wait for Enter before the windows")
    parser.add_argument("--latency", help="of the stub origin, in place of the cell's")
    parser.add_argument("--payload", help="of the stub origin, in place of the cell's")
    parser.add_argument("--origin", choices=["stub", "static"], help="another origin for a cell")
    parser.add_argument("--share", type=float, default=0.8, help="of the capacity, for a tail")
    parser.add_argument("--of", default=LOWEST, help="whose capacity, for a tail; by default the"
                        " lowest of all, so that none is overloaded")
    parser.add_argument("--rate", type=float, help="requests/s for all, in an open loop")
    parser.add_argument("--java", default=shutil.which("java"))
    parser.add_argument("--load", default=str(SERVERS.parent / "target/release/wirespeed-load"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--verbose", action="store_true", help="each run to standard error")
    options = parser.parse_args(arguments)
    if options.cells:
        unknown = set(options.cells) - set(gateway_cells.CELLS)
        if unknown:
            parser.error(f"--cells: no cell {' '.join(sorted(unknown))}")
        options.all = True
    cell = options.asked = gateway_cells.CELLS[options.cell]
    options.connections = options.connections or cell.connections
    options.only = options.only or cell.only
    options.static = options.origin == "static" if options.origin else cell.static
    options.latency = options.latency or cell.latency
    options.payload = options.payload or cell.payload
    options.close = options.cell.endswith("churn")
    if options.cell == "equal-rate":
        options.rate = options.rate or EQUAL_RATE
        options.contenders = options.contenders or [SERVERS / "bench/peers/peers.toml"]
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
    running = contenders.chosen(options.only, options.contenders, options.java, ports,
                                options.asked)
    certificate = gateway_cells.certificate(folder) if options.asked.scheme == "https" else {}
    for contender in running:
        contender.start(options.java, origin_port, folder / contender.name.replace("/", "_"), 0,
                        log, certificate)
        processes.append(contender.process)
    await_port("the origin", origin, origin_port, 30, log)
    for contender in running:
        await_port(contender.name, contender.process, contender.port, contender.settle_s, log)
        if options.cell != "equal-rate":
            warm(contender, options)
    if options.cell == "equal-rate":
        warm_together(running, options)
    if options.ask:
        input("Warm. Enter starts the windows: ")
    rows = rounds(running, options)
    summary = [summary_of(rows, options, connections, name)
               for connections in options.connections for name in options.only]
    return rows, summary


def one_table(options):
    rows, summary = run(options)
    table(summary, options)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "summary": summary}, indent=1))
    return list(not_comparable(rows))


def table_of_all(arguments, options):
    """Each cell with gateways and an origin of its own; a row as soon as it is known."""
    faults, results = [], {}
    for number, name in enumerate(options.cells or gateway_cells.ALL):
        cell = options_of([*arguments, "--cell", name])
        if number == 0:
            print(head_of_all(cell.only), flush=True)
        rows, summary = run(cell)
        print(row_of_all(name, summary), flush=True)
        faults += [f"{name}: {fault}" for fault in not_comparable(rows)]
        results[name] = {"rows": rows, "summary": summary}
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return faults


def main(arguments):
    options = options_of(arguments)
    # Ended from outside, it still ends what it started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    faults = table_of_all(arguments, options) if options.all else one_table(options)
    print("\n".join(faults), file=sys.stderr)
    return 1 if faults else 0


def run(options):
    """The rows of one cell and their summary; whatever was started is ended."""
    processes = []
    with tempfile.TemporaryDirectory() as name, open(Path(name) / "log", "w") as log, \
            no_idle_states():
        try:
            return compare(options, Path(name), log, processes)
        finally:
            end(processes)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
