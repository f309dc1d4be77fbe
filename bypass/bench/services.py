#!/usr/bin/env python3
"""Redis, memcached, PostgreSQL, nginx with TLS and two proxies: kernel, balanced and performance, in turns.

    bypass/bench/services.py [SERVICE ...] [--rounds 5] [--seconds 1]

Services: `redis` (redis-benchmark GET, 1 and 50 connections, pipelines of 1 and 16), `memcached` (get of 100 B, 50
connections), `postgresql` (pgbench -S, prepared, 1, 8 and 32 clients), `tls` (nginx over TLS 1.3, 1 KiB), `application`
(nginx before Node) and `haproxy` (HAProxy before nginx). Server on core 0, load on core 1, with the same profile on both
ends; what a proxy asks shares core 1 with the load, and is balanced. Prints a table in Markdown: responses per second and
their ratio to the kernel's round by round, CPU time of the server for each, the 99th percentile as the load measures it,
and how many of the server's connections were in shared memory. A run with errors, or an accelerated one without such
connections, ends the bench.

Standard library only; run it as root, with the release build. Debian's packages: redis-server, redis-tools, memcached,
postgresql, nginx, haproxy, nodejs, openssl.
"""

import argparse
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from figures import ROOT, Distance, hold_idle_states, kernel_unpaced, port_that_is_free

STACKS = ("kernel", "balanced", "performance")
PROFILES = {"balanced": "throughput", "performance": "latency"}
#: Servers give up root's rights, their clients here keep them.
SHARE = {"EF_SHARE_WITH": "-1"}
PAYLOAD = b"x" * 100
#: Requests that show how many a run of some seconds takes.
TRIAL = 10_000
NODE = "require('http').createServer((_, answer) => answer.end('x'.repeat(1024))).listen({port}, '127.0.0.1')"
NGINX = """
worker_processes 1; daemon off; user root; pid {folder}/{port}.pid; error_log {folder}/error.log crit;
events {{ worker_connections 4096; accept_mutex off; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path {folder}/t; proxy_temp_path {folder}/t; fastcgi_temp_path {folder}/t;
  uwsgi_temp_path {folder}/t; scgi_temp_path {folder}/t;
  upstream application {{ server 127.0.0.1:{behind}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port}{tls};
    location / {{ default_type text/plain; return 200 "{body}"; }}
    location /application {{
      proxy_pass http://application/; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""
TLS = " ssl; ssl_protocols TLSv1.3; ssl_certificate {folder}/crt.pem; ssl_certificate_key {folder}/key.pem"
HAPROXY = """
global
  maxconn 1000
  nbthread 1
defaults
  mode http
  timeout connect 5s
  timeout client 10s
  timeout server 10s
listen all
  bind 127.0.0.1:{port}
  http-reuse always
  server one 127.0.0.1:{behind}
