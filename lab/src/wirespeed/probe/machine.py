"""Facts about a host and its programs: what a reader needs to judge or repeat a figure."""

from __future__ import annotations

from typing import Any

from wirespeed.fleet.host import Host

_ANSWER_S = 60.0  # a JVM that prints its version on a loaded host
# Where a run may be resumed only if these are as they were.
IDENTITY = ("cpu_model", "cores", "kernel", "memory_mib")
# And these, where both parts of the run know them: programs only where the recipe starts them.
KERNEL = ("cgroup", "clocksource")
PROGRAMS = ("java", "nginx", "wrk")
SETTINGS = ("governor", "transparent_hugepages", "congestion_control", "somaxconn")


def facts(
    host: Host, search_path: str, java: str = "java", is_audit: bool = False
) -> dict[str, Any]:
    """The facts that the agent reads there; with `is_audit` also cards, settings and services."""
    answer: dict[str, Any] = host.ask(
        "facts", _ANSWER_S, search_path=search_path, java=java, is_audit=is_audit
    )
    return answer
