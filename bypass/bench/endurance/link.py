#!/usr/bin/env python3
"""nginx over packets for long, reloaded, upgraded and killed, against the kernel: every answer compared.

    python3 link.py [RUN...] [--seconds 8]     all runs; needs root, nginx and the release build

Runs: `reload` (SIGHUP twice a second), `upgrade` (binary upgrades in turn; connections to the last binary
must be over packets), `worker` (a worker gets SIGKILL every second), `master` (it gets SIGKILL once), `all`
(all get SIGKILL: time until the kernel has the interface, and until another nginx responds), `soak` (clients
that pipeline, half-close, reset, abort and close). nginx has two workers of the user
`nobody`; its clients use the kernel in the other namespace of a veth pair. A request on a used connection that
ends before the first byte of its response is sent again, as HTTP clients do; anything else is a failure. Prints
Markdown; exits with status 1 if a response was wrong, or failed in a run without SIGKILL. Standard library only.
"""

import argparse
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import endurance
import reload
from packets import ADDRESS, BYPASS, LIBRARY, PORT, Link, counters

NGINX = """
worker_processes 2; user nobody nogroup; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
  access_log off; keepalive_requests 100;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{ listen {port}; root {folder}; location = / {{ return 200 "{body}"; }} location /large {{ }} }}
}}
"""
LARGE = bytes(range(251)) * 4178
REQUEST = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"
CLIENTS = 8
PATIENCE_S = 20


@contextmanager
def serving(link, stack, folder):
    """Starts the nginx of a stack as a daemon, because a master whose parent lives does not upgrade. Returns the
    process id of its master, which is also the process group."""
    launch = [] if stack == "kernel" else [BYPASS, "run", "--interface", "vb", "--"]
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    number = folder / "nginx.pid"
    number.unlink(missing_ok=True)
    said = subprocess.run(link.inside(1, "0-1", *launch, program, "-c", folder / "nginx.conf"), capture_output=True, text=True, timeout=60)
    reload.await_that(lambda: said.returncode or (number.exists() and number.read_text().strip()), "a number of its own")
    if said.returncode:
        sys.exit(f"link.py: nginx does not start: {said.stderr}")
    group = int(number.read_text())
    try:
        if not is_answered(link, group, stack):
            sys.exit("link.py: nginx does not answer over its path")
        yield group
    finally:
        end(group)


def members(group):
    """The processes of a group that live."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(pid)) == group:
                found.append(int(pid))
        except ProcessLookupError:
            continue
    return found


def end(group):
    """Ends all processes of a group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        ends = time.monotonic() + 5
        while members(group) and time.monotonic() < ends:
            try:
                os.killpg(group, number)
            except ProcessLookupError:
                return
            time.sleep(0.1)


def is_answered(link, group, stack):
    """Whether nginx answers, over packets where it should, within 15 s."""
    deadline = time.monotonic() + 15
    while members(group) and time.monotonic() < deadline:
        ask = link.inside(0, "0-1", "curl", "-s", "-o", "/dev/null", "-m", "2", f"http://{ADDRESS}:{PORT}/")
        answers = subprocess.run(ask, check=False).returncode == 0
        if answers and (stack == "kernel" or counters(link, group)["accepts_packets"]):
            return True
        time.sleep(0.01)
    return False


def workers_of(master):
    """The numbers of a master's workers."""
    return [int(pid) for pid in Path(f"/proc/{master}/task/{master}/children").read_text().split()]


def kill_workers(_, master, seconds):
    """Kills one worker per second; returns how many."""
    ends, count = time.monotonic() + seconds - 1, 0
    while time.monotonic() < ends:
        time.sleep(1)
        if found := workers_of(master):
            os.kill(random.choice(found), signal.SIGKILL)
            count += 1
    return count


def kill_master(_, master, seconds):
    """Kills the master once; its workers go on."""
    time.sleep(seconds / 2)
    os.kill(master, signal.SIGKILL)
    return 1


UNDER_LOAD = {"reload": reload.reloads, "upgrade": reload.upgrades, "worker": kill_workers, "master": kill_master}


def under_load(link, stack, folder, what, seconds):
    """Requests right, how often it was done, ends and resets of idle connections, failures, and their texts."""
    with serving(link, stack, folder) as master:
        words = link.inside(0, "0-1", sys.executable, reload.__file__, "client", ADDRESS, PORT, len(endurance.BODY), seconds)
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as load:
            count = UNDER_LOAD[what](SimpleNamespace(folder=folder), master, seconds)
            said = load.communicate(timeout=120)[0].split(maxsplit=4)
        if what == "upgrade" and stack != "kernel" and not stays_over_packets(link, master):
            said[4:] = ["the last binary's connections stay on the kernel"]
            said[3] = str(int(said[3]) + 1)
    right, ends, resets, failures = map(int, said[:4])
    return [right, count, ends, resets, failures], said[4].strip() if len(said) > 4 else ""


def stays_over_packets(link, group):
    """Whether a server that serves over packets does so for each of 20 connections in a row."""
    before = counters(link, group)
    asked = [is_answered(link, group, "packets") for _ in range(20)]
    after = counters(link, group)
    return all(asked) and [after[name] - before[name] for name in ("accepts_packets", "accepts_kernel")] == [20, 0]


def is_the_kernels(link):
    """In the client's namespace: whether the kernel answers a port without a listener by a reset."""
    ask = link.inside(0, "0-1", sys.executable, "-c", f"import socket; socket.create_connection(('{ADDRESS}', {PORT}), 1)")
    return "ConnectionRefused" in subprocess.run(ask, capture_output=True, text=True, check=False).stderr


