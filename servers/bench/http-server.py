#!/usr/bin/env python3
"""http-server against nginx, one core each: A B C A B C … in one run, ratios to nginx.

All servers run from start to end, pinned to one core and idle unless they are measured, so that
each has its caches and compiled code; wrk runs on the other core. Prints requests/s, the server's
CPU time a request and its share of its core: where that is below 1, wrk is the limit and only the
CPU time compares.

  servers/bench/http-server.py nginx nio epoll io_uring nio@25 epoll+'-XX:+UseParallelGC'

A contender is nginx or a transport, with @25 for the second Java, with +FLAG for a further JVM flag.
"""

import argparse
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

SERVERS = Path(__file__).resolve().parents[1]
JAVA = {"17": "java", "25": os.environ.get("JAVA25", "/usr/lib/jvm/temurin-25-jdk-amd64/bin/java")}
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def jvm_flags(major):
    lines = (SERVERS / "http-server" / "jvm.options").read_text().splitlines()
    for line in (line.strip() for line in lines):
        least, _, rest = line.rpartition("+: ")
        if line and not line.startswith("#") and (not least or int(least) <= int(major)):
            yield rest if least else line


class Contender:
    def __init__(self, name, port, folder, core):
        self.name, self.port = name, port
        kind, *extra = name.split("+")
        transport, _, major = kind.partition("@")
        if transport == "nginx":
            configuration = Path(folder, f"nginx-{port}.conf")
            configuration.write_text(subprocess.check_output(
                [sys.executable, SERVERS / "bench" / "render", SERVERS / "nginx" / "nginx.conf",
                 f"port={port}", f"root={folder}", f"run.tmp={folder}"], text=True))
            command = ["nginx", "-c", str(configuration)]
        else:
            major = major or "17"
            command = [JAVA[major], *jvm_flags(major), *extra, "-jar",
                       SERVERS / "http-server" / "target" / "http-server.jar", "--port", str(port),
                       "--root", folder, "--transport", transport]
        self.process = subprocess.Popen(["taskset", "-c", str(core), *command],
                                        stdout=subprocess.DEVNULL)
        self.rps, self.cpu_us, self.user_share, self.share = [], [], [], []

    def wait(self, path):
        for _ in range(100):
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{path}").read()
            except OSError:
                time.sleep(0.1)
        sys.exit(f"{self.name} does not answer")

    def cpu_s(self):
        pids = [self.process.pid]
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            pids += [int(pid) for pid in (task / "children").read_text().split()]
        user = system = 0
        for pid in pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            user += int(fields[11])
            system += int(fields[12])
        return user * TICK_S, system * TICK_S

    def load(self, options, seconds, keep):
        before = self.cpu_s()
        text = subprocess.run(
            ["taskset", "-c", str(options.load_core), "wrk", "-t1", f"-c{options.connections}",
             f"-d{seconds}s", *options.wrk, f"http://127.0.0.1:{self.port}/{options.payload}"],
            capture_output=True, text=True, check=True).stdout
        user, system = (after - first for after, first in zip(self.cpu_s(), before))
        cpu = user + system
        count, taken = re.search(r"(\d+) requests in ([\d.]+)s", text).groups()
        bad = re.search(r"Non-2xx.*|Socket errors.*", text)
        if bad:
            print(f"{self.name}: {bad.group()}", file=sys.stderr)
        if keep:
            self.rps.append(int(count) / float(taken))
            self.cpu_us.append(cpu / int(count) * 1e6)
            self.user_share.append(user / cpu)
            self.share.append(cpu / float(taken))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contenders", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--payload", default="128")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
    parser.add_argument("--wrk", action="append", default=[], help="a further argument of wrk")
    options = parser.parse_args()
    # Idle states add microseconds to each wake-up and make rounds differ.
    latency = open("/dev/cpu_dma_latency", "wb", buffering=0)
    latency.write(b"\0\0\0\0")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        Path(folder, options.payload).write_bytes(b"x" * int(options.payload))
        contenders = [Contender(name, 18100 + i, folder, options.core)
                      for i, name in enumerate(options.contenders)]
        try:
            for contender in contenders:
                contender.wait(options.payload)
                contender.load(options, options.warmup, False)
            for _ in range(options.rounds):
                for contender in contenders:
                    contender.load(options, options.seconds, True)
        finally:
            for contender in contenders:
                contender.process.send_signal(signal.SIGTERM)
            for contender in contenders:
                contender.process.wait(10)
    report(contenders, options)


def report(contenders, options):
    base = contenders[0]
    print(f"{options.payload} B, {options.connections} connections, {options.rounds} rounds of "
          f"{options.seconds} s; ratios to {base.name}, round by round")
    print("| server | requests/s (median) | ratio | CPU µs/request | ratio | of it user "
          "| share of its core |")
    print("|---|---|---|---|---|---|---|")
    for each in contenders:
        rate = statistics.median(a / b for a, b in zip(each.rps, base.rps))
        cpu = statistics.median(a / b for a, b in zip(each.cpu_us, base.cpu_us))
        print(f"| {each.name} | {statistics.median(each.rps):,.0f} | {rate:.2f} "
              f"| {statistics.median(each.cpu_us):.2f} | {cpu:.2f} "
              f"| {statistics.median(each.user_share):.0%} "
              f"| {statistics.median(each.share):.2f} |")


main()
