"""pair: blocking sockets, time-outs, makefile, recv_into, sendmsg and create_connection from Python."""

import socket

from channel import HOST, NAME, digest, error_of, hear, meet, run_roles, say, stream, tell


def server():
    with socket.create_server((HOST, 0), backlog=8) as listening:
        tell(listening.getsockname()[1])
        connection, peer = listening.accept()
        say(peer[0], connection.family.name, connection.type.name, connection.proto)
        reader = connection.makefile("rb")
        say(reader.readline(), reader.readline())
        connection.sendmsg([b"scatter ", b"", b"gather"])
        meet()
        data = reader.read(3_000_000)
        say(len(data), digest(data))
        connection.shutdown(socket.SHUT_WR)
        say(reader.read())
        connection.close()
        say(reader.closed, connection.fileno())
        reader.close()
        listening.settimeout(0.05)
        say(error_of(listening.accept))


def client():
    port = hear()
    with socket.create_connection((NAME, port), timeout=60) as connection:
        connection.sendall(b"one\ntwo\n")
        buffer = bytearray(32)
        got = 0
        while got < 14:
            got += connection.recv_into(memoryview(buffer)[got:])
        say(got, bytes(buffer[:got]))
        connection.settimeout(0.05)
        say(error_of(connection.recv, 1))
        connection.setblocking(False)
        say(error_of(connection.recv, 1), connection.getblocking())
        connection.settimeout(60)
        meet()
        connection.sendall(stream(3_000_000))
        say(connection.recv(10), connection.getpeername()[1] == port)
        copy = connection.dup()
        say(copy.fileno() != connection.fileno(), copy.gettimeout())
        copy.close()


run_roles(server, client)
