"""Samples of several hosts as one series, on one clock.

The server's host gives the instants and the levels; processes of other hosts are read between two
of their own samples. Hosts of one kernel see the same cores; cores of other machines carry the
machine's name.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from wirespeed.probe.parse import LAB, CoreName, Snapshot, snapshot


@dataclass(frozen=True)
class HostSamples:
    """The samples of one host's agent."""

    host: str
    machine: str  # hosts with the same machine have one kernel
    offset_s: float  # the host's clock minus the lab's
    samples: Sequence[dict[str, Any]]


def core_name(core: int, machine: str, server_machine: str) -> CoreName:
    return core if machine == server_machine else f"{machine}.{core}"


def merged(sources: Sequence[HostSamples], server: str) -> list[Snapshot]:
    """The server's series with what the other hosts add."""
    series = {
        source.host: [_on_our_clock(snapshot(raw), source.offset_s) for raw in source.samples]
        for source in sources
    }
    first = next((source for source in sources if source.host == server), sources[0])
    others = [source for source in sources if source is not first and series[source.host]]
    result = []
    for shot in series[first.host]:
        for source in others:
            there = at(series[source.host], shot.t_ns)
            shot = _joined(shot, there, source.machine, source.machine == first.machine)
        result.append(shot)
    return result


def _on_our_clock(shot: Snapshot, offset_s: float) -> Snapshot:
    return replace(shot, t_ns=shot.t_ns - int(offset_s * 1e9)) if offset_s else shot


def _joined(shot: Snapshot, other: Snapshot, machine: str, is_same: bool) -> Snapshot:
    """`shot` with the other host's processes, and its cores where they are others."""
    cpu = {name: s for name, s in other.process_cpu_s.items() if name != LAB}
    rss = {name: mib for name, mib in other.process_rss_mib.items() if name != LAB}
    joined = replace(
        shot,
        process_cpu_s={**shot.process_cpu_s, **cpu},
        process_rss_mib={**shot.process_rss_mib, **rss},
        tcp_segments=shot.tcp_segments + other.tcp_segments,
        held_back_s=shot.held_back_s + other.held_back_s,
    )
    if is_same:
        both = shot.process_cpu_s.get(LAB, 0.0) + other.process_cpu_s.get(LAB, 0.0)
        joined.process_cpu_s[LAB] = both
        return joined

    def named(cores: dict[CoreName, float]) -> dict[CoreName, float]:
        return {f"{machine}.{core}": value for core, value in cores.items()}

    return replace(
        joined,
        idle_s={**shot.idle_s, **named(other.idle_s)},
        steal_s={**shot.steal_s, **named(other.steal_s)},
        interrupt_s={**shot.interrupt_s, **named(other.interrupt_s)},
        apart=shot.apart | {f"{machine}.{core}" for core in other.apart},
    )


def at(shots: Sequence[Snapshot], t_ns: int) -> Snapshot:
    """The counters at an instant: a straight line between the samples around it."""
    index = bisect_left([shot.t_ns for shot in shots], t_ns)
    before, after = shots[max(0, index - 1)], shots[min(index, len(shots) - 1)]
    span = after.t_ns - before.t_ns
    share = min(1.0, max(0.0, (t_ns - before.t_ns) / span)) if span > 0 else 0.0

    def mix(left: dict[Any, float], right: dict[Any, float]) -> dict[Any, float]:
        return {key: old + (right.get(key, old) - old) * share for key, old in left.items()}

    return replace(
        before,
        t_ns=t_ns,
        idle_s=mix(before.idle_s, after.idle_s),
        steal_s=mix(before.steal_s, after.steal_s),
        interrupt_s=mix(before.interrupt_s, after.interrupt_s),
        tcp_segments=before.tcp_segments + (after.tcp_segments - before.tcp_segments) * share,
        held_back_s=before.held_back_s + (after.held_back_s - before.held_back_s) * share,
        process_cpu_s=mix(before.process_cpu_s, after.process_cpu_s),
        process_rss_mib=after.process_rss_mib,
    )
