#!/usr/bin/env python3
"""nginx with one worker and with one on every core over a veth pair, each with a generator on its core.

    ./wirespeed build bypass               once; needs root, nginx and wrk
    bypass/bench/workers.py                kernel and balanced, 5 rounds of 2 s: about a minute
    bypass/bench/workers.py --reuseport    each worker with a listening socket of its own
    bypass/bench/workers.py --queues       an interface with a queue, and so an engine, for each worker
    bypass/bench/workers.py --queues --steered    and what a core's wrk sends comes by the queue of the worker there (XPS)

A pair is a worker and a wrk that share a core, so each core is saturated with one pair as with more, and the
ratio is the gain from a second core. wrk is on the kernel. Prints requests per second and, for each stack, the
ratio of all pairs to one within the rounds; a connection on the kernel ends the bench. With `--queues` it
prints how many workers had connections through their own engine.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from connections import serving
from packets import ADDRESS, BYPASS, LIBRARY, NGINX, PORT, Link, counters, idle_states_held

STACKS = {"kernel": None, "balanced": "nginx-balanced"}
CORES = os.cpu_count() or 1


def configuration(folder, workers, reuseport):
    """nginx's, with worker N on core N."""
    masks = " ".join(format(1 << core, "b").zfill(CORES) for core in range(workers))
    text = NGINX.format(folder=folder, port=PORT, multi="off")
    text = text.replace("worker_processes 1;", f"worker_processes {workers}; worker_cpu_affinity {masks};")
    return text.replace("backlog=16384", "backlog=16384 reuseport") if reuseport else text


def measure(link, stack, folder, workers, options):
    """Requests per second of all pairs together."""
    (folder / "nginx.conf").write_text(configuration(folder, workers, options.reuseport))
    with serving(link, STACKS[stack], folder, f"0-{workers - 1}") as process:
        before = counters(link, process.pid)
        words = ["wrk", "-t1", f"-c{options.connections}", f"-d{options.seconds}s", f"http://{ADDRESS}:{PORT}/0"]
        runs = [subprocess.Popen(link.inside(0, core, *words), stdout=subprocess.PIPE, text=True)
                for core in range(workers)]
        said = [run.communicate(timeout=options.seconds + 30)[0] for run in runs]
        rates = [re.search(r"Requests/sec:\s+([\d.]+)", text) for text in said]
        if not all(rates) or any("Socket errors" in text or "Non-2xx" in text for text in said):
            sys.exit(f"workers.py: wrk failed: {said}")
        after = counters(link, process.pid)
        options.engines[stack, workers] = engines(process.pid)
        if STACKS[stack] and after["accepts_kernel"] > before["accepts_kernel"]:
            sys.exit(f"workers.py: connections were the kernel's: {before}, {after}")
        return sum(float(rate[1]) for rate in rates)


def engines(master):
    """How many workers have accepted connections by an engine of their own."""
    said = [subprocess.run([BYPASS, "stat", "--json", child], capture_output=True, text=True, check=False).stdout
            for child in Path(f"/proc/{master}/task/{master}/children").read_text().split()]
    return sum(bool(re.search(r'"accepts_engine": ?[1-9]', one)) for one in said)


def steer(link):
    """What a core sends comes by the queue of its number: what is sent by queue N comes by queue N - 1."""
    for core in range(CORES):
        line = f"echo {1 << core:x} >/sys/class/net/va/queues/tx-{core + 1}/xps_cpus"
        subprocess.run(link.inside(0, 0, "sh", "-c", line), check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--connections", type=int, default=50, help="of each pair")
    parser.add_argument("--reuseport", action="store_true")
    parser.add_argument("--queues", action="store_true")
    parser.add_argument("--steered", action="store_true")
    options = parser.parse_args()
    options.engines = {}
    if os.geteuid() != 0 or not (BYPASS.exists() and LIBRARY.exists()):
        sys.exit("root is needed, and a build: ./wirespeed build bypass")
    if CORES < 2:
        sys.exit("one core: there is nothing to compare")
    if options.steered and not options.queues:
        sys.exit("--steered is for --queues")
    figures = {(stack, workers): [] for stack in STACKS for workers in (1, CORES)}
    with ExitStack() as stack:
        stack.enter_context(idle_states_held())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="workers-")))
        os.chmod(folder, 0o755)
        (folder / "logs").mkdir()
        link = stack.enter_context(Link(1500, CORES, 1) if options.queues else Link(1500))
        if options.steered:
            steer(link)
        for _ in range(options.rounds):
            for (name, workers), found in figures.items():
                found.append(measure(link, name, folder, workers, options))
    print(f"kernel with {link.control}")
    if options.queues:
        for (name, workers), count in options.engines.items():
            print(f"{name}, {workers} pairs: {count} workers had an engine")
    for name in STACKS:
        one, all_of_them = figures[name, 1], figures[name, CORES]
        ratios = [many / single for single, many in zip(one, all_of_them)]
        print(f"{name:9} 1 pair {statistics.median(one):10,.0f}, {CORES} pairs {statistics.median(all_of_them):10,.0f} "
              f"requests/s: {statistics.median(ratios):.2f} × ({min(ratios):.2f}–{max(ratios):.2f})")


if __name__ == "__main__":
    main()
