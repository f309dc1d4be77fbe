"""Part of the agent: who else used the machine between two instants, by name.

A census reads every process once, a few milliseconds of work, so the lab asks for it outside the
measured window and only when windows were noisy. Standard library of Python 3.6 only: see
main.py.
"""

import os
import time

from wirespeed.agent.children import read_text

NAMES_MAX = 5  # reported of one census; the others are small
CENSUS_S_MAX = 0.1  # a machine with thousands of processes is not read to the end
TICK_NS = 1000000000 // os.sysconf("SC_CLK_TCK")


class Census:
    """Remembers the census before, so that each one reports the use since."""

    def __init__(self):
        self.before = {}

    def take(self, ours):
        """[[name, CPU seconds since the census before]], the largest first, without `ours`."""
        now = census(ours)
        used = {}
        for pid, (name, cpu_ns) in now.items():
            if pid in self.before:
                used[name] = used.get(name, 0.0) + (cpu_ns - self.before[pid][1]) / 1e9
        self.before = now
        largest = sorted(used.items(), key=lambda item: -item[1])[:NAMES_MAX]
        return [[name, seconds] for name, seconds in largest if seconds > 0]


def census(ours):
    """pid → (name, CPU nanoseconds), kernel threads too."""
    found = {}
    deadline = time.monotonic() + CENSUS_S_MAX
    for entry in os.listdir("/proc"):
        if time.monotonic() > deadline:
            break
        if entry.isdigit() and int(entry) not in ours:
            one = usage_of(entry)
            if one:
                found[int(entry)] = one
    return found


def usage_of(pid):
    """schedstat counts nanoseconds, but of the first thread only; stat counts all, in ticks."""
    text = read_text("/proc/%s/stat" % pid)
    fields = text.rpartition(")")[2].split()
    if len(fields) < 18:
        return None
    name = text[text.index("(") + 1 : text.rindex(")")]
    words = read_text("/proc/%s/schedstat" % pid).split() if fields[17] == "1" else []
    cpu_ns = int(words[0]) if words else (int(fields[11]) + int(fields[12])) * TICK_NS
    return name, cpu_ns
