"""oha: HTTP/1.1 and HTTP/2, closed loop, or open with -q; its JSON is what is read of it."""

from __future__ import annotations

from pathlib import Path

from wirespeed import units
from wirespeed.driver.base import Command, Figures, Instance, Latency, LoadRun, Window
from wirespeed.driver.generator import (
    Generator,
    Output,
    has,
    json_of,
    little,
    no_result,
    number_after,
)

CUT_OFF = "aborted due to deadline"  # in flight when the window ended, so no error


def command(_root: Path, instance: Instance, run: LoadRun) -> Command:
    argv = ["oha", "--no-tui", "--output-format", "json"]
    if not has(instance.argv, "-z"):
        argv += ["-z", units.duration_text(run.duration_s)]
    if has(instance.argv, "-q") and not has(instance.argv, "--latency-correction"):
        argv.append("--latency-correction")  # at a rate, times count from the intended start
    return Command(argv + instance.argv)


def read(instance: Instance, _run: LoadRun, output: Output) -> Figures:
    data = json_of(instance, "oha", output.text, output.last_words)
    try:
        return _figures(instance, data, output.started_unix_ns)
    except (KeyError, TypeError):
        raise no_result(instance, "oha", output.last_words) from None


def _figures(instance: Instance, data: dict, started_unix_ns: int) -> Figures:  # type: ignore[type-arg]
    summary, codes = data["summary"], data["statusCodeDistribution"]
    errors = {k: n for k, n in data["errorDistribution"].items() if k != CUT_OFF}
    completed = sum(codes.values())
    seconds = summary["total"]
    rps = completed / seconds if seconds else 0.0
    latency = _latency(data, completed)
    rate = number_after(instance.argv, 0, "-q")
    connections = number_after(instance.argv, 50, "-c")  # 50: oha's default
    depth = number_after(instance.argv, 1, "-p")
    kind = "response" if rate else "service"
    return Figures(
        rps=rps,
        bytes_per_second=summary["sizePerSec"] or 0.0,
        window=Window(started_unix_ns, int(seconds * 1e9)),
        completed=completed,
        errors=sum(errors.values()),
        non_2xx=sum(count for code, count in codes.items() if not code.startswith("2")),
        timeouts=sum(count for text, count in errors.items() if "timeout" in text),
        connections=connections,
        closed_loop=not rate,
        due=int(rate * seconds) if rate else None,
        sent=completed if rate else None,
        little_residual=None if rate else little(latency, connections * depth, rps),
        latency={kind: latency} if latency else {},
        depth=depth,
    )


def _latency(data: dict, count: int) -> Latency | None:  # type: ignore[type-arg]
    summary = data["summary"]
    if summary["average"] is None or not count:
        return None
    quantiles: dict[float, float | None] = {
        round(float(name[1:]) / 100, 6): None if value is None else value * 1e9
        for name, value in data["latencyPercentiles"].items()
    }
    return Latency(summary["average"] * 1e9, summary["slowest"] * 1e9, count, quantiles)


GENERATOR = Generator(command, read)
