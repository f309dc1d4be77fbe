#!/usr/bin/env python3
"""Endurance of gateway-netty: idle connections, steady load, failing and restarted origins.

  servers/bench/soak.py                                    # 10 minutes, 20,000 idle connections
  servers/bench/soak.py --seconds 20 --idle 500            # a short look

Two stub origins answer with faults (1 % of the requests); one after the other is stopped and started
again. Every answer is checked (soak_client.py). The gateway runs with Netty's leak detector at
paranoid; heap and metaspace are read after a collection, direct memory from Netty's own count.
Prints a Markdown summary; exit code 1 when anything was lost, mixed up, leaked or grew.
Standard library only; a JDK with jcmd. A machine that stops for a while is a stall, not an error.
"""

import argparse
import asyncio
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import soak_client

SERVERS = Path(__file__).resolve().parent.parent
FAULTS = ("500=0.25,503=0.1,reset-before=0.15,reset-head=0.05,reset-body=0.1,close-before=0.15,"
          "close-body=0.05,length-short=0.04,length-long=0.04,garbage=0.04,drip=0.02,"
          "stall-before=0.005,stall-body=0.005")
CONFIG = """
[server]
listen = "127.0.0.1:0"
[admin]
listen = "127.0.0.1:0"
[timeouts]
keep-alive = "1h"
[limits]
loop-lag = "60s"
[origins.soak]
addresses = [{addresses}]
"""
# Per process of idle clients, and what a process needs besides.
HOLD_MAX, RESERVE = 9000, 400
GROWTH_MAX = 1.25
# An origin that is stopped refuses connections, and the gateway says so.
EXPECTED = r"WARNING: origin soak, address [0-9.:]+: no connection: .*Connection refused"


