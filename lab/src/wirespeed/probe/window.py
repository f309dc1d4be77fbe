"""Resource figures of the measured window, and of every interval between two samples in it.

Counters are cut exactly at the window's edges: the agent samples at both, and where a generator's
own window differs a little, the counter between two samples is taken as a straight line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from wirespeed.probe.parse import LAB, TICKS_PER_S, CoreName, Snapshot, snapshot

EDGES_APART_MIN = 0.9  # of the window: readings of threads that are nearer do not cover it
COVERED_MIN = 0.5  # of the window: with less between the first and the last sample it is unknown
EDGE_S = 0.001  # samples nearer than this to an edge are the edge
LINK_BYTES_PER_S_MIN = 1e6  # less than this on real interfaces is not the load


@dataclass(frozen=True)
class Part:
    """One process whose CPU is counted: which role it has and on which cores it may run."""

    label: str
    role: str
    cores: tuple[CoreName, ...]


@dataclass(frozen=True)
class Usage:
    """The use of resources between two instants, as the flat names of docs/results-format.md."""

    values: dict[str, float]
    process_cpu_s: dict[str, float]
    process_rss_mib: dict[str, float]
    foreign: dict[CoreName, float]  # per core of ours: share used by someone else
    foreign_error: float  # what one tick of /proc/stat means as such a share
    seconds: float
    fullest_thread: dict[str, float] = field(default_factory=dict)  # by process: share of a core
    switches: dict[str, float] = field(default_factory=dict)  # by process: to it, a second


def of_window(
    raw: Sequence[dict[str, Any] | Snapshot], start_ns: int, length_ns: int, parts: Sequence[Part]
) -> Usage | None:
    """None when the samples do not surround the window: then nothing is known, and nothing is
    said."""
    shots = [snapshot(entry) for entry in raw]
    if len(shots) < 2 or length_ns <= 0:
        return None
    covered_ns = min(start_ns + length_ns, shots[-1].t_ns) - max(start_ns, shots[0].t_ns)
    if covered_ns < COVERED_MIN * length_ns:
        return None
    first, last = _at(shots, start_ns), _at(shots, start_ns + length_ns)
    inside = [shot for shot in shots if start_ns <= shot.t_ns <= start_ns + length_ns]
    usage = _usage(first, last, inside or [first, last], parts)
    fullest = _fullest_threads(shots, length_ns)
    servers = [
        fullest[part.label] for part in parts if part.role == "server" if part.label in fullest
    ]
    fullest_server = {"server.fullest_thread": max(servers)} if servers else {}
    switches = _switches(shots, length_ns)
    values = {**usage.values, **fullest_server}
    return replace(usage, values=values, fullest_thread=fullest, switches=switches)


def _growth(
    shots: Sequence[Snapshot],
    length_ns: int,
    counter: Callable[[Snapshot], Mapping[str, Mapping[str, float]]],
) -> dict[str, list[float]]:
    """Of each process how fast a counter of its threads grew, per second.

    From the first to the last sample with readings of threads, where they span the window; of
    threads that live at the end.
    """
    edges = [shot for shot in shots if shot.thread_cpu_s]
    if len(edges) < 2 or edges[-1].t_ns - edges[0].t_ns < EDGES_APART_MIN * length_ns:
        return {}
    seconds = (edges[-1].t_ns - edges[0].t_ns) / 1e9
    before = counter(edges[0])
    return {
        name: [(n - before.get(name, {}).get(tid, 0.0)) / seconds for tid, n in threads.items()]
        for name, threads in counter(edges[-1]).items()
    }


def _fullest_threads(shots: Sequence[Snapshot], length_ns: int) -> dict[str, float]:
    """Of each process the share of a core that its busiest thread used."""
    used = _growth(shots, length_ns, lambda shot: shot.thread_cpu_s)
    return {name: max(shares) for name, shares in used.items() if shares}


def _switches(shots: Sequence[Snapshot], length_ns: int) -> dict[str, float]:
    """Of each process how often a second a thread got a core."""
    counts = _growth(shots, length_ns, lambda shot: shot.thread_switches)
    return {name: sum(rates) for name, rates in counts.items()}


def counts(
    raw: Sequence[dict[str, Any] | Snapshot], start_ns: int, length_ns: int
) -> dict[str, dict[str, float]]:
    """{process: {event: how often}} between two instants; empty where nothing was counted."""
    shots = [shot for shot in map(snapshot, raw) if shot.counts]
    if len(shots) < 2 or length_ns <= 0:
        return {}
    first, last = _counts_at(shots, start_ns), _counts_at(shots, start_ns + length_ns)
    return {
        name: {event: value - first[name][event] for event, value in events.items()}
        for name, events in last.items()
    }


def _counts_at(shots: Sequence[Snapshot], t_ns: int) -> dict[str, dict[str, float]]:
    before = max((s for s in shots if s.t_ns <= t_ns), key=lambda s: s.t_ns, default=shots[0])
    after = min((s for s in shots if s.t_ns >= t_ns), key=lambda s: s.t_ns, default=shots[-1])
    span = after.t_ns - before.t_ns
    share = min(1.0, max(0.0, (t_ns - before.t_ns) / span)) if span > 0 else 0.0
    return {
        name: {event: value + (after.counts[name][event] - value) * share
               for event, value in events.items()}
        for name, events in before.counts.items()
    }  # fmt: skip


def interface_bps(
    raw: Sequence[dict[str, Any] | Snapshot], start_ns: int, length_ns: int, interface: str
) -> tuple[float, float]:
    """Bits a second that one interface of the server's host received and sent."""
    shots = [snapshot(entry) for entry in raw]
    if len(shots) < 2 or length_ns <= 0:
        return 0.0, 0.0
    first, last = _at(shots, start_ns), _at(shots, start_ns + length_ns)
    before, after = first.interfaces.get(interface), last.interfaces.get(interface)
    if before is None or after is None:
        return 0.0, 0.0
    bits = 8 / max((last.t_ns - first.t_ns) / 1e9, 1e-9)
    return (after[0] - before[0]) * bits, (after[1] - before[1]) * bits


