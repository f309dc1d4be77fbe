"""Runs a suite part by part (a file, a class, a unit), each on the kernel and accelerated.

A part is a command and a parser of its outcomes. If tests of a part pass on the kernel and fail
accelerated, the part runs again, twice on each side: tests that pass then do not count.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

TEXT_BYTES_MAX = 4_000_000
AGAIN = 2


@dataclass(frozen=True)
class Part:
    """A command; `read(text, code)` gives test → outcome ("passed", "failed", "skipped")."""

    name: str
    words: list
    folder: Path
    read: Callable[[str, int], dict]
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds_max: float = 120


def by_exit_code(text, code):
    """One test per part: it passed if the program exited with status 0."""
    return {"": "passed" if code == 0 else "failed"}


def compare(runner, suite, parts):
    """The one row of a suite: counts over all parts, and the tests that differ each time."""
    row = {"suite": suite, "tests": 0, "passed_kernel": 0, "different": []}
    for part in parts:
        if runner.part and not re.search(runner.part, part.name):
            continue
        kernel, ours, texts = _both(runner, part)
        suspects = _differing(kernel, ours)
        if suspects:
            _keep(runner, part, texts)
        for _ in range(AGAIN if suspects else 0):
            once_more, ours_again, texts = _both(runner, part)
            suspects &= _differing(once_more, ours_again)
        good = sum(outcome == "passed" for outcome in kernel.values())
        row["tests"] += len(kernel)
        row["passed_kernel"] += good
        row["different"] += [{"test": f"{part.name} {test}".strip(),
                              "outcome": ours.get(test, "missing"), "text": _about(test, texts)}
                             for test in sorted(suspects)]
        print(f"  {part.name}: {good} of {len(kernel)} pass on the kernel, {len(suspects)} differ",
              *(f"\n    {test}" for test in sorted(suspects)), file=sys.stderr, flush=True)
    return [row]


def _differing(kernel, ours):
    return {test for test, outcome in kernel.items()
            if outcome == "passed" and ours.get(test) not in ("passed", "skipped")}


def _both(runner, part):
    kernel, _ = _run(runner, part, False)
    if "passed" not in kernel.values():
        return kernel, {}, ""
    ours, text = _run(runner, part, True)
    return kernel, ours, text


def _run(runner, part, accelerated):
    """(test → outcome, the whole output) of one run; a run over its time is stopped with its children."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(runner.command(part.words, accelerated), cwd=part.folder,
                                   env={**os.environ, **part.environment}, stdout=log,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   start_new_session=True)
        try:
            code = process.wait(part.seconds_max)
        except subprocess.TimeoutExpired:
            code = -1
        _end(process)
        log.seek(0)
        text = log.read(TEXT_BYTES_MAX).decode("utf-8", "replace")
    return part.read(text, code), text if code != -1 else text + "\nstopped: over its time"


def _end(process):
    """Ends what the part left behind in its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _about(test, text):
    """The line of the output that names the test, or the last one."""
    lines = [line for line in text.splitlines() if line.strip()]
    named = [line for line in lines if test and test in line]
    return (named or lines or [""])[-1][:200]


def _keep(runner, part, text):
    """Keeps the output of a part that differed, for debugging."""
    folder = runner.work / "differing"
    folder.mkdir(exist_ok=True)
    (folder / (re.sub(r"[^\w.-]+", "-", part.name) + ".txt")).write_text(text)
