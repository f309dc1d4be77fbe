"""Proof that a trial ran on the stack it names: connections counted before and after the window."""

from __future__ import annotations

from collections.abc import Iterable

from wirespeed.driver import bypass, stack
from wirespeed.driver.base import Figures
from wirespeed.driver.bypass import Served
from wirespeed.probe.window import Usage
from wirespeed.runner.life import Life


def servers_on_bypass(life: Life) -> list[str]:
    """Labels of the servers that should serve past the kernel in this life."""
    root = life.schedule.place.root
    return [
        started.label
        for started in life.running
        if started.instance.role == "server"
        and stack.provider(root, started.instance.under).name == "bypass"
    ]


def served(life: Life) -> Served | None:
    """None when no server of this life is accelerated by bypass."""
    labels = servers_on_bypass(life)
    if not labels:
        return None
    pids = {pid for label in labels for pid in life.host.ask("state", name=label)["members"]}
    return bypass.served(life.schedule.place.root, pids)


def problem(
    before: Served | None, after: Served | None, usage: Usage | None, figures: Iterable[Figures]
) -> str:
    """Why this trial does not show the stack that it names; empty when it does or need not."""
    if before is None or after is None:
        return ""
    rps = sum(one.rps for one in figures)
    segments = usage.values["tcp_segments"] / rps if usage and rps else None
    return after.since(before).problem(segments)
