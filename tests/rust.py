"""Runs the test programs of the Rust workspace in parallel; cargo alone runs one after the other.

They wait most of the time: for a limit, for a peer, for the end of a load. The output is cargo's.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CARGO = ["cargo", "test", "--workspace", "--locked"]
#: Not the examples: the step `lint` checks them, and only this one is run by a test.
PROGRAMS = ["--tests"]
EXAMPLE = ["cargo", "build", "--workspace", "--locked", "--example", "http"]
AT_ONCE = 4
#: Begun first, the longest at the front: none of them is to run alone at the end.
LONG = ("packets", "contract", "shards", "robust", "lua", "across", "linux", "links", "veth", "models")
#: Programs whose few tests wait for minutes: their tests run on this many threads, and not on one for each core.
WAITING = ("contract",)
WAITING_AT_ONCE = 4
#: Begun last, in parallel: they compare times, and wait for most of theirs.
LAST = ("lost", "honesty", "http2")
#: Of what a test printed before it failed, so much is quoted.
QUOTED_LINES, QUOTED_WIDTH = 30, 300
#: How cargo's own runner begins what a failed test printed.
SECTION = re.compile(r"^---- .* stdout ----$")
#: How bypass/testkit ends what a test printed.
RESULT = re.compile(r"^test \S+ \.\.\. ")


def programs():
    """Target, executable and folder of each, compiled; ends with cargo's exit code when that fails."""
    build = subprocess.run([*CARGO, *PROGRAMS, "--no-run", "--message-format=json-render-diagnostics"],
                           cwd=ROOT, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    example = subprocess.run(EXAMPLE, cwd=ROOT, stdin=subprocess.DEVNULL)
    if build.returncode or example.returncode:
        raise SystemExit(build.returncode or example.returncode)
    messages = map(json.loads, build.stdout.splitlines())
    made = [one for one in messages if one.get("executable") and one["profile"]["test"]]
    return [(one["target"]["name"], one["executable"], Path(one["manifest_path"]).parent)
            for one in made]


def run(program):
    """The heading that cargo prints with the program's output, and its exit code."""
    name, executable, folder = program
    threads = {"RUST_TEST_THREADS": str(WAITING_AT_ONCE)} if name in WAITING else {}
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:  # no pipe: what a test leaves behind would hold it open
        done = subprocess.run([executable], cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                              stderr=subprocess.STDOUT, env={**os.environ, **threads})
        output.seek(0)
        printed = output.read().decode(errors="replace")
    seconds = time.monotonic() - started
    return (f"     Running {folder.relative_to(ROOT)} ({executable})\n{printed}"
            f"     ended with {done.returncode} after {seconds:.1f} s\n"), done.returncode


def run_all(chosen, at_once):
    """Prints the output of each program as it ends; returns the output of the failed ones."""
    failed = []
    with ThreadPoolExecutor(at_once) as pool:
        running = [pool.submit(run, program) for program in chosen]
        for ended in as_completed(running):
            text, code = ended.result()
            print(text, flush=True)
            if code:
                failed.append(text)
    return failed


def excerpt(text):
    """What a failed program printed about each test that failed, and its end, when it died before its last test."""
    heading, _, printed = text.partition("\n")
    lines = without_backtraces(printed.splitlines())
    failures = in_sections(lines) or before_results(lines)
    if not any(line.startswith("test result: ") for line in lines):
        failures.append(lines)
    quoted = [line for failure in failures or [lines] for line in quotable(failure)]
    return "\n".join([heading, *(f"  {line}" for line in quoted)])  # not to be counted again


def without_backtraces(lines):
    """Most of their frames are of the test's runner, and would hide what the test said."""
    kept, is_frame = [], False
    for line in lines:
        is_frame = line == "stack backtrace:" or (is_frame and line.startswith("  "))
        if not is_frame:
            kept.append(line)
    return kept


def in_sections(lines):
    """Of cargo's own runner: the section of each test that failed."""
    found, section = [], []
    for line in [*lines, "failures:"]:
        if line == "failures:" or SECTION.match(line):
            found.append(section)
            section = []
        section.append(line)
    return [section for section in found if section and SECTION.match(section[0])]


def before_results(lines):
    """Of bypass/testkit: the lines between the result of a test that failed and the result before it."""
    found, since = [], []
    for line in lines:
        if RESULT.match(line):
            if line.endswith(" FAILED"):
                found.append([line, *since])
            since = []
        else:
            since.append(line)
    return found


def quotable(failure):
    """The first line and, of the others, those from the panic on or the last ones."""
    first, *rest = [line[:QUOTED_WIDTH] for line in failure if line.strip()] or [""]
    panics = [place for place, line in enumerate(rest) if " panicked at " in line]
    last = max(0, len(rest) - QUOTED_LINES)
    begin = min([*panics, last])
    return [first, *rest[begin:begin + QUOTED_LINES]]


def main():
    rank = {name: place for place, name in enumerate(LONG)}
    found = sorted(programs(), key=lambda program: rank.get(program[0], len(rank)))
    last = [program for program in found if program[0] in LAST]
    with tempfile.TemporaryFile() as output:
        # In parallel with the programs: rustdoc looks through each crate with one thread, for very few examples.
        documented = subprocess.Popen([*CARGO, "--doc", "--no-fail-fast"], cwd=ROOT,
                                      stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        failed = run_all([program for program in found if program not in last], AT_ONCE)
        failed += run_all(last, AT_ONCE)
        documented.wait()
        output.seek(0)
        print(output.read().decode(errors="replace"), flush=True)
    if failed:
        print("programs that failed:", *map(excerpt, failed), sep="\n")
    return 101 if failed or documented.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
