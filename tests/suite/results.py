"""Results of test runners, case by case: JUnit XML of pytest and Surefire, the output of cargo."""

import os
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

#: A program of tests/rust.py, from its heading to its end.
PROGRAM = re.compile(r"^     Running (\S+) \((\S+)\)\n(.*?)^     ended with -?\d+ after ([\d.]+) s$",
                     re.M | re.S)
TOTALS = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", re.M)
IGNORED = re.compile(r"^test (\S.*?) \.\.\. ignored(?:, (.*))?$", re.M)
#: Printed by a test of cargo's own runner, which counts it as passed.
SKIPPED = re.compile(r"^skipped: (\S+): (.*)$", re.M)
#: bypass/testkit prints how long a test took; cargo's own runner does not.
TIMED = re.compile(r"^test (\S+) \.\.\. ok \(([\d.]+) s\)$", re.M)


@dataclass(frozen=True)
class Skip:
    """A test that did not run, and its own reason for that."""

    test: str
    reason: str


@dataclass
class Results:
    """Results of one step's tests; `seconds` has (duration, name) of tests or whole programs."""

    passed: int = 0
    failed: int = 0
    skips: list[Skip] = field(default_factory=list)
    seconds: list[tuple[float, str]] = field(default_factory=list)

    def slowest(self, count=10):
        return sorted(self.seconds, reverse=True)[:count]


def junit(paths):
    """Reads JUnit XML, which both pytest and Maven's Surefire write."""
    results = Results()
    for path in paths:
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            _add(results, case)
    return results


def _add(results, case):
    name = f"{case.get('classname', '')}.{case.get('name', '')}".strip(".")
    kinds = {child.tag: child for child in case}
    results.seconds.append((float(case.get("time", "0").replace(",", "")), name))
    if "skipped" in kinds:
        element = kinds["skipped"]
        results.skips.append(Skip(name, element.get("message") or (element.text or "").strip()))
    elif kinds.keys() & {"failure", "error"}:
        results.failed += 1
    else:
        results.passed += 1


def cargo(text):
    """Reads what tests/rust.py prints: the output of every test program, as cargo prints it."""
    passed, failed, ignored = (sum(map(int, column)) for column in
                               zip(*TOTALS.findall(text) or [(0, 0, 0)]))
    skips = [Skip(name, reason) for name, reason in IGNORED.findall(text)]
    skips += [Skip("a test whose name was not printed", "")] * (ignored - len(skips))
    unseen = [Skip(name, reason) for name, reason in SKIPPED.findall(text)]
    return Results(passed - len(unseen), failed, skips + unseen, _durations(text))


def _durations(text):
    """Of each test where its program prints that, of the program otherwise."""
    found = []
    for folder, executable, printed, seconds in PROGRAM.findall(text):
        program = f"{folder}/{re.sub(r'-[0-9a-f]{16}$', '', Path(executable).name)}"
        cases = TIMED.findall(printed)
        found += [(float(own), f"{program}::{name}") for name, own in cases]
        found += [] if cases else [(float(seconds), program)]
    return found


def newer(paths, started):
    """The files that were written after `started` (seconds of the Unix clock)."""
    return [path for path in paths if os.path.getmtime(path) >= started]
