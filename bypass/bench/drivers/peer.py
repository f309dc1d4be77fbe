#!/usr/bin/env python3
"""The two ends of a connection for kinds.py: a server, and a client that tries each way in which TCP carries bytes and
ends, and compares every byte.

    peer.py server
    peer.py client ADDRESS [DEVICE]

Each prints a line once it is ready. The client makes connections until it reads a line, says that it has paused,
and begins at the next line. Its result is one line of JSON; both then wait for the end of their standard input.
"""

import hashlib
import json
import os
import random
import select
import socket
import struct
import sys
import threading

PORT = 80
#: An answer that takes longer has failed. Emulation is slow.
PATIENCE_S = 30
BULK = 2_000_000
#: Of each request, which comes back: none, one byte, a full segment, several.
REQUESTS = (1, 0, 1448, 20_000) * 25
NO_LINGER = struct.pack("ii", 1, 0)


def pattern(length, seed):
    return random.Random(seed).randbytes(length)


def digest(data):
    return hashlib.sha256(data).hexdigest().encode()


def read(connection, length):
    """So many bytes, fewer at the end."""
    parts = []
    while length > 0 and (part := connection.recv(min(length, 65536))):
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def line(connection):
    text = b""
    while not text.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte:
            break
        text += byte
    return text.decode().strip()


class Server:
    """A thread for each connection, whose first line says what is done with it."""

    def __init__(self):
        self.resets = 0

    def serve(self):
        listener = socket.create_server(("0.0.0.0", PORT), backlog=64)
        threading.Thread(target=self.accept, args=(listener,), daemon=True).start()
        print("ready", flush=True)
        sys.stdin.read()

    def accept(self, listener):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    def answer(self, connection):
        with connection:
            word, *arguments = line(connection).split() or ["leave"]
            getattr(self, word)(connection, *map(int, arguments))

    def leave(self, connection):
        pass

    def echo(self, connection):
        while len(head := read(connection, 4)) == 4:
            connection.sendall(head + read(connection, struct.unpack("!I", head)[0]))

    def mirror(self, connection):
        while part := connection.recv(65536):
            connection.sendall(part)

    def put(self, connection, length):
        connection.sendall(digest(read(connection, length)))

    def get(self, connection, length):
        connection.sendall(pattern(length, length))

    def hear(self, connection):
        """All that comes until the client's half is closed."""
        connection.sendall(digest(read(connection, 1 << 40)))

    def reset(self, connection):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)

    def suffer(self, connection):
        connection.sendall(b"r")
        try:
            read(connection, 1)
        except ConnectionResetError:
            self.resets += 1

    def count(self, connection):
        connection.sendall(b"%d\n" % self.resets)


class Client:
    def __init__(self, address, device=""):
        self.address = address
        self.device = device
        #: Connections that were begun, and those of them that were established.
        self.attempted = self.connected = 0

    def connect(self, command, port=PORT):
        connection = socket.socket()
        connection.settimeout(PATIENCE_S)
        if self.device:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self.device.encode())
        self.attempted += 1
        connection.connect((self.address, port))
        self.connected += 1
        connection.sendall(command.encode() + b"\n")
        return connection

    def run(self):
        """Every check; the names of the failed ones, and why."""
        checks = (self.requests, self.sent, self.received, self.both_ways, self.half_closed, self.closed,
                  self.reset_by_server, self.reset_by_client, self.refused)
        failed = []
        for check in checks:
            try:
                check()
            except (OSError, AssertionError) as error:
                failed.append(f"{check.__name__}: {type(error).__name__} {error}".strip())
        return failed

    def ask(self, lengths):
        with self.connect("echo") as connection:
            for number, length in enumerate(lengths):
                message = struct.pack("!I", length) + pattern(length, number)
                connection.sendall(message)
                assert read(connection, len(message)) == message, "other bytes came back"

    def requests(self):
        self.ask(REQUESTS)

    def sent(self):
        data = pattern(BULK, 1)
        with self.connect(f"put {BULK}") as connection:
            connection.sendall(data)
            assert read(connection, 64) == digest(data), "other bytes arrived"

    def received(self):
        with self.connect(f"get {BULK}") as connection:
            data = read(connection, BULK + 1)
        assert len(data) == BULK and data == pattern(BULK, BULK), "other bytes came"

    def both_ways(self):
        data = pattern(BULK, 2)
        with self.connect("mirror") as connection:
            writer = threading.Thread(target=self.write, args=(connection, data))
            writer.start()
            back = read(connection, BULK + 1)
            writer.join()
        assert back == data, f"{len(back)} bytes came back, or others"

    @staticmethod
    def write(connection, data):
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)

    def half_closed(self):
        data = pattern(70_000, 3)
        with self.connect("hear") as connection:
            self.write(connection, data)
            assert read(connection, 65) == digest(data), "the end came early, or other bytes arrived"

    def closed(self):
        with self.connect("leave") as connection:
            assert connection.recv(1) == b"", "no end came"

    def reset_by_server(self):
        with self.connect("reset") as connection:
            try:
                connection.recv(1)
            except ConnectionResetError:
                return
        raise AssertionError("no reset came")

    def reset_by_client(self):
        before = self.resets()
        with self.connect("suffer") as connection:
            assert connection.recv(1) == b"r"
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        for _ in range(50):
            if self.resets() == before + 1:
                return
            select.select([], [], [], 0.1)
        raise AssertionError("no reset arrived")

    def resets(self):
        with self.connect("count") as connection:
            return int(line(connection))

    def refused(self):
        """Nothing listens there: the answer comes at once."""
        try:
            self.connect("", PORT + 1)
        except ConnectionRefusedError:
            return
        raise AssertionError("the connect was not refused")


def main():
    role, *arguments = sys.argv[1:]
    if role == "server":
        return Server().serve()
    client = Client(*arguments)
    print("ready", flush=True)
    while not select.select([0], [], [], 0.05)[0]:
        client.ask([1000])
    os.read(0, 100)
    print("paused", flush=True)
    os.read(0, 100)
    client.attempted = client.connected = 0
    failed = client.run()
    print(json.dumps({"client": client.attempted, "server": client.connected, "failed": failed}), flush=True)
    sys.stdin.read()
    return None


if __name__ == "__main__":
    main()
