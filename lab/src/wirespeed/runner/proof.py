"""Proof that a trial ran on the stack it names: connections counted before and after the window,
and the kernel's own count of TCP segments where a stack does not report it."""

from __future__ import annotations

from collections.abc import Iterable

from wirespeed.driver import bypass, stack
from wirespeed.driver.base import Figures
from wirespeed.driver.bypass import Served
from wirespeed.errors import HostError, ProcessError
from wirespeed.probe.window import Usage
from wirespeed.runner.server_session import ServerSession

ANSWER_S = 25.0  # the agent itself gives a program 20 s, and then says so

def servers_on(session: ServerSession, carrier: str) -> list[str]:
    """Labels of the servers of this session that this provider should accelerate."""
    root = session.schedule.place.root
    return [
        started.label
        for started in session.running
        if started.instance.role == "server"
        and stack.provider(root, started.instance.under).name == carrier
    ]


def has_stack(session: ServerSession) -> bool:
    """Whether a server of this session runs on another stack than the kernel's."""
    root = session.schedule.place.root
    servers = (s for s in session.running if s.instance.role == "server")
    return any(stack.provider(root, s.instance.under).name != "kernel" for s in servers)


def served(session: ServerSession) -> Served | None:
    """None when no server of this session is accelerated by bypass."""
    labels = servers_on(session, "bypass")
    if not labels:
        return None
    pids = [pid for label in labels for pid in session.fleet.state(label)["members"]]
    host = session.fleet.host_of(labels[0])  # a site has one host for servers
    argv = host.carried(bypass.command(session.schedule.place.root), session.ours)
    try:
        printed = host.ask("run", argv=argv, timeout_s=ANSWER_S)["out"]
        cpu_s = host.ask("cpu", pids=pids)["cpu_s"]
    except HostError as error:
        raise ProcessError(f"bypass stat --json gave no answer: {error}") from error
    return bypass.served(printed, cpu_s, pids)


def problem(
    session: ServerSession,
    before: Served | None,
    after: Served | None,
    usage: Usage | None,
    figures: Iterable[Figures],
) -> str:
    """Why this trial does not show the stack that it names; empty when it does or need not."""
    rps = sum(one.rps for one in figures)
    segments = usage.values["tcp_segments"] / rps if usage and rps else None
    if before is not None and after is not None:
        return after.since(before).problem(segments)
    # Onload reports nothing that the lab reads; what the kernel did not carry, it did.
    return bypass.kernel_carried(segments) if servers_on(session, "onload") else ""
