"""Collections of a JVM in the measured window, from the log that -Xlog:gc writes."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from pathlib import Path

_PAUSE = re.compile(r"GC\(\d+\) Pause .*?([\d.]+)ms\s*$")
_UTC = re.compile(r"\[(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+)([+-]\d{4})\]")
_UPTIME = re.compile(r"\[([\d.]+)s\]")


@dataclass(frozen=True)
class Collections:
    count: int
    pause_ms: float

    def throughput(self, window_s: float) -> float:
        """The share of the window in which the program ran, in percent."""
        return 100.0 * max(0.0, 1.0 - self.pause_ms / 1e3 / window_s) if window_s > 0 else 100.0


@dataclass(frozen=True)
class Log:
    """A JVM's log, and how its times become those of the lab's clock, on which windows are."""

    path: Path
    started_s: float  # when the JVM was started, on the lab's clock: uptime counts from there
    offset_s: float = 0.0  # the clock of the JVM's host minus the lab's: wall clocks are its own


def of_window(log: Log, start_ns: int, length_ns: int) -> Collections | None:
    """Pauses that ended in the window; None without a log."""
    collected = pauses(log)
    if collected is None:
        return None
    inside = [ms for at_ns, ms in collected if start_ns <= at_ns <= start_ns + length_ns]
    return Collections(len(inside), sum(inside))


def pauses(log: Log) -> list[tuple[int, float]] | None:
    """(end in Unix ns, ms) of each pause. A wall clock is exact; uptime needs the start."""
    try:
        lines = log.path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    collected = []
    for line in lines:
        match = _PAUSE.search(line)
        at_s = _instant(line, log) if match else None
        if match and at_s is not None:
            collected.append((int(at_s * 1e9), float(match[1])))
    return collected


def _instant(line: str, log: Log) -> float | None:
    clock = _UTC.search(line)
    if clock:
        at = datetime.datetime.strptime(clock[1] + clock[2], "%Y-%m-%dT%H:%M:%S.%f%z")
        return at.timestamp() - log.offset_s
    uptime = _UPTIME.search(line)
    return log.started_s + float(uptime[1]) if uptime else None
