#!/usr/bin/env python3
"""Certificates and the origin's address change again and again under load: no request fails.

  servers/bench/soak_reloads.py                                  # 10,000 reloads, 1,000 DNS changes
  servers/bench/soak_reloads.py --reloads 50 --moves 10          # a short look

A reload renames two certificate files and sends SIGHUP; it counts when a new connection is shown the
new certificate. A move makes the DNS server of this script name another loopback address of the
origin, with a time to live of 0. Meanwhile clients ask over kept connections and over one connection
a request, all by TLS. Prints a Markdown summary; exit code 1 when a request failed. Traffic and names
stay on loopback. Standard library only; openssl for the certificates.
"""

import argparse
import asyncio
import itertools
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import soak

PLACES = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
RELOAD_S_MAX = 60
CONFIG = """
[server]
listen = "127.0.0.1:0"
dns = ["127.0.0.1:{dns}"]
config-watch = "1h"
[admin]
listen = "127.0.0.1:0"
[limits]
loop-lag = "60s"
[tls]
certificate = "{folder}/cert.pem"
key = "{folder}/key.pem"
[origins.moving]
addresses = ["origin.test:{origin}"]
retries = 0
"""


class Gateway(soak.Gateway):
    """With an origin behind a name, and certificates that change."""

    def __init__(self, java, places, folder, flags):
        self.folder = folder
        super().__init__(java, places, folder, flags)

    def config(self, origins):
        return CONFIG.format(folder=self.folder, **origins)


def certificate(folder, name):
    """The two files of a certificate, and what clients see of it."""
    cert, key = folder / f"{name}.cert", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                    "-keyout", str(key), "-out", str(cert)], check=True, stderr=subprocess.DEVNULL)
    return cert, key, ssl.PEM_cert_to_DER_cert(cert.read_text())


def trusting():
    """What is tested is which certificate comes, and not whether it is good."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Names(asyncio.DatagramProtocol):
    """Answers every question for an address with the present place."""

    def __init__(self):
        self.place = PLACES[0]
        self.asked = 0

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, sender):
        end = data.index(b"\0", 12) + 5
        is_address = data[end - 4:end - 2] == b"\0\1"
        self.asked += is_address
        answer = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + socket.inet_aton(self.place)
        self.transport.sendto(data[:2] + b"\x84\0\0\1" + (b"\0\1" if is_address else b"\0\0")
                              + b"\0\0\0\0" + data[12:end] + (answer if is_address else b""), sender)


async def origin(reader, writer):
    """Repeats the name of the request, and says where it was asked."""
    place = writer.get_extra_info("sockname")[0]
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            body = f"{place} {head.split(' ')[1]}".encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    except (asyncio.IncompleteReadError, OSError):
        writer.close()


async def ask(reader, writer, name, last):
    writer.write(f"GET /{name} HTTP/1.1\r\nHost: a\r\n{last}\r\n".encode())
    head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).decode()
    length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
    body = (await asyncio.wait_for(reader.readexactly(length), 60)).decode()
    if not head.startswith("HTTP/1.1 200") or not body.endswith(f" /{name}"):
        raise ValueError(f"{head.splitlines()[0]} {body[:60]}")
    return body.split(" ")[0]


async def client(number, port, over, tally, places, keeps):
    writer = None
    for turn in itertools.count():
        if over.is_set():
            break
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting())
            places[await ask(reader, writer, f"{number}-{turn}",
                             "" if keeps else "Connection: close\r\n")] += 1
            tally["kept" if keeps else "fresh"] += 1
        except (TimeoutError, OSError, ValueError, IndexError, asyncio.IncompleteReadError) as failed:
            tally[f"failed: {failed!r}"[:160]] += 1
            keeps_on = False
        else:
            keeps_on = keeps
        if not keeps_on and writer is not None:
            writer.close()
            writer = None
        await asyncio.sleep(0.01)
    if writer:
        writer.close()


async def shown(port):
    """The certificate that a new connection gets."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting())
    try:
        return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    finally:
        writer.close()


async def reloads(options, gateway, folder, pairs):
    """How many were seen to come into force."""
    for number in range(options.reloads):
        cert, key, seen = pairs[(number + 1) % len(pairs)]
        for source, name in ((cert, "cert.pem"), (key, "key.pem")):
            shutil.copy(source, folder / "next")
            os.replace(folder / "next", folder / name)
        gateway.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + RELOAD_S_MAX
        while await shown(gateway.port) != seen:
            if time.monotonic() > end:
                return number
            await asyncio.sleep(0.002)
    return options.reloads


async def moves(options, names):
    for number in range(options.moves):
        await asyncio.sleep(options.every)
        names.place = PLACES[(number + 1) % len(PLACES)]


async def run(options, folder):
    loop = asyncio.get_running_loop()
    transport, names = await loop.create_datagram_endpoint(Names, local_addr=("127.0.0.1", 0))
    first = await asyncio.start_server(origin, PLACES[0], 0)
    port = first.sockets[0].getsockname()[1]
    servers = [first] + [await asyncio.start_server(origin, place, port) for place in PLACES[1:]]
    pairs = [certificate(folder, name) for name in ("first", "second")]
    shutil.copy(pairs[0][0], folder / "cert.pem")
    shutil.copy(pairs[0][1], folder / "key.pem")
    # In a thread: it waits for a gateway that asks this loop for names.
    gateway = await loop.run_in_executor(None, lambda: Gateway(
        options.java, {"dns": transport.get_extra_info("sockname")[1], "origin": port}, folder, []))
    tally, places, over = Counter(), Counter(), asyncio.Event()
    try:
        clients = [asyncio.create_task(client(n, gateway.port, over, tally, places, n % 2 == 0))
                   for n in range(options.clients)]
        begun = time.monotonic()
        done, _ = await asyncio.gather(reloads(options, gateway, folder, pairs),
                                       moves(options, names))
        took = time.monotonic() - begun
        over.set()
        await asyncio.gather(*clients)
    finally:
        await loop.run_in_executor(None, gateway.stop)
        transport.close()
        for server in servers:
            server.close()
    return tally, places, done, took, names.asked, gateway.log_lines("LEAK|fault in")


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reloads", type=int, default=10_000)
    parser.add_argument("--moves", type=int, default=1_000)
    parser.add_argument("--every", type=float, default=0.3, help="seconds between two moves")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--java", default=shutil.which("java"))
    options = parser.parse_args(arguments)
    # Ended from outside, it still ends what it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as name:
        tally, places, done, took, asked, lines = asyncio.run(run(options, Path(name)))
    print(f"| seconds | {took:.0f} |\n|---|---|")
    print(f"| certificates that came into force | {done:,} of {options.reloads:,} |")
    print(f"| places the origin's name was given | {options.moves:,}, asked {asked:,} times |")
    for what, count in sorted(tally.items()):
        print(f"| requests, {what} | {count:,} |")
    for place in PLACES:
        print(f"| answered by {place} | {places[place]:,} |")
    faults = sum(count for what, count in tally.items() if what.startswith("failed"))
    is_well = not faults and done == options.reloads and not lines \
        and (not options.moves or all(places[place] for place in PLACES[:options.moves + 1]))
    print("\nNothing failed." if is_well else f"\n{faults} requests failed. {lines[:3]}")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
