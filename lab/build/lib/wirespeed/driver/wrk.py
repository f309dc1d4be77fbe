"""wrk as a second generator: its text is parsed here and nowhere else.

wrk starts at once and has no warm-up of its own, so its window is its whole run. Its latencies are
adjusted by its own correction (it adds samples it never took), which the page says.
"""

from __future__ import annotations

import math
import re

from wirespeed import units
from wirespeed.driver.base import Command, Figures, Instance, Latency, LoadRun, Window
from wirespeed.errors import ProcessError

_TIME_NS = {"us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9}
_BYTES = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}  # wrk's KB is 1024
_VALUE = r"([\d.]+)(us|ms|s|m|h)"


def command(instance: Instance) -> Command:
    latency = [] if "--latency" in instance.argv else ["--latency"]
    return Command(["wrk", *latency, *whole_seconds(instance.argv)])


def whole_seconds(argv: list[str]) -> list[str]:
    """wrk reads no fractions: a duration is rounded up."""
    result = list(argv)
    for number, word in enumerate(argv[:-1]):
        if word in ("-d", "--duration"):
            result[number + 1] = f"{math.ceil(units.duration_s(argv[number + 1]))}s"
    return result


def read(instance: Instance, run: LoadRun, text: str, started_unix_ns: int) -> Figures:
    rps = _find(r"Requests/sec:\s+([\d.]+)", text)
    if rps is None:
        tail = text.strip().splitlines()
        raise ProcessError(f"{instance.label}: wrk printed no result: {tail[-1] if tail else ''}")
    transfer = re.search(r"Transfer/sec:\s+([\d.]+)([KMGT]?B)", text)
    done = re.search(rf"(\d+) requests in {_VALUE}", text)
    socket = re.search(
        r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text
    )
    faults = [int(group) for group in socket.groups()] if socket else [0, 0, 0, 0]
    length_ns = _time_ns(done[2], done[3]) if done else run.duration_s * 1e9
    latency = _latency(text, int(done[1]) if done else 0)
    connections = _connections(instance.argv)
    return Figures(
        rps=rps,
        bytes_per_second=float(transfer[1]) * _BYTES[transfer[2]] if transfer else 0.0,
        window=Window(started_unix_ns, int(length_ns)),
        completed=int(done[1]) if done else 0,
        errors=sum(faults),
        non_2xx=int(_find(r"Non-2xx or 3xx responses: (\d+)", text) or 0),
        timeouts=faults[3],
        connections=connections,
        closed_loop=True,
        little_residual=_little(latency, connections, rps),
        latency={"service": latency} if latency else {},
    )


def _find(pattern: str, text: str) -> float | None:
    match = re.search(pattern, text)
    return float(match[1]) if match else None


def _time_ns(value: str, unit: str) -> float:
    return float(value) * _TIME_NS[unit]


def _latency(text: str, count: int) -> Latency | None:
    row = re.search(rf"Latency\s+{_VALUE}\s+{_VALUE}\s+{_VALUE}", text)
    if not row:
        return None
    quantiles: dict[float, float | None] = {
        float(percent) / 100: _time_ns(value, unit)
        for percent, value, unit in re.findall(rf"^\s+(\d+)%\s+{_VALUE}\s*$", text, re.M)
    }
    return Latency(
        mean_ns=_time_ns(row[1], row[2]),
        max_ns=_time_ns(row[5], row[6]),
        count=count,
        quantiles_ns=quantiles,
    )


def _connections(argv: list[str]) -> int:
    for number, word in enumerate(argv):
        if word in ("-c", "--connections") and number + 1 < len(argv):
            return int(argv[number + 1])
        if re.fullmatch(r"-c\d+", word):
            return int(word[2:])
    return 10  # wrk's default


def _little(latency: Latency | None, connections: int, rps: float) -> float | None:
    if not latency or not rps:
        return None
    return latency.mean_ns / (connections / rps * 1e9) - 1
