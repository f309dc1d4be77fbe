"""k6: a script of virtual users; the summary that it exports is what is read of it.

The recipe's words are options and the script: `["--vus", "50", "script.js"]`. A script with
scenarios sets its own times; its `__ENV.DURATION_S` is the window's length. Its times are those of
service: without `--vus`, where the load may be an open one, a metric needs `field = "service"`.
"""

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

LEAST_S = 1.0  # k6 refuses a shorter scenario
_QUANTILES = {"med": 0.5, "p(75)": 0.75, "p(90)": 0.9, "p(95)": 0.95, "p(99)": 0.99,
              "p(99.9)": 0.999}  # fmt: skip


def command(_root: Path, instance: Instance, run: LoadRun) -> Command:
    argv = ["k6", "run", "--quiet", "--no-usage-report"]
    argv += ["--summary-export", str(_summary(instance, run))]
    argv += ["--summary-trend-stats", ",".join(["avg", "max", *_QUANTILES])]
    argv += ["-e", f"DURATION_S={max(LEAST_S, run.duration_s):g}"]
    if not has(instance.argv, "-d", "--duration", "--stage", "--iterations"):
        argv += ["--duration", units.duration_text(max(LEAST_S, run.duration_s))]
    return Command(argv + instance.argv)


def _summary(instance: Instance, run: LoadRun) -> Path:
    return run.folder / f"k6-{instance.label}.json"


def read(instance: Instance, run: LoadRun, output: Output) -> Figures:
    path = _summary(instance, run)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    data = json_of(instance, "k6", text, output.last_words)
    try:
        return _figures(instance, data["metrics"], run, output.started_unix_ns)
    except (KeyError, TypeError):
        raise no_result(instance, "k6", output.last_words) from None


def _figures(instance: Instance, metrics: dict, run: LoadRun, started: int) -> Figures:  # type: ignore[type-arg]
    requests = metrics["http_reqs"]
    failed = int(metrics.get("http_req_failed", {}).get("passes", 0))
    dropped = int(metrics.get("dropped_iterations", {}).get("count", 0))
    received = float(metrics.get("data_received", {}).get("count", 0.0))
    # k6 counts attempts: without a byte received none had a response.
    completed, rate = (int(requests["count"]), float(requests["rate"])) if received else (0, 0.0)
    length_s = completed / rate if rate else run.duration_s
    latency = _latency(metrics["http_req_duration"], completed)
    users = number_after(instance.argv, 0, "--vus", "-u")  # else its scenarios are unknown to us
    return Figures(
        rps=rate,
        bytes_per_second=float(metrics.get("data_received", {}).get("rate", 0.0)),
        window=Window(started, int(length_s * 1e9)),
        completed=completed,
        errors=0 if completed else failed,
        non_2xx=failed if completed else 0,  # some of them may be connections that were refused
        timeouts=0,
        connections=users,
        closed_loop=users > 0,
        due=completed + dropped if dropped else None,
        sent=completed if dropped else None,
        little_residual=little(latency, users, rate),
        latency={"service": latency} if completed else {},
    )


def _latency(trend: dict, count: int) -> Latency:  # type: ignore[type-arg]
    quantiles: dict[float, float | None] = {
        q: trend[name] * 1e6 for name, q in _QUANTILES.items() if trend.get(name) is not None
    }
    return Latency(trend["avg"] * 1e6, trend["max"] * 1e6, count, quantiles)


GENERATOR = Generator(command, read)
