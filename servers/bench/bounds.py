#!/usr/bin/env python3
"""Loads that once took the gateway's memory, each next to an honest client: what they cost, and what stays.

  servers/bench/bounds.py                          # netty, tomcat and tomcat-virtual, below 7 minutes
  servers/bench/bounds.py --only netty --cases collected

Cases: collected (400 POSTs of 1 MiB at once to a filter that wants bodies whole, an origin that is late),
cache (250 readers of cacheable 900 KB that stop in the middle), reloads (300 configurations next to one
WebSocket), waiting (1,000 requests for an origin of ten connections; tomcat-virtual). The JVM has 256 MiB of heap and
ends at its first OutOfMemoryError. One row a case; the exit code is 1 when the gateway died, an honest
request failed, or threads, descriptors or held bytes did not come back.
Standard library only; needs the built jars.
"""

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import gateway_contenders as contenders

SERVERS = Path(__file__).resolve().parent.parent
HEAP = ["-Xms256m", "-Xmx256m", "-XX:MaxDirectMemorySize=128m", "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError", "-XX:SoftRefLRUPolicyMSPerMB=0"]
READS = """
import wirespeed.gateway.core.*;
public class Reads implements Filter {
    public Phase phase() { return Phase.PRE; }
    public int order() { return 5; }
    public int requestBodyBytesMax() { return 16 << 20; }
    public boolean shouldFilter(Context context) { return context.request().method().equals("POST"); }
    public Step apply(Context context) { return Step.NEXT; }
}
"""
BIG = 900_000
LATE_S = 5
HONEST_PAUSE_S = 0.1
# What a run leaves behind for good: threads that pools keep, files of classes that were loaded.
THREADS_LEFT, DESCRIPTORS_LEFT = 40, 60


