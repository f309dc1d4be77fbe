"""Runs the test programs of the Rust workspace in parallel; cargo alone runs one after the other.

They wait most of the time: for a limit, for a peer, for the end of a load. The output is cargo's.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CARGO = ["cargo", "test", "--workspace", "--locked"]
AT_ONCE = 3
#: Begun first, the longest at the front: none of them is to run alone at the end.
LONG = ("packets", "links", "shards", "contract", "models")
#: Begun last, one after the other: they compare times.
ALONE = ("lost", "honesty", "http2")


def programs():
    """Target, executable and folder of each, compiled; ends with cargo's exit code when that fails."""
    build = subprocess.run([*CARGO, "--no-run", "--message-format=json-render-diagnostics"],
                           cwd=ROOT, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)
    if build.returncode:
        raise SystemExit(build.returncode)
    messages = map(json.loads, build.stdout.splitlines())
    made = [one for one in messages if one.get("executable") and one["profile"]["test"]]
    return [(one["target"]["name"], one["executable"], Path(one["manifest_path"]).parent)
            for one in made]


def run(program):
    """The heading that cargo prints with the program's output, and its exit code."""
    _, executable, folder = program
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:  # no pipe: what a test leaves behind would hold it open
        done = subprocess.run([executable], cwd=folder, stdin=subprocess.DEVNULL, stdout=output,
                              stderr=subprocess.STDOUT)
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
    """What a failed program printed about its failures; its end, when it died before it could."""
    heading, _, printed = text.partition("\n")
    summary = re.search(r"^failures:\n.*", printed, re.M | re.S)
    lines = (summary.group() if summary else printed).splitlines()[-40:]
    return "\n".join([heading, *(f"  {line}" for line in lines)])  # not to be counted again


def main():
    rank = {name: place for place, name in enumerate(LONG)}
    found = sorted(programs(), key=lambda program: rank.get(program[0], len(rank)))
    alone = [program for program in found if program[0] in ALONE]
    failed = run_all([program for program in found if program not in alone], AT_ONCE)
    failed += run_all(alone, 1)
    documented = subprocess.run([*CARGO, "--doc", "--no-fail-fast"], cwd=ROOT, stdin=subprocess.DEVNULL)
    if failed:
        print("programs that failed:", *map(excerpt, failed), sep="\n")
    return 101 if failed or documented.returncode else 0


if __name__ == "__main__":
    sys.exit(main())
