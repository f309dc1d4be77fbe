"""Starts one process, after making sure that its port is free."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from wirespeed.errors import HostError, ProcessError
from wirespeed.host.base import Host
from wirespeed.recipe.resolve import Instance

# Servers often live where an ordinary user's PATH does not look.
SEARCH_PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin"
TAIL_BYTES = 4096


@dataclass(frozen=True)
class Started:
    """A running process and where its output goes."""

    instance: Instance
    argv: list[str]
    pid: int
    stdout: Path
    stderr: Path

    @property
    def label(self) -> str:
        return self.instance.label

    def last_words(self) -> str:
        """The last line the process wrote: usually the reason why it ended."""
        for path in (self.stderr, self.stdout):
            try:
                with open(path, "rb") as file:
                    file.seek(max(0, path.stat().st_size - TAIL_BYTES))
                    lines = file.read().decode(errors="replace").split("\n")
            except OSError:
                continue
            lines = [line.strip() for line in lines if line.strip()]
            if lines:
                return lines[-1]
        return ""


def start(
    host: Host, instance: Instance, argv: list[str], env: dict[str, str], folder: Path, address: str
) -> Started:
    if instance.port is not None:
        check_port(instance, address)
    stdout = folder / f"{instance.role}-{instance.label}.out"
    stderr = folder / f"{instance.role}-{instance.label}.err"
    host.exits.pop(instance.label, None)
    try:
        answer = host.ask(
            "spawn",
            name=instance.label,
            argv=argv,
            cores=instance.cores,
            env={"PATH": SEARCH_PATH, **env},
            limits=instance.limits,
            stdout=str(stdout),
            stderr=str(stderr),
            cwd=str(folder),
        )
    except HostError as error:
        raise ProcessError(f"{instance.label} cannot be started: {error}") from error
    return Started(instance, argv, answer["pid"], stdout, stderr)


def check_port(instance: Instance, address: str) -> None:
    """A port in use would make the trial measure someone else's server."""
    with socket.socket() as probe:
        # TIME_WAIT of the trial before is no one's server.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, instance.port or 0))
        except OSError as error:
            raise ProcessError(
                f"{instance.label} needs port {instance.port} on {address}, but: "
                f"{error.strerror}; stop what uses it (ss -ltnp) or change the recipe's port.base"
            ) from None
