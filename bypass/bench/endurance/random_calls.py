#!/usr/bin/env python3
"""Calls on sockets in random orders, on the kernel and accelerated: every result must be the same.

    python3 random_calls.py --library target/release/libbypass_preload.so [--seeds 1-2000] [--mode both]

Runs bypass/preload/tests/programs/random_calls.c, whose two processes take turns. A seed whose output differs runs
again, three times on each side; if no accelerated run is like one of the kernel's, steps are left out as long as the
difference stays, and the steps that are left are printed with what the kernel says (-) and what is said here (+).
Ends with status 1 if a seed differs. A seed takes 0.1 to 0.2 s on each side. Standard library only.
"""

import argparse
import difflib
import os
import re
import socket
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROGRAM = Path(__file__).resolve().parents[2] / "preload" / "tests" / "programs" / "random_calls.c"
ROLES = ("server", "client")
SEEDS_OF_RUN = 10
SECONDS_MAX = 60
PATIENCE_S = 3
AGAIN = 3
STEPS = 80
SPINNING = {"EF_POLL_USEC": "300", "EF_TCP_ACCEPT_SPIN": "1", "EF_TCP_CONNECT_SPIN": "1"}


class Runner:
    """Runs the program with its two roles, on the kernel or accelerated."""

    def __init__(self, program, library, mode):
        self.program, self.library, self.mode = program, Path(library).resolve(), mode

    def environment(self, role, accelerated, seeds, skipped):
        own = {name: value for name, value in os.environ.items() if not name.startswith(("EF_", "LD_PRELOAD"))}
        own |= {"LC_ALL": "C", "RANDOM_SEEDS": seeds, "RANDOM_PATIENCE": str(PATIENCE_S),
                "RANDOM_SKIP": ",".join(map(str, sorted(skipped)))}
        if accelerated and self.mode in ("both", "spinning", role):
            own["LD_PRELOAD"] = str(self.library)
            own |= SPINNING if self.mode == "spinning" else {}
        return own

    def run(self, accelerated, first, last, skipped=frozenset()):
        """The output of both roles, by seed."""
        channels, started, output = socket.socketpair(), [], {}
        for role, channel in zip(ROLES, channels, strict=True):
            environment = self.environment(role, accelerated, f"{first}-{last}", skipped)
            log = tempfile.TemporaryFile()
            process = subprocess.Popen([self.program, role], stdin=channel, stdout=log, stderr=log, env=environment,
                                       start_new_session=True)
            channel.close()
            started.append((role, process, log))
        for role, process, log in started:
            code = wait(process)
            log.seek(0)
            add(output, role, log.read().decode("utf-8", "replace"), code, last)
            log.close()
        return {seed: "".join(f"{role}: {line}\n" for role in ROLES for line in lines.get(role, ["nothing"]))
                for seed, lines in output.items()}


def wait(process):
    """The exit code; a process that hangs is killed."""
    try:
        return process.wait(SECONDS_MAX)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return "hangs"


def add(output, role, text, code, last):
    """Notes the lines of each seed; the end of a process belongs to the last seed that it has begun."""
    seed = last
    for line in text.splitlines():
        begun = re.fullmatch(r"seed (\d+)", line)
        seed = int(begun.group(1)) if begun else seed
        output.setdefault(seed, {}).setdefault(role, []).append(line)
    if code != 0:
        output.setdefault(seed, {}).setdefault(role, []).append(f"ends with {code}")


def differs(runner, seed, skipped=frozenset(), again=AGAIN):
    """The outputs of the kernel and of an accelerated run, if no accelerated one is like one of the kernel's."""
    kernel, ours = set(), set()
    for _ in range(again):
        kernel.add(runner.run(False, seed, seed, skipped).get(seed, ""))
        ours.add(runner.run(True, seed, seed, skipped).get(seed, ""))
        if kernel & ours:
            return None
    return min(kernel), min(ours)


def shrink(runner, seed):
    """The steps that can be left out, from the last to the first, while the difference stays."""
    skipped, size = set(), STEPS // 2
    while size:
        for end in range(STEPS, 0, -size):
            some = set(range(max(0, end - size), end)) - skipped
            if some and differs(runner, seed, skipped | some, 1):
                skipped |= some
        size //= 2
    return skipped


def report(runner, seed):
    """The differing lines of a seed, with as few steps as needed; None if it does not differ again."""
    if not differs(runner, seed):
        return None
    skipped = shrink(runner, seed)
    found = differs(runner, seed, skipped) or ("", "it differs with all its steps only\n")
    left = ",".join(str(step) for step in range(STEPS) if step not in skipped)
    lines = difflib.unified_diff(*(text.splitlines() for text in found), lineterm="", n=STEPS)
    return f"== seed {seed}, steps {left}\n" + "\n".join(list(lines)[3:]) + "\n"


def compare(runner, first, last):
    """The reports of some seeds."""
    kernel, ours = runner.run(False, first, last), runner.run(True, first, last)
    suspects = [seed for seed in range(first, last + 1) if kernel.get(seed) != ours.get(seed)]
    return [text for seed in suspects if (text := report(runner, seed))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, type=Path, help="libbypass_preload.so")
    parser.add_argument("--seeds", default="1-2000", metavar="FIRST-LAST")
    parser.add_argument("--mode", default="both", choices=("both", *ROLES, "spinning"), help="which ends are accelerated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="pairs of processes at once")
    options = parser.parse_args()
    seeds = re.fullmatch(r"(\d+)-(\d+)", options.seeds)
    if not seeds or not options.library.exists():
        parser.error("--seeds is FIRST-LAST, and --library a file: ./wirespeed build bypass")
    first, last = map(int, seeds.groups())
    with tempfile.TemporaryDirectory(prefix="random-calls-") as folder:
        program = Path(folder) / "random_calls"
        subprocess.run(["cc", "-D_GNU_SOURCE", "-O1", "-w", "-pthread", "-o", program, PROGRAM], check=True)
        runner = Runner(program, options.library, options.mode)
        with ThreadPoolExecutor(options.jobs) as pool:
            parts = [pool.submit(compare, runner, at, min(last, at + SEEDS_OF_RUN - 1))
                     for at in range(first, last + 1, SEEDS_OF_RUN)]
            found = 0
            for part in parts:
                for text in part.result():
                    found += 1
                    print(text, flush=True)
    print(f"{last - first + 1} seeds of {STEPS} steps, {options.mode}: {found} differ")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())
