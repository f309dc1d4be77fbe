"""bypass: the proof that an accelerated server really bypassed the kernel.

A preloaded library that cannot help a program falls back to the kernel without a word, and the
trial would compare the kernel with itself. `bypass stat --json` (schema bypass-stat/1) counts the
connections of each process by the way they came; the difference over the trial is the proof.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirespeed.driver import stack
from wirespeed.errors import ProcessError

SCHEMA = "bypass-stat/1"
SEGMENTS_PER_REQUEST_MAX = 0.1  # the kernel needs at least one each way for a request


@dataclass(frozen=True)
class Served:
    """Connections that a set of processes accepted so far, by the way they came."""

    processes: int
    bypassed: int
    kernel: int
    polled_s: float = 0.0  # CPU time spent looking for work that was not there
    cpu_s: float = 0.0  # CPU time of the same processes at the same instant

    def since(self, before: Served) -> Served:
        return Served(
            self.processes, self.bypassed - before.bypassed, self.kernel - before.kernel,
            self.polled_s - before.polled_s, self.cpu_s - before.cpu_s,
        )  # fmt: skip

    @property
    def work_s(self) -> float:
        """CPU time without the empty looks."""
        return max(0.0, self.cpu_s - self.polled_s)

    def problem(self, segments_per_request: float | None) -> str:
        """Why the trial does not show the stack that it claims to; empty when it does.

        Processes that were forked may not be counted; then the kernel's own count of TCP
        segments in the window decides.
        """
        if self.processes == 0:
            return "the server is not accelerated: bypass stat does not list it"
        if self.kernel > 0:
            return f"{self.kernel} of {self.kernel + self.bypassed} connections used the kernel"
        if self.bypassed > 0:
            return ""
        return kernel_carried(segments_per_request)


def kernel_carried(segments_per_request: float | None) -> str:
    """That the kernel had the traffic after all, by its own count; empty when it had not."""
    if segments_per_request is not None and segments_per_request <= SEGMENTS_PER_REQUEST_MAX:
        return ""
    seen = "?" if segments_per_request is None else f"{segments_per_request:.1f}"
    return f"the kernel carried {seen} TCP segments a request, so it was not bypassed"


def command(root: Path) -> list[str]:
    """Prints the counters of a host's accelerated processes."""
    return [str(stack.program(root)), "stat", "--json"]


def served(printed: str, cpu_s: float, pids: Collection[int]) -> Served:
    """Connections that these processes have accepted since they started, from what `command`
    printed; `cpu_s` is their CPU time."""
    try:
        return counted(json.loads(printed), cpu_s, pids)
    except ValueError as error:
        raise ProcessError(f"bypass stat --json printed no JSON: {error}") from error


def counted(data: dict[str, Any], cpu_s: float, pids: Collection[int]) -> Served:
    if data.get("schema") != SCHEMA:
        raise ProcessError(
            f"bypass stat writes {data.get('schema')!r}, this lab reads {SCHEMA!r}; "
            "rebuild with ./wirespeed build bypass"
        )
    ours = [process for process in data["processes"] if process["pid"] in pids]
    return Served(
        processes=len(ours),
        bypassed=sum(
            process["counters"].get(name, 0)
            for process in ours
            for name in ("accepts_shm", "accepts_packets")
        ),
        kernel=sum(process["counters"]["accepts_kernel"] for process in ours),
        polled_s=sum(process["counters"].get("spin_ns", 0) for process in ours) / 1e9,
        cpu_s=cpu_s,
    )
