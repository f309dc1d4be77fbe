"""Part of the agent: the CPU quota of a container or a service, and how long it throttled programs.

A program that has used its quota waits until the next period, on cores that stand idle: nothing
else shows it. Standard library of Python 3.9 only: see main.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from wirespeed.agent.children import read_text

# Where the tree of cgroup v2, or of the controller of v1, is mounted.
TREES_V2 = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
TREES_V1 = ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct")


def tightest() -> tuple[float, str] | None:
    """(number of cores, folder of the cgroup that allows no more); None without a quota."""
    limits = [
        (cores, folder)
        for folder in folders(read_text("/proc/self/cgroup"))
        if (cores := cores_of(folder)) is not None
    ]
    return min(limits, default=None)


def folders(text: str) -> Iterator[str]:
    """Of the cgroups that this process is in, and those above them, whose quota counts too.

    Within a container the path is that of the host, and the tree begins at the container's own.
    """
    for line in text.splitlines():
        number, names, path = line.split(":", 2)
        trees = TREES_V2 if number == "0" else TREES_V1 if "cpu" in names.split(",") else ()
        for tree in trees:
            steps = [step for step in path.split("/") if step]
            for depth in range(len(steps), -1, -1):
                yield "/".join([tree, *steps[:depth]])


def cores_of(folder: str) -> float | None:
    """The quota as a number of cores; None where there is none."""
    words = read_text(folder + "/cpu.max").split()
    if not words:
        words = [
            read_text(folder + "/cpu.cfs_" + name).strip() for name in ("quota_us", "period_us")
        ]
    if len(words) != 2 or not (words[0].isdigit() and words[1].isdigit() and int(words[1])):
        return None
    return int(words[0]) / int(words[1])


def limit_text() -> str | None:
    """The file that counts how long the quota held its programs back; None without a quota."""
    quota = tightest()
    path = quota and os.path.join(quota[1], "cpu.stat")
    return path if path and os.path.exists(path) else None
