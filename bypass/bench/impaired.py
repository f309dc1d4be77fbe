#!/usr/bin/env python3
"""Bulk transfers over a link with loss and delay, and in parallel with a flow of Linux: TCP in the program against Linux's.

Three namespaces: a, b, and between them forward.c with a rate, a queue, a delay and seeded loss. Stacks alternate
under the same conditions, all with real-time priority: an acknowledgment that waits for a core would be delay on
the link. Digests compare every byte, the kernel's counters prove that the kernel did not carry a flow,
and a frame that the machine lost outside the link ends the round. Standard library only.

    ./wirespeed build bypass              once; needs root, cc, ip, ethtool and chrt
    bypass/bench/impaired.py bulk         loss 0, 0.1, 1, 5 % and round trips of 1, 20, 100 ms: 12 cells
    bypass/bench/impaired.py bulk --loss 1 --rtt 20 --rounds 5
    bypass/bench/impaired.py fairness     one flow of bypass in parallel with one of Linux on a link of 100 Mb/s

bulk      goodput of Linux to Linux, bypass to Linux, and Linux to bypass, with --flows parallel flows
          (their sum is steadier than one); half of the round trip and all of the loss in each direction
fairness  share of the bytes of one of two flows that start together; Linux against Linux as a check
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

from packets import BYPASS, LIBRARY, ROOT, run, started

HERE = Path(__file__).resolve().parent
TRANSFER = [sys.executable, HERE / "transfer.py"]
# Kernel and program wait equally little for a core that others use too.
REALTIME = ["chrt", "--rr", "1"]
PORT = 7070
MBIT = 1_000_000


class Ends:
    """Namespaces a, b and the link between them; gone at the end."""

    def __init__(self):
        self.names = {side: f"impaired-{side}-{os.getpid()}" for side in "alb"}

    def __enter__(self):
        try:
            for name in self.names.values():
                run("ip", "netns", "add", name)
                run("ip", "-n", name, "link", "set", "lo", "up")
            for number, side in ((1, "a"), (2, "b")):
                self._join(number, side)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _join(self, number, side):
        own, link = self.names[side], self.names["l"]
        run("ip", "-n", own, "link", "add", "e0", "type", "veth", "peer", "name", f"to-{side}", "netns", link)
        for name, end in ((own, "e0"), (link, f"to-{side}")):
            # A frame on the link is one that a wire would carry, with its checksum.
            offloads = [word for kind in ("tso", "gso", "gro", "tx") for word in (kind, "off")]
            run("ip", "netns", "exec", name, "ethtool", "-K", end, *offloads)
            run("ip", "-n", name, "link", "set", "dev", end, "txqueuelen", "10000", "up")
        run("ip", "-n", own, "addr", "add", f"10.78.0.{number}/24", "dev", "e0")
        # Asked for over a link with loss, a neighbour would count as delay.
        run("ip", "-n", own, "link", "set", "e0", "address", f"02:00:00:00:00:0{number}")
        other = 3 - number
        run("ip", "-n", own, "neigh", "add", f"10.78.0.{other}", "lladdr", f"02:00:00:00:00:0{other}",
            "dev", "e0", "nud", "permanent")

    def __exit__(self, *_):
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)

    def inside(self, side, words):
        return ["ip", "netns", "exec", self.names[side], *map(str, words)]

    def kernel_connections(self, side):
        """Connections that the kernel has opened or taken in a namespace so far."""
        shown = subprocess.run(self.inside(side, ["cat", "/proc/net/snmp"]), capture_output=True, text=True, check=True)
        names, values = [line.split() for line in shown.stdout.splitlines() if line.startswith("Tcp:")]
        tcp = dict(zip(names, values))
        return int(tcp["ActiveOpens"]) + int(tcp["PassiveOpens"])


@contextmanager
def forwarding(link, program, **conditions):
    """The link carries frames as long as the block lasts; answers what it counted."""
    words = [*REALTIME, program, "to-a", "to-b", *(f"{name}={value}" for name, value in conditions.items())]
    process = subprocess.Popen(link.inside("l", words), stdout=subprocess.PIPE, text=True)
    counted = {}
    try:
        if process.stdout.readline() != "ready\n":
            sys.exit("impaired.py: the link did not start")
        yield counted
        process.terminate()
        counted["ends"] = json.loads(process.communicate(timeout=10)[0])
    finally:
        process.kill()
        process.wait()


class Bench:
    """Transfers over one link."""

    def __init__(self, options, folder, link):
        self.options, self.link = options, link
        self.forward = folder / "forward"
        subprocess.run(["cc", "-O2", "-o", self.forward, HERE / "forward.c"], check=True)

    def end(self, side, stack, words):
        """A command of transfer.py on a side; "kernel" or "packets"."""
        profile = ["-p", self.options.profile] if self.options.profile else []
        launch = [BYPASS, "run", *profile, "--interface", "e0", "--"] if stack == "packets" else []
        return started(self.link.inside(side, [*REALTIME, *launch, *TRANSFER, *words]))

    @contextmanager
    def receiver(self, stack, port, flows, skip, seconds):
        with self.end("b", stack, ["receive", port, flows, skip, seconds]) as (process, said):
            wait_for(lambda: "ready" in text_of(said), process, said, 20)
            # The interface is taken as soon as the receiver waits.
            time.sleep(0.5 if stack == "packets" else 0)
            yield process, said

    def transfer(self, pairs, flows, skip, seconds):
        """Runs one pair of (sender's, receiver's) stack on each port, together; bytes counted of each pair."""
        opened = {side: self.link.kernel_connections(side) for side in "ab"}
        length = skip + seconds + 0.5
        with ExitStack() as stack:
            ports = range(PORT, PORT + len(pairs))
            receivers = [stack.enter_context(self.receiver(pair[1], port, flows, skip, seconds))
                         for pair, port in zip(pairs, ports)]
            senders = []
            for (sender, _), port in zip(pairs, ports):
                control = [self.options.control] if sender == "kernel" else []
                words = ["send", "10.78.0.2", port, flows, length, *control]
                senders.append(stack.enter_context(self.end("a", sender, words)))
            for process, said in [*senders, *receivers]:
                wait_for(lambda: process.poll() is not None, process, said, length + 120)
            counted = [compared(result(*sender), result(*receiver)) for sender, receiver in zip(senders, receivers)]
        for side, place in (("a", 0), ("b", 1)):
            expected = sum(flows for pair in pairs if pair[place] == "kernel")
            found = self.link.kernel_connections(side) - opened[side]
            if found != expected:
                raise Disturbed(f"{found} connections of {side} were the kernel's, not {expected}")
        return counted


class Disturbed(Exception):
    """A round that says nothing about what it compares."""


def text_of(said):
    """What a process has said so far; its place in the file is shared, and stays."""
    return os.pread(said.fileno(), 1 << 16, 0).decode()


def wait_for(holds, process, said, seconds):
    """Until something holds; a process that failed ends the bench."""
    deadline = time.monotonic() + seconds
    while not holds():
        if process.poll() or time.monotonic() > deadline:
            sys.exit(f"impaired.py: {process.args[-6:]} ended with {process.poll()}: {text_of(said)}")
        time.sleep(0.02)


def result(process, said):
    text = text_of(said)
    if process.returncode:
        sys.exit(f"impaired.py: {process.args[-6:]} ended with {process.returncode}: {text}")
    return json.loads(text.splitlines()[-1])


def compared(sent, received):
    """Bytes that came in the window, when every flow arrived as it was sent."""
    for one, other in zip(sent, received):
        if one is None or other is None or (one["bytes"], one["digest"]) != (other["bytes"], other["digest"]):
            sys.exit(f"impaired.py: sent {one}, received {other}")
    return sum(flow["counted"] for flow in received)


def attempt(bench, pairs, flows, skip, seconds, conditions):
    """One round, repeated after noise of the machine; bytes of each pair and the link's counts."""
    for _ in range(4):
        try:
            with forwarding(bench.link, bench.forward, **conditions) as counted:
                found = bench.transfer(pairs, flows, skip, seconds)
            ends = counted["ends"]
            if any(end["missed"] or end["too_long"] for end in ends):
                raise Disturbed(f"the link missed frames: {ends}")
            return found, ends
        except Disturbed as why:
            print(f"  again: {why}", flush=True)
    sys.exit("impaired.py: four rounds were noisy")