def kill_all(link, folder):
    """Seconds until the kernel has the interface, and from there until another nginx answers over packets."""
    with serving(link, "packets", folder) as group:
        os.killpg(group, signal.SIGKILL)
        killed = time.monotonic()
        while not is_the_kernels(link):
            if time.monotonic() - killed > PATIENCE_S:
                sys.exit("link.py: the kernel does not answer on the interface of a killed program")
    free = time.monotonic()
    with serving(link, "packets", folder):
        return free - killed, time.monotonic() - free


def read_answer(connection, body, got=b""):
    """Reads the rest of a response that starts with `got`; returns later bytes. Raises unless the body is `body`."""
    while (split := got.find(b"\r\n\r\n")) < 0 or len(got) < split + 4 + len(body):
        piece = connection.recv(65536)
        if not piece:
            raise OSError(f"an end after {len(got)} bytes")
        got += piece
    end = split + 4 + len(body)
    if not got.startswith(b"HTTP/1.1 200") or got[split + 4:end] != body:
        raise OSError(f"a wrong answer: {got[:60]}")
    return got[end:]


def talk(way, dice):
    """Uses one connection in one of the ways; returns the number of right responses."""
    small, large = REQUEST % b"/", REQUEST % b"/large"
    body = endurance.BODY.encode()
    with socket.create_connection((ADDRESS, PORT), PATIENCE_S) as connection:
        if way == "in turn":
            count = dice.randrange(1, 20)
            for _ in range(count):
                connection.sendall(small)
                read_answer(connection, body)
            return count
        if way == "large":
            connection.sendall(large)
            read_answer(connection, LARGE)
            return 1
        if way == "pipelined":
            count, behind = dice.randrange(2, 8), b""
            connection.sendall(small * count)
            for _ in range(count):
                behind = read_answer(connection, body, behind)
            return count
        if way == "shut down":
            connection.sendall(small)
            connection.shutdown(socket.SHUT_WR)
            read_answer(connection, body)
            return 1
        connection.sendall(large)
        connection.recv(dice.randrange(1, 100_000))
        if way == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return 0


WAYS = ("in turn", "large", "pipelined", "shut down", "reset", "given up")


def churn(seconds):
    """In the client's namespace: all clients; prints connections, right answers and what failed."""
    counts, failed, ends = [[0, 0] for _ in range(CLIENTS)], [], time.monotonic() + seconds

    def one(number):
        dice = random.Random(number)
        while time.monotonic() < ends:
            way = dice.choice(WAYS)
            try:
                counts[number][1] += talk(way, dice)
                counts[number][0] += 1
            except OSError as error:
                failed.append(f"{way}: {error!r}")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    connections, answers = map(sum, zip(*counts))
    print(connections, answers, len(failed), failed[:3] or "")


def soak(link, stack, folder, seconds):
    """Connections, right answers, failures, kernel's connections, and KiB of the workers after a quarter and at the end."""
    def resident():
        return sum(endurance.memory_of(pid) for pid in workers_of(master))
    # The clients' closed connections keep their ports for a minute: some 700 connections a second use up the usual 28,000.
    subprocess.run(link.inside(0, 1, "sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535"), check=True)
    with serving(link, stack, folder) as master:
        before = counters(link, master)["accepts_kernel"]
        with subprocess.Popen(link.inside(0, "0-1", sys.executable, __file__, "churn", seconds), stdout=subprocess.PIPE, text=True) as load:
            time.sleep(seconds / 4)
            early = resident()
            said = load.communicate(timeout=seconds + 120)[0].split(maxsplit=3)
        kernel = counters(link, master)["accepts_kernel"] - before
        late = resident()
    connections, answers, failures = map(int, said[:3])
    return [connections, answers, failures, kernel, early, late], said[3].strip() if len(said) > 3 else ""


def table(title, columns, rows):
    """Prints Markdown."""
    print(f"\n| {title} | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for name, row in rows.items():
        print(f"| {name} | {' | '.join(f'{cell:,}' if isinstance(cell, int) else f'{cell:.2f} s' for cell in row)} |", flush=True)


def main():
    runs = [*UNDER_LOAD, "all", "soak"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=", ".join(runs))
    parser.add_argument("--seconds", type=float, default=8, help="of each run and stack")
    options = parser.parse_args()
    for name in set(options.runs) - set(runs):
        parser.error(f"no run {name}: there are {', '.join(runs)}")
    if os.geteuid() != 0 or not (BYPASS.exists() and LIBRARY.exists()):
        sys.exit("link.py: root is needed, and a build: ./wirespeed build bypass")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    is_wrong = False
    with tempfile.TemporaryDirectory(prefix="link-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "large").write_bytes(LARGE)
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=PORT, body=endurance.BODY))
        for what in options.runs or runs:
            with Link(1500) as link:
                if what == "all":
                    table(what, ["the kernel has the interface", "another nginx answers over packets"], {"packets": kill_all(link, folder)})
                    continue
                rows = {}
                for stack in ("kernel", "packets"):
                    measure = soak if what == "soak" else lambda *words: under_load(*words[:3], what, words[3])
                    rows[stack], text = measure(link, stack, folder, options.seconds)
                    if text:
                        print(f"{what}, {stack}: {text}", file=sys.stderr)
                is_wrong |= what in ("reload", "upgrade") and rows["packets"][4] > 0
                is_wrong |= what == "soak" and (rows["packets"][2] > 0 or rows["packets"][3] > 0)
                columns = ["connections", "right answers", "failures", "connections of the kernel", "KiB after a quarter", "KiB at the end"]
                if what != "soak":
                    columns = ["requests", "times", "ends of idle connections", "resets of idle connections", "failures"]
                table(what, columns, rows)
    return int(is_wrong)


if __name__ == "__main__":
    if sys.argv[1:2] == ["churn"]:
        churn(float(sys.argv[2]))
    else:
        sys.exit(main())
