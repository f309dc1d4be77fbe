"""pair: every selector of the selectors module over connections, a pipe and a socket pair."""

import os
import selectors
import socket

from channel import HOST, hear, run_roles, say, tell

KINDS = ("SelectSelector", "PollSelector", "EpollSelector", "DefaultSelector")


def server():
    with socket.create_server((HOST, 0)) as listening:
        tell(listening.getsockname()[1])
        for _ in KINDS:
            connection, _ = listening.accept()
            with connection:
                while data := connection.recv(100):
                    connection.sendall(data.upper())


def ready(selector, timeout=0):
    return [(key.data, mask) for key, mask in
            sorted(selector.select(timeout), key=lambda pair: pair[0].data)]


def client():
    port = hear()
    for kind in KINDS:
        with getattr(selectors, kind)() as selector, \
                socket.create_connection((HOST, port)) as connection:
            connection.setblocking(False)
            read_end, write_end = os.pipe()
            left, right = socket.socketpair()
            selector.register(connection, selectors.EVENT_READ | selectors.EVENT_WRITE, "c")
            selector.register(read_end, selectors.EVENT_READ, "p")
            selector.register(left, selectors.EVENT_READ, "u")
            say(kind if kind != "DefaultSelector" else "default", ready(selector))
            connection.send(b"hello")
            selector.modify(connection, selectors.EVENT_READ, "c")
            say(ready(selector, 60), connection.recv(100))
            os.write(write_end, b"x")
            right.send(b"y")
            say(ready(selector, 60))
            selector.unregister(left)
            say(ready(selector, 60), sorted(key.data for key in selector.get_map().values()))
            connection.shutdown(socket.SHUT_WR)
            selector.unregister(read_end)
            say(ready(selector, 60), connection.recv(100))
            for fd in (read_end, write_end):
                os.close(fd)
            left.close()
            right.close()


run_roles(server, client)