async def read_head(reader):
    return (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")


async def origin(reader, writer):
    """Answers by path: /late after a while, /big with a cacheable body, /ws as a tunnel."""
    # The end of a case cancels connections that the gateway keeps.
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
        while True:
            head = await read_head(reader)
            length = re.search(r"(?i)content-length: (\d+)", head)
            if length:
                await reader.readexactly(int(length[1]))
            path = head.split()[1]
            if path.startswith("/ws"):
                writer.write(b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
                await reader.read()
                return
            if path.startswith("/late"):
                await asyncio.sleep(LATE_S)
            body = b"b" * BIG if path.startswith("/big") else b"ok"
            control = b"max-age=60" if path.startswith("/big") else b"no-store"
            writer.write(b"HTTP/1.1 200 OK\r\nCache-Control: %s\r\nContent-Length: %d\r\n\r\n"
                         % (control, len(body)) + body)
            await writer.drain()
    writer.close()


async def ask(port, request, pause_s=0):
    """The status of the answer when all of it has come; 0 where it was cut."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=65536)
    try:
        writer.write(request)
        head = await read_head(reader)
        length = int(re.search(r"(?i)content-length: (\d+)", head)[1])
        if pause_s:
            await reader.readexactly(length // 9)
            length -= length // 9
            await asyncio.sleep(pause_s)
        await reader.readexactly(length)
        return int(head.split()[1])
    except (ConnectionError, asyncio.IncompleteReadError):
        return 0
    finally:
        writer.close()


def get(path, more=""):
    return f"GET {path} HTTP/1.1\r\nHost: a\r\n{more}\r\n".encode()


async def honest(port, counts):
    """Small requests on connections of their own, until it is cancelled."""
    while True:
        try:
            counts[await asyncio.wait_for(ask(port, get("/honest")), 10)] += 1
        except (TimeoutError, OSError):
            counts["late"] += 1
        await asyncio.sleep(HONEST_PAUSE_S)


async def statuses(asked):
    return Counter(await asyncio.gather(*asked))


async def collected(gateway):
    post = (f"POST /late HTTP/1.1\r\nHost: a\r\nContent-Length: {1 << 20}\r\n\r\n".encode()
            + b"b" * (1 << 20))
    return await statuses([ask(gateway.port, post) for _ in range(400)])


async def cache(gateway):
    return await statuses([ask(gateway.port, get(f"/big/{i}"), LATE_S) for i in range(250)])


async def reloads(gateway):
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(get("/ws", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"))
    await read_head(reader)
    found = Counter()
    for number in range(300):
        tag = re.search(r"(?i)etag: (\S+)", await gateway.admin(get("/config")))[1]
        text = gateway.config(f'[[filter]]\ntype = "access-log"\nname = "log-{number}"\n'
                              f'file = "{gateway.folder}/access.log"\n').encode()
        answer = await gateway.admin(
            f"PUT /config HTTP/1.1\r\nHost: localhost\r\nIf-Match: {tag}\r\n"
            f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
        found[int(answer.split()[1])] += 1
    gateway.sample()
    writer.close()
    return found


async def waiting(gateway):
    return await statuses([ask(gateway.port, get("/late")) for _ in range(1000)])


CASES = {"collected": collected, "cache": cache, "reloads": reloads, "waiting": waiting}
# Carrier: module, flags, cases.
CARRIERS = {
    "netty": ("gateway-netty", ["--threads", "2"], ["collected", "cache", "reloads"]),
    "tomcat": ("gateway-tomcat", ["--threads", "platform"], ["collected", "cache", "reloads"]),
    "tomcat-virtual": ("gateway-tomcat", ["--threads", "virtual"], ["waiting"]),
}


class Gateway:
    """A process of the gateway, and what it takes."""

    def __init__(self, carrier, java, folder, origins, ports):
        module, flags, _ = CARRIERS[carrier]
        self.folder, self.origins = folder, origins
        self.port, self.admin_port = next(ports), next(ports)
        self.connections = 10 if carrier == "tomcat-virtual" else 4096
        filters = folder / "filters"
        filters.mkdir(mode=0o755)
        (filters / "Reads.java").write_text(READS)
        (folder / "gateway.toml").write_text(self.config(""))
        self.log = open(folder / "log", "w")
        flags_of_file = [flag for flag in contenders.jvm_flags(SERVERS / module / "jvm.options", java)
                         if not flag.startswith(("-X", "-XX"))]
        self.process = subprocess.Popen(
            [java, *flags_of_file, *HEAP, "-jar", str(SERVERS / module / "target" / f"{module}.jar"),
             "--config", str(folder / "gateway.toml"), *flags],
            stdout=self.log, stderr=self.log, start_new_session=True)
        self.peak = 0

    def config(self, more):
        return (f'[server]\nlisten = "127.0.0.1:{self.port}"\nconfig-watch = "0ms"\n'
                f'[limits]\nheld-bodies = "32MiB"\n[cache]\nenabled = true\nsize = "8MiB"\n'
                f'[admin]\nlisten = "127.0.0.1:{self.admin_port}"\n'
                f'[filters]\nfolder = "{self.folder}/filters"\n'
                f'[origins.late]\naddresses = ["127.0.0.1:{self.origins[0]}"]\nresponse = "60s"\n'
                f'connections = {self.connections}\n'
                f'[origins.o]\naddresses = ["127.0.0.1:{self.origins[1]}"]\n'
                f'[[route]]\nprefix = "/late"\norigins = ["late"]\n[[route]]\norigins = ["o"]\n{more}')

    async def ready(self):
        end = time.monotonic() + 60
        while time.monotonic() < end and self.process.poll() is None:
            with contextlib.suppress(OSError):
                if await ask(self.port, get("/honest")) == 200:
                    return
            await asyncio.sleep(0.2)
        raise SystemExit(f"the gateway does not start:\n{(self.folder / 'log').read_text()}")

    async def admin(self, request):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.admin_port)
        writer.write(request.replace(b"Host: a", b"Host: localhost").replace(
            b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
        text = (await reader.read()).decode("latin-1")
        writer.close()
        return text

    async def held(self):
        page = await self.admin(get("/metrics"))
        return sum(float(value) for value in re.findall(
            r"(?m)^wirespeed_gateway_(?:held_bodies|cache_collecting)_bytes\S* (\S+)", page))

    def state(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        resident = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024
        threads = int(re.search(r"Threads:\s+(\d+)", status)[1])
        return resident, threads, len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def sample(self):
        with contextlib.suppress(OSError):
            self.peak = max(self.peak, self.state()[0])

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


async def watch(gateway):
    while True:
        gateway.sample()
        await asyncio.sleep(0.1)


async def settled(gateway, before):
    """Waits until threads and descriptors are what they were, or no longer."""
    # Tomcat keeps unused threads for a minute.
    end = time.monotonic() + 90
    while time.monotonic() < end:
        _, threads, descriptors = gateway.state()
        if (threads <= before[1] + THREADS_LEFT and descriptors <= before[2] + DESCRIPTORS_LEFT
                and await gateway.held() == 0):
            return
        await asyncio.sleep(0.5)


async def run(carrier, name, java, ports):
    """A row of the table, and what is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        servers = [await asyncio.start_server(origin, "127.0.0.1", 0, limit=2 << 20, backlog=2000)
                   for _ in range(2)]
        gateway = Gateway(carrier, java, Path(folder),
                          [server.sockets[0].getsockname()[1] for server in servers], ports)
        counts = Counter()
        helpers = []
        try:
            await gateway.ready()
            before = gateway.state()
            helpers = [asyncio.create_task(honest(gateway.port, counts)),
                       asyncio.create_task(watch(gateway))]
            found = await asyncio.wait_for(CASES[name](gateway), 240)
            if gateway.process.poll() is not None:
                said = (Path(folder) / "log").read_text()[-2000:]
                return f"| {carrier} | {name} | died |", [f"{carrier} {name}: the gateway died:\n{said}"]
            await settled(gateway, before)
            return row(carrier, name, found, counts, before, gateway, await gateway.held())
        finally:
            for helper in helpers:
                helper.cancel()
            gateway.end()
            for server in servers:
                server.close()


def row(carrier, name, found, counts, before, gateway, held):
    after = gateway.state()
    failed = {key: value for key, value in counts.items() if key != 200}
    faults = []
    if failed:
        faults.append(f"honest requests failed: {failed}")
    if held:
        faults.append(f"{held:.0f} bytes are still held")
    if after[1] > before[1] + THREADS_LEFT or after[2] > before[2] + DESCRIPTORS_LEFT:
        faults.append(f"threads {before[1]} to {after[1]}, descriptors {before[2]} to {after[2]}")
    answers = " ".join(f"{count} × {status or 'cut'}" for status, count in sorted(found.items()))
    text = (f"| {carrier} | {name} | {answers} | {counts[200]} of {sum(counts.values())} |"
            f" {before[0]}, {gateway.peak}, {after[0]} | {before[1]} → {after[1]} |"
            f" {before[2]} → {after[2]} | {held:.0f} |")
    return text, [f"{carrier} {name}: {fault}" for fault in faults]


def options_of(arguments):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(CARRIERS), default=list(CARRIERS))
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--java", default=shutil.which("java"))
    parser.add_argument("--java-virtual", default=os.environ.get("JAVA25"),
                        help="a Java 21 or newer, for tomcat-virtual; JAVA25 by default")
    return parser.parse_args(arguments)


def main(arguments):
    options = options_of(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    ports = contenders.free_ports()
    faults = []
    print("| gateway | case | answers | honest requests | MiB before, at most, after | threads |"
          f" descriptors | held bytes after |\n|{'---|' * 8}")
    for carrier in options.only:
        java = options.java_virtual if carrier == "tomcat-virtual" else options.java
        if not java:
            print(f"{carrier}: --java-virtual names no Java", file=sys.stderr)
            continue
        for name in CARRIERS[carrier][2]:
            if name in options.cases:
                text, wrong = asyncio.run(run(carrier, name, java, ports))
                print(text, flush=True)
                faults += wrong
    print("\n".join(faults), file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
