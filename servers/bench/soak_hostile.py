#!/usr/bin/env python3
"""Eight kinds of hostile clients at once with honest load: no honest client loses a response.

  servers/bench/soak_hostile.py                             # 10 minutes
  servers/bench/soak_hostile.py --seconds 20 --each 10      # a short look

Kinds: heads in single bytes, heads that are too long, bodies in single bytes, bodies that stop,
readers that read nothing, HTTP/2 resets, floods of SETTINGS and PING, floods of CONTINUATION. Each
hostile client comes again when it was ended. Every honest answer is checked against its request, and
the time it took is printed. Memory is read after a collection, five times under the same load. Prints a
Markdown summary; exit code 1 when an honest request was lost or mixed up, when memory grew by more
than 10 %, or when a kind was never ended by the gateway. Traffic goes to loopback only. Standard
library only; a JDK with jcmd.
"""

import argparse
import asyncio
import itertools
import multiprocessing
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import soak

GROWTH_MAX = 1.10
FOREVER = 1e6
STILL = "s in which the machine stood still"
TCP_ESTABLISHED = 1
CONFIG = """
[server]
listen = "127.0.0.1:0"
h2c = true
[admin]
listen = "127.0.0.1:0"
[timeouts]
head = "3s"
body-idle = "3s"
send = "5s"
[limits]
loop-lag = "60s"
[origins.soak]
addresses = [{addresses}]
body-idle = "5s"
"""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
GET_H2 = bytes.fromhex("828684410161")  # GET, http, /, authority "a"


class Gateway(soak.Gateway):
    """With short time-outs, so that many hostile connections come and go in a run."""

    def config(self, origins):
        return CONFIG.format(addresses=", ".join(f'"127.0.0.1:{o.port}"' for o in origins))


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) \
        + struct.pack(">I", stream) + payload


async def pushed(writer, data):
    """Written; the other clients have their turn even while the socket takes all."""
    writer.write(data)
    await writer.drain()
    await asyncio.sleep(0)


async def in_single_bytes(writer, begin, data):
    writer.write(begin)
    for byte in itertools.islice(itertools.cycle(data), 100_000):
        await pushed(writer, bytes([byte]))
        await asyncio.sleep(0.01)


async def slow_head(reader, writer):
    await in_single_bytes(writer, b"GET / HTTP/1.1\r\nHost: a\r\nX: ", b"x")


async def long_head(reader, writer):
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n")
    for number in range(100_000):
        await pushed(writer, b"X-%d: %s\r\n" % (number, b"y" * 200))


async def slow_body(reader, writer):
    await in_single_bytes(writer, b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 65536\r\n\r\n",
                          b"b")


async def stopped_body(reader, writer):
    writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")
    await asyncio.sleep(FOREVER)


async def lazy_reader(reader, writer):
    # Not even the client library may read ahead.
    writer.transport.pause_reading()
    for _ in range(2_000):
        await pushed(writer, b"GET /lazy HTTP/1.1\r\nHost: a\r\n\r\n")
    # A client that does not read is not notified of a reset.
    sock = writer.get_extra_info("socket")
    while sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_ESTABLISHED:
        await asyncio.sleep(0.2)
    raise ConnectionResetError


async def rapid_reset(reader, writer):
    writer.write(PREFACE + frame(4, 0, 0))
    for stream in range(1, 200_000, 2):
        await pushed(writer, frame(1, 5, stream, GET_H2) + frame(3, 0, stream, b"\0\0\0\x08"))


async def control_flood(reader, writer):
    writer.write(PREFACE)
    while True:
        await pushed(writer, frame(4, 0, 0) + frame(6, 0, 0, bytes(8)))


async def continuation_flood(reader, writer):
    writer.write(PREFACE + frame(4, 0, 0) + frame(1, 0, 1, GET_H2))
    while True:
        await pushed(writer, frame(9, 0, 1))


KINDS = [slow_head, long_head, slow_body, stopped_body, lazy_reader, rapid_reset, control_flood,
         continuation_flood]


async def hostile(kind, port, until, ended):
    """One client after the other; each is ended by the gateway or by the end of the run."""
    while time.monotonic() < until:
        sock = socket.socket()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        sock.setblocking(False)
        writer = None
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))
            reader, writer = await asyncio.open_connection(sock=sock)
            doing = asyncio.ensure_future(kind(reader, writer))
            gone = asyncio.ensure_future(
                asyncio.sleep(FOREVER) if kind is lazy_reader else reader.read(-1))
            done, left = await asyncio.wait({doing, gone}, return_when=asyncio.FIRST_COMPLETED,
                                            timeout=max(0.1, until - time.monotonic()))
            for task in left:
                task.cancel()
            await asyncio.gather(*done, *left, return_exceptions=True)
            # A client that has no more to send was not ended by the gateway.
            if gone in done or (doing in done and doing.exception()):
                ended[kind.__name__] += 1
        except OSError:
            ended[kind.__name__] += 1
            await asyncio.sleep(0.05)
        finally:
            if writer:
                writer.transport.abort()
            else:
                sock.close()


