"""One raw sample of the host agent (texts of /proc) as numbers."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LAB = "lab"  # role and label of the lab's own processes
CoreName = int | str  # a core of another machine than the server's carries that machine's name
PerCore = dict[CoreName, float]


@dataclass(frozen=True)
class Snapshot:
    """Counters and levels at one instant. Counters only ever grow."""

    t_ns: int
    idle_s: PerCore  # per core, with I/O wait
    steal_s: PerCore
    interrupt_s: PerCore  # served for whoever: no process is charged for it everywhere
    switches: float
    network_bytes: float
    interfaces: dict[str, tuple[float, float]]  # name → bytes received and sent
    pressure_us: float
    tcp_segments: float  # that the kernel received: flat while a stack bypasses it
    process_cpu_s: dict[str, float]
    running: float
    loadavg: float
    memory_mib: float
    process_rss_mib: dict[str, float]
    held_back_s: float = 0.0  # by a CPU quota, of all cores together
    disk_wait_us: float = 0.0  # in which a program of the machine waited for a disk
    thread_cpu_s: dict[str, dict[str, float]] = field(default_factory=dict)  # at the edges only
    thread_switches: dict[str, dict[str, float]] = field(default_factory=dict)  # there, too
    counts: dict[str, dict[str, float]] = field(default_factory=dict)  # the processor's events
    apart: frozenset[CoreName] = frozenset()  # whose kernel charges no process for interrupts


def snapshot(raw: dict[str, Any] | Snapshot) -> Snapshot:
    if isinstance(raw, Snapshot):
        return raw
    text = raw["text"]
    stat = text.get("/proc/stat", "")
    idle, steal, interrupt = _cores(stat)
    return Snapshot(
        t_ns=raw["t_ns"],
        idle_s=idle,
        steal_s=steal,
        interrupt_s=interrupt,
        switches=_line(stat, "ctxt"),
        running=_line(stat, "procs_running"),
        network_bytes=_network(text.get("/proc/net/dev", "")),
        interfaces=_interfaces(text.get("/proc/net/dev", "")),
        pressure_us=_pressure(text.get("/proc/pressure/cpu", "")),
        tcp_segments=_tcp_segments(text.get("/proc/net/snmp", "")),
        loadavg=float((text.get("/proc/loadavg", "").split() or ["0"])[0]),
        memory_mib=_memory(text.get("/proc/meminfo", "")),
        process_cpu_s={name: values[0] / 1e6 for name, values in raw["process"].items()},
        process_rss_mib={name: values[1] / 2**20 for name, values in raw["process"].items()},
        held_back_s=_held_back(text.get("quota", "")),
        disk_wait_us=_pressure(text.get("/proc/pressure/io", "")),
        thread_cpu_s={
            name: {str(tid): ns / 1e9 for tid, ns in used.items()}
            for name, used in raw.get("threads", {}).items()
        },
        thread_switches={
            name: {str(tid): float(times) for tid, times in threads.items()}
            for name, threads in raw.get("switches", {}).items()
        },
        counts=raw.get("counts", {}),
        apart=frozenset(interrupt if raw.get("interrupts_apart") else ()),
    )


def _cores(stat: str) -> tuple[PerCore, PerCore, PerCore]:
    idle: PerCore = {}
    steal: PerCore = {}
    interrupt: PerCore = {}
    for line in stat.splitlines():
        fields = line.split()
        if fields and fields[0].startswith("cpu") and fields[0][3:].isdigit():
            core = int(fields[0][3:])
            idle[core] = (int(fields[4]) + int(fields[5])) / TICKS_PER_S
            steal[core] = int(fields[8]) / TICKS_PER_S if len(fields) > 8 else 0.0
            interrupt[core] = (int(fields[6]) + int(fields[7])) / TICKS_PER_S
    return idle, steal, interrupt


def _held_back(text: str) -> float:
    """cpu.stat of a cgroup with a quota: in v2 throttled_usec, in v1 throttled_time in ns."""
    return _line(text, "throttled_usec") / 1e6 + _line(text, "throttled_time") / 1e9


def _line(text: str, name: str) -> float:
    for line in text.splitlines():
        if line.startswith(name + " "):
            return float(line.split()[1])
    return 0.0


def _network(text: str) -> float:
    """Bytes on every interface; the loopback counts each byte once, not as sent and received."""
    total = 0.0
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        if colon and len(fields) >= 9:
            total += int(fields[8]) + (0 if name.strip() == "lo" else int(fields[0]))
    return total


def _interfaces(text: str) -> dict[str, tuple[float, float]]:
    counters = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        fields = rest.split()
        if colon and len(fields) >= 9:
            counters[name.strip()] = (float(fields[0]), float(fields[8]))
    return counters


def _pressure(text: str) -> float:
    for word in text.splitlines()[0].split() if text else ():
        if word.startswith("total="):
            return float(word[6:])
    return 0.0


def _tcp_segments(text: str) -> float:
    """InSegs of /proc/net/snmp: a line of names, then a line of values."""
    rows = [line.split() for line in text.splitlines() if line.startswith("Tcp:")]
    if len(rows) < 2 or "InSegs" not in rows[0]:
        return 0.0
    return float(rows[1][rows[0].index("InSegs")])


def _memory(text: str) -> float:
    values = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            values[name] = int(rest.split()[0]) / 1024
    return values.get("MemTotal", 0.0) - values.get("MemAvailable", 0.0)
