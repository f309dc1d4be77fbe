"""h2load (nghttp2): HTTP/1.1 and HTTP/2 over many connections, closed loop.

It prints the smallest, largest and mean time of a request and no percentiles.
"""

from __future__ import annotations

import re
from pathlib import Path

from wirespeed import units
from wirespeed.driver.base import Command, Figures, Instance, Latency, LoadRun, Window
from wirespeed.driver.generator import (
    TIME_NS,
    Generator,
    Output,
    found,
    has,
    little,
    no_result,
    number_after,
)

_BYTES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_TIME = r"([\d.]+)(us|ms|s|m|h)"


def command(_root: Path, instance: Instance, run: LoadRun) -> Command:
    argv = ["h2load"]
    if not has(instance.argv, "-D", "--duration"):
        argv += ["-D", units.duration_text(run.duration_s)]
    if not has(instance.argv, "--warm-up-time"):
        argv.append("--warm-up-time=0s")
    return Command(argv + instance.argv)


def read(instance: Instance, run: LoadRun, output: Output) -> Figures:
    text = output.text
    rps = found(r"^finished in [^,]+, ([\d.]+) req/s", text)
    counts = re.search(
        r"requests: \d+ total, (\d+) started, \d+ done, (\d+) succeeded, (\d+) failed, "
        r"(\d+) errored, (\d+) timeout",
        text,
    )
    if rps is None or counts is None:
        raise no_result(instance, "h2load", output.last_words or text)
    codes = [int(found(rf"(\d+) {kind}xx", text) or 0) for kind in (3, 4, 5)]
    completed = int(counts[2])
    latency = _latency(text, completed)
    streams = number_after(instance.argv, 1, "-m", "--max-concurrent-streams")
    connections = number_after(instance.argv, 1, "-c", "--clients")
    return Figures(
        rps=rps,
        bytes_per_second=_bytes_per_second(text),
        window=Window(output.started_unix_ns, int(run.duration_s * 1e9)),
        completed=completed,
        errors=int(counts[4]),
        non_2xx=sum(codes),
        timeouts=int(counts[5]),
        connections=connections,
        closed_loop=True,
        little_residual=little(latency, connections * streams, rps),
        latency={"service": latency} if latency else {},
        threads=number_after(instance.argv, 1, "-t", "--threads"),
        depth=streams,
    )


def _bytes_per_second(text: str) -> float:
    match = re.search(r"^finished in [^,]+, [\d.]+ req/s, ([\d.]+)([KMG]?)B/s", text, re.M)
    return float(match[1]) * _BYTES[match[2]] if match else 0.0


def _latency(text: str, count: int) -> Latency | None:
    row = re.search(rf"time for request:\s+{_TIME}\s+{_TIME}\s+{_TIME}", text)
    if not row or not count:
        return None
    return Latency(float(row[5]) * TIME_NS[row[6]], float(row[3]) * TIME_NS[row[4]], count)


GENERATOR = Generator(command, read)