async def honest(number, port, until, tally, times):
    """Requests with an id that the origin repeats, one after the other on one connection."""
    reader = writer = None
    for turn in itertools.count():
        if time.monotonic() >= until:
            break
        name = f"{number}-{turn}"
        begin = time.monotonic()
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(f"GET /{name} HTTP/1.1\r\nHost: a\r\nX-Request-Id: {name}\r\n\r\n".encode())
            head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).decode()
            length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
            await asyncio.wait_for(reader.readexactly(length), 60)
            mine = f"x-request-id: {name}\r\n" in head.lower()
            tally["answered" if head[9:12] == "200" and mine else f"wrong: {head[:40]!r}"] += 1
            times.append(time.monotonic() - begin)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, IndexError) as lost:
            left = until - time.monotonic()
            tally[f"lost: {type(lost).__name__}, {left:.0f} s before the end"] += 1
            if writer:
                writer.close()
            writer = None
        await asyncio.sleep(0.005)
    if writer:
        writer.close()


async def all_honest(count, port, until):
    tally, times, watch = Counter(), [], soak.Watch()
    watching = asyncio.create_task(watch.run())
    await asyncio.gather(*(honest(number, port, until, tally, times) for number in range(count)))
    watching.cancel()
    times.sort()
    tally[STILL] = round(watch.stalled_s)
    return tally, [times[int(len(times) * part)] for part in (0.5, 0.99, 0.9999)] if times else []


def honest_process(pipe, count, port, until):
    """Apart from the hostile clients, which keep an event loop busy."""
    pipe.send(asyncio.run(all_honest(count, port, until)))


async def stop_and_go(gateway, seconds, until):
    """Gives the process no time for a while, again and again, as a machine that stands still."""
    while seconds and time.monotonic() + 4 * seconds < until:
        await asyncio.sleep(3 * seconds)
        gateway.process.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            gateway.process.send_signal(signal.SIGCONT)


async def run(options, gateway):
    begin = time.monotonic()
    until = begin + options.seconds
    ended = Counter()
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    apart = context.Process(target=honest_process, daemon=True,
                            args=(theirs, options.honest, gateway.port, until))
    apart.start()
    everybody = asyncio.gather(*(hostile(kind, gateway.port, until, ended)
                                 for kind in options.kinds for _ in range(options.each)),
                               stop_and_go(gateway, options.stop, until))
    loop = asyncio.get_running_loop()
    rows = []
    for part in (0.2, 0.4, 0.6, 0.8, 0.97):
        await asyncio.sleep(max(0, begin + part * options.seconds - time.monotonic()))
        rows.append(await loop.run_in_executor(None, gateway.sample))
    await everybody
    tally, times = await loop.run_in_executor(None, mine.recv)
    apart.join()
    return tally, times, ended, rows


def judge(kinds, tally, ended, rows, lines):
    faults = [f"{count} × {what}" for what, count in tally.items()
              if what not in ("answered", STILL)]
    faults += [f"{kind.__name__} was never ended" for kind in kinds if not ended[kind.__name__]]
    for what in ("heap", "direct"):
        first, last = rows[0][what], rows[-1][what]
        if last > first * GROWTH_MAX + 4:
            faults.append(f"{what} memory grew from {first:.0f} to {last:.0f} MiB")
    if lines:
        faults.append(f"{len(lines)} lines about leaks or faults in the log: {lines[0]}")
    return faults


def named(text):
    by_name = {kind.__name__: kind for kind in KINDS}
    return [by_name[name] for name in text.split(",")]


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--each", type=int, default=20, help="hostile clients of a kind")
    parser.add_argument("--honest", type=int, default=20, help="honest clients")
    parser.add_argument("--stop", type=float, default=0, metavar="S",
                        help="stop the gateway's process for S seconds, again and again")
    parser.add_argument("--kinds", type=named, default=KINDS, help="of hostile clients, by comma")
    parser.add_argument("--flag", action="append", default=[], help="of the gateway's JVM")
    parser.add_argument("--java", default=shutil.which("java"))
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        origin = Origin(options.java)
        gateway = Gateway(options.java, [origin], Path(folder),
                          ["-Dio.netty.leakDetection.level=advanced", *options.flag])
        try:
            tally, times, ended, rows = asyncio.run(run(options, gateway))
        finally:
            gateway.stop()
            origin.stop(signal.SIGTERM)
        faults = judge(options.kinds, tally, ended, rows, gateway.log_lines("LEAK|fault in"))
    print(f"| honest requests answered | {tally['answered']:,} |\n|---|---|")
    shown = ", ".join(f"{one * 1000:,.0f}" for one in times)
    print(f"| their time, median, p99, p99.99, ms | {shown} |")
    print(f"| {STILL} | {tally[STILL]} |")
    for kind in options.kinds:
        print(f"| {kind.__name__.replace('_', ' ')}, connections ended | {ended[kind.__name__]:,} |")
    for what in ("heap", "direct", "resident"):
        print(f"| {what} MiB | {', '.join(f'{row[what]:.0f}' for row in rows)} |")
    print("\n".join(f"- {fault}" for fault in faults) or "\nNothing lost, mixed up or grown.")
    return 1 if faults else 0


class Origin(soak.Origin):
    """A stub origin without faults, whose answers are large enough to fill a socket."""

    def __init__(self, java):
        self.command = [java, "-Xms64m", "-Xmx64m", "-XX:+UseSerialGC", "-jar",
                        str(soak.SERVERS / "stub-origin/target/stub-origin.jar"), "--latency",
                        "5ms", "--payload", "16KiB"]
        self.port = 0
        self.start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
