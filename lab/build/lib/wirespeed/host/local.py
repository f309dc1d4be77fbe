"""This machine as a host, and the lock that lets one run at a time measure on it."""

from __future__ import annotations

import os
import sys

from wirespeed.errors import BusyError
from wirespeed.host.base import BOOTSTRAP, Host

# The first that can be opened counts: /run for root, the others without it.
LOCK_PATHS = [
    "/run/wirespeed.lock",
    f"/run/user/{os.getuid()}/wirespeed.lock",
    "/tmp/wirespeed.lock",
]


def start(mark: str, cgroups: bool = True) -> Host:
    """Starts the agent with this interpreter; -I keeps the user's environment out of it."""
    return Host([sys.executable, "-I", "-c", BOOTSTRAP], mark, cgroups)


def lock(host: Host, owner: str) -> None:
    paths = [os.environ["WIRESPEED_LOCK"]] if "WIRESPEED_LOCK" in os.environ else LOCK_PATHS
    held_by = host.ask("lock", paths=paths, owner=owner)["held_by"]
    if held_by:
        raise BusyError(
            f"run {held_by} is measuring on this machine; two runs would disturb each other. "
            "Wait until it ends, or stop it with Ctrl-C in its terminal"
        )
