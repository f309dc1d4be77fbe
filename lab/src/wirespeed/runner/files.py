"""A run's files on its hosts: payloads that servers serve, and the scratch folder around them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from wirespeed.agent import leftovers
from wirespeed.agent.children import Refused
from wirespeed.errors import HostError, StorageError
from wirespeed.fleet.fleet import Fleet
from wirespeed.fleet.host import Host
from wirespeed.recipe.resolve import FileSet
from wirespeed.topology import Topology

_WRITE_S = 300.0  # gigabytes of payload on a slow host


def make(fleet: Fleet, topology: Topology, sets: Iterable[FileSet]) -> None:
    """Has each role's hosts write and mount what its servers serve."""
    by_host: dict[str, list[dict[str, object]]] = {}
    for one in sets:
        for name in topology.hosts(one.role):
            by_host.setdefault(name, []).append(asdict(one))
    questions = [(fleet[name], "make_files", {"sets": files}) for name, files in by_host.items()]
    try:
        fleet.together(questions, _WRITE_S)
    except HostError as error:
        raise StorageError(str(error)) from error


def scratch_folder(run_id: str) -> Path:
    """Where payloads and configurations live while a run lasts: memory, where there is some."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK):
        return memory / f"wirespeed-{run_id}"
    return Path(os.environ.get("TMPDIR", "/tmp")) / f"wirespeed-{run_id}"


def claim(scratch: Path) -> None:
    """Makes the scratch folder on this machine; StorageError where another user made it."""
    try:
        leftovers.claim(scratch)
    except (Refused, OSError) as error:
        raise StorageError(f"cannot use the scratch folder: {error}") from error


def prepare(fleet: Fleet, run_dir: Path) -> None:
    """A scratch folder on every host, gone with its agent; run files stand below it elsewhere.

    Hosts of one machine share it, and each removes it at its end: what one of them was still asked
    for may write there after another has ended.
    """
    scratch = scratch_folder(run_dir.name)
    for host in fleet.all():
        _own(host, scratch)
    for host in fleet.seats:
        if not host.far.shares_files:
            folder = Path(host.info["memory_folder"]) / f"{scratch.name}-{_plain(host.name)}"
            _own(host, folder)
            host.folders = {str(run_dir): f"{folder}/run"}


def _own(host: Host, folder: Path) -> None:
    host.ask("clean_up_at_end", folders=[str(folder)])


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)
