#!/usr/bin/env python3
"""nginx with many connections over a veth pair: their cost while idle, and per request.

    ./wirespeed build bypass                        once; needs root, nginx and wrk
    bypass/bench/connections.py idle                1,000 connections, 20 s, nginx with the balanced profile
    bypass/bench/connections.py requests            CPU of nginx per request with 10 … 50,000 connections (as many as
                                                    there may be descriptors, ulimit -Hn)

Both count CPU time of nginx (master, workers, every thread) by the scheduler's accounting, in nanoseconds. Other
work on the machine only delays them and makes caches colder; it does not change the count otherwise.

idle      on the kernel, and over packets with the profile; also with no connection at all; --queues N of the interface,
          --workers N of nginx
requests  wrk on the kernel; nginx on the kernel, and over packets without a profile, which sleeps instead of
          spinning, so that time without work does not count; --connections N …, in turns within each round;
          --workers N: as many workers and wrks, each with its share of the connections (and of the descriptors)
"""

import argparse
import os
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from packets import ADDRESS, BYPASS, LIBRARY, NGINX, PORT, Link, counters, started

# Enough for 50,000 connections with what a process needs besides.
DESCRIPTORS = 80_000
# Descriptors of nginx and the generator besides one for each connection.
OTHERS = 2000
REQUEST = f"GET /0 HTTP/1.1\r\nHost: {ADDRESS}\r\n\r\n".encode()


def raise_descriptors():
    """Raises the limit of descriptors for this process and its children: to the requested number, or to the machine's limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
            hard = DESCRIPTORS
        except (OSError, ValueError):
            pass  # needs CAP_SYS_RESOURCE, and fs.nr_open as large
    allowed = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


def spent_ns(group):
    """CPU time of all threads of the processes of a session."""
    total = 0
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and os.getpgid(int(folder.name)) == group:
                total += sum(int(one.read_text().split()[0]) for one in folder.glob("task/*/schedstat"))
        except (ProcessLookupError, FileNotFoundError):
            continue
    return total


@contextmanager
def serving(link, profile, folder, core=0):
    """nginx with one worker: on the kernel (profile is None), or over packets ("" has no profile)."""
    launch = []
    if profile is not None:
        launch = ["env", "EF_MAX_ENDPOINTS=65536", BYPASS, "run", *(["-p", profile] if profile else []), "--interface", "vb", "--"]
    command = link.inside(1, core, *launch, "nginx", "-p", folder, "-c", folder / "nginx.conf")
    with started(command) as (process, said):
        deadline = time.monotonic() + 20
        while not (asked(link, process, profile)):
            if process.poll() is not None or time.monotonic() > deadline:
                said.seek(0)
                sys.exit(f"connections.py: nginx does not answer over its path: {said.read() or 'it says nothing'}")
            time.sleep(0.1)
        yield process


def asked(link, process, profile):
    ask = link.inside(0, 1, "curl", "-s", "-o", "/dev/null", "-m", "2", f"http://{ADDRESS}:{PORT}/0")
    is_answered = subprocess.run(ask, check=False).returncode == 0
    return is_answered and (profile is None or counters(link, process.pid)["accepts_packets"] > 0)


def hold(count):
    """In the client's namespace: opens connections, sends one request on each, prints a line and waits for input."""
    sockets = []
    for _ in range(count):
        one = socket.create_connection((ADDRESS, PORT), 10)
        one.sendall(REQUEST)
        if not one.recv(4096).startswith(b"HTTP/1.1 200"):
            sys.exit("a wrong answer")
        sockets.append(one)
    print("held", flush=True)
    sys.stdin.read()


def idle_share(link, profile, folder, count, seconds):
    """Share of a core in percent that nginx uses with `count` idle connections."""
    with serving(link, profile, folder) as process:
        before = counters(link, process.pid) if profile else {}
        words = link.inside(0, 1, sys.executable, __file__, "hold", "--connections", count)
        client = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            if client.stdout.readline() != "held\n":
                sys.exit("connections.py: the connections could not be opened")
            if profile:
                after = counters(link, process.pid)
                if after["accepts_packets"] - before["accepts_packets"] < count:
                    sys.exit(f"connections.py: not all connections are over packets: {before}, {after}")
            time.sleep(2)
            start = spent_ns(process.pid)
            if start == 0:
                sys.exit("connections.py: the scheduler keeps no account (/proc/PID/task/*/schedstat)")
            time.sleep(seconds)
            return (spent_ns(process.pid) - start) / seconds / 1e9 * 100
        finally:
            client.kill()
            client.wait()


def idle(options, folder):
    with Link(1500, options.queues) as link:
        for name, profile, count in (("kernel", None, options.connections[0]), (options.profile, options.profile, 0),
                                     (options.profile, options.profile, options.connections[0])):
            share = idle_share(link, profile, folder, count, options.seconds)
            print(f"{name:16} {count:6} connections: {share:.3f} % of a core over {options.seconds} s", flush=True)


