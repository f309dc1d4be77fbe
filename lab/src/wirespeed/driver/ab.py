"""ab (Apache HTTP server's benchmark): HTTP/1.0, one thread, closed loop.

Without `-k` it opens a connection for each request. Percentiles come from its CSV.
"""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

from wirespeed.driver.base import Command, Figures, Instance, Latency, LoadRun, Window
from wirespeed.driver.generator import (
    Generator,
    Output,
    found,
    has,
    little,
    no_result,
    number_after,
)

RATE_MAX = 500_000  # requests per second that ab has memory for; it keeps 32 bytes of each


def command(_root: Path, instance: Instance, run: LoadRun) -> Command:
    argv = ["ab", "-q", "-e", str(_percents(instance, run))]
    if not has(instance.argv, "-t"):
        seconds = math.ceil(run.duration_s)
        argv += ["-t", str(seconds), "-n", str(RATE_MAX * seconds)]  # -t alone means -n 50000
    return Command(argv + instance.argv)


def _percents(instance: Instance, run: LoadRun) -> Path:
    return run.folder / f"ab-{instance.label}.csv"


def read(instance: Instance, run: LoadRun, output: Output) -> Figures:
    text = output.text
    rps = found(r"^Requests per second:\s+([\d.]+)", text)
    completed = found(r"^Complete requests:\s+(\d+)", text)
    if rps is None or completed is None:
        raise no_result(instance, "ab", output.last_words or text)
    connections = number_after(instance.argv, 1, "-c")
    latency = _latency(text, int(completed), _percents(instance, run))
    kilobytes = found(r"^Transfer rate:\s+([\d.]+) \[Kbytes/sec\]", text) or 0.0
    return Figures(
        rps=rps,
        bytes_per_second=kilobytes * 1024,
        window=Window(output.started_unix_ns, int((_taken(text) or run.duration_s) * 1e9)),
        completed=int(completed),
        errors=_failed(text),
        non_2xx=int(found(r"^Non-2xx responses:\s+(\d+)", text) or 0),
        timeouts=0,
        connections=connections,
        closed_loop=True,
        little_residual=little(latency, connections, rps),
        latency={"service": latency} if latency else {},
        threads=1,
    )


def _taken(text: str) -> float | None:
    return found(r"^Time taken for tests:\s+([\d.]+) seconds", text)


def _failed(text: str) -> int:
    """A response of another length is not an error: the server may count or date."""
    parts = re.search(r"\(Connect: (\d+), Receive: (\d+), Length: \d+, Exceptions: (\d+)\)", text)
    return sum(map(int, parts.groups())) if parts else 0


def _latency(text: str, count: int, percents: Path) -> Latency | None:
    mean_ms = found(r"^Time per request:\s+([\d.]+) \[ms\] \(mean\)", text)
    longest = found(r"^\s*100%\s+(\d+) \(longest request\)", text)
    if mean_ms is None:
        return None
    quantiles: dict[float, float | None] = {}
    if percents.exists():
        rows = list(csv.reader(percents.read_text(encoding="utf-8").splitlines()))[1:]
        quantiles = {int(row[0]) / 100: float(row[1]) * 1e6 for row in rows if len(row) == 2}
    return Latency(_mean(text, mean_ms) * 1e6, (longest or 0.0) * 1e6, count, quantiles)


def _mean(text: str, of_all_ms: float) -> float:
    """ab's "Time per request" is connections over rate, not measured; its table's total is."""
    row = re.search(r"^Total:\s+\d+\s+([\d.]+)", text, re.M)
    mean_ms = float(row[1]) if row else 0.0
    return mean_ms if mean_ms >= 10 else of_all_ms  # the table is in whole milliseconds


GENERATOR = Generator(command, read)