"""


class Figure(NamedTuple):
    """The result of one run of a load; `requests` are all that the server answered in it."""

    rate: float
    p99_us: float
    requests: int


class Row(NamedTuple):
    """One case on one stack."""

    rate: float
    p99_us: float
    cpu_us: float
    shared: int
    accepted: int


class Bench:
    """Starts servers and loads on a stack, in one folder."""

    def __init__(self, options, folder):
        self.options, self.folder = options, Path(folder)
        self.bypass = options.release / "bypass"

    def words(self, profile, core, words, user=None):
        """The command line of a program on a core, with a profile, or on the kernel for None."""
        become = ["setpriv", "--reuid", user, "--regid", user, "--init-groups"] if user else []
        run = [self.bypass, "run", "-p", profile, "--"] if profile else []
        return [str(word) for word in ("taskset", "-c", core, *become, *run, *words)]

    @contextmanager
    def server(self, profile, core, port, words, user=None):
        """A server that listens on `port` as long as the block lasts."""
        command = self.words(profile, core, words, user)
        log = self.folder / f"{port}.log"
        with open(log, "wb") as said:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, cwd=self.folder,
                                       env={**os.environ, **SHARE}, start_new_session=True)
        try:
            self._await(port, process, log)
            yield process
        finally:
            process.terminate()
            process.wait()

    @staticmethod
    def _await(port, process, log):
        until = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        sys.exit(f"services.py: {process.args[3:9]} does not listen: {log.read_text(errors='replace')[-300:]}")

    def load(self, profile, words, **options):
        """What a load on core 1 prints."""
        done = subprocess.run(self.words(profile, 1, words), capture_output=True, text=True, cwd=self.folder,
                              env={**os.environ, **SHARE}, timeout=120, check=False, **options)
        if done.returncode:
            sys.exit(f"services.py: {words[0]} ended with {done.returncode}: {(done.stderr or done.stdout)[-300:]}")
        return done.stdout

    def generator(self, profile, words):
        """A run of wirespeed-load with 50 connections."""
        result = self.folder / "load.json"
        release = self.options.release / "wirespeed-load"
        self.load(profile, [release, "-t1", "-c50", f"-d{self.options.seconds}s", "--warmup", "200ms", "--json", result,
                            *words])
        found = json.loads(result.read_text())
        totals = found["totals"]
        if totals["lost"] or totals["non_2xx"]:
            sys.exit(f"services.py: {totals['lost']} requests lost, {totals['non_2xx']} answers of another status")
        p99_ns = found["latency"]["service"]["quantiles"]["0.99"] or 0
        return Figure(found["rps"], p99_ns / 1000, totals["completed"] + totals["warmup_completed"])

    def nginx(self, profile, core, port, behind=9, tls=""):
        """nginx with one worker."""
        config = self.folder / f"{port}.conf"
        config.write_text(NGINX.format(folder=self.folder, port=port, behind=behind, body="x" * 1024,
                                       tls=tls.format(folder=self.folder)))
        program = shutil.which("nginx") or "/usr/sbin/nginx"
        return self.server(profile, core, port, [program, "-c", config, "-e", self.folder / "error.log"])

    def measured(self, server, load):
        """One run of a load, with what it cost the server."""
        cpu, (shared, accepted) = cpu_s(server.pid), self._accepted(server.pid)
        figure = load()
        cpu = cpu_s(server.pid) - cpu
        shared_now, accepted_now = self._accepted(server.pid)
        return Row(figure.rate, figure.p99_us, cpu / max(figure.requests, 1) * 1e6, shared_now - shared, accepted_now - accepted)

    def _accepted(self, pid):
        """Connections that a server's processes have accepted: in shared memory, and in all."""
        own = tree(pid)
        said = subprocess.run([self.bypass, "stat", "--json"], stdout=subprocess.PIPE, check=False).stdout
        processes = json.loads(said or b"{}").get("processes", [])
        counters = [process["counters"] for process in processes if process["pid"] in own and not process["has_ended"]]
        shared, kernel = (sum(one[name] for one in counters) for name in ("accepts_shm", "accepts_kernel"))
        return shared, shared + kernel


def tree(root):
    """The numbers of a process and of all that come from it."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found, new = set(), {root}
    while new:
        found |= new
        new = {pid for pid, parent in parents.items() if parent in found} - found
    return found


def cpu_s(root):
    """CPU time of a process and of all that come from it, processes that have ended included."""
    ticks = 0
    for pid in tree(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile: its time is its parent's
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def of_nginx(stack):
    """The profiles of nginx and of its load."""
    if stack == "kernel":
        return None, None
    return f"nginx-{stack}", "wrk" if stack == "performance" else PROFILES[stack]


def redis(bench, stack):
    """GET of one key, by Redis's own load."""
    profile, port = PROFILES.get(stack), port_that_is_free()
    words = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", bench.folder]
    benchmark = ["redis-benchmark", "-p", port, "--csv", "-t"]
    with bench.server(profile, 0, port, words) as server:
        bench.load(None, [*benchmark, "set", "-n", 10])
        for connections in (1, 50):
            for pipeline in (1, 16):
                def load(requests):
                    said = bench.load(profile, [*benchmark, "get", "-c", connections, "-P", pipeline, "-n", requests])
                    fields = said.strip().splitlines()[-1].replace('"', "").split(",")
                    return Figure(float(fields[1]), float(fields[6]) * 1000, requests)

                requests = max(TRIAL, int(load(TRIAL).rate * bench.options.seconds))
                name = f"Redis GET, {connections} connection{'s' * (connections > 1)}, pipeline {pipeline}"
                yield name, bench.measured(server, lambda: load(requests))