def bulk(bench):
    options = bench.options
    pairs = {"Linux to Linux": ("kernel", "kernel"), "to Linux": ("packets", "kernel"), "from Linux": ("kernel", "packets")}
    print(f"{options.flows} flows, {options.rate} Mb/s, queue of {options.queue} frames, {options.seconds} s, "
          f"{options.rounds} rounds, {options.control}; Mb/s, and ratios of the sums of all rounds")
    print("| loss | round trip | Linux to Linux | to Linux | | from Linux | | latest frame |\n|---|---|---:|---:|---|---:|---|---:|")
    for loss in options.loss:
        for rtt in options.rtt:
            figures, late = {name: [] for name in pairs}, 0
            for number in range(options.rounds):
                conditions = {"loss": loss / 100, "delay_us": int(rtt * 500), "rate_bps": options.rate * MBIT,
                              "queue": options.queue, "seed": options.seed + number}
                for name, pair in pairs.items():
                    (found,), ends = attempt(bench, [pair], options.flows, 0, options.seconds, conditions)
                    figures[name].append(found * 8 / options.seconds / MBIT)
                    late = max(late, *(end["late_us"] for end in ends))
            sums = {name: sum(found) for name, found in figures.items()}
            base = sums["Linux to Linux"]
            shown = "".join(f" {sums[name] / options.rounds:.2f} | {'**' * (sums[name] < 0.8 * base)}"
                            f"{sums[name] / base:.2f}{'**' * (sums[name] < 0.8 * base)} |" for name in list(pairs)[1:])
            print(f"| {loss} % | {rtt} ms | {base / options.rounds:.2f} |{shown} {late / 1000:.1f} ms |", flush=True)


