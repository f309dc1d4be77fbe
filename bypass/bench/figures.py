#!/usr/bin/env python3
"""Pairs, proxy, round trip, half acceleration, profiles and Netty: kernel and accelerated interleaved, as ratios.

    bypass/bench/figures.py CELL... [--rounds 5] [--seconds 1] [--java PATH] [--other RELEASE]

Cells: `pairs` (server and generator share a core: one pair, then one on every core), `proxy` (nginx or
gateway-netty between generator and origin), `roundtrip` (one connection, p50), `half` (one end
preloaded, the other on the kernel), `profiles` (balanced against performance at load), `netty-nio`, `netty-epoll`. Servers run on core 0, the generator on
core 1, idle states held off. Prints Markdown with the medians of all rounds, those in which the two cores shared a cache
(near) and those in which they did not (far) apart. `nginx.sh` has the plain
nginx cells. Standard library only; needs nginx, wrk and the release build.
"""

import argparse
import json
import os
import pwd
import re
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OTHER = "-other"
BODY = "x" * 1024
WEB = """
worker_processes 1; daemon off; pid {folder}/{port}.pid; error_log {folder}/error.log crit;
events {{ worker_connections 4096; accept_mutex off; }}
http {{
  access_log off; keepalive_requests 1000000000;
  upstream origin {{ server 127.0.0.1:{origin}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    location = /0 {{ return 200 ""; }}
    root {folder};
    location = /1024 {{ default_type text/plain; return 200 "{body}"; }}
    location /proxied {{ proxy_pass http://origin/1024; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""


class Distance:
    """Whether cores 0 and 1 share a cache ("near") or not ("far"). A hypervisor may move a guest's cores at any time, which
    changes the ratio of kernel and bypass by a factor of several, so the results are kept separate."""

    NEAR_NS = 120

    def __init__(self, folder):
        self.program = Path(folder, "distance")
        subprocess.run(["cc", "-O2", "-pthread", "-o", self.program, Path(__file__).with_name("distance.c")], check=True)

    def now(self):
        """`near` or `far`."""
        found = subprocess.run([self.program, "0", "1"], check=True, capture_output=True, text=True)
        return "near" if int(found.stdout) < self.NEAR_NS else "far"


def port_that_is_free():
    """A port without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def await_listener(port, process):
    """Returns when `port` answers; ends the bench when the server has ended."""
    for _ in range(600):
        if process.poll() is not None:
            sys.exit(f"figures.py: {process.args[:8]} ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    sys.exit(f"figures.py: nothing listens on port {port} after 30 s")


class Bench:
    """Starts servers and generators on a stack: None is the kernel, else the name of a profile, with the build of
    `--other` where it ends in OTHER."""

    def __init__(self, options, folder):
        self.options, self.folder = options, folder

    def builds(self, *profiles):
        """Each profile with the build to measure and, where one is given, with the other."""
        endings = ("", OTHER) if self.options.other else ("",)
        return [profile + ending for profile, ending in product(profiles, endings)]

    def command(self, stack, core, words):
        """The command line that runs `words` on `core` over `stack`."""
        return ["taskset", "-c", str(core), *self.launcher(stack), *map(str, words)]

    def launcher(self, stack):
        """The words before a program that run it over `stack`."""
        if stack is None:
            return []
        release = self.options.other if stack.endswith(OTHER) else self.options.release
        return [str(release / "bypass"), "run", "-p", stack.removesuffix(OTHER), "--"]

    @contextmanager
    def server(self, stack, core, port, words):
        """A server that listens on `port` as long as the block lasts."""
        # A proxy's worker is not root: the origin that root started must allow it.
        environment = {**os.environ, "EF_SHARE_WITH": str(pwd.getpwnam("nobody").pw_uid)}
        process = subprocess.Popen(self.command(stack, core, words), stdout=subprocess.DEVNULL, env=environment)
        try:
            await_listener(port, process)
            time.sleep(0.2)
            yield port
        finally:
            process.terminate()
            process.wait()

    def nginx(self, stack, core, origin=9):
        """nginx with one worker; /proxied goes to `origin`."""
        port = port_that_is_free()
        config = Path(self.folder, f"{port}.conf")
        config.write_text(WEB.format(folder=self.folder, port=port, origin=origin, body=BODY))
        words = [shutil.which("nginx") or "/usr/sbin/nginx", "-c", config, "-e", f"{self.folder}/error.log"]
        return self.server(stack and f"nginx-{stack}", core, port, words)

    def java(self, stack, core, jar, arguments):
        """One of our Java servers; `{port}` in its arguments is its port."""
        port = port_that_is_free()
        flags = ["-Xms256m", "-Xmx256m", "-XX:+UseSerialGC"]
        arguments = [str(word).format(port=port) for word in arguments]
        words = [self.options.java, *flags, "-jar", ROOT / "servers" / jar / "target" / f"{jar}.jar", *arguments]
        return self.server(stack and f"nettyio-{stack}", core, port, words)

    def wrk(self, stack, core, port, path, connections=50, seconds=None):
        """A running wrk; `requests_per_second` waits for it."""
        seconds = seconds or self.options.seconds
        words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", f"http://127.0.0.1:{port}/{path}"]
        return subprocess.Popen(self.command(stack, core, words), stdout=subprocess.PIPE, text=True)


def requests_per_second(wrk):
    """The rate that a run of wrk prints; a run with errors ends the bench."""
    out = wrk.communicate()[0]
    if "Socket errors" in out or "Non-2xx" in out or "Requests/sec" not in out:
        sys.exit(f"figures.py: wrk failed:\n{out}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", out)[1])


