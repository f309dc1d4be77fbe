"""Part of the agent: which other programs used the machine between two instants.

A census reads every process once, a few milliseconds of work, so the lab asks for it outside the
measured window and only when windows were noisy. Standard library of Python 3.9 only: see
main.py.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from typing import Any

from wirespeed.agent.children import read_text

NAMES_MAX = 5  # reported of one census; the others are summed
REST = "smaller ones"
CENSUS_S_MAX = 0.1  # a machine with thousands of processes is not read to the end
TICK_NS = 1000000000 // os.sysconf("SC_CLK_TCK")
# Places in /proc/PID/stat after the name (proc_pid_stat(5) counts from 1, and the name is 2).
PARENT, UTIME, STIME, CUTIME, CSTIME, THREADS, STARTED, CORE = 1, 11, 12, 13, 14, 17, 19, 36


class ProcessUse:
    """One process as a census sees it."""

    def __init__(
        self, name: str, parent: int, cpu_ns: int, ended_ns: int, started: int, core: int
    ) -> None:
        self.name, self.parent, self.cpu_ns = name, parent, cpu_ns
        self.ended_ns = ended_ns  # CPU time of its children that have ended
        self.started = started  # in ticks since boot
        self.core = core  # that it ran on last


class Census:
    """Remembers the census before, so that each one reports the use since."""

    def __init__(self) -> None:
        self.before: dict[int, ProcessUse] | None = None
        self.at_ticks = 0

    def take(
        self, ours: Collection[int | None], cores: Collection[int] | None = None
    ) -> dict[str, Any]:
        """{"used": [[name, CPU seconds since the census before]], "is_whole"}, the largest first.

        Without `ours`, and without what ran on other cores than `cores` at both ends. Processes
        that began meanwhile count, and so do ended ones, by what their parents' children used.
        `is_whole` is False where there were too many processes to read them all.
        """
        before, at_ticks = self.before, self.at_ticks
        self.before, self.at_ticks = census(ours), now_ticks()
        used: dict[str, float] = {}
        if before and self.before:
            for name, cpu_ns in uses(before, self.before, at_ticks, cores):
                used[name] = used.get(name, 0.0) + cpu_ns / 1e9
        ordered = sorted((one for one in used.items() if one[1] > 0), key=lambda one: -one[1])
        rows = [[name, seconds] for name, seconds in ordered[:NAMES_MAX]]
        rest = sum(seconds for _, seconds in ordered[NAMES_MAX:])
        return {
            "used": rows + ([[REST, rest]] if rest else []),
            "is_whole": before is not None and self.before is not None,
        }


def uses(
    before: dict[int, ProcessUse],
    now: dict[int, ProcessUse],
    since_ticks: int,
    cores: Collection[int] | None,
) -> Iterator[tuple[str, int]]:
    """(name, CPU nanoseconds) of each process between two censuses."""
    gone: dict[int, int] = {}  # parent → what its children that have ended since had used before
    for pid, one in before.items():
        if pid not in now or now[pid].started != one.started:
            gone[one.parent] = gone.get(one.parent, 0) + one.cpu_ns + one.ended_ns
    for pid, one in now.items():
        was = before.get(pid)
        if was and was.started == one.started:
            if not cores or one.core in cores or was.core in cores:
                yield one.name, one.cpu_ns - was.cpu_ns
            ended_ns = one.ended_ns - was.ended_ns - gone.get(pid, 0)
            if ended_ns >= TICK_NS:
                yield "ended children of " + one.name, ended_ns
        elif one.started >= since_ticks and (not cores or one.core in cores):
            yield one.name, one.cpu_ns + one.ended_ns


def now_ticks() -> int:
    """Since boot, suspended time included, as the kernel gives the start of a process."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * 1e9 / TICK_NS)


def census(ours: Collection[int | None]) -> dict[int, ProcessUse] | None:
    """pid → ProcessUse, kernel threads too; None where there are too many."""
    uses: dict[int, ProcessUse] = {}
    deadline = time.monotonic() + CENSUS_S_MAX
    for entry in os.listdir("/proc"):
        if time.monotonic() > deadline:
            return None
        if entry.isdigit() and int(entry) not in ours:
            one = process_of(entry)
            if one:
                uses[int(entry)] = one
    return uses


def process_of(pid: str) -> ProcessUse | None:
    """schedstat counts nanoseconds, but of the first thread only; stat counts all, in ticks."""
    text = read_text(f"/proc/{pid}/stat")
    fields = text.rpartition(")")[2].split()
    if len(fields) <= CORE:
        return None
    name = text[text.index("(") + 1 : text.rindex(")")]
    words = read_text(f"/proc/{pid}/schedstat").split() if fields[THREADS] == "1" else []
    cpu_ns = int(words[0]) if words else (int(fields[UTIME]) + int(fields[STIME])) * TICK_NS
    ended_ns = (int(fields[CUTIME]) + int(fields[CSTIME])) * TICK_NS
    numbers = int(fields[PARENT]), cpu_ns, ended_ns, int(fields[STARTED]), int(fields[CORE])
    return ProcessUse(name, *numbers)
