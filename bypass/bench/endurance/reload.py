"""nginx reloads and binary upgrades under load, alternating between kernel and bypass.

    python3 reload.py --bypass target/release/bypass [--rounds 2] [--seconds 8] [--load client|wrk|wirespeed]

The client repeats a request on a used connection that ends before the first byte of the response,
as HTTP clients do; everything else is a failure. Prints one Markdown table; exits with status 1 if an
accelerated request failed. Standard library only.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import endurance

HERE = Path(__file__).resolve().parent
COLUMNS = ("requests", "reloads", "ends of idle connections", "resets of idle connections",
           "failures")


def client(address, port, length, seconds):
    """The process `reload.py client ADDRESS PORT LENGTH SECONDS`; prints its counts."""
    import socket
    from collections import Counter
    counts = Counter()
    def one(number):
        connection, used, ends = None, False, time.monotonic() + seconds
        while time.monotonic() < ends:
            got = b""
            try:
                if connection is None:
                    connection, used = socket.create_connection((address, port), 20), False
                connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                while True:
                    piece = connection.recv(65536)
                    if not piece:
                        raise EOFError
                    got += piece
                    head, split, body = got.partition(b"\r\n\r\n")
                    if split and len(body) >= length:
                        break
                right = head.startswith(b"HTTP/1.1 200") and len(body) == length
                counts["requests" if right else f"failed: {head[:40]}"] += 1
                used = True
                if b"Connection: close" in head or number % 4 == 3:
                    connection.close()
                    connection = None
            except (EOFError, OSError) as error:
                kind = {EOFError: "end", ConnectionResetError: "reset",
                        BrokenPipeError: "reset"}.get(type(error))
                is_retried = used and not got and kind
                counts[kind if is_retried else f"failed: {error!r} after {len(got)}, "
                       f"{'used' if used else 'fresh'}"] += 1
                if connection is not None:
                    connection.close()
                connection = None
    threads = [threading.Thread(target=one, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = {name: count for name, count in counts.items() if name.startswith("failed")}
    print(counts["requests"], counts["end"], counts["reset"], sum(failed.values()), failed or "")


def load_words(options, port):
    """The load generator's command, and how to read its output into the columns."""
    url, seconds = f"http://127.0.0.1:{port}/", f"{options.seconds:g}"
    if options.load == "client":
        return [sys.executable, __file__, "client", "127.0.0.1", port, len(endurance.BODY), seconds]
    if options.load == "wrk":
        return ["wrk", "-t1", f"-c{options.connections}", f"-d{seconds}s", url]
    return [options.bypass.resolve().parent / "wirespeed-load", "-t1", f"-c{options.connections}",
            f"-d{seconds}s", url]


def read(options, text):
    """(requests, ends, resets, failures); generators report read errors, which are both."""
    if options.load == "client":
        words = text.split(maxsplit=4)
        return [int(word) for word in words[:4]], words[4] if len(words) > 4 else ""
    requests = re.search(r"(\d+) requests in", text)
    errors = re.search(r"connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    connect, reads, writes, late = (int(n) for n in errors.groups()) if errors else (0, 0, 0, 0)
    wrong = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    failures = connect + late + (int(wrong.group(1)) if wrong else 0)
    return [int(requests.group(1)) if requests else 0, 0, reads + writes, failures], ""


def reloads(bench, master, seconds):
    ends, count = time.monotonic() + seconds - 1, 0
    while time.monotonic() < ends:
        time.sleep(0.5)
        os.kill(master, signal.SIGHUP)
        count += 1
    return count


def upgrades(bench, master, seconds):
    """One after the other: USR2, and QUIT to the old master once the new one has written its number."""
    ends, count, path = time.monotonic() + seconds - 2, 0, bench.folder / "nginx.pid"
    former = path.with_suffix(".pid.oldbin")
    while time.monotonic() < ends:
        os.kill(master, signal.SIGUSR2)
        await_that(lambda: number_in(path) not in (None, master), "a new master")
        time.sleep(0.2)
        os.kill(master, signal.SIGQUIT)
        # The new master does not upgrade again before the old one has ended.
        await_that(lambda: not former.exists(), "the end of the old master")
        master = number_in(path)
        time.sleep(0.5)
        count += 1
    return count


def number_in(path):
    """The process of a pid file; None when it is not there, as while nginx renames it, or not written yet."""
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return None


def await_that(condition, what):
    """Returns when it holds; ends the bench after 30 s."""
    ends = time.monotonic() + 30
    while not condition():
        if time.monotonic() > ends:
            sys.exit(f"reload.py: nginx did not come to {what} within 30 s")
        time.sleep(0.05)


def once(options, is_kernel, what):
    options.kernel = is_kernel
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        bench = endurance.Bench(options, folder)
        try:
            port = endurance.free_port()
            master = endurance._nginx(bench, port)
            load = bench.start(*load_words(options, port), stdout=subprocess.PIPE, text=True)
            count = what(bench, master, options.seconds)
            numbers, text = read(options, load.communicate(timeout=120)[0])
            endurance.end_daemon(bench.folder / "nginx.pid")
            return [numbers[0], count, *numbers[1:]], text
        finally:
            bench.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bypass", type=Path, default=Path("target/release/bypass"))
    parser.add_argument("--profile", default="")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--connections", type=int, default=8, help="of wrk and wirespeed-load")
    parser.add_argument("--load", choices=("client", "wrk", "wirespeed"), default="client")
    parser.add_argument("--what", choices=("reload", "upgrade"), default="reload")
    options = parser.parse_args()
    if options.load == "wrk" and not shutil.which("wrk"):
        raise SystemExit("reload: wrk is missing (install it with: apt-get install wrk)")
    what = {"reload": reloads, "upgrade": upgrades}[options.what]
    sums = {"kernel": [0] * 5, "bypass": [0] * 5}
    for _ in range(options.rounds):
        for name, row in sums.items():
            numbers, text = once(options, name == "kernel", what)
            sums[name] = [before + now for before, now in zip(row, numbers)]
            if text:
                print(f"{name}: {text}", file=sys.stderr)
    print(f"| {options.what}, load {options.load} | " + " | ".join(COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for name, row in sums.items():
        print(f"| {name} | " + " | ".join(str(number) for number in row) + " |")
    return 1 if sums["bypass"][-1] or not sums["bypass"][0] else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["client"]:
        client(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    else:
        raise SystemExit(main())
