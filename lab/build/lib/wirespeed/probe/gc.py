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


def of_window(log: Path, jvm_start_s: float, start_ns: int, length_ns: int) -> Collections | None:
    """Pauses that ended in the window; None without a log."""
    found = pauses(log, jvm_start_s)
    if found is None:
        return None
    inside = [ms for at_ns, ms in found if start_ns <= at_ns <= start_ns + length_ns]
    return Collections(len(inside), sum(inside))


def pauses(log: Path, jvm_start_s: float) -> list[tuple[int, float]] | None:
    """(end in Unix ns, ms) of each pause. A wall clock is exact; uptime needs the start."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return None
    found = []
    for line in lines:
        match = _PAUSE.search(line)
        at_s = _instant(line, jvm_start_s) if match else None
        if match and at_s is not None:
            found.append((int(at_s * 1e9), float(match[1])))
    return found


def _instant(line: str, jvm_start_s: float) -> float | None:
    clock = _UTC.search(line)
    if clock:
        return datetime.datetime.strptime(clock[1] + clock[2], "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()
    uptime = _UPTIME.search(line)
    return jvm_start_s + float(uptime[1]) if uptime else None