def ports(workers):
    """A port for each wrk: to one address and port a client's kernel has some 64,000 ports, and looks through half of them at
    each connect once that half is taken."""
    return range(PORT, PORT + workers)


def cost(link, profile, folder, count, options):
    """Microseconds of nginx's CPU per request, and what wrk complains of."""
    with serving(link, profile, folder) as process:
        words = ["wrk", "-t1", f"-c{max(count // options.workers, 1)}", f"-d{options.seconds}s", "--timeout", "30s"]
        start = spent_ns(process.pid)
        running = [subprocess.Popen(link.inside(0, 1, *words, f"http://{ADDRESS}:{port}/0"), stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT, text=True)
                   for port in ports(options.workers)]
        try:
            said = [one.communicate(timeout=options.seconds + 120)[0] for one in running]
        finally:
            for one in running:
                one.kill()
        spent = spent_ns(process.pid) - start
        found = [re.search(r"(\d+) requests in", text) for text in said]
        if not all(found) or any(one.returncode for one in running):
            sys.exit(f"connections.py: wrk failed: {' '.join(said)}")
        answered = sum(int(one[1]) for one in found)
        if answered == 0:
            return None, "no request was answered: --seconds must be longer than opening the connections takes", {}
        complaint = re.search(r"(Non-2xx.*|Socket errors: .*)", " ".join(said))
        counted = counters(link, process.pid) if profile is not None else {"accepts_packets": 0, "frames_lost_in": 0}
        return spent / answered / 1000, complaint[1] if complaint else "", counted


def requests(options, folder):
    stacks = {"kernel": None, "packets": ""}
    figures = {}
    with Link(1500) as link:
        for name in link.names:
            subprocess.run(["ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535",
                            "net.core.somaxconn=65535", "net.ipv4.tcp_max_syn_backlog=65535"], check=True)
        for _ in range(options.rounds):
            for count in options.connections:
                for name, profile in stacks.items():
                    spent, complaint, counted = cost(link, profile, folder, count, options)
                    if spent is not None:
                        figures.setdefault((name, count), []).append(spent)
                    if complaint or (profile is not None and counted.get("accepts_packets", 0) < count):
                        print(f"  {name}, {count}: {complaint}; {counted.get('accepts_packets', 0)} connections over packets, "
                              f"{counted.get('frames_lost_in', 0)} frames came too fast", flush=True)
    for name in stacks:
        base = statistics.median(figures.get((name, options.connections[0]), [float("nan")]))
        for count in options.connections:
            found = figures.get((name, count), [float("nan")])
            middle = statistics.median(found)
            print(f"{name:8} {count:6} connections: {middle:6.2f} µs per request ({min(found):.2f}–{max(found):.2f}), "
                  f"{middle / base:.2f} × that of {options.connections[0]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cell", choices=["idle", "requests", "hold"], help="hold is the client of idle")
    parser.add_argument("--connections", type=int, nargs="+")
    parser.add_argument("--seconds", type=int, help="20 of idle, 10 of requests")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--queues", type=int, default=1, help="of idle")
    parser.add_argument("--profile", default="nginx-balanced", help="of idle")
    options = parser.parse_args()
    if options.cell == "hold":
        return hold(options.connections[0])
    if os.geteuid() != 0 or not (BYPASS.exists() and LIBRARY.exists()):
        sys.exit("root is needed, and a build: ./wirespeed build bypass")
    descriptors = raise_descriptors()
    most = (descriptors - OTHERS) * options.workers
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    options.seconds = options.seconds or {"idle": 20, "requests": 10}[options.cell]
    options.connections = options.connections or {"idle": [1000], "requests": [10, 1000, 10_000, min(50_000, most)]}[options.cell]
    if max(options.connections) > most:
        needed = max(options.connections) // options.workers + OTHERS
        sys.exit(f"{max(options.connections)} connections need {needed} descriptors a process, and {descriptors} are "
                 f"allowed: ulimit -Hn {needed}, or --workers")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="connections-")))
        os.chmod(folder, 0o755)
        (folder / "logs").mkdir()
        text = NGINX.format(folder=folder, port=PORT, multi="off").replace("worker_connections 20000", "worker_connections 100000")
        text = text.replace("worker_processes 1;", f"worker_processes {options.workers};")
        listen = f"listen {PORT} backlog=16384;"
        text = text.replace(listen, " ".join(listen.replace(str(PORT), str(port)) for port in ports(options.workers)))
        (folder / "nginx.conf").write_text(f"worker_rlimit_nofile {descriptors};\n" + text)
        {"idle": idle, "requests": requests}[options.cell](options, folder)
    return None


if __name__ == "__main__":
    sys.exit(main())
