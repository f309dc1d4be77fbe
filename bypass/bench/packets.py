#!/usr/bin/env python3
"""nginx over a veth pair: the kernel's TCP against TCP in the program, A B A B in one run.

Two namespaces, nginx (one worker) in one on core 0, wrk in the other on core 1. Prints requests per second of every
round, medians and ratios to the kernel, and the number of connections over packets: a connection on the kernel
makes its round an error. All processes that it starts end with it.

    ./wirespeed build bypass                        once; needs root, nginx and wrk
    bypass/bench/packets.py                         1 KB, keep-alive, MTU 1500, 5 rounds of 2 s: about 40 s
    bypass/bench/packets.py --size 0 100 10000      several sizes, each a table
    bypass/bench/packets.py --close                 one connection per request; with --multi-accept too
    bypass/bench/packets.py --latency --connections 1   wirespeed-load in place of wrk: p50 and p99.9 too
    bypass/bench/packets.py --rps                   each server a second time, with each end's receiving on its own core
    bypass/bench/packets.py --rate 20000 kernel sleeping   open loop: CPU of the server per request
    bypass/bench/packets.py --mtu 9000 --size 100000
    bypass/bench/packets.py kernel performance both --connections 1
    ./wirespeed build http-server && bypass/bench/packets.py --program netty-nio --size 128 kernel performance both
                                                    each server is warmed up until its JVM stops compiling
    bypass/bench/packets.py responder-kernel native generic    the engine without preloading:
                                                    cargo build --release -p bypass-shard --example http

kernel       nginx and wrk on the kernel          balanced, performance   nginx over packets, with that profile
both         nginx with performance and wrk with the profile --client, both over packets; --program chooses other servers
sleeping     nginx over packets without a profile: it does not spin
performance-other, both-other    the same with another build: --other FOLDER, which has its bypass and libbypass_preload.so
`responder-kernel`, `native`, `busy-poll`, `generic`, `trains`    a minimal HTTP responder, on the kernel and on a shard

Over veth the sender's core does the receiver's work up to its socket. With --rps (rps_cpus) the core of each end does it,
as behind a network card, at the price of an interrupt between the cores; rows of this kind end with `rps`, and compare with
each other. --rate prints the CPU time of the server's processes, and the time in which its core was not idle, which
includes receiving. A server that spins is never idle.
"""

import argparse
import json
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