def client_profile(stack):
    """The generator's profile: it spins if it has a core of its own, and not if it shares one; same build as the server."""
    return stack and stack.replace("performance", "wrk").replace("balanced", "nginx-balanced")


def pairs(bench):
    """nginx and wrk on one core: one pair, and one on every core. The balanced profile on both ends."""
    for stack in (None, *bench.builds("balanced")):
        for cores in (1, os.cpu_count()):
            with ExitStack() as servers:
                ports = [servers.enter_context(bench.nginx(stack, core)) for core in range(cores)]
                runs = [bench.wrk(client_profile(stack), core, port, "0") for core, port in enumerate(ports)]
                yield f"{cores} pair{'s' * (cores > 1)}, 0 KB", stack, sum(map(requests_per_second, runs))


def proxy(bench):
    """generator → proxy → nginx; generator and origin share core 1, the proxy has core 0."""
    for stack in (None, *bench.builds(*bench.options.profiles)):
        shared = stack and stack.replace("performance", "balanced")
        with bench.nginx(shared, 1) as origin:
            with bench.nginx(stack, 0, origin) as port:
                run = bench.wrk(client_profile(shared), 1, port, "proxied")
                yield "nginx proxy, 1 KiB", stack, requests_per_second(run)
            gateway = ["--listen", "127.0.0.1:{port}", "--origin", f"127.0.0.1:{origin}", "--threads", "1"]
            with bench.java(stack, 0, "gateway-netty", gateway) as port:
                requests_per_second(bench.wrk(client_profile(shared), 1, port, "1024", seconds=bench.options.warmup))
                run = bench.wrk(client_profile(shared), 1, port, "1024")
                yield "gateway-netty, 1 KiB", stack, requests_per_second(run)


def roundtrip(bench):
    """One connection: the median response time in µs."""
    for stack in (None, *bench.builds(*bench.options.profiles)):
        with bench.nginx(stack, 0) as port:
            result = Path(bench.folder, "roundtrip.json")
            words = [ROOT / "target" / "release" / "wirespeed-load", "-t1", "-c1", f"-d{bench.options.seconds}s", "--json", result]
            command = bench.command(client_profile(stack), 1, [*words, f"http://127.0.0.1:{port}/0"])
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            quantiles = json.loads(result.read_text())["latency"]["service"]["quantiles"]
            yield "p50 of one connection, µs", stack, quantiles["0.5"] / 1000


def half(bench):
    """One end preloaded and the other not: traffic stays on the kernel."""
    builds = bench.builds("performance")
    ends = [("neither end", None, None), *(("server preloaded" + build.removeprefix("performance"), build, None) for build in builds),
            *(("client preloaded" + build.removeprefix("performance"), None, build) for build in builds)]
    for name, server, client in ends:
        with bench.nginx(server, 0) as port:
            for path in ("0", "1024"):
                run = bench.wrk(client_profile(client), 1, port, path)
                yield f"{len(BODY) if path != '0' else 0} B on the kernel", name, requests_per_second(run)


def profiles(bench):
    """The balanced profile against performance, where load keeps both sides from sleeping long."""
    files = {"0": "0 KB", "1024": "1 KB", "10k": "10 KB"}
    Path(bench.folder).chmod(0o755)
    Path(bench.folder, "10k").write_bytes(b"x" * 10240)
    for stack in bench.builds("performance", "balanced"):
        with bench.nginx(stack, 0) as port:
            # The documents' generator has its profile with each of the server's; then one that has the server's.
            generator = client_profile(stack.replace("balanced", "performance"))
            for client, both in ((generator, ""), (client_profile(stack), ", both ends")):
                for connections, (path, size) in product((50, 100), files.items()):
                    run = bench.wrk(client, 1, port, path, connections)
                    yield f"{size}, {connections} connections{both}", stack, requests_per_second(run)


