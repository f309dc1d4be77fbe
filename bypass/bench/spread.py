#!/usr/bin/env python3
"""nginx with more workers than queues over a veth pair: every answer right, and no worker left without connections.

    ./wirespeed build bypass          once; needs root, nginx and ip
    bypass/bench/spread.py            8 workers on 4 queues, 16 workers on 1 queue; kernel, then over packets

Each worker answers with its process id. Clients on the kernel open connections in turn with others open, ask on
each several times, and compare every answer with the first one of its connection. Prints how many connections each
worker had; ends with 1 when an answer was wrong or missing, a connection over packets was the kernel's, or a worker
had none that had some on the kernel.
"""

import argparse
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from connections import serving
from packets import ADDRESS, BYPASS, LIBRARY, NGINX, PORT, Link, counters

CASES = ((8, 4), (16, 1))
REQUESTS = 5
PATIENCE_S = 30
REQUEST = f"GET /0 HTTP/1.1\r\nHost: {ADDRESS}\r\n\r\n".encode()


def configuration(folder, workers, reuseport):
    text = NGINX.format(folder=folder, port=PORT, multi="off")
    text = text.replace("worker_processes 1;", f"worker_processes {workers};").replace("return 200;", 'return 200 "$pid\\n";')
    return text.replace("backlog=16384", "backlog=16384 reuseport") if reuseport else text


def ask(connection):
    """The process id in one answer."""
    connection.sendall(REQUEST)
    got = b""
    while not (found := re.fullmatch(rb"HTTP/1\.1 200 OK\r\n.*\r\n\r\n(\d+)\n", got, re.S)):
        piece = connection.recv(4096)
        if not piece:
            raise OSError(f"the connection ended after {got!r}")
        got += piece
    return int(found[1])


def client(number, connections, held, found, wrong):
    """Opens connections in turn, keeps up to `held` of them, asks on one of those between."""
    dice, kept = random.Random(number), []
    try:
        for _ in range(connections):
            one = socket.create_connection((ADDRESS, PORT), PATIENCE_S)
            worker = ask(one)
            found.append(worker)
            kept.append((one, worker))
            for again, owner in dice.choices(kept, k=REQUESTS - 1):
                if ask(again) != owner:
                    raise OSError("an answer of another worker")
            if len(kept) > held:
                kept.pop(dice.randrange(len(kept)))[0].close()
    except OSError as error:
        wrong.append(str(error))


def crowd(options):
    """In the client's namespace: all clients; prints connections of each worker, and what was wrong."""
    found, wrong = [], []
    threads = [threading.Thread(target=client, args=(number, options.connections, options.held, found, wrong))
               for number in range(options.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(" ".join(str(count) for _, count in Counter(found).most_common()))
    print("\n".join(wrong[:3]))


def measure(link, stack, folder, workers, options):
    """Connections of each worker, most first."""
    (folder / "nginx.conf").write_text(configuration(folder, workers, options.reuseport))
    with serving(link, None if stack == "kernel" else "", folder, f"0-{(os.cpu_count() or 1) - 1}") as process:
        before = counters(link, process.pid)
        words = link.inside(0, f"0-{(os.cpu_count() or 1) - 1}", sys.executable, __file__, "--crowd", "--connections", options.connections,
                            "--clients", options.clients, "--held", options.held)
        said = subprocess.run(words, capture_output=True, text=True, timeout=600)
        after = counters(link, process.pid)
    counts, _, wrong = said.stdout.partition("\n")
    if said.returncode or wrong.strip():
        sys.exit(f"{stack}: {wrong or said.stderr}")
    kernel = after["accepts_kernel"] - before["accepts_kernel"]
    if stack != "kernel" and kernel:
        sys.exit(f"{stack}: {kernel} connections were the kernel's")
    return [int(count) for count in counts.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--connections", type=int, default=250, help="of each client")
    parser.add_argument("--held", type=int, default=20, help="connections that a client keeps open")
    parser.add_argument("--reuseport", action="store_true", help="each worker with a listening socket of its own")
    parser.add_argument("--crowd", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.crowd:
        return crowd(options)
    if os.geteuid() != 0 or not (BYPASS.exists() and LIBRARY.exists()):
        sys.exit("root is needed, and a build: ./wirespeed build bypass")
    starved = False
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spread-")))
        os.chmod(folder, 0o755)
        (folder / "logs").mkdir()
        for workers, queues in CASES:
            with Link(1500, queues) as link:
                busy = {}
                for name in ("kernel", "packets"):
                    counts = measure(link, name, folder, workers, options)
                    busy[name] = len(counts)
                    print(f"{workers:2} workers, {queues} queues, {name:8} {sum(counts)} connections, by worker: "
                          f"{' '.join(map(str, counts))}", flush=True)
                starved |= busy["packets"] < busy["kernel"]
    return int(starved)


if __name__ == "__main__":
    sys.exit(main())