def memcached(bench, stack):
    """get of one key of 100 B."""
    profile, port = PROFILES.get(stack), port_that_is_free()
    words = ["memcached", "-u", "root", "-l", "127.0.0.1", "-p", port, "-U", "0", "-t", "1"]
    head, end = b"VALUE key 0 %d\r\n" % len(PAYLOAD), b"\r\nEND\r\n"
    with bench.server(profile, 0, port, words) as server:
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"set key 0 0 %d\r\n%s\r\n" % (len(PAYLOAD), PAYLOAD))
            if connection.recv(100) != b"STORED\r\n":
                sys.exit("services.py: memcached has not stored the key")
        size = len(head) + len(PAYLOAD) + len(end)
        words = ["--body", "get key\r\n", "--reply-size", size, f"tcp://127.0.0.1:{port}"]
        yield "memcached get, 50 connections", bench.measured(server, lambda: bench.generator(profile, words))


def programs_of_postgresql():
    """The folder of the newest PostgreSQL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    return found[-1] if found else sys.exit("services.py: PostgreSQL is not installed")


def prepare_postgresql(bench):
    """A cluster with pgbench's tables; its folder."""
    data, programs = bench.folder / "data", programs_of_postgresql()
    if not data.exists():
        data.mkdir()
        shutil.chown(data, "postgres", "postgres")
        initdb = [programs / "initdb", "-D", data, "-A", "trust"]
        subprocess.run(bench.words(None, 0, initdb, "postgres"), check=True, stdout=subprocess.DEVNULL, cwd=data)
    return data