def series(
    raw: Sequence[dict[str, Any] | Snapshot], start_ns: int, length_ns: int, parts: Sequence[Part]
) -> list[tuple[int, dict[str, float]]]:
    """(instant, figures since the sample before) for every sample inside the window."""
    shots = [snapshot(entry) for entry in raw]
    inside = [shot for shot in shots if start_ns <= shot.t_ns <= start_ns + length_ns]
    rows = []
    for before, after in pairwise(inside):
        if (after.t_ns - before.t_ns) / 1e9 > EDGE_S:
            rows.append((after.t_ns, _usage(before, after, [after], parts).values))
    return rows


def _at(shots: Sequence[Snapshot], t_ns: int) -> Snapshot:
    """The counters at an instant, between the samples around it."""
    before = max((s for s in shots if s.t_ns <= t_ns), key=lambda s: s.t_ns, default=shots[0])
    after = min((s for s in shots if s.t_ns >= t_ns), key=lambda s: s.t_ns, default=shots[-1])
    span = after.t_ns - before.t_ns
    if span <= 0 or (t_ns - before.t_ns) / 1e9 < EDGE_S:
        return before
    share = min(1.0, max(0.0, (t_ns - before.t_ns) / span))

    def mix(left: float, right: float) -> float:
        return left + (right - left) * share

    def mix_all(left: dict[Any, float], right: dict[Any, float]) -> dict[Any, float]:
        return {key: mix(left[key], right.get(key, left[key])) for key in left}

    return Snapshot(
        t_ns=t_ns,
        idle_s=mix_all(before.idle_s, after.idle_s),
        steal_s=mix_all(before.steal_s, after.steal_s),
        interrupt_s=mix_all(before.interrupt_s, after.interrupt_s),
        switches=mix(before.switches, after.switches),
        network_bytes=mix(before.network_bytes, after.network_bytes),
        interfaces={
            name: (mix(before.interfaces[name][0], now[0]), mix(before.interfaces[name][1], now[1]))
            for name, now in after.interfaces.items()
            if name in before.interfaces
        },
        pressure_us=mix(before.pressure_us, after.pressure_us),
        tcp_segments=mix(before.tcp_segments, after.tcp_segments),
        held_back_s=mix(before.held_back_s, after.held_back_s),
        disk_wait_us=mix(before.disk_wait_us, after.disk_wait_us),
        process_cpu_s=mix_all(before.process_cpu_s, after.process_cpu_s),
        running=after.running,
        loadavg=after.loadavg,
        memory_mib=after.memory_mib,
        process_rss_mib=after.process_rss_mib,
        apart=after.apart,
    )