class Origin:
    """A stub origin that can be stopped and started at its port."""

    def __init__(self, java, extra):
        self.command = [java, "-Xms64m", "-Xmx64m", "-XX:+UseSerialGC", "-jar",
                        str(SERVERS / "stub-origin/target/stub-origin.jar"), "--latency", "5ms",
                        "--distribution", "exponential", "--faults", FAULTS, *extra]
        self.port = 0
        self.start()

    def start(self):
        self.process = subprocess.Popen([*self.command, "--port", str(self.port)],
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(re.search(r":(\d+)", self.process.stdout.readline()).group(1))

    def stop(self, how):
        self.process.send_signal(how)
        self.process.wait()
        self.process.stdout.close()


class Gateway:
    """The gateway under test, with what its admin port and its JVM say about it."""

    def __init__(self, java, origins, folder, flags):
        config = folder / "soak.toml"
        config.write_text(self.config(origins))
        self.log = folder / "gateway.log"
        self.log_file = self.log.open("w")
        shipped = [line.split("#")[0].strip() for line in
                   (SERVERS / "gateway-netty/jvm.options").read_text().splitlines()]
        keep = [f for f in shipped if f.startswith("-X")]
        self.process = subprocess.Popen(
            [java, *keep, "-Dio.netty.leakDetection.level=paranoid",
             "-Dio.netty.leakDetection.targetRecords=20", *flags, "-jar",
             str(SERVERS / "gateway-netty/target/gateway-netty.jar"), "--config", str(config)],
            stdout=subprocess.PIPE, stderr=self.log_file, text=True)
        line = self.process.stdout.readline()
        self.port, self.admin = (int(p) for p in re.findall(r":(\d+)", line))
        self.jcmd = str(Path(java).resolve().parent / "jcmd")

    def config(self, origins):
        return CONFIG.format(addresses=", ".join(f'"127.0.0.1:{o.port}"' for o in origins))

    def metrics(self):
        """All samples of the metrics page, by name with labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=120) as page:
            lines = page.read().decode().splitlines()
        return {k: float(v) for k, _, v in
                (x.rpartition(" ") for x in lines if x and x[0] != "#")}

    def sample(self):
        """The least of three looks: on a busy machine seconds of garbage lie behind a collection."""
        return min((self.look() for _ in range(3)), key=lambda found: found["heap"])

    def look(self):
        """Memory after a collection, and what is open."""
        subprocess.run([self.jcmd, str(self.process.pid), "GC.run"], check=True, timeout=300,
                       stdout=subprocess.DEVNULL)
        values = self.metrics()
        heap = sum(v for k, v in values.items()
                   if k.startswith("jvm_memory_used_bytes") and 'area="heap"' in k)
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return {"heap": heap / 2**20,
                "metaspace": sum(v for k, v in values.items() if 'id="Metaspace"' in k
                                 and k.startswith("jvm_memory_used")) / 2**20,
                "direct": values["wirespeed_gateway_direct_memory_bytes"] / 2**20,
                "resident": int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024,
                "descriptors": len(os.listdir(f"/proc/{self.process.pid}/fd")),
                "clients": values["wirespeed_gateway_connections_open"],
                "in_flight": values["wirespeed_gateway_in_flight"]}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=120)
        self.log_file.close()
        return code

    def log_lines(self, pattern):
        return [x for x in self.log.read_text().splitlines() if re.search(pattern, x)]


class Holders:
    """Processes that hold the idle connections, each from a source address of its own."""

    def __init__(self, port, count, bodies):
        self.members = []
        # Not forked: the parent's event loop must not be shared.
        context = multiprocessing.get_context("spawn")
        while count > 0:
            mine, theirs = context.Pipe()
            share = min(HOLD_MAX, count)
            member = context.Process(target=soak_client.holder, daemon=True, args=(
                theirs, port, share, f"127.0.0.{10 + len(self.members)}", bodies))
            member.start()
            self.members.append((member, mine))
            count -= share
        self.held = sum(pipe.recv() for _, pipe in self.members)

    def finish(self, tally):
        """Uses each idle connection once more; the answer is how many were still open."""
        alive = 0
        for _, pipe in self.members:
            pipe.send("use")
        for member, pipe in self.members:
            left, counts, violations = pipe.recv()
            alive += left
            tally.add(counts, violations)
            member.join(60)
        return alive


class Watch:
    """Notices when this process, and so the machine, stood still."""

    def __init__(self):
        self.stalled_s = 0.0

    async def run(self):
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.5)
            late = time.monotonic() - before - 0.5
            if late > 1:
                self.stalled_s += late


async def restarts(origins, period_s, tally):
    """Stops the origins in turn: asked politely, then killed, then politely again."""
    turn = 0
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(period_s)
        origin = origins[turn % len(origins)]
        how = signal.SIGKILL if turn // len(origins) % 2 else signal.SIGTERM
        await loop.run_in_executor(None, origin.stop, how)
        await asyncio.sleep(min(2, period_s / 4))
        await loop.run_in_executor(None, origin.start)
        tally.count("origin restarts")
        turn += 1


async def samples(gateway, period_s, rows, begin):
    loop = asyncio.get_running_loop()
    while True:
        row = await loop.run_in_executor(None, gateway.sample)
        rows.append({"t": time.monotonic() - begin, **row})
        await asyncio.sleep(period_s)


async def load(options, gateway, origins, bodies, tally):
    """Steady load with restarts; the answer is the samples and how long the machine stood still."""
    watch, rows, begin = Watch(), [], time.monotonic()
    until = asyncio.get_running_loop().time() + options.seconds
    side = [asyncio.create_task(t) for t in (
        watch.run(), restarts(origins, options.restart, tally),
        samples(gateway, options.seconds / 20, rows, begin))]
    gap_s = options.workers / options.rate
    await asyncio.gather(*(soak_client.worker(
        tally, bodies, gateway.port, f"127.0.0.{2 + i % 4}", gap_s, until)
        for i in range(options.workers)))
    for task in side:
        task.cancel()
    done = await asyncio.gather(*side, return_exceptions=True)
    for failed in (d for d in done if isinstance(d, Exception)):
        raise failed
    return rows, watch.stalled_s


def settle(gateway):
    """The last sample, when all clients have gone."""
    end = time.monotonic() + 60
    last = gateway.sample()
    while (last["clients"] or last["in_flight"]) and time.monotonic() < end:
        time.sleep(1)
        last = gateway.sample()
    return last


def verdicts(tally, rows, last, idle, alive, leaks, faults, code):
    """Conditions of the soak, each with the observed value."""
    heap, direct = growth(rows, "heap"), growth(rows, "direct")
    return [
        ("no lost or mixed-up answer", tally.counts["violations"] == 0,
         f"{tally.counts['violations']} violations"),
        ("every idle connection still works", alive == idle, f"{alive} of {idle}"),
        ("leak detector (paranoid)", not leaks, f"{len(leaks)} reports"),
        ("no fault in the gateway's log", not faults, f"{len(faults)} lines"),
        ("heap after collection flat", heap <= GROWTH_MAX, f"× {heap:.2f}, first to last third"),
        ("direct memory flat", direct <= GROWTH_MAX, f"× {direct:.2f}, first to last third"),
        ("nothing left when the clients have gone", not last["clients"] and not last["in_flight"],
         f"{last['clients']:.0f} connections, {last['in_flight']:.0f} exchanges"),
        ("SIGTERM ends it with 0", code == 0, f"exit code {code}"),
    ]


def growth(rows, name):
    """The last third's mean over the first's; the first sample is the start and does not count."""
    values = [r[name] for r in rows[1:]] or [1.0]
    third = max(1, len(values) // 3)
    return (sum(values[-third:]) + 1) / (sum(values[:third]) + 1)


def report(options, idle, tally, rows, last, stalled_s, checks):
    print(f"{idle} idle connections, {options.rate:.0f} requests/s over {options.workers} more, "
          f"{options.seconds:.0f} s; the machine stood still for {stalled_s:.0f} s of them.\n")
    print("| outcome | requests |\n|---|---|")
    for name, count in sorted(tally.counts.items(), key=lambda pair: -pair[1]):
        print(f"| {name} | {count} |")
    names = ["heap", "direct", "metaspace", "resident", "descriptors", "clients"]
    print("\n| s | heap MiB | direct MiB | metaspace MiB | resident MiB | descriptors | clients |")
    print("|---|---|---|---|---|---|---|")
    shown = rows[::max(1, len(rows) // 8)]
    for row in shown:
        print(f"| {row['t']:.0f} | " + " | ".join(shown_as(row[n]) for n in names) + " |")
    print("| end | " + " | ".join(shown_as(last[n]) for n in names) + " |")
    print("\n| must hold | seen | |\n|---|---|---|")
    for name, holds, seen in checks:
        print(f"| {name} | {seen} | {'yes' if holds else '**NO**'} |")
    for violation in tally.violations[:20]:
        print(f"- {violation}")


def shown_as(value):
    return f"{value:.0f}" if value >= 10 or value == 0 else f"{value:.2f}"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="of load")
    parser.add_argument("--idle", type=int, default=20_000, help="connections that only wait")
    parser.add_argument("--rate", type=float, default=300, help="requests per second")
    parser.add_argument("--workers", type=int, default=100, help="connections that carry them")
    parser.add_argument("--restart", type=float, default=20, help="seconds between restarts")
    parser.add_argument("--java", default="java")
    parser.add_argument("--flag", action="append", default=[], help="of the gateway's JVM")
    options = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    room = limit - RESERVE - options.workers
    if options.idle > room:
        print(f"one process may have {limit} descriptors here: {room} idle connections in place"
              f" of {options.idle}", file=sys.stderr)
        options.idle = room
    return options


def java_path(name):
    return subprocess.run(["sh", "-c", f"command -v {name}"], capture_output=True, text=True,
                          check=True).stdout.strip()


def main():
    options = arguments()
    java = java_path(options.java)
    tally = soak_client.Tally()
    with tempfile.TemporaryDirectory() as name:
        origins = [Origin(java, []), Origin(java, ["--chunked", "300"])]
        gateway = Gateway(java, origins, Path(name), options.flag)
        try:
            bodies = asyncio.run(soak_client.learn([o.port for o in origins]))
            holders = Holders(gateway.port, options.idle, bodies)
            rows, stalled_s = asyncio.run(load(options, gateway, origins, bodies, tally))
            alive = holders.finish(tally)
            last = settle(gateway)
        finally:
            code = gateway.stop()
            for origin in origins:
                origin.stop(signal.SIGTERM)
        leaks = gateway.log_lines("LEAK")
        faults = [line for line in gateway.log_lines("SEVERE|WARNING|Exception|Error")
                  if not re.search(EXPECTED, line)]
        checks = verdicts(tally, rows, last, holders.held, alive, leaks, faults, code)
        report(options, holders.held, tally, rows, last, stalled_s, checks)
        for line in (leaks + faults)[:20]:
            print("    " + line)
    return 0 if all(holds for _, holds, _ in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
