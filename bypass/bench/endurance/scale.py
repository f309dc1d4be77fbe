#!/usr/bin/env python3
"""The published numbers of processes and threads on the available cores: is every response right, and in time?

    python3 scale.py --bypass target/release/bypass [RUN…] [--seconds 10]

Runs: `workers` (nginx with 28 workers, 32 clients), `instances` (36 Netty http-servers, each with a client),
`threads` (64 threads of one process on one epoll set, 8 clients). Each client has 4 connections, compares every
byte and records its longest wait. A run fails if a response was wrong or missing, or if a connection
waited for a second. `--kernel` runs the same without acceleration. Standard library only; needs nginx, a C
compiler and, for `instances`, a JDK and the built http-server.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from endurance import Bench, free_port, wait_for

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CONNECTIONS = 4
STARVED_MS = 1000
BODY = b"wirespeed " * 100
NGINX = """
worker_processes {workers}; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 1000000000; root {folder};
  client_body_temp_path {folder}/t; proxy_temp_path {folder}/t; fastcgi_temp_path {folder}/t;
  uwsgi_temp_path {folder}/t; scgi_temp_path {folder}/t;
  server {{ listen 127.0.0.1:{port} reuseport backlog=4096; }}
}}
"""


class Scale(Bench):
    """A bench with the program of many connections."""

    def __init__(self, options, folder):
        super().__init__(options, folder)
        self.crowd, self.body = self.folder / "crowd", self.folder / "body"
        subprocess.run(["cc", "-O1", "-w", "-pthread", "-o", self.crowd, HERE / "crowd.c"], check=True)
        self.body.write_bytes(BODY)
        # nginx's workers are another user.
        self.folder.chmod(0o755)

    def clients(self, ports):
        """One client per port, all at once; the sum of their counts."""
        words = [CONNECTIONS, self.options.seconds, self.body]
        runs = [self.start(self.crowd, "client", port, *words, stdout=subprocess.PIPE, text=True) for port in ports]
        said = [run.communicate(timeout=self.options.seconds * 4 + 60)[0].split() for run in runs]
        rows = [[float(word) for word in words] for words in said if len(words) == 5]
        return rows, len(said) - len(rows)


def judge(name, rows, ended):
    """Prints a run's line; returns true on an error."""
    answers, wrong, failed = (int(sum(row[column] for row in rows)) for column in range(3))
    longest, fewest = max((row[3] for row in rows), default=0), int(min((row[4] for row in rows), default=0))
    print(
        f"{name}: {len(rows)} clients, {answers} answers, {wrong} wrong, {failed} failed, {ended} clients ended early, "
        f"longest wait {longest:.0f} ms, fewest answers of a connection {fewest}",
        flush=True,
    )
    return wrong + failed + ended > 0 or longest >= STARVED_MS or fewest == 0


def workers(bench):
    """nginx with 28 workers and 32 clients."""
    port, config = free_port(), bench.folder / "nginx.conf"
    config.write_text(NGINX.format(workers=28, folder=bench.folder, port=port))
    bench.start(shutil.which("nginx") or "/usr/sbin/nginx", "-c", config, "-e", bench.folder / "error.log")
    wait_for(port)
    return judge("workers", *bench.clients([port] * 32))


def instances(bench):
    """36 Netty servers, each a process with two event loops."""
    ports, jar = [free_port() for _ in range(36)], ROOT / "servers/http-server/target/http-server.jar"
    flags = ["-Xms16m", "-Xmx32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", jar, "--threads", 2]
    for port in ports:
        place = ["--host", "127.0.0.1", "--port", port, "--root", bench.folder]
        bench.start("java", *flags, *place, stdout=subprocess.DEVNULL)
    for port in ports:
        wait_for(port)
        # The first request of a JVM loads classes: 36 at once would wait for those.
        urllib.request.urlopen(f"http://127.0.0.1:{port}/body", timeout=30).read()
    return judge("instances", *bench.clients(ports))


def threads(bench):
    """64 threads that wait for one epoll set."""
    port = free_port()
    bench.start(bench.crowd, "threads", port, 64, bench.body)
    wait_for(port)
    return judge("threads", *bench.clients([port] * 8))


RUNS = {"workers": workers, "instances": instances, "threads": threads}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"{', '.join(RUNS)} [all]")
    stack = parser.add_mutually_exclusive_group(required=True)
    stack.add_argument("--bypass", type=Path, help="the command to accelerate with")
    stack.add_argument("--kernel", action="store_true", help="without acceleration")
    parser.add_argument("--profile", help="profile for bypass run -p")
    parser.add_argument("--seconds", type=int, default=10)
    options = parser.parse_args()
    unknown = [run for run in options.runs if run not in RUNS]
    if unknown:
        parser.error(f"no run is called {unknown[0]}; there are {', '.join(RUNS)}")
    bad = False
    for run in options.runs or RUNS:
        with tempfile.TemporaryDirectory(prefix="bypass-scale-") as folder:
            bench = Scale(options, folder)
            try:
                bad |= RUNS[run](bench)
            finally:
                bench.end()
    sys.exit(bad)


if __name__ == "__main__":
    main()
