#!/usr/bin/env python3
"""One end of a bulk transfer: what impaired.py runs, on the kernel or accelerated.

    transfer.py receive PORT FLOWS SKIP SECONDS            takes FLOWS connections
    transfer.py send ADDRESS PORT FLOWS SECONDS [CONTROL]  opens them and writes for SECONDS

Both print one line of JSON at the end: bytes of each flow and a digest of them, in the order of the flows'
numbers, which are the first byte of each. The receiver also counts the bytes that came between SKIP and
SKIP + SECONDS after a flow's first byte; on its standard output comes "ready" before. CONTROL is a congestion
control of the kernel's; it must be there.
"""

import hashlib
import json
import socket
import sys
import threading
import time

PIECE = 64 << 10
PATIENCE_S = 90


def content(flow):
    """Bytes without a period that a shifted or repeated segment could hide behind; 1 MiB and one."""
    seed = b"".join(hashlib.sha256(f"{flow} {part}".encode()).digest() for part in range(32_768))
    return bytes([flow]) + seed


def send(flow, target, seconds, control, results):
    """Writes for `seconds`, ends its direction and waits for the other's end."""
    bytes_of_flow, digest, sent = memoryview(content(flow)), hashlib.sha256(), 0
    with socket.socket() as connection:
        if control:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
        connection.settimeout(PATIENCE_S)
        connection.connect(target)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            place = sent % len(bytes_of_flow)
            count = connection.send(bytes_of_flow[place:place + PIECE])
            digest.update(bytes_of_flow[place:place + count])
            sent += count
        connection.shutdown(socket.SHUT_WR)
        if connection.recv(1) != b"":
            sys.exit("transfer: the receiver answered")
    results[flow] = {"bytes": sent, "digest": digest.hexdigest()}


def receive(connection, skip, seconds, results):
    """Reads to the end."""
    digest, received, counted, flow, begin = hashlib.sha256(), 0, 0, None, 0.0
    with connection:
        connection.settimeout(PATIENCE_S)
        while piece := connection.recv(4 * PIECE):
            now = time.monotonic()
            if flow is None:
                flow, begin = piece[0], now
            if skip <= now - begin < skip + seconds:
                counted += len(piece)
            received += len(piece)
            digest.update(piece)
    results[flow] = {"bytes": received, "digest": digest.hexdigest(), "counted": counted}


def run(threads, results):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(json.dumps([results.get(flow) for flow in range(len(threads))]), flush=True)


def main():
    role, *words = sys.argv[1:]
    results = {}
    if role == "send":
        target, flows, seconds = (words[0], int(words[1])), int(words[2]), float(words[3])
        control = words[4] if len(words) > 4 else ""
        arguments = [(flow, target, seconds, control, results) for flow in range(flows)]
        run([threading.Thread(target=send, args=one) for one in arguments], results)
        return
    port, flows, skip, seconds = int(words[0]), int(words[1]), float(words[2]), float(words[3])
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("0.0.0.0", port))
        listener.listen(64)
        listener.settimeout(PATIENCE_S)
        print("ready", flush=True)
        taken = [listener.accept()[0] for _ in range(flows)]
    run([threading.Thread(target=receive, args=(one, skip, seconds, results)) for one in taken], results)


if __name__ == "__main__":
    main()