def netty(bench, transport):
    """The Netty http-server with a payload of 128 B."""
    for stack in (None, *bench.builds(*bench.options.profiles)):
        arguments = ["--host", "127.0.0.1", "--port", "{port}", "--payload", 128, "--transport", transport, "--threads", 1]
        with bench.java(stack, 0, "http-server", arguments) as port:
            requests_per_second(bench.wrk(client_profile(stack), 1, port, "128", seconds=bench.options.warmup))
            yield f"Netty {transport}, 128 B", stack, requests_per_second(bench.wrk(client_profile(stack), 1, port, "128"))


CELLS = {"pairs": pairs, "proxy": proxy, "roundtrip": roundtrip, "half": half, "profiles": profiles,
         "netty-nio": lambda bench: netty(bench, "nio"), "netty-epoll": lambda bench: netty(bench, "epoll")}


def show(name, figures):
    """One Markdown table: medians, their ratio to the first stack's, and the median ratio of a round between two builds."""
    stacks = list(dict.fromkeys(stack for _, stack in figures))
    labels = [stack or "kernel" for stack in stacks]
    compared = [stack for stack in stacks if stack and stack + OTHER in stacks]
    titles = [*labels, *(f"{label} ×" for label in labels[1:]), *(f"{stack} : other" for stack in compared)]
    print(f"\n**{name}**\n\n| case | " + " | ".join(titles) + " |")
    print("|" + "---|" * (1 + len(titles)))
    for case in dict.fromkeys(case for case, _ in figures):
        if not all(figures[case, stack] for stack in stacks):
            print(f"| {case}: not of every stack |")
            continue
        medians = [statistics.median(figures[case, stack]) for stack in stacks]
        cells = [f"{median:,.0f}" if median >= 100 else f"{median:.1f}" for median in medians]
        ratios = [f"{median / medians[0]:.2f}" for median in medians[1:]]
        ratios += [spread(figures[case, stack], figures[case, stack + OTHER]) for stack in compared]
        print(f"| {case} | " + " | ".join(cells + ratios) + " |")


def spread(values, others):
    """The median of the rounds' own ratios, and their range."""
    ratios = [value / other for value, other in zip(values, others)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def show_scaling(figures):
    """The rate of all pairs together, as a multiple of one pair's."""
    for stack in dict.fromkeys(stack for _, stack in figures):
        of_stack = {case: values for (case, other), values in figures.items() if other == stack}
        one, many = ([value for case, values in of_stack.items() if case.startswith(f"{pairs} pair") for value in values]
                     for pairs in (1, os.cpu_count()))
        print(f"\nScaling of {stack or 'kernel'}: {statistics.median(many) / statistics.median(one):.2f}")


def hold_idle_states():
    """Keeps idle cores awake, for both stacks, until the process ends."""
    try:
        os.write(os.open("/dev/cpu_dma_latency", os.O_WRONLY), struct.pack("i", 0))
        return "held"
    except OSError:
        return "free"


@contextmanager
def kernel_unpaced():
    """Sets the kernel's TCP to CUBIC during the block, and restores it afterwards: BBR paces each segment
    by a timer, which costs the kernel two thirds of its throughput on a path without queues."""
    control = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    before = control.read_text().strip()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        control.write_text("cubic")
    except OSError:
        print(f"congestion control is {before}: root can set CUBIC")
    try:
        yield control.read_text().strip()
    finally:
        if control.read_text().strip() != before:
            control.write_text(before)


def read_options():
    """The command line; bad names and missing builds end with 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="+", choices=CELLS, metavar="CELL")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=1, help="length of a window (wrk: whole seconds)")
    parser.add_argument("--warmup", type=int, default=5, help="seconds for a JVM before its window")
    parser.add_argument("--profiles", nargs="+", default=["performance"], choices=["performance", "balanced"])
    parser.add_argument("--java", default="java")
    parser.add_argument("--release", type=Path, default=ROOT / "target" / "release", help="folder of the build to measure")
    parser.add_argument("--other", type=Path, metavar="RELEASE", help="folder of another build, to compare the two")
    options = parser.parse_args()
    for folder in (options.release, options.other):
        if folder and not (folder / "bypass").exists():
            parser.error(f"no bypass in {folder}: run ./wirespeed build bypass load")
    return options


def main():
    """Runs every cell in rounds and prints its table."""
    options = read_options()
    with kernel_unpaced() as control:
        print(f"idle states {hold_idle_states()}, {options.rounds} rounds of {options.seconds} s, "
              f"kernel {os.uname().release}, {control}")
        measure(options)


def measure(options):
    """One table per cell."""
    for name in options.cells:
        figures = defaultdict(list)
        with tempfile.TemporaryDirectory(prefix="bypass-figures-") as folder:
            distance = Distance(folder)
            for _ in range(options.rounds):
                for case, stack, value in CELLS[name](Bench(options, folder)):
                    figures[f"{case}, {distance.now()}", stack].append(value)
        show(name, figures)
        if name == "pairs":
            show_scaling(figures)


if __name__ == "__main__":
    main()