def fairness(bench):
    options = bench.options
    cells = {"Linux against Linux": "kernel", "packets against Linux": "packets"}
    queue = max(options.queue_of_fairness, 10)
    print(f"100 Mb/s, round trip {options.rtt_of_fairness} ms, queue of {queue} frames, {options.seconds_of_fairness} s "
          f"after {options.skip} s, {options.rounds} rounds, {options.control}")
    figures = {name: [] for name in cells}
    for number in range(options.rounds):
        conditions = {"loss": 0, "delay_us": int(options.rtt_of_fairness * 500), "rate_bps": 100 * MBIT,
                      "queue": queue, "seed": options.seed + number}
        for name, stack in cells.items():
            pairs = [(stack, "kernel"), ("kernel", "kernel")]
            pairs = pairs[::-1] if number % 2 else pairs
            found, _ = attempt(bench, pairs, 1, options.skip, options.seconds_of_fairness, conditions)
            first = found[number % 2]
            figures[name].append(first / sum(found))
            print(f"  {name}: {figures[name][-1]:.3f} of {sum(found) * 8 / options.seconds_of_fairness / MBIT:.1f} Mb/s", flush=True)
    for name, found in figures.items():
        print(f"{name}: share {statistics.mean(found):.2f} ({min(found):.2f}–{max(found):.2f})")


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="+", choices=["bulk", "fairness"])
    parser.add_argument("--loss", type=float, nargs="+", default=[0, 0.1, 1, 5], help="percent")
    parser.add_argument("--rtt", type=float, nargs="+", default=[1, 20, 100], help="milliseconds")
    parser.add_argument("--rate", type=int, default=200, help="Mb/s of the link in bulk; 0 for no limit")
    parser.add_argument("--queue", type=int, default=1000, help="frames that wait for the rate in bulk")
    parser.add_argument("--flows", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--control", default="cubic", help="the kernel's congestion control")
    parser.add_argument("--profile", help="of the accelerated ends; without one they sleep and do not spin")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rtt-of-fairness", type=float, default=20)
    parser.add_argument("--queue-of-fairness", type=int, default=170, help="frames; 170 is one round trip of 20 ms")
    parser.add_argument("--seconds-of-fairness", type=float, default=20)
    parser.add_argument("--skip", type=float, default=5)
    return parser.parse_args()


def main():
    options = read_options()
    needed = [tool for tool in ("ip", "ethtool", "cc", "chrt") if not shutil.which(tool)]
    needed += [str(path.relative_to(ROOT)) for path in (BYPASS, LIBRARY) if not path.exists()]
    if needed:
        sys.exit(f"missing: {', '.join(needed)} (impaired.py --help)")
    if os.geteuid() != 0:
        sys.exit("root is needed: namespaces and AF_XDP")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="impaired-") as folder, Ends() as link:
        bench = Bench(options, Path(folder), link)
        for cell in options.cells:
            {"bulk": bulk, "fairness": fairness}[cell](bench)


if __name__ == "__main__":
    main()
