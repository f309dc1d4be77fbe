"""Which side of a measured trial was at its limit? docs/method.md explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wirespeed.analysis.cells import LITTLE_UNKNOWN, SATURATED
from wirespeed.driver.base import Figures
from wirespeed.probe.window import Part, Usage
from wirespeed.results.model import Bottleneck, Calibration
from wirespeed.runner import disturbance
from wirespeed.runner.disturbance import Others

HEADROOM_MIN = 1.3  # of a generator that polls; below, it takes part in the figure
LINK_FULL = 0.95  # of what the link was found to carry
OVERLAP_MIN = 0.95  # of each generator's window with the others'


@dataclass(frozen=True)
class Evidence:
    """The measurements to judge."""

    figures: Mapping[str, Figures]
    usage: Usage | None
    parts: list[Part]
    calibration: Calibration | None
    calibration_best_ms: float | None
    common_share: float  # of the longest window that all generators have in common
    shared_cores: bool
    link_share: float = 0.0  # of what the cell's link carries, in its fuller direction
    useful_server: float | None = None  # share of its cores' time without empty looks
    polling_load: bool = False  # a generator that polls fills its core whatever it does
    headroom: float | None = None  # what it reaches without a server, in rates of this window
    fell_back: str = ""  # how the stack under test was not really used
    clock_step_s: float = 0.0  # how far somebody set a clock in the window
    others: Others = None  # other users of the machine, where that was checked
    accept_noise: bool = False  # the caller knows what such figures are worth


def bottleneck(evidence: Evidence) -> Bottleneck:
    """The side that was at its limit. Only "server" lets a gain stand without a reservation."""
    if evidence.usage is None or evidence.shared_cores or evidence.common_share < OVERLAP_MIN:
        return "unknown"
    if evidence.link_share >= LINK_FULL:
        return "link"
    if _is_little_off(evidence) or _taken(evidence) > disturbance.SHARE_MAX:
        return "unknown"
    if _is_latency_bound(evidence):
        return "concurrency"
    server_full = _server_load(evidence) >= SATURATED
    load_full = _load_full(evidence)
    if server_full:
        # A full core of a generator that polls says nothing, and so does a missing headroom.
        return "both" if load_full is None or load_full else "server"
    if load_full is None:
        return "unknown"
    if load_full:
        return "client"
    if load_of(evidence, "origin") >= SATURATED:
        return "unknown"  # neither of the two that are compared
    if all(f.closed_loop for f in evidence.figures.values()):
        # Both sides waited for each other: more connections would have given more.
        return "concurrency"
    return "unknown"


def _is_little_off(evidence: Evidence) -> bool:
    """Before any full core: where connections are not served, none of them shows the limit."""
    residuals = (figures.little_residual or 0.0 for figures in evidence.figures.values())
    return any(abs(residual) > LITTLE_UNKNOWN for residual in residuals)


def _is_latency_bound(evidence: Evidence) -> bool:
    """One request at a time for each thread of the generators: each waits for its answer."""
    return bool(evidence.figures) and all(
        one.closed_loop and one.threads and one.in_flight <= one.threads
        for one in evidence.figures.values()
    )


def _load_full(evidence: Evidence) -> bool | None:
    """Whether a generator was at its limit; None where polling hides it."""
    if evidence.polling_load:
        return None if evidence.headroom is None else evidence.headroom < HEADROOM_MIN
    return max(load_of(evidence, "load"), _busiest_thread(evidence)) >= SATURATED


def _server_load(evidence: Evidence) -> float:
    """How full the servers' cores were of work, of what others left of them."""
    if evidence.useful_server is None:
        return load_of(evidence, "server")
    left = 1 - max((_taken_of(evidence, p) for p in _parts(evidence, "server")), default=0.0)
    return evidence.useful_server / left if left > 0 else 0.0


def load_of(evidence: Evidence, role: str) -> float:
    """How busy the role was, of what others left of its cores: 1 is saturated.

    A server of several instances is as busy as they are on average: one full one of forty limits
    only its own share of the rate. Of generators and origins the fullest counts, as it holds back
    its own share of what the servers are asked.
    """
    loads = _loads(evidence, role)
    if not loads:
        return 0.0
    return sum(min(1.0, load) for load in loads) / len(loads) if role == "server" else max(loads)


def _loads(evidence: Evidence, role: str) -> list[float]:
    """Of each process, by its fullest thread where its cores are not full on average: a server with
    one thread on four cores is at its limit with a quarter of them."""
    usage = evidence.usage
    if usage is None:
        return []
    loads = []
    for part in _parts(evidence, role):
        taken = _taken_of(evidence, part)
        cpu = usage.process_cpu_s.get(part.label, 0.0) / usage.seconds / len(part.cores)
        # With the interrupts that serve it.
        cores = [usage.values.get(f"cpu.{core}", 0.0) for core in part.cores]
        share = max(cpu, sum(cores) / len(cores) - taken, usage.fullest_thread.get(part.label, 0.0))
        loads.append(share / (1 - taken) if taken < 1 else 0.0)
    return loads


def _taken(evidence: Evidence) -> float:
    """CPU of server or generator that other processes used, whichever had less left."""
    parts = [*_parts(evidence, "server"), *_parts(evidence, "load")]
    return max((_taken_of(evidence, part) for part in parts), default=0.0)


def _taken_of(evidence: Evidence, part: Part) -> float:
    if evidence.usage is None:
        return 0.0
    return sum(evidence.usage.foreign.get(core, 0.0) for core in part.cores) / len(part.cores)


def _parts(evidence: Evidence, role: str) -> list[Part]:
    return [part for part in evidence.parts if part.role == role and part.cores]


def _busiest_thread(evidence: Evidence) -> float:
    return max((f.busiest_thread or 0.0 for f in evidence.figures.values()), default=0.0)