from figures import Distance

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "target" / "release"
BYPASS, LIBRARY, RESPONDER = RELEASE / "bypass", RELEASE / "libbypass_preload.so", RELEASE / "examples" / "http"
GENERATOR = RELEASE / "wirespeed-load"
RESPONDERS = {
    "responder-kernel": ["kernel"],
    "native": ["serve", "--interface", "vb"],
    "busy-poll": ["serve", "--interface", "vb", "--busy-poll", "20"],
    "generic": ["serve", "--interface", "vb", "--generic"],
    "trains": ["serve", "--interface", "vb", "--gso"],
}
PROFILES = {"balanced": "balanced", "performance": "performance", "both": "performance", "sleeping": None}
OTHER = "-other"
PROFILES |= {name + OTHER: profile for name, profile in PROFILES.items()}
PROGRAMS = {"nginx": "nginx", "netty-nio": "nettyio", "netty-epoll": "nettyio"}
JAR = ROOT / "servers" / "http-server" / "target" / "http-server.jar"
#: Other threads of a server than the busiest may have so much of a core while it is measured.
QUIET = 0.05
SERVERS = ["kernel", *PROFILES, *RESPONDERS]
ADDRESS, PORT = "10.77.0.2", 8080
SERVER_CORE, CLIENT_CORE = 0, 1
RPS = " rps"
NGINX = """\
worker_processes 1; daemon off; user root; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 20000; accept_mutex off; multi_accept {multi}; }}
http {{
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000000; keepalive_timeout 600s;
    open_file_cache max=100; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{ listen {port} backlog=16384; root {folder}; location = /0 {{ return 200; }} }}
}}
"""


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def unpaced(namespace):
    """Gives the kernel's TCP of a namespace CUBIC, or Reno where a namespace may not have CUBIC; returns its name. A
    host's BBR holds each segment back by a timer, with which the kernel has a fifth of its long responses here."""
    control = "/proc/sys/net/ipv4/tcp_congestion_control"
    line = f"echo cubic >{control} || echo reno >{control}; cat {control}"
    said = subprocess.run(["ip", "netns", "exec", namespace, "sh", "-c", line], check=True, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return said.stdout.strip()


class Link:
    """Two namespaces joined by va and vb; gone at the end, however it comes."""

    def __init__(self, mtu, queues=1, spare=0):
        """`spare`: further queues by which va sends. In generic mode what is sent by queue N comes by queue N - 1,
        so one of them lets every queue of vb receive."""
        self.names = [f"packets-{side}-{os.getpid()}" for side in "ab"]
        self.mtu, self.queues, self.spare = mtu, queues, spare

    def __enter__(self):
        a, b = self.names
        try:
            for name in self.names:
                run("ip", "netns", "add", name)
            queues = ["numrxqueues", str(self.queues), "numtxqueues", str(self.queues)]
            sending = [*queues[:3], str(self.queues + self.spare)]
            run("ip", "-n", a, "link", "add", "va", *sending, "type", "veth", "peer", "name", "vb", *queues, "netns", b)
            for name, end, host in ((a, "va", 1), (b, "vb", 2)):
                run("ip", "-n", name, "link", "set", end, "mtu", str(self.mtu), "up")
                run("ip", "-n", name, "link", "set", "lo", "up")
                run("ip", "-n", name, "addr", "add", f"10.77.0.{host}/24", "dev", end)
                self.control = unpaced(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)

    def receive_at_own_cores(self):
        """Each end's core does what the kernel does for frames that come to it; else the sender's core does."""
        for name, end, core in ((self.names[0], "va", CLIENT_CORE), (self.names[1], "vb", SERVER_CORE)):
            line = f"echo {1 << core:x} >/sys/class/net/{end}/queues/rx-0/rps_cpus"
            run("ip", "netns", "exec", name, "sh", "-c", line)

    def inside(self, side, core, *words):
        return ["ip", "netns", "exec", self.names[side], "taskset", "-c", str(core), *map(str, words)]


@contextmanager
def idle_states_held():
    """Waking a halted core takes longer than a request: off for every server alike."""
    try:
        with open("/dev/cpu_dma_latency", "wb", buffering=0) as hold:
            hold.write(b"\0\0\0\0")
            yield
    except OSError as error:
        print(f"idle states are not held off ({error}): few connections look slow on the kernel")
        yield


@contextmanager
def started(command):
    """A process with a session of its own; all of it ends with the block."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True)
        try:
            yield process, said
        finally:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                    process.wait(5)
                    break
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass


def accelerated(server, profile, interface, options):
    bypass = options.other / "bypass" if server.endswith(OTHER) else BYPASS
    return [bypass, "run", *(["-p", profile] if profile else []), "--interface", interface, "--"]


def command_of(server, folder, options):
    if server in RESPONDERS:
        return [RESPONDER, *RESPONDERS[server], "--port", PORT, "--size", options.now, "--spin", options.spin]
    if options.program == "nginx":
        command = ["nginx", "-p", folder, "-c", folder / "nginx.conf"]
    else:
        command = [options.java, *jvm_options(), "-jar", JAR, "--host", ADDRESS, "--port", PORT, "--threads", 1,
                   "--payload", options.now, "--transport", options.program.removeprefix("netty-")]
    if server == "kernel":
        return command
    profile = PROFILES[server] and f"{PROGRAMS[options.program]}-{PROFILES[server]}"
    return [*accelerated(server, profile, "vb", options), *command]


def jvm_options():
    """Options for every Java."""
    lines = (JAR.parents[1] / "jvm.options").read_text().splitlines()
    return [line for line in lines if line.startswith("-")]


def answers(link):
    ask = link.inside(0, 1, "curl", "-s", "-o", "/dev/null", "-m", "2", f"http://{ADDRESS}:{PORT}/0")
    return subprocess.run(ask, check=False).returncode == 0


def counters(link, group):
    """Connections that the processes of a session accepted over packets and from the kernel, and frames that they took too late."""
    text = subprocess.run(link.inside(1, 1, BYPASS, "stat", "--json"), capture_output=True, text=True, check=True).stdout
    total = {"accepts_packets": 0, "accepts_kernel": 0, "frames_lost_in": 0}
    for entry in re.split(r'(?="pid":)', text)[1:]:
        try:
            if os.getpgid(int(re.match(r'"pid":(\d+)', entry)[1])) != group:
                continue
        except ProcessLookupError:
            continue
        for name in total:
            found = re.search(rf'"{name}":(\d+)', entry)
            total[name] += int(found[1]) if found else 0
    return total


def cpu_ns(group):
    """Nanoseconds of CPU of each thread of a session's processes."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.getpgid(int(pid)) == group:
                for task in os.listdir(f"/proc/{pid}/task"):
                    found[task] = int(Path(f"/proc/{pid}/task/{task}/schedstat").read_text().split()[0])
        except OSError:
            continue  # it has ended
    return found


def core_ns(core):
    """Nanoseconds in which a core was not idle."""
    ticks = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith(f"cpu{core} ")).split()[1:]
    user, nice, system, _, _, irq, softirq = map(int, ticks[:7])
    return (user + nice + system + irq + softirq) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def other_threads_s(before, after):
    """Seconds of CPU that all threads but the busiest used between two samples: a JVM's compilers, which run on the
    server's core too."""
    spent = sorted(now - before.get(task, 0) for task, now in after.items())
    return sum(spent[:-1]) / 1e9


