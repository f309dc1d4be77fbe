"""Stops processes in the order that leaves no errors behind: load, then server, then origin."""

from __future__ import annotations

from collections.abc import Sequence

from wirespeed.errors import ProcessError
from wirespeed.fleet.fleet import Fleet
from wirespeed.process.start import Started

GRACE_S = 3.0  # between TERM and the kill
_ORDER = ("load", "server", "origin")


def stop(fleet: Fleet, running: Sequence[Started], grace_s: float = GRACE_S) -> list[str]:
    """Ends these processes with all they forked; returns the labels that had to be killed."""
    killed: list[str] = []
    for role in _ORDER:
        names = [started.label for started in running if started.instance.role == role]
        if not names:
            continue
        questions = [
            (host, "stop", {"names": labels, "grace_s": grace_s})
            for host, labels in fleet.by_host(names)
        ]
        for answer in fleet.together(questions).values():
            killed += answer["killed"]
            if answer["left"]:
                raise ProcessError(
                    f"{', '.join(answer['left'])} cannot be killed (it is another user's, or in "
                    "uninterruptible I/O)"
                )
    return killed
