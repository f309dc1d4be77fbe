#!/usr/bin/env python3
"""Counts the instructions that bypass's TCP engine and its device need for a request, and compares them with
tests/instructions.toml.

callgrind counts them in `bypass/shard/examples/ceiling`: two ends in one thread and in virtual time, so that the count
depends on the program alone, and not on the machine or its load.

    tests/instructions.py             fails where a count differs by more than 3 %: after an improvement, too
    tests/instructions.py --record    writes what was counted into tests/instructions.toml

Another compiler or libc makes other code: counts are then compared with 25 %. On another kind of machine they are
not compared.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ROOT / "tests" / "instructions.toml"
CARGO = ["cargo", "build", "--release", "--locked", "-q", "-p", "bypass-shard", "--example", "ceiling"]
PROGRAM = ROOT / "target" / "release" / "examples" / "ceiling"
#: Largest difference, as a part: with the compiler and libc of the record, and with others.
SAME_CODE, OTHER_CODE = 0.03, 0.25
#: What is counted: the case, how many requests or segments, and the function whose instructions count.
COUNTED = {
    "response of 0 B, server": ("0", 20_000, "serve_round"),
    "response of 1 KiB, server": ("1024", 20_000, "serve_round"),
    "response of 0 B on one connection, server": ("one", 20_000, "serve_round"),
    "full segment, sender": ("bulk", 20_000, "serve_round"),
    "full segment, receiver": ("bulk", 20_000, "ask_round"),
    "segment of a GSO segment, sender": ("gso", 100_000, "serve_round"),
}
HEADER = """\
# Instructions of bypass's TCP engine and its device for one request or segment, as callgrind counts them.
# Written by `tests/instructions.py --record`; the step `instructions` of ./test compares.
"""


def compiler():
    """Its version, the kind of machine that it compiles for, and the libc, whose copies are counted too."""
    said = subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    facts = dict(line.split(": ", 1) for line in said.splitlines()[1:])
    return f"{said.splitlines()[0]}, {facts['host']}, {' '.join(platform.libc_ver())}"


def allowed(recorded, counted):
    """How much counts of these compilers may differ; None where they do not compare."""
    if recorded == counted:
        return SAME_CODE
    machine, own = (version.split(", ")[1].split("-")[0] for version in (recorded, counted))
    return OTHER_CODE if machine == own else None


def count(case, units, function):
    """Instructions for each unit inside a function and what it calls."""
    # libc's copies differ by processor: all get the plain one.
    plain = "glibc.cpu.hwcaps=-AVX512F,-AVX2,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM"
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out",
                               f"--toggle-collect=*{function}*", PROGRAM, case, str(units)],
                              capture_output=True, text=True, env={**os.environ, "GLIBC_TUNABLES": plain})
    collected = re.search(r"Collected : (\d+)", done.stderr)
    if done.returncode or not collected or not int(collected[1]):
        sys.exit(f"instructions: callgrind counted nothing in {PROGRAM.name} {case}: {done.stderr[-2000:]}")
    return round(int(collected[1]) / units)


def difference(found, known):
    return found / known - 1


def complaints(found, recorded, limit):
    """A line for each count that differs too much, is not recorded or no longer counted."""
    lines = []
    for name in {**recorded, **found}:
        if name not in found or name not in recorded:
            lines.append(f"{name}: counted {found.get(name)}, recorded {recorded.get(name)}")
        elif abs(found[name] - recorded[name]) > limit * recorded[name]:
            lines.append(f"{name}: {difference(found[name], recorded[name]):+.1%} (at most {limit:.0%})")
    return lines


def written(version, found):
    rows = [f'"{name}" = {number}\n' for name, number in found.items()]
    return f'{HEADER}compiler = "{version}"\n\n[instructions]\n{"".join(rows)}'


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="keep what is counted now")
    options = parser.parse_args()
    if subprocess.run(CARGO, cwd=ROOT).returncode:
        sys.exit("instructions: the program to count does not compile")
    with ThreadPoolExecutor(2) as pool:
        found = dict(zip(COUNTED, pool.map(lambda counted: count(*counted), COUNTED.values())))
    version = compiler()
    if options.record:
        RECORDED.write_text(written(version, found))
    known = tomllib.loads(RECORDED.read_text())
    for name, number in found.items():
        before = known["instructions"].get(name)
        print(f"{name:40} {number:7,}" + (f"  {difference(number, before):+.1%}" if before else ""))
    limit = allowed(known["compiler"], version)
    if limit is None:
        print(f"not compared, recorded on another kind of machine: {known['compiler']}, counted with {version}")
        return 0
    if known["compiler"] != version:
        print(f"compared with {limit:.0%}: recorded with {known['compiler']}, counted with {version}")
    wrong = complaints(found, known["instructions"], limit)
    for line in wrong:
        print(f"instructions: {line}")
    if wrong:
        print("instructions: undo what made it slower, or record the new count (tests/instructions.py --record)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
