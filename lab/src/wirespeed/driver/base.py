"""What a driver gives the runner: a command to start, and figures read from its output."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from wirespeed.recipe.resolve import Instance, Place
from wirespeed.results.model import Window


@dataclass(frozen=True)
class Command:
    """What is really started: the recipe's argv with what the program needs around it."""

    argv: list[str]
    env: dict[str, str] = field(default_factory=dict)
    along: tuple[Path, ...] = ()  # files that it needs besides the ones that argv and env name


@dataclass(frozen=True)
class LoadRun:
    """When and how long one generator runs."""

    folder: Path
    duration_s: float
    warmup_s: float
    start_at: float  # unix seconds: all generators of a trial start together
    timeout_s: float | None = None  # for one answer, where the recipe does not say


@dataclass(frozen=True)
class Latency:
    """One latency distribution: mergeable when `hdr` is there, otherwise only these figures."""

    mean_ns: float
    max_ns: float
    count: int
    quantiles_ns: dict[float, float | None] = field(default_factory=dict)
    hdr: str | None = None  # base64 of HdrHistogram V2 compressed


@dataclass(frozen=True)
class Figures:
    """The results of one generator in its window."""

    rps: float
    bytes_per_second: float
    window: Window
    completed: int
    errors: int
    non_2xx: int
    timeouts: int
    connections: int
    closed_loop: bool
    due: int | None = None  # open loop: requests that the schedule asked for
    sent: int | None = None
    little_residual: float | None = None
    latency: dict[str, Latency] = field(default_factory=dict)
    busiest_thread: float | None = None
    threads: int = 0  # 0: unknown
    depth: int = 1  # requests in flight on one connection
    warnings: list[str] = field(default_factory=list)
    before: int | None = None  # responses in the load before the window; None: unknown

    def shifted(self, offset_ns: int) -> Figures:
        """The same with its window on another clock."""
        window = Window(self.window.start_unix_ns + offset_ns, self.window.length_ns)
        return replace(self, window=window)

    def completed_in(self, seconds: float) -> float:
        """Of its window's requests those of a part of it: what a generator did while others had
        ended belongs to no figure that is of all of them."""
        own_s = self.window.length_ns / 1e9
        return self.completed * min(1.0, seconds / own_s) if own_s > 0 else 0.0

    @property
    def in_flight(self) -> int:
        return self.connections * self.depth


__all__ = ["Command", "Figures", "Instance", "Latency", "LoadRun", "Place", "Window"]
