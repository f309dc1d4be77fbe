"""wrk and wrk2 as generators: their text is parsed here and nowhere else.

Both start at once and have no warm-up of their own, so their window is their whole run. wrk adjusts
its latencies by its own correction (it adds samples it never took), which the page says. wrk2 keeps
a rate and counts from the intended time.
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
    whole_seconds,
)

_BYTES = {"B": 1, "KB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}  # wrk's KB is 1024
_VALUE = r"([\d.]+)(us|ms|s|m|h)"
_DURATION = ("-d", "--duration")


def command(_root: Path, instance: Instance, run: LoadRun) -> Command:
    argv = [instance.tool]
    if not has(instance.argv, "--latency"):
        argv.append("--latency")
    if not has(instance.argv, *_DURATION):
        argv += ["-d", units.duration_text(run.duration_s)]
    return Command(whole_seconds(argv + instance.argv, *_DURATION))


def read(instance: Instance, run: LoadRun, output: Output) -> Figures:
    text, started_unix_ns = output.text, output.started_unix_ns
    rps = found(r"Requests/sec:\s+([\d.]+)", text)
    if rps is None:
        raise no_result(instance, instance.tool, text or output.last_words)
    transfer = re.search(r"Transfer/sec:\s+([\d.]+)([KMGT]?B)", text)
    done = re.search(rf"(\d+) requests in {_VALUE}", text)
    socket = re.search(
        r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text
    )
    faults = [int(group) for group in socket.groups()] if socket else [0, 0, 0, 0]
    length_ns = _time_ns(done[2], done[3]) if done else run.duration_s * 1e9
    latency = _latency(text, int(done[1]) if done else 0)
    connections = number_after(instance.argv, 10, "-c", "--connections")  # 10: wrk's default
    is_open = instance.tool == "wrk2"
    return Figures(
        rps=rps,
        bytes_per_second=float(transfer[1]) * _BYTES[transfer[2]] if transfer else 0.0,
        window=Window(started_unix_ns, int(length_ns)),
        completed=int(done[1]) if done else 0,
        errors=sum(faults),
        non_2xx=int(found(r"Non-2xx or 3xx responses: (\d+)", text) or 0),
        timeouts=faults[3],
        connections=connections,
        closed_loop=not is_open,
        due=_due(instance.argv, length_ns) if is_open else None,
        sent=int(done[1]) if is_open and done else None,
        little_residual=None if is_open else little(latency, connections, rps),
        latency={"response" if is_open else "service": latency} if latency else {},
    )


def _due(argv: list[str], length_ns: float) -> int | None:
    """What wrk2's rate asks for in its window; it writes 50M for 50,000,000."""
    for word, after in zip(argv, [*argv[1:], ""], strict=True):
        text = after if word in ("-R", "--rate") else word[2:] if word.startswith("-R") else ""
        if text:
            return int(units.count(text) * length_ns / 1e9)
    return None


def _time_ns(value: str, unit: str) -> float:
    return float(value) * TIME_NS[unit]


def _latency(text: str, count: int) -> Latency | None:
    row = re.search(rf"Latency\s+{_VALUE}\s+{_VALUE}\s+{_VALUE}", text)
    if not row:
        return None
    quantiles: dict[float, float | None] = {
        round(float(percent) / 100, 7): _time_ns(value, unit)
        for percent, value, unit in re.findall(rf"^\s+(\d+(?:\.\d+)?)%\s+{_VALUE}\s*$", text, re.M)
    }
    return Latency(
        mean_ns=_time_ns(row[1], row[2]),
        max_ns=_time_ns(row[5], row[6]),
        count=count,
        quantiles_ns=quantiles,
    )


GENERATOR = Generator(command, read)
