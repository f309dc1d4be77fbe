"""Stops processes in the order that leaves no errors behind: load, then server, then origin."""

from __future__ import annotations

from collections.abc import Sequence

from wirespeed.errors import ProcessError
from wirespeed.host.base import Host
from wirespeed.process.start import Started

GRACE_S = 3.0  # between TERM and the kill
_ORDER = ("load", "server", "origin")


def stop(host: Host, running: Sequence[Started], grace_s: float = GRACE_S) -> list[str]:
    """Ends these processes with all they forked; returns the labels that had to be killed."""
    killed: list[str] = []
    for role in _ORDER:
        names = [started.label for started in running if started.instance.role == role]
        if not names:
            continue
        answer = host.ask("stop", names=names, grace_s=grace_s)
        killed += answer["killed"]
        if answer["left"]:
            raise ProcessError(
                f"{', '.join(answer['left'])} cannot be killed (uninterruptible I/O)"
            )
    return killed
