"""pair: multiprocessing, subprocess and os.fork around open connections; sendfile from Python."""

import multiprocessing
import os
import socket
import subprocess
import tempfile

from channel import HOST, digest, hear, run_roles, say, stream, tell


def serve(connection):
    with connection:
        data = connection.recv(100)
        connection.sendall(b"worker " + data)


def server():
    context = multiprocessing.get_context("fork")
    with socket.create_server((HOST, 0)) as listening:
        tell(listening.getsockname()[1])
        for _ in range(3):
            connection, _ = listening.accept()
            worker = context.Process(target=serve, args=(connection,))
            worker.start()
            connection.close()
            worker.join()
            say("worker", worker.exitcode)
        connection, _ = listening.accept()
        with connection, tempfile.TemporaryFile() as file:
            file.write(stream(2_000_000))
            file.flush()
            file.seek(1000)
            say("sendfile", connection.sendfile(file))
        connection, _ = listening.accept()
        with connection:
            answer = subprocess.run(["sh", "-c", "echo from a shell"], capture_output=True)
            connection.sendall(answer.stdout)
            child = os.fork()
            if child == 0:
                connection.sendall(b"from a child\n")
                os._exit(3)
            say("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def read_all(connection):
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def client():
    port = hear()
    for number in range(3):
        with socket.create_connection((HOST, port)) as connection:
            connection.sendall(b"%d" % number)
            say(read_all(connection))
    with socket.create_connection((HOST, port)) as connection:
        data = read_all(connection)
        say(len(data), digest(data) == digest(stream(2_000_000)[1000:]))
    with socket.create_connection((HOST, port)) as connection:
        say(read_all(connection))


run_roles(server, client)