def warm_up(load, group, options):
    """Repeats the window until the server's other threads are quiet in it. One long run does not warm a JVM up: the
    first connections that end and return make it discard compiled code, and compile again on the server's core."""
    deadline = time.monotonic() + options.warmup
    while time.monotonic() < deadline:
        before = cpu_ns(group)
        subprocess.run(load, stdout=subprocess.DEVNULL, timeout=options.seconds + 30, check=True)
        if other_threads_s(before, cpu_ns(group)) < QUIET * options.seconds:
            break


def load_of(options, folder):
    """The generator's command; with --latency and --rate one that writes percentiles."""
    load = [GENERATOR, "--json", folder / "json"] if options.latency else ["wrk"]
    if options.rate:
        load += ["--rate", options.rate]
    load += ["-t1", f"-c{options.connections}", f"-d{options.seconds}s"]
    if options.close:
        load += ["-H", "Connection: close"]
    return [*load, f"http://{ADDRESS}:{PORT}/{options.now}"]


def read(done, folder, options):
    """Requests per second, and with --latency p50 and p99.9 in microseconds; nothing if it failed."""
    if options.latency:
        result = json.loads((folder / "json").read_text()) if done.returncode == 0 else None
        if result is None or result["errors"]["total"]:
            return None
        latency = result["latency"]["service"]["quantiles"]
        # The generator withholds a percentile that too few requests show.
        p50, p999 = (latency[name] / 1000 if latency[name] else math.nan for name in ("0.5", "0.999"))
        return [result["rps"], p50, p999]
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    return [float(rate[1])] if rate and done.returncode == 0 else None


def measure(link, server, folder, options):
    """The figures of one round with a fresh server."""
    with started(link.inside(1, SERVER_CORE, *command_of(server, folder, options))) as (process, said):
        deadline = time.monotonic() + 15
        # The first connections may be faster than nginx's first wait: these stay on the kernel.
        while not (answers(link) and (server not in PROFILES or counters(link, process.pid)["accepts_packets"])):
            if process.poll() is not None or time.monotonic() > deadline:
                said.seek(0)
                sys.exit(f"{server} does not answer over its path: {said.read() or 'it says nothing'}")
            time.sleep(0.1)
        load = load_of(options, folder)
        if server.removesuffix(OTHER) == "both":
            load = [*accelerated(server, options.client, "va", options), *load]
        if options.warmup:
            warm_up(link.inside(0, CLIENT_CORE, *load), process.pid, options)
        before, spent, busy = counters(link, process.pid), cpu_ns(process.pid), core_ns(SERVER_CORE)
        done = subprocess.run(link.inside(0, CLIENT_CORE, *load), capture_output=True, text=True, timeout=options.seconds + 30)
        busy, now = core_ns(SERVER_CORE) - busy, cpu_ns(process.pid)
        after, others = counters(link, process.pid), other_threads_s(spent, now)
        if others >= QUIET * options.seconds:
            print(f"  {server}: its other threads had {others / options.seconds:.0%} of a core in this round")
        found = read(done, folder, options)
        if not found:
            sys.exit(f"{server}: {load[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")
        if options.rate:
            own = sum(now.values()) - sum(spent.values())
            found += [ns / 1000 / (found[0] * options.seconds) for ns in (own, busy)]
        if wrong := re.search(r"(Non-2xx.*|Socket errors: .*)", done.stdout):
            print(f"  {server}: {wrong[1]}")
        if server in PROFILES:
            packets, kernel = (after[name] - before[name] for name in ("accepts_packets", "accepts_kernel"))
            if kernel or packets < options.connections:
                said.seek(0)
                sys.exit(f"{server}: {packets} connections over packets, {kernel} over the kernel: no figure; {said.read()}")
        return found


