"""One end of the connections that are captured: `peer.py server|client|parent ADDRESS PORT BYTES…`.

The client opens a connection for each number of BYTES, sends as many, ends its direction, and gets twice
as many back. Number 0 is a connection that it resets. A line on standard input lets it begin; before
that it has made one connection, which both ends have ended, so that it is known as accelerated. The server takes
the first free port from PORT on, and says which. The parent is a server of one connection, which its child has
too: at a line on standard input the parent closes it, at another one the child.
"""

import errno
import os
import socket
import struct
import sys


def pattern(count, start):
    return bytes((start + place * 7) % 251 for place in range(count))


def read_all(connection):
    pieces = []
    while piece := connection.recv(50_000):
        pieces.append(piece)
    return b"".join(pieces)


def listen(host, first):
    for port in range(first, first + 1000):
        try:
            return socket.create_server((host, port), backlog=64)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    raise SystemExit("no free port")


def serve(host, first):
    with listen(host, first) as listener:
        print("listening", listener.getsockname()[1], flush=True)
        while True:
            connection, _ = listener.accept()
            with connection:
                try:
                    got = read_all(connection)
                    connection.sendall(pattern(2 * len(got), 1))
                except ConnectionResetError:
                    print("reset", flush=True)


def leave_to_child(host, first):
    with listen(host, first) as listener:
        print("listening", listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
    orders, order = os.pipe()
    if child := os.fork():
        os.close(orders)
        print("child", child, flush=True)
        sys.stdin.readline()
        connection.close()
        print("closed", flush=True)
        sys.stdin.readline()
        os.write(order, b"c")
        sys.stdin.readline()
        return
    os.close(order)
    if os.read(orders, 1):
        connection.close()
    # As long as its parent.
    os.read(orders, 1)


def dial(address, counts):
    with socket.create_connection(address) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert read_all(connection) == b"", "nothing was asked"
    print("ready", flush=True)
    sys.stdin.readline()
    for count in counts:
        with socket.create_connection(address) as connection:
            if count == 0:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.sendall(b"x")
                continue
            data = pattern(count, 0)
            for start in range(0, count, 10_007):
                connection.sendall(data[start:start + 10_007])
            connection.shutdown(socket.SHUT_WR)
            assert read_all(connection) == pattern(2 * count, 1), "the answer"
    print("done", flush=True)


if __name__ == "__main__":
    role, host, port, *counts = sys.argv[1:]
    if role == "server":
        serve(host, int(port))
    if role == "parent":
        leave_to_child(host, int(port))
        raise SystemExit
    dial((host, int(port)), [int(count) for count in counts])
