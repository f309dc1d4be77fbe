"""What a run that was killed may have left: marked processes, cgroups, scratch folders.

The agent cleans up by itself, also after kill -9 of the lab. This is for what remains when the
agent was killed too, or the machine lost power.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

from wirespeed.host.children import remove_folder

CGROUP_TREES = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
_MARK = b"WIRESPEED_RUN="
_GONE_S = 3.0


def kill_processes() -> list[int]:
    """Kills processes that carry the mark of a lab that is gone; returns their ids."""
    found = [pid for pid, mark in _marked().items() if not _is_lab_alive(mark)]
    for pid in found:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    deadline = time.monotonic() + _GONE_S
    while any(pid in _marked() for pid in found) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def remove_cgroups() -> list[str]:
    removed = []
    for tree in CGROUP_TREES:
        for folder in Path(tree).glob("wirespeed-*"):
            if _is_lab_alive(folder.name.removeprefix("wirespeed-")):
                continue
            for inner in [path for path in folder.iterdir() if path.is_dir()]:
                remove_folder(str(inner))  # type: ignore[no-untyped-call]
            remove_folder(str(folder))  # type: ignore[no-untyped-call]
            removed.append(str(folder))
    return removed


def remove_scratch(folder: Path) -> bool:
    existed = folder.exists()
    shutil.rmtree(folder, ignore_errors=True)
    return existed


def _marked() -> dict[int, str]:
    """Processes whose environment carries a run's mark."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(_MARK):
                found[int(entry.name)] = variable[len(_MARK) :].decode(errors="replace")
    return found


def _is_lab_alive(mark: str) -> bool:
    """A mark begins with the process id of its lab."""
    pid = mark.split("-")[0]
    if not pid.isdigit():
        return False
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"wirespeed" in line or b"pytest" in line
