"""pair: processes that accept from one socket are killed at any moment and replaced: whoever asks again is
served, after a time-out of its own at the latest."""

import multiprocessing
import os
import random
import signal
import socket
import threading
import time

from channel import HOST, hear, run_roles, say, stream, tell

WORKERS, CLIENTS, EACH = 4, 6, 40
ANSWER = stream(30_000)
TIMEOUT_S = 10
# When no worker dies any more.
PATIENCE_S = 60


def work(listening, selects):
    import select
    listening.setblocking(not selects)
    poll = select.epoll()
    poll.register(listening, select.EPOLLIN)
    while True:
        if selects:
            poll.poll()
        try:
            connection, _ = listening.accept()
        except BlockingIOError:
            continue
        with connection:
            connection.setblocking(True)
            try:
                if connection.recv(100):
                    connection.sendall(ANSWER)
            except OSError:
                pass


def server():
    context, dice = multiprocessing.get_context("fork"), random.Random(1)
    for selects in (False, True):
        listening = socket.create_server((HOST, 0), backlog=64)
        tell(listening.getsockname()[1])

        def start():
            return context.Process(target=work, args=(listening, selects), daemon=True)

        workers = [start() for _ in range(WORKERS)]
        for worker in workers:
            worker.start()
        for _ in range(25):
            time.sleep(0.03)
            place = dice.randrange(WORKERS)
            os.kill(workers[place].pid, signal.SIGKILL)
            workers[place].join()
            workers[place] = start()
            workers[place].start()
        tell()
        hear()
        for worker in workers:
            worker.kill()
            worker.join()
        listening.close()


def ask(port, timeout_s=TIMEOUT_S):
    """Whether the whole answer came; a worker may die on the way to it."""
    try:
        with socket.create_connection((HOST, port), timeout_s) as connection:
            connection.sendall(b"?")
            got = b""
            while piece := connection.recv(65536):
                got += piece
            assert ANSWER.startswith(got)
            return got == ANSWER
    except OSError:
        return False


def client():
    for _ in range(2):
        port, right, is_over = hear(), [], threading.Event()

        def one():
            served = 0
            while served < EACH or not is_over.is_set():
                served += ask(port)
                time.sleep(0.005)
            right.append(served >= EACH)

        threads = [threading.Thread(target=one) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        hear()
        is_over.set()
        for thread in threads:
            thread.join()
        say(len(right), "clients, each served", all(right))
        say("after the storm", all(ask(port, PATIENCE_S) for _ in range(40)))
        tell()


run_roles(server, client)
