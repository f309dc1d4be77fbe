#!/usr/bin/env python3
"""The origin of gateway.py's WebSocket cell: it sends each message back. `echo_origin.py PORT`

Frames are read by their length only; one message is one frame. CPU of the gateway in front of it is
what counts, not what this takes on its own core. Standard library only.
"""

import asyncio
import base64
import hashlib
import struct
import sys

# RFC 6455, section 1.3.
ID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SWITCH = (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
          b"Sec-WebSocket-Accept: %s\r\n\r\n")
MASK_BYTES = 4
LENGTH_16, LENGTH_64 = 126, 127
PING, CLOSE = 0x9, 0x8


def head_of(data):
    """Bytes of a masked frame's head and of its payload; None when the head is not there yet."""
    if len(data) < 2:
        return None
    length, at = data[1] & 0x7f, 2
    more = {LENGTH_16: "!H", LENGTH_64: "!Q"}.get(length)
    if more:
        if len(data) < at + struct.calcsize(more):
            return None
        length, at = struct.unpack_from(more, data, at)[0], at + struct.calcsize(more)
    return at + MASK_BYTES, length


def unmasked(data, mask):
    key = int.from_bytes((mask * (len(data) // MASK_BYTES + 1))[:len(data)])
    return (int.from_bytes(data) ^ key).to_bytes(len(data))


class Echo(asyncio.Protocol):
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
            self.switch(head)
        while (found := head_of(self.data)) and len(self.data) >= sum(found):
            at, length = found
            self.frame(self.data[:at], self.data[at:at + length])
            self.data = self.data[at + length:]

    def switch(self, head):
        fields = (line.partition(b":") for line in head.split(b"\r\n"))
        key = next((value.strip() for name, _, value in fields
                    if name.lower() == b"sec-websocket-key"), b"")
        proof = base64.b64encode(hashlib.sha1(key + ID).digest())
        self.transport.write(SWITCH % proof)

    def frame(self, head, payload):
        opcode = head[0] & 0x0f
        answer = {PING: 0x8a, CLOSE: 0x88}.get(opcode, head[0])
        length = bytes([head[1] & 0x7f]) + head[2:-MASK_BYTES]
        self.transport.write(bytes([answer]) + length + unmasked(payload, head[-MASK_BYTES:]))
        if opcode == CLOSE:
            self.transport.close()


async def serve(port):
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(serve(int(sys.argv[1])))
