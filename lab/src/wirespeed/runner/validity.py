"""Is a measured trial valid, and which notes does it get? docs/method.md explains."""

from __future__ import annotations

from dataclasses import dataclass, field

from wirespeed.analysis.cells import TOGETHER
from wirespeed.results.model import Bottleneck
from wirespeed.runner import disturbance
from wirespeed.runner.bottleneck import OVERLAP_MIN, Evidence, bottleneck, load_of
from wirespeed.runner.disturbance import Disturbance

ERROR_SHARE_MAX = 0.001  # of completed requests; more and the rate is of something else
LITTLE_NOTE = 0.05
DISK_NOTE = 0.05  # of the window
PAUSED_NOTE = 0.05  # of the window, for garbage collections
IDLE_MAX = 0.5  # of a core: neither side was busy
DELAYED_ACK_MS = (38.0, 50.0)  # Linux waits 40 ms before it acknowledges unasked
OPEN_LOOP_SENT_MIN = 0.99
OVERLAP_VALID_MIN = 0.5  # below, the sum of their rates is the rate of no server at any time


@dataclass(frozen=True)
class Validity:
    """`reasons` make a trial invalid and have it repeated; `notes` are only printed.

    Interference is neither: the window is measured again, or counts with its mark.
    """

    reasons: list[str]
    notes: list[str]
    bottleneck: Bottleneck
    disturbed: Disturbance = field(default_factory=Disturbance)

    @property
    def is_valid(self) -> bool:
        return not self.reasons


def judge(evidence: Evidence) -> Validity:
    reasons = _errors(evidence) + ([evidence.fell_back] if evidence.fell_back else [])
    notes = [*_little(evidence), *_open_loop(evidence)]
    calibration, best_ms = evidence.calibration, evidence.calibration_best_ms
    disturbed = disturbance.of_window(
        evidence.usage, calibration, best_ms, evidence.others, evidence.clock_step_s
    )
    if disturbed.share > disturbance.SHARE_MAX and not evidence.accept_noise:
        reasons += disturbed.words
    else:
        notes += disturbed.words
    slow = disturbance.slowness(calibration, best_ms)
    if disturbance.SLOW_NOTE < slow <= disturbance.SLOW_MAX:
        notes.append(
            f"{disturbance.CALIBRATION_SLOW} {slow:.0%} more than this machine's best: a slow host"
        )
    if evidence.common_share < OVERLAP_MIN:
        share = evidence.common_share
        text = f"{TOGETHER} {share:.0%} of their windows only"
        (reasons if share < OVERLAP_VALID_MIN else notes).append(text)
    if evidence.usage is None:
        notes.append("no resource samples surround the window")
    limit = bottleneck(evidence)
    notes += [*_waiting(evidence), *_disk(evidence, limit)]
    for label, one in evidence.figures.items():
        notes += [f"{label}: {warning}" for warning in one.warnings]
    return Validity(reasons, notes, limit, disturbed)


def _errors(evidence: Evidence) -> list[str]:
    reasons = []
    completed = sum(f.completed for f in evidence.figures.values())
    received = sum(f.bytes_per_second for f in evidence.figures.values())
    errors = sum(f.errors for f in evidence.figures.values())
    strange = sum(f.non_2xx for f in evidence.figures.values())
    if evidence.figures and completed == 0 and received == 0:
        reasons.append("no request was completed")
    elif errors > ERROR_SHARE_MAX * completed:
        reasons.append(f"{errors} errors in {completed} requests")
    if strange:
        reasons.append(f"{strange} answers were not 2xx")
    return reasons


def _little(evidence: Evidence) -> list[str]:
    notes = []
    for label, one in evidence.figures.items():
        residual = one.little_residual
        if residual is not None and abs(residual) > LITTLE_NOTE:
            notes.append(f"{label}: Little's law is off by {residual:+.0%}")
    return notes


def _open_loop(evidence: Evidence) -> list[str]:
    notes = []
    for label, one in evidence.figures.items():
        if one.due and one.sent is not None and one.sent < OPEN_LOOP_SENT_MIN * one.due:
            notes.append(
                f"{label}: only {one.sent / one.due:.0%} of the intended requests were sent"
            )
    return notes


def paused(throughput: float | None) -> list[str]:
    """Of JVMs: what a server that is stopped for its collections did not do, no limit explains."""
    share = 0.0 if throughput is None else 1 - throughput / 100
    return [f"garbage collections stopped the server for {share:.0%}"] * (share > PAUSED_NOTE)


def _disk(evidence: Evidence, limit: Bottleneck) -> list[str]:
    """Where no core explains the rate; more connections do not make a disk faster."""
    share = evidence.usage.values.get("psi_io", 0.0) if evidence.usage else 0.0
    if limit not in ("concurrency", "unknown") or share <= DISK_NOTE:
        return []
    return [f"programs of this machine waited for a disk for {share:.0%} of the window"]


def _waiting(evidence: Evidence) -> list[str]:
    """Responses after some 40 ms while both sides idle: the delayed acknowledgement of TCP."""
    usage = evidence.usage
    if usage is None or max(load_of(evidence, role) for role in ("server", "load")) > IDLE_MAX:
        return []
    means_ms = [f.latency["service"].mean_ns / 1e6 for f in evidence.figures.values()
                if "service" in f.latency]  # fmt: skip
    if not means_ms or not DELAYED_ACK_MS[0] <= min(means_ms) <= max(means_ms) <= DELAYED_ACK_MS[1]:
        return []
    return [
        f"about {means_ms[0]:.0f} ms per request and idle programs: Nagle's algorithm and delayed "
        "acknowledgements wait for each other; check TCP_NODELAY"
    ]
