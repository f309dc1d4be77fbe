#!/usr/bin/env python3
"""Do percentiles include failed requests? Measures a server that stalls and then fails all waiting requests.

For S at the end of each period P the server sends no responses. Then it fails the waiting requests in one
of four ways: it resets them, closes without a byte, cuts the body short, or was gone (it refuses connections
from the start of the stall on, and resets open ones). The server's log has the end of each request, the
schedule its due time: the difference is the least that each user waited. A server that is gone sees no
requests; requests that were due then waited until it was back. Each percentile of wirespeed-load is printed
with this truth, the error (unless the value is tiny), and ≥ if it is marked as a lower bound.

    load/bench/lost.py --load target/release/wirespeed-load [--nice] [--seconds 8]
"""

import argparse
import json
import multiprocessing
import selectors
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import compare

RATE, STALL_S, PERIOD_S, CONNECTIONS = 1000, 0.6, 2.0, 700
NAMES = ["0.5", "0.75", "0.9", "0.99"]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
RESET = struct.pack("ii", 1, 0)
PATTERNS = ["reset", "close", "cut", "refuse"]


class LosingServer:
    """One thread, one selector; keeps when each request and each stall ended."""

    def __init__(self, pattern):
        self.pattern, self.start, self.stalls_seen, self.stalled = pattern, time.monotonic(), [], None
        self.ended = []
        self.selector, self.waiting, self.open = selectors.DefaultSelector(), {}, set()
        self.listen(("127.0.0.1", 0))
        self.address = self.listener.getsockname()

    def listen(self, address):
        """Begins to take connections."""
        self.listener = socket.socket()
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(address)
        self.listener.listen(4096)
        self.listener.setblocking(False)
        self.selector.register(self.listener, selectors.EVENT_READ)

    def stalls(self):
        """Whether the server stands still now."""
        return (time.monotonic() - self.start) % PERIOD_S >= PERIOD_S - STALL_S

    def run(self, until):
        """Serves until a time of the wall clock."""
        while time.time() < until:
            stalls = self.stalls()
            if stalls and not self.stalled:
                self.stalled = time.time()
            if not stalls and self.stalled:
                self.stalls_seen.append((self.stalled, time.time()))
                self.stalled = None
            if stalls and self.pattern == "refuse" and self.listener:
                self.vanish()
            if not stalls:
                if not self.listener:
                    self.listen(self.address)
                for peer in list(self.waiting):
                    self.lose(peer)
            for key, _ in self.selector.select(0.001):
                if key.fileobj is self.listener:
                    self.accept()
                else:
                    self.serve(key.fileobj, stalls)
        return self.ended, self.stalls_seen

    def accept(self):
        """Takes the connections that wait."""
        while True:
            try:
                peer, _ = self.listener.accept()
            except OSError:
                return
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.open.add(peer)
            self.selector.register(peer, selectors.EVENT_READ)

    def serve(self, peer, stalls):
        """Answers a request, or lets it wait."""
        try:
            asked = peer.recv(4096)
        except OSError:
            asked = b""
        if not asked:
            self.forget(peer)
        elif stalls:
            self.waiting[peer] = True
        else:
            self.ended.append(time.time())
            peer.send(ANSWER)

    def lose(self, peer):
        """Ends a connection that waited for its answer."""
        self.waiting.pop(peer, None)
        self.ended.append(time.time())
        if self.pattern == "cut":
            peer.send(ANSWER[:-2])
        if self.pattern == "reset":
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.forget(peer)

    def vanish(self):
        """Refuses from now on, and resets everybody."""
        self.selector.unregister(self.listener)
        self.listener.close()
        self.listener = None
        for peer in list(self.open):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self.forget(peer)

    def forget(self, peer):
        """Closes a connection."""
        self.selector.unregister(peer)
        self.open.discard(peer)
        self.waiting.pop(peer, None)
        peer.close()


def serve(pattern, seconds, pipe):
    """The server's process."""
    server = LosingServer(pattern)
    pipe.send(server.address[1])
    pipe.send(server.run(time.time() + seconds + 4))


def measured(options, pattern):
    """The result file, and the end times of requests and stalls."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(pattern, options.seconds, theirs))
    process.start()
    url = f"http://127.0.0.1:{ours.recv()}/"
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        subprocess.run([options.load, "-t1", f"-c{CONNECTIONS}", f"-R{RATE}",
                        f"-d{options.seconds}s", "-T10s", "--json", file.name, url],
                       check=True, capture_output=True)
        result = json.loads(Path(file.name).read_text())
    ended, stalls = ours.recv()
    process.join()
    return result, ended, stalls


def waited(due, stalls):
    """The least that a user waits whose request is due at a time."""
    return next((end - due for begin, end in stalls if begin <= due < end), 0.0)


def cell(response, name, truth):
    """A percentile with the truth."""
    reported = response["quantiles"][name] / 1e9
    mark = "≥" if name in response["at_least"] else ""
    error = f" ({(reported / truth - 1) * 100:+.1f} %)" if truth > 1e-3 else ""
    return f"{mark}{reported * 1e3:.1f} ms of {truth * 1e3:.1f}{error}"


def main():
    """Measures the four patterns and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--load", default="target/release/wirespeed-load")
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--nice", action="store_true", help="go before what else runs (root)")
    options = parser.parse_args()
    if options.nice:
        compare.go_first()
    print(f"| a stall ends in | due | lost | {' | '.join('p' + f'{float(n) * 100:g}' for n in NAMES)} "
          "|\n|" + "---|" * (3 + len(NAMES)))
    for pattern in PATTERNS:
        result, ended, stalls = measured(options, pattern)
        start = result["window"]["start_unix_ns"] / 1e9
        due = result["totals"]["due"]
        if pattern == "refuse":
            users = sorted(waited(start + k / RATE, stalls) for k in range(due))
        else:
            users = sorted(end - start - k / RATE for k, end in enumerate(ended))
        response = result["latency"]["response"]
        cells = [cell(response, name, users[min(int(float(name) * due), due - 1)])
                 for name in NAMES]
        print(f"| {pattern} | {due} | {response['lost']} | {' | '.join(cells)} |",
              flush=True)


if __name__ == "__main__":
    main()