def postgresql(bench, stack):
    """Selects of one row, over TCP."""
    profile, port, data = PROFILES.get(stack), port_that_is_free(), prepare_postgresql(bench)
    words = [programs_of_postgresql() / "postgres", "-D", data, "-p", port, "-k", data, "-c", "listen_addresses=127.0.0.1"]
    where = ["-h", "127.0.0.1", "-p", port, "-U", "postgres", "postgres"]
    with bench.server(profile, 0, port, words, "postgres") as server:
        if not (bench.folder / "filled").exists():
            bench.load(None, ["pgbench", "-q", "-i", *where])
            (bench.folder / "filled").touch()
        for clients in (1, 8, 32):
            def load():
                for old in bench.folder.glob("transactions.*"):
                    old.unlink()
                said = bench.load(profile, [
                    "pgbench", "-n", "-S", "-M", "prepared", "-c", clients, "-T", bench.options.seconds, "-l",
                    "--sampling-rate=0.2", "--log-prefix=transactions", *where])
                rate = re.search(r"tps = ([\d.]+)", said)
                lines = [line for log in bench.folder.glob("transactions.*") for line in log.read_text().splitlines()]
                times = sorted(int(line.split()[2]) for line in lines)
                done = int(re.search(r"actually processed: (\d+)", said)[1])
                # Without a transaction in the window pgbench prints no rate.
                return Figure(float(rate[1]) if rate else 0, times[len(times) * 99 // 100] if times else 0, done)

            yield f"PostgreSQL, pgbench -S, {clients} client{'s' * (clients > 1)}", bench.measured(server, load)


def tls(bench, stack):
    """nginx over TLS, keep-alive."""
    if not (bench.folder / "key.pem").exists():
        request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                   "-keyout", bench.folder / "key.pem", "-out", bench.folder / "crt.pem"]
        subprocess.run(request, check=True, capture_output=True)
    (profile, client), port = of_nginx(stack), port_that_is_free()
    with bench.nginx(profile, 0, port, tls=TLS) as server:
        address = [f"https://127.0.0.1:{port}/"]
        yield "nginx, TLS 1.3, 1 KiB", bench.measured(server, lambda: bench.generator(client, address))


def behind(stack):
    """The profile of what a proxy asks, and of its load, which share a core."""
    return None if stack == "kernel" else PROFILES["balanced"]


def application(bench, stack):
    """load → nginx → Node."""
    inner, port, client = port_that_is_free(), port_that_is_free(), behind(stack)
    node = bench.server(client, 1, inner, ["node", "-e", NODE.format(port=inner)])
    with node, bench.nginx(of_nginx(stack)[0], 0, port, inner) as server:
        address = [f"http://127.0.0.1:{port}/application"]
        yield "nginx before Node, 1 KiB", bench.measured(server, lambda: bench.generator(client, address))


def haproxy(bench, stack):
    """load → HAProxy → nginx."""
    inner, port, client = port_that_is_free(), port_that_is_free(), behind(stack)
    config = bench.folder / "haproxy.cfg"
    config.write_text(HAPROXY.format(port=port, behind=inner))
    program = shutil.which("haproxy") or "/usr/sbin/haproxy"
    nginx = bench.nginx(client and of_nginx("balanced")[0], 1, inner)
    with nginx, bench.server(PROFILES.get(stack), 0, port, [program, "-db", "-f", config]) as server:
        address = [f"http://127.0.0.1:{port}/"]
        yield "HAProxy before nginx, 1 KiB", bench.measured(server, lambda: bench.generator(client, address))


SERVICES = {"redis": redis, "memcached": memcached, "postgresql": postgresql, "tls": tls, "application": application,
            "haproxy": haproxy}


def round_of(bench, name, stacks, distance):
    """One service on each stack: case → stack → row, with where the cores were meanwhile."""
    rows, places = defaultdict(dict), defaultdict(set)
    for stack in stacks:
        for case, row in SERVICES[name](bench, stack):
            if stack != "kernel" and not row.shared:
                sys.exit(f"services.py: {case}, {stack}: no connection was in shared memory (bypass stat --why)")
            rows[case][stack] = row
            places[case].add(distance.now())
    return {f"{case}, {places[case].pop() if len(places[case]) == 1 else 'moved'}": found for case, found in rows.items()}


def number(value):
    """Three digits, as far as there are."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(rounds, stack):
    """The median of the rounds' own ratios to the kernel, and their range."""
    ratios = [one[stack].rate / one["kernel"].rate for one in rounds]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def show(figures):
    """The table."""
    ours = STACKS[1:]
    titles = ["case", *(f"{stack} /s" for stack in STACKS), *(f"{stack} ×" for stack in ours),
              "server CPU µs, " + " / ".join(STACKS), "p99 µs, " + " / ".join(STACKS), "in shared memory"]
    print(f"\n| {' | '.join(titles)} |\n|{'---|' * len(titles)}")
    for case, rounds in figures.items():
        def medians(field):
            return [number(statistics.median(getattr(one[stack], field) for one in rounds)) for stack in STACKS]

        least = min((one[stack] for one in rounds for stack in ours), key=lambda row: row.shared / row.accepted)
        cells = [case, *medians("rate"), *(ratio(rounds, stack) for stack in ours), " / ".join(medians("cpu_us")),
                 " / ".join(medians("p99_us")), f"{least.shared} of {least.accepted}"]
        print(f"| {' | '.join(cells)} |")


def read_options():
    """The command line; bad names and missing builds end with 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("services", nargs="*", metavar="SERVICE", help=f"{', '.join(SERVICES)} [all]")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=1, help="length of a window")
    parser.add_argument("--release", type=Path, default=ROOT / "target" / "release", help="folder of the build to measure")
    options = parser.parse_args()
    unknown = [name for name in options.services if name not in SERVICES]
    if unknown:
        parser.error(f"{unknown[0]!r}: unknown service (there are {', '.join(SERVICES)})")
    for program in ("bypass", "wirespeed-load"):
        if not (options.release / program).exists():
            parser.error(f"no {program} in {options.release}: run ./wirespeed build bypass load")
    options.release = options.release.resolve()
    return options


def main():
    """Every service in rounds; the stacks of a round in turning order."""
    options = read_options()
    figures = defaultdict(list)
    with kernel_unpaced() as control, tempfile.TemporaryDirectory(prefix="bypass-services-") as folder:
        Path(folder).chmod(0o755)
        print(f"idle states {hold_idle_states()}, {options.rounds} rounds of {options.seconds} s, "
              f"kernel {os.uname().release}, {control}")
        bench, distance = Bench(options, folder), Distance(folder)
        for number_of_round in range(options.rounds):
            turn = number_of_round % len(STACKS)
            for name in options.services or SERVICES:
                for case, rows in round_of(bench, name, STACKS[turn:] + STACKS[:turn], distance).items():
                    figures[list(SERVICES).index(name), case].append(rows)
    show({case: rounds for (_, case), rounds in sorted(figures.items(), key=lambda item: item[0][0])})


if __name__ == "__main__":
    main()
