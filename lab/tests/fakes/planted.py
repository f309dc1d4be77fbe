"""A server whose requests cost a planted amount of work: --port PORT --work BLOCKS.

With --own-session a child of it has a session of its own, which signals to the group do not reach.
"""

import argparse
import hashlib
import os
import selectors
import signal
import socket

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, required=True)
parser.add_argument("--work", type=int, default=50, help="blocks of 4 kB to hash for a request")
parser.add_argument("--own-session", action="store_true")
options = parser.parse_args()
if options.own_session and os.fork() == 0:
    os.setsid()
    signal.pause()
block = bytes(4096)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\n\r\n" + b"x" * 16

listener = socket.create_server(("127.0.0.1", options.port), backlog=1024)
listener.setblocking(False)
selector = selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in selector.select():
        if key.fileobj is listener:
            connection, _ = listener.accept()
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ)
            continue
        try:
            request = key.fileobj.recv(4096)
        except OSError:
            request = b""
        if not request:
            selector.unregister(key.fileobj)
            key.fileobj.close()
            continue
        for _ in range(options.work):
            hashlib.sha256(block).digest()
        key.fileobj.sendall(ANSWER)
