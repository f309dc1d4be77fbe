"""A server's CPU time without the empty polls of its stack.

bypass counts the time of its empty looks. It is read before the generators start and after their
end, outside the window; between the two the server is under load for the step's warm-up and the
window, and whatever it works, it works then. So its work is divided by the requests of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wirespeed.driver.base import Figures
from wirespeed.driver.bypass import Served
from wirespeed.probe.window import Usage
from wirespeed.runner import proof
from wirespeed.runner.server_session import ServerSession

METRIC = "server.work_us_per_request"
#: Of the servers' CPU time under load, what bypass must have reported. Processes that have ended
#: when it is read are missing: a server with one for each connection, such as PostgreSQL, would
#: seem idle.
REPORTED_MIN = 0.8


@dataclass(frozen=True)
class Work:
    """`useful` is the share of the servers' cores; the rest of their time was polling or idle."""

    useful: float
    us_per_request: float | None


def of_window(
    session: ServerSession,
    served: tuple[Served | None, Served | None],
    figures: Mapping[str, Figures],
    usage: Usage | None,
    loaded_s: float,
) -> Work | None:
    """None where nothing reports empty looks, or not of all processes.

    `loaded_s` is the time under load between the two readings: the step before the window, and it.
    """
    before, after = served
    if before is None or after is None or not figures or loaded_s <= 0:
        return None
    servers = [s for s in session.running if s.instance.role == "server"]
    used = after.since(before)
    if usage is not None and usage.seconds > 0:
        window_s = sum(usage.process_cpu_s.get(s.label, 0.0) for s in servers)
        # The window's CPU time is of the window only, and bypass reports that of the step too.
        if used.cpu_s < REPORTED_MIN * window_s * max(1.0, loaded_s / usage.seconds):
            return None
    cores = {core for server in servers for core in server.instance.cores}
    useful = min(1.0, used.work_s / loaded_s / max(1, len(cores)))
    requests = _requests(figures, loaded_s)
    return Work(useful, used.work_s * 1e6 / requests if requests else None)


def _requests(figures: Mapping[str, Figures], loaded_s: float) -> float:
    """Of the step and the window; at the window's rate where a generator does not count the
    step's."""
    each = [
        one.completed + one.before if one.before is not None else one.rps * loaded_s
        for one in figures.values()
    ]
    return sum(each)


def metrics(
    work: Work | None,
    session: ServerSession,
    usage: Usage | None,
    roles: Mapping[str, str],
    figures: Mapping[str, Figures],
) -> dict[str, float | None]:
    """CPU per request without empty looks; on a stack that does not poll it is all CPU."""
    if work is not None:
        return {METRIC: work.us_per_request, "server.work": work.useful}
    if usage is None or proof.has_stack(session):
        return {}
    completed = sum(one.completed_in(usage.seconds) for one in figures.values())
    used = (s for label, s in usage.process_cpu_s.items() if roles[label] == "server")
    cpu_s = sum(used)
    return {METRIC: cpu_s * 1e6 / completed if completed and cpu_s else None}