def table(options, folder):
    """All rounds of one size, those with near and with far cores (figures.py) apart."""
    distance, rounds = Distance(folder), defaultdict(list)
    for _ in range(options.rounds):
        before, found = distance.now(), {}
        for server, way in product(dict.fromkeys(options.servers), ["", RPS] if options.rps else [""]):
            # A link of its own: what the kernel keeps of one round's connections (TIME_WAIT) must not burden the next.
            with Link(options.mtu) as link:
                if way:
                    link.receive_at_own_cores()
                found[server + way] = measure(link, server, folder, options)
        rounds[before if distance.now() == before else "moved"].append(found)
    print(f"{options.program}, {options.now} B, {options.connections} connections, MTU {options.mtu}"
          f"{', one connection per request' if options.close else ''}"
          f"{', multi_accept' if options.multi_accept else ''}"
          f"{f', {options.rate} requests/s' if options.rate else ''}, {options.rounds} rounds of {options.seconds} s, "
          f"kernel with {link.control}")
    for where, group in rounds.items():
        print(f"cores {where}, {len(group)} of {options.rounds} rounds")
        show(group, options)


def columns(options):
    """Units of what `measure` finds."""
    latency = ["µs p50", "µs p99.9"] if options.latency else []
    return ["requests/s", *latency, *(["µs of the server", "µs of its core"] if options.rate else [])]


def show(rounds, options):
    """Medians, and those of each round's ratio to the first server."""
    for column, unit in enumerate(columns(options)):
        for server in rounds[0]:
            first = options.servers[0] + (RPS if server.endswith(RPS) else "")
            found = [of[server][column] for of in rounds]
            ratios = [of[server][column] / of[first][column] for of in rounds]
            ratio = "" if server == first else (f"  {statistics.median(ratios):.2f} × {first}"
                                                f" ({min(ratios):.2f}–{max(ratios):.2f})")
            print(f"{server:16} {statistics.median(found):10,.{1 if column else 0}f} {unit}"
                  f"  ({min(found):,.0f}–{max(found):,.0f}){ratio}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("servers", nargs="*", default=["kernel", "balanced", "performance"],
                        help="the first is what the others are compared with")
    parser.add_argument("--program", choices=PROGRAMS, default="nginx")
    parser.add_argument("--java", default="java")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--warmup", type=int,
                        help="most seconds before each window, less once a JVM is quiet: 40 with one, else none")
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--size", type=int, nargs="+", default=[1024], help="bytes of a response's body")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--spin", type=int, default=1_000_000, help="of the responders, in microseconds")
    parser.add_argument("--client", default="wrk", help="profile of an accelerated wrk; wrk-profile pauses between polls")
    parser.add_argument("--close", action="store_true", help="one connection per request")
    parser.add_argument("--latency", action="store_true", help="wirespeed-load in place of wrk, with p50 and p99.9")
    parser.add_argument("--rps", action="store_true", help="a second time with each end's receiving on its own core")
    parser.add_argument("--rate", type=int, help="requests per second, open loop (--latency), with CPU time per request")
    parser.add_argument("--other", type=Path, help="folder of another build, for servers that end in -other")
    parser.add_argument("--multi-accept", action="store_true", help="nginx takes all connections that wait at once")
    options = parser.parse_args()
    if unknown := set(options.servers) - set(SERVERS):
        parser.error(f"no such server: {', '.join(sorted(unknown))}")
    if any(server.endswith(OTHER) for server in options.servers) and not options.other:
        parser.error("--other FOLDER names the other build")
    options.servers = options.servers or ["kernel", "balanced", "performance"]
    options.latency |= options.rate is not None
    is_java = options.program != "nginx"
    options.warmup = (40 if is_java else 0) if options.warmup is None else options.warmup
    tools = ("ip", "wrk", "curl", "taskset", options.java if is_java else "nginx")
    needed = [tool for tool in tools if not shutil.which(tool)]
    needed += [str(JAR.relative_to(ROOT))] if is_java and not JAR.exists() else []
    needed += [str(path.relative_to(ROOT)) for path in (BYPASS, LIBRARY, *([GENERATOR] if options.latency else [])) if not path.exists()]
    if set(options.servers) & set(RESPONDERS) and not RESPONDER.exists():
        needed.append(str(RESPONDER.relative_to(ROOT)))
    if needed:
        sys.exit(f"missing: {', '.join(needed)} (packets.py --help)")
    if os.geteuid() != 0:
        sys.exit("root is needed: namespaces and AF_XDP")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as stack:
        stack.enter_context(idle_states_held())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="packets-")))
        os.chmod(folder, 0o755)
        (folder / "logs").mkdir()
        multi = "on" if options.multi_accept else "off"
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=PORT, multi=multi))
        for size in options.size:
            options.now = size
            if size:
                (folder / str(size)).write_bytes(b"x" * size)
            table(options, folder)


if __name__ == "__main__":
    main()
