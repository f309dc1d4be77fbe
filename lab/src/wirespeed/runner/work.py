"""What of a server's CPU time was work: without the empty looks of a stack that polls.

bypass counts the time of its empty looks. It is read before the generators start and after their
end, outside the window; between the two the server is under load for the step's warm-up and the
window, and whatever it works, it works then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wirespeed.driver.base import Figures
from wirespeed.driver.bypass import Served
from wirespeed.probe.window import Usage
from wirespeed.runner import proof
from wirespeed.runner.life import Life

METRIC = "server.work_us_per_request"
#: Of the servers' CPU time, what bypass must have told of. Processes that have ended when it is
#: read are missing: a server with one for each connection, such as PostgreSQL, would seem idle.
TOLD_MIN = 0.8


@dataclass(frozen=True)
class Work:
    """`useful` is the share of the servers' cores; the rest of their time was polling or idle."""

    useful: float
    us_per_request: float | None


def of_window(
    life: Life,
    served: tuple[Served | None, Served | None],
    figures: Mapping[str, Figures],
    usage: Usage | None,
    loaded_s: float,
) -> Work | None:
    """None where nothing tells of empty looks, or not of all processes.

    `loaded_s` is the time under load between the two readings: the step before the window, and it.
    """
    before, after = served
    if before is None or after is None or not figures or loaded_s <= 0:
        return None
    servers = [s for s in life.running if s.instance.role == "server"]
    told = after.since(before)
    used_s = sum(usage.process_cpu_s.get(s.label, 0.0) for s in servers) if usage else 0.0
    if told.cpu_s < TOLD_MIN * used_s:
        return None
    cores = {core for server in servers for core in server.instance.cores}
    work_s = told.work_s
    rps = sum(one.rps for one in figures.values())
    useful = min(1.0, work_s / loaded_s / max(1, len(cores)))
    return Work(useful, work_s * 1e6 / (rps * loaded_s) if rps else None)


def metrics(
    work: Work | None,
    life: Life,
    usage: Usage | None,
    roles: Mapping[str, str],
    figures: Mapping[str, Figures],
) -> dict[str, float | None]:
    """CPU a request without empty looks; on a stack that does not poll it is all CPU."""
    if work is not None:
        return {METRIC: work.us_per_request, "server.work": work.useful}
    if usage is None or proof.has_stack(life):
        return {}
    completed = sum(one.completed_in(usage.seconds) for one in figures.values())
    used = (s for label, s in usage.process_cpu_s.items() if roles[label] == "server")
    cpu_s = sum(used)
    return {METRIC: cpu_s * 1e6 / completed if completed and cpu_s else None}
