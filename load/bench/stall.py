#!/usr/bin/env python3
"""Which generator tells the truth about a server that stops now and then?

The server here is a queue: capacity MU, and it stops for S at the start of each period P. What
independent users see of it follows from arithmetic (docs/honest-latency.md), so each generator's
percentiles can be compared with the truth.

    load/bench/stall.py --load target/release/wirespeed-load --stall 0.1 --period 1 --seconds 20
"""

import argparse
import heapq
import json
import multiprocessing
import os
import re
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PERCENTILES = [50, 90, 99, 99.9]


def serve(listener, capacity, stall, period, core):
    """First in, first out at `capacity` a second; stopped in the first `stall` of each period."""
    os.sched_setaffinity(0, {core})
    epoll = select.epoll()
    epoll.register(listener, select.EPOLLIN)
    open_sockets, leaving, free_at, began = {}, [], 0.0, time.monotonic()
    while True:
        now = time.monotonic()
        while leaving and leaving[0][0] <= now:
            _, number = heapq.heappop(leaving)
            if number in open_sockets:
                try:
                    open_sockets[number].send(ANSWER)
                except OSError:
                    pass
        wait = leaving[0][0] - now if leaving else 0.05
        # sleeps end up to a millisecond late; the last one is polled
        for number, _ in epoll.poll(0 if wait < 0.002 else wait - 0.002):
            if number == listener.fileno():
                stream, _ = listener.accept()
                stream.setblocking(False)
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                open_sockets[stream.fileno()] = stream
                epoll.register(stream, select.EPOLLIN)
                continue
            try:
                received = open_sockets[number].recv(65536)
            except OSError:
                received = b""
            if not received:
                epoll.unregister(number)
                open_sockets.pop(number).close()
                continue
            for _ in range(received.count(b"\r\n\r\n")):
                start = max(free_at, time.monotonic())
                into = (start - began) % period
                if into < stall:
                    start += stall - into
                free_at = start + 1 / capacity
                heapq.heappush(leaving, (free_at, number))


def truth(rho, stall, period, base):
    """The percentiles that independent users see, in seconds (and the maximum)."""
    share = stall / ((1 - rho) * period)

    def at(q):
        return base if q <= 1 - share else base + stall * (1 - (1 - q) / share)
    return {**{str(p): at(p / 100) for p in PERCENTILES}, "max": base + stall}


def seconds(text):
    """`1.23ms` in seconds."""
    number, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60}[unit]


def ours(arguments, url):
    """Percentiles of wirespeed-load, from its result file."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([arguments.load, "-t1", f"-c{arguments.connections}",
                        f"-R{arguments.rate}", f"-d{arguments.seconds}s", "-T5s",
                        "--json", file.name, url], check=True, stdout=subprocess.DEVNULL)
        result = json.loads(Path(file.name).read_text())["latency"]["response"]
    names = {str(p): f"{p / 100:g}" for p in PERCENTILES}
    known = {p: result["quantiles"][name] for p, name in names.items()}
    return {**{p: value and value / 1e9 for p, value in known.items()}, "max": result["max"] / 1e9}


def wrk_like(command):
    """Percentiles out of wrk's or wrk2's output."""
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {}
    for percent, value in re.findall(r"^\s+([\d.]+)%\s+([\d.]+(?:us|ms|s|m))\s*$", text, re.M):
        found[f"{float(percent):g}"] = seconds(value)
    most = re.search(r"Latency\s+\S+\s+\S+\s+([\d.]+(?:us|ms|s|m))", text)
    return {**{str(p): found.get(f"{p:g}") for p in PERCENTILES}, "max": seconds(most.group(1))}


def h2load(command):
    """h2load tells only the maximum."""
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    most = re.search(r"time for request:\s+\S+\s+(\S+)", text)
    return {**{str(p): None for p in PERCENTILES}, "max": seconds(most.group(1))}


def oha(command):
    """Percentiles out of oha's JSON."""
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    own = result["latencyPercentiles"]
    return {**{str(p): own.get(f"p{p:g}") for p in PERCENTILES}, "max": result["summary"]["slowest"]}


def generators(arguments, url):
    """Name → function that measures."""
    c, d, rate = arguments.connections, arguments.seconds, arguments.rate
    known = {
        "wirespeed-load -R": lambda: ours(arguments, url),
        "wrk2 -R": lambda: wrk_like(["wrk2", "-t1", f"-c{c}", f"-d{d}s", f"-R{round(rate)}",
                                     "-L", "-T5s", url]),
        "wrk (closed)": lambda: wrk_like(["wrk", "-t1", f"-c{c}", f"-d{d}s", "--latency",
                                          "-T5s", url]),
        "h2load (closed)": lambda: h2load(["h2load", "--h1", "-t1", f"-c{c}", f"-D{d}", url]),
        "oha -q": lambda: oha(["oha", "--no-tui", "--output-format", "json", f"-c{c}", f"-z{d}s",
                               f"-q{round(rate)}", "--latency-correction", url]),
    }
    return {name: run for name, run in known.items()
            if name.startswith("wirespeed") or shutil.which(name.split()[0])}


def main():
    """Serves, measures, prints a table in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load", default="target/release/wirespeed-load")
    parser.add_argument("--stall", type=float, default=0.1)
    parser.add_argument("--period", type=float, default=1.0)
    parser.add_argument("--rho", type=float, default=0.3)
    parser.add_argument("--rate", type=float, default=997.3)
    parser.add_argument("--connections", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--only", help="part of a generator's name")
    arguments = parser.parse_args()
    try:
        held = os.open("/dev/cpu_dma_latency", os.O_WRONLY)
        os.write(held, struct.pack("i", 0))
    except OSError:
        print("idle states are not held: not root")
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    capacity = arguments.rate / arguments.rho
    server = multiprocessing.Process(
        target=serve, args=(listener, capacity, arguments.stall, arguments.period, 0), daemon=True)
    server.start()
    os.sched_setaffinity(0, {1})
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    expected = truth(arguments.rho, arguments.stall, arguments.period, 1 / capacity)
    columns = [*map(str, PERCENTILES), "max"]
    print(f"stall {arguments.stall} s every {arguments.period} s, rho {arguments.rho}, "
          f"{arguments.rate} requests/s, {arguments.seconds} s; milliseconds (error)")
    print("| generator | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    print("| the truth | " + " | ".join(f"{expected[c] * 1e3:.2f}" for c in columns) + " |")
    for name, run in generators(arguments, url).items():
        if arguments.only and arguments.only not in name:
            continue
        found = run()
        cells = ["-" if found[c] is None else
                 f"{found[c] * 1e3:.2f} ({(found[c] / expected[c] - 1) * 100:+.0f} %)"
                 for c in columns]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
    server.kill()


if __name__ == "__main__":
    main()
