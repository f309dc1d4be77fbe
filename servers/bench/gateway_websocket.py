#!/usr/bin/env python3
"""WebSocket for gateway.py: an origin that echoes, and clients that send a message and await it.

  gateway_websocket.py origin PORT
  gateway_websocket.py load PORT CONNECTIONS SECONDS WARMUP PAYLOAD     # prints JSON

Frames are read by their length only and echoed as they came, without the mask: this is a bench, and
both share a core with each other. CPU per message of the gateway between them is what counts, not the
rate. Standard library only.
"""

import asyncio
import json
import os
import statistics
import struct
import sys
import time

UPGRADE = ("GET / HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
           "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
# The answer to that key (RFC 6455, section 1.3).
SWITCH = ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
          "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
BINARY = 0x82
MASKED = 0x80
MASK = b"\0\0\0\0"
LENGTH_16 = 126


def frame(payload, is_masked):
    """One binary message; with a mask of zeroes, so that the payload stays as it is."""
    flag = MASKED if is_masked else 0
    length = len(payload)
    head = (struct.pack("!BB", BINARY, flag | length) if length < LENGTH_16
            else struct.pack("!BBH", BINARY, flag | LENGTH_16, length))
    return head + (MASK if is_masked else b"") + payload


def length_of(data):
    """How long the first frame of these bytes is; None when its head is not there yet."""
    if len(data) < 2:
        return None
    length, at = data[1] & 0x7f, 2
    if length == LENGTH_16:
        if len(data) < 4:
            return None
        length, at = struct.unpack_from("!H", data, 2)[0], 4
    return at + (len(MASK) if data[1] & MASKED else 0) + length


class Peer(asyncio.Protocol):
    """Reads a head, then whole frames."""

    def connection_made(self, transport):
        self.transport, self.data, self.is_switched = transport, b"", False

    def data_received(self, data):
        self.data += data
        if not self.is_switched:
            head, end, rest = self.data.partition(b"\r\n\r\n")
            if not end:
                return
            self.data, self.is_switched = rest, True
            self.switched(head)
        while (length := length_of(self.data)) is not None and len(self.data) >= length:
            whole, self.data = self.data[:length], self.data[length:]
            self.message(whole)


class Echo(Peer):
    def switched(self, head):
        self.transport.write(SWITCH.encode())

    def message(self, whole):
        at = 2 + (2 if whole[1] & 0x7f == LENGTH_16 else 0) + len(MASK)
        self.transport.write(frame(whole[at:], False))


class Asker(Peer):
    def __init__(self, run):
        self.run = run

    def connection_made(self, transport):
        super().connection_made(transport)
        transport.write(UPGRADE.encode())

    def switched(self, head):
        if not head.startswith(b"HTTP/1.1 101"):
            self.run["errors"] += 1
            self.transport.close()
            return
        self.ask()

    def ask(self):
        self.sent_ns = time.monotonic_ns()
        self.transport.write(self.run["frame"])

    def message(self, whole):
        if len(whole) != self.run["answer"]:
            self.run["errors"] += 1
        self.run["times"].append(time.monotonic_ns() - self.sent_ns)
        if not self.run["is_over"]:
            self.ask()

    def connection_lost(self, error):
        self.run["errors"] += not self.run["is_over"]


async def serve(port):
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


async def load(port, connections, seconds, warmup, payload):
    """Closed loop; the answer has the fields of wirespeed-load's JSON that gateway_load.py reads."""
    body = os.urandom(payload)
    run = {"times": [], "errors": 0, "is_over": False, "frame": frame(body, True),
           "answer": len(frame(body, False))}
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: Asker(run), "127.0.0.1", port)
    await asyncio.sleep(warmup)
    run["times"].clear()
    start_ns, began_ns = time.time_ns(), time.monotonic_ns()
    await asyncio.sleep(seconds)
    length_ns, times = time.monotonic_ns() - began_ns, list(run["times"])
    run["is_over"] = True
    cuts = statistics.quantiles(times, n=1000) if len(times) > 1 else [0] * 999
    return {"rps": len(times) / length_ns * 1e9, "little": None,
            "window": {"start_unix_ns": start_ns, "length_ns": length_ns},
            "totals": {"completed_in_window": len(times), "non_2xx": 0, "dropped": 0, "due": None},
            "errors": {"total": run["errors"]},
            "latency": {"response": None, "service": {"quantiles": {
                "0.5": cuts[499], "0.99": cuts[989], "0.999": cuts[998]}}}}


def main(arguments):
    if arguments[:1] == ["origin"]:
        asyncio.run(serve(int(arguments[1])))
    elif arguments[:1] == ["load"] and len(arguments) == 6:
        print(json.dumps(asyncio.run(load(*map(int, arguments[1:])))))
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
