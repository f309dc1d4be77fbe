#!/usr/bin/env python3
"""Runs benchmarks of bench/pages.toml and keeps their output, with command, machine, date and commit.

    bench/record.py [RESULT ...]     all of them, one after the other, if none is named

The output goes to bench/results/DATE-MACHINE/RESULT.txt; `bench/pages.py` makes docs/performance from
such files. Nothing is recorded from a tree with changes, since the commit has to name what was measured,
nor, where anything is timed, while other programs use the machine. Standard library only.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from pages import RESULTS, ROOT, described

QUIET_S = 3.0
#: Busy share of all cores before the command above which nothing is recorded.
BUSY_MAX = 0.05


def main(arguments):
    sections = {section["result"]: section for page in described() for section in page["section"]}
    parser = argparse.ArgumentParser(prog="bench/record.py")
    parser.add_argument("results", nargs="*", metavar="RESULT", help=", ".join(sections))
    chosen = parser.parse_args(arguments).results or list(sections)
    for name in chosen:
        if name not in sections:
            return refuse(f"{name!r}: unknown result (bench/pages.toml has {', '.join(sections)})")
    if git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench", ":!docs"):
        return refuse("the tree has changes, so no commit names what would be measured (commit them)")
    return max(record(name, sections[name]) for name in chosen)


def record(name, section):
    """Runs one benchmark and writes its file; returns an exit status."""
    command = shlex.split(section["command"])
    busy = busy_share() if section.get("is_timed", True) else 0
    if busy > BUSY_MAX:
        return refuse(f"{name}: other programs use {busy:.0%} of the machine (end them, or wait)")
    started = datetime.now(UTC)
    print(f"── {name}: {shlex.join(command)}", file=sys.stderr)
    output, code = run(command)
    if code:
        print(f"record: {name}: {command[0]} exited with status {code} (nothing is recorded)", file=sys.stderr)
        return 1
    path = RESULTS / f"{started:%Y-%m-%d}-{short_name(cpu_model())}" / f"{name}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{key}: {value}\n" for key, value in facts(command, started)) + "\n" + output)
    return 0


def refuse(message):
    print(f"record: {message}", file=sys.stderr)
    return 2


def run(command):
    """The standard output of `command`, which is also shown, and its exit code."""
    lines = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip() + "\n")
    return "".join(lines), process.returncode


def facts(command, started):
    """The facts that make a figure comparable: (key, value) in the order of the file."""
    return [
        ("command", shlex.join(command)),
        ("machine", f"{os.cpu_count()}-core guest, {cpu_model()}, Linux {os.uname().release.split('-')[0]}"),
        ("date", f"{started:%Y-%m-%d}"),
        ("commit", git("rev-parse", "--short=7", "HEAD")),
        ("seconds", f"{(datetime.now(UTC) - started).total_seconds():.0f}"),
    ]


def git(*arguments):
    return subprocess.run(["git", *arguments], cwd=ROOT, text=True, check=True, capture_output=True).stdout.strip()


def cpu_model():
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    return found[1].strip() if found else "unknown processor"


def short_name(model):
    """The word of a processor name that distinguishes machines: "AMD EPYC 7B13" is `epyc`."""
    known = re.search(r"EPYC|Xeon|Ryzen|Core|Neoverse", model)
    return known[0].lower() if known else re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")


def busy_share():
    """The share of all cores that was in use during some seconds without any work of ours."""
    before = cpu_times()
    time.sleep(QUIET_S)
    busy, whole = (after - earlier for after, earlier in zip(cpu_times(), before))
    return busy / whole if whole else 0.0


def cpu_times():
    """(busy, whole) in clock ticks since boot; time that a hypervisor took counts as busy."""
    fields = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, sum(fields)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