def _usage(
    first: Snapshot, last: Snapshot, levels: Sequence[Snapshot], parts: Sequence[Part]
) -> Usage:
    seconds = max((last.t_ns - first.t_ns) / 1e9, 1e-9)
    cpu = {
        part.label: max(
            0.0, last.process_cpu_s.get(part.label, 0.0) - first.process_cpu_s.get(part.label, 0.0)
        )
        for part in parts
    }
    # A generator may have ended at the last sample, so the fullest one counts.
    rss = {p.label: max(s.process_rss_mib.get(p.label, 0.0) for s in levels) for p in parts}
    busy = {
        core: min(1.0, max(0.0, 1.0 - (last.idle_s[core] - first.idle_s[core]) / seconds))
        for core in first.idle_s
        if core in last.idle_s
    }
    values = {f"cpu.{core}": share for core, share in sorted(busy.items(), key=str)}
    for role in ("server", "load", "origin", LAB):
        labels = [part.label for part in parts if part.role == role]
        if labels:
            values[f"{role}.cpu"] = sum(cpu[label] for label in labels) / seconds
            if role != LAB:
                values[f"{role}.rss_mib"] = sum(rss[label] for label in labels)
    values |= _system(first, last, levels, seconds)
    steal = [last.steal_s[core] - first.steal_s[core] for core in _our_cores(parts, busy)]
    values["steal"] = max(steal, default=0.0) / seconds
    if last.held_back_s > first.held_back_s:
        values["held_back"] = (last.held_back_s - first.held_back_s) / seconds
    # Stolen time is the host's, and is judged apart.
    apart = _interrupts_apart(first, last, busy, seconds)
    tasks = {
        core: share - apart[core] - (last.steal_s[core] - first.steal_s[core]) / seconds
        for core, share in busy.items()
    }
    foreign, error = _foreign(tasks, cpu, parts, seconds)
    return Usage(values, cpu, rss, foreign, error, seconds)


def _interrupts_apart(
    first: Snapshot, last: Snapshot, busy: dict[CoreName, float], seconds: float
) -> dict[CoreName, float]:
    """Per core, the interrupt time that no process was charged for.

    A kernel that accounts interrupts apart charges none of it. Any other charges a process for
    the interrupts that fell into its time: all of them over the loopback, whose packets are
    served in the sender's own call, and with a link the ones that did not find the core idle. To
    leave out interrupts that were charged would hide as much of other programs' time.
    """
    spent = {core: (last.interrupt_s[core] - first.interrupt_s[core]) / seconds for core in busy}
    carried = _link_bytes(last) - _link_bytes(first)
    is_link = carried / seconds >= LINK_BYTES_PER_S_MIN
    charged = {core: share * (1 - busy[core]) * is_link for core, share in spent.items()}
    return {core: spent[core] if core in last.apart else charged[core] for core in busy}


def _link_bytes(shot: Snapshot) -> float:
    """The traffic of real interfaces, both ways."""
    return sum(sum(both) for name, both in shot.interfaces.items() if name != "lo")


def _system(
    first: Snapshot, last: Snapshot, levels: Sequence[Snapshot], seconds: float
) -> dict[str, float]:
    return {
        "loadavg": last.loadavg,
        "context_switches": (last.switches - first.switches) / seconds,
        "network_mbps": (last.network_bytes - first.network_bytes) * 8 / 1e6 / seconds,
        "memory_mib": sum(shot.memory_mib for shot in levels) / len(levels),
        "runqueue": sum(shot.running for shot in levels) / len(levels),
        "tcp_segments": (last.tcp_segments - first.tcp_segments) / seconds,
        "psi": (last.pressure_us - first.pressure_us) / 1e6 / seconds,
        "psi_io": (last.disk_wait_us - first.disk_wait_us) / 1e6 / seconds,
    }


def _our_cores(parts: Sequence[Part], busy: dict[CoreName, float]) -> set[CoreName]:
    return {core for part in parts if part.role != LAB for core in part.cores if core in busy}


def _foreign(
    busy: dict[CoreName, float], cpu: dict[str, float], parts: Sequence[Part], seconds: float
) -> tuple[dict[CoreName, float], float]:
    """The use of our cores by other processes. Cores that processes share are judged together.

    `busy` is without stolen time and without interrupts that no process was charged for.
    """
    groups: list[tuple[set[CoreName], set[str]]] = []
    # The lab comes last, so that it only joins groups: its own core does not matter.
    for part in sorted(parts, key=lambda part: part.role == LAB):
        cores: set[CoreName] = set(part.cores) & set(busy)
        labels = {part.label}
        if part.role == LAB and not any(group[0] & cores for group in groups):
            continue
        for other in [group for group in groups if group[0] & cores]:
            groups.remove(other)
            cores, labels = cores | other[0], labels | other[1]
        if cores:
            groups.append((cores, labels))
    foreign = {}
    for cores, labels in groups:
        used = sum(busy[core] for core in cores)
        ours = sum(cpu[label] for label in labels) / seconds
        for core in cores:
            foreign[core] = max(0.0, (used - ours) / len(cores))
    return foreign, 2.0 / TICKS_PER_S / seconds
