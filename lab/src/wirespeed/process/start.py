"""Starts processes on their hosts, after making sure that their ports are free."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirespeed.errors import HostError, ProcessError
from wirespeed.fleet.fleet import Fleet
from wirespeed.fleet.host import Host
from wirespeed.recipe.resolve import Instance

# Servers often live where an ordinary user's PATH does not look.
SEARCH_PATH = os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/local/sbin:/usr/sbin:/sbin"
TAIL_BYTES = 4096
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")  # ECMA-48


def readable(line: str) -> str:
    """A line of a program's output without colours and control characters: in a message they would
    change the user's terminal, and what stands before a carriage return would not be seen."""
    plain = ESCAPES.sub("", line)
    return "".join(letter if letter.isprintable() else " " for letter in plain).strip()


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

    def last_words(self, fleet: Fleet) -> str:
        """The last line the process wrote: usually the reason why it ended."""
        fleet.host_of(self.label).bring_back(self.stdout.parent)
        for path in (self.stderr, self.stdout):
            try:
                with open(path, "rb") as file:
                    file.seek(max(0, path.stat().st_size - TAIL_BYTES))
                    lines = file.read().decode(errors="replace").split("\n")
            except OSError:
                continue
            lines = list(filter(None, map(readable, lines)))
            if lines:
                return lines[-1]
        return ""


@dataclass(frozen=True)
class Order:
    """What to start: the command as the near side has it, and where its output goes."""

    instance: Instance
    argv: list[str]
    env: dict[str, str]
    folder: Path
    at: float | None = None  # Unix time, on the host's clock, for programs that cannot wait
    along: Sequence[Path] = ()  # files that the host needs besides the ones that the command names

    @property
    def stdout(self) -> Path:
        return self.folder / f"{self.instance.role}-{self.instance.label}.out"

    @property
    def stderr(self) -> Path:
        return self.folder / f"{self.instance.role}-{self.instance.label}.err"


def start_all(fleet: Fleet, orders: Sequence[Order], ours: Sequence[Path]) -> list[Started]:
    """Starts processes on all their hosts in parallel; started ones are known to the fleet.

    `ours` are the folders whose files are sent along when a command names them.
    """
    questions = [_question(fleet, order, ours) for order in orders]
    sent = [(order, host.send("spawn", **words)) for order, (host, words) in zip(
        orders, questions, strict=True
    )]  # fmt: skip
    started, problem = [], None
    for (order, serial), (host, words) in zip(sent, questions, strict=True):
        try:
            pid = host.answer(serial, "spawn")["pid"]
        except HostError as error:
            problem = problem or _refusal(order.instance, str(error))
            continue
        one = Started(order.instance, words["argv"], pid, order.stdout, order.stderr)
        started.append(one)
    if problem:
        raise StartFailed(problem, started)
    return started


class StartFailed(ProcessError):
    """One of several could not be started; the others run."""

    def __init__(self, problem: str, started: list[Started]) -> None:
        super().__init__(problem)
        self.started = started


def _question(fleet: Fleet, order: Order, ours: Sequence[Path]) -> tuple[Host, dict[str, Any]]:
    instance = order.instance
    host = fleet[instance.host]
    fleet.place(instance.label, host)
    env = {"PATH": SEARCH_PATH, **order.env}
    there = Path(host.folder_there(order.folder))
    host.carried([str(path) for path in order.along], ours)
    words: dict[str, Any] = {
        "name": instance.label,
        "argv": host.carried(order.argv, ours),
        "cores": instance.cores,
        "env": dict(zip(env, host.carried(list(env.values()), ours), strict=True)),
        "limits": instance.limits,
        "stdout": str(there / order.stdout.name),
        "stderr": str(there / order.stderr.name),
        "folder": str(there),
        "cwd": str(there),
    }
    if instance.cwd:
        words |= host.cwd_there(instance.cwd, order.argv, ours)
    if instance.user:
        words["user"] = instance.user
    if instance.netns:
        words["namespace"] = instance.netns
    if order.at is not None:
        words["at"] = order.at
    if instance.port is not None:
        words["listen"] = [instance.seats[0].address, instance.port]
    return host, words


def _refusal(instance: Instance, problem: str) -> str:
    if problem.startswith("port "):
        number, _, rest = problem[len("port ") :].partition(" on ")
        address, _, reason = rest.partition(": ")
        return f"{instance.label} needs port {number} on {address}, but: {reason}"
    return f"{instance.label} cannot be started: {problem}"
