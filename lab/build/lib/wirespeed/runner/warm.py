"""Warm-up by stability: short windows of the real load until the rate stands still, with a cap.

Ten seconds of load do not always warm a JVM, and one second wastes nothing on NGINX. So servers
with a compiler get at least the recipe's `warmup_least` and then go on until three windows agree or
its `warmup` is reached; others get one window.
"""

from __future__ import annotations

import time
from pathlib import Path

from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.generate import generate
from wirespeed.runner.life import Life

WINDOW_S = 0.5
WRK_WINDOW_S = 1.0  # wrk counts in whole seconds
STABLE_SHARE = 0.02
STABLE_WINDOWS = 3


def warm(life: Life, planned: PlannedCell, folder: Path) -> list[float]:
    """Loads the server until it is warm; returns the rate of each window."""
    cap_s = life.schedule.times.warmup_s
    if cap_s <= 0:
        return []
    is_compiled = any(started.instance.tool == "jvm" for started in life.running)
    loads = [p for p in life.schedule.recipe.process if p.role == "load"]
    floor_s = life.schedule.times.warmup_least_s if is_compiled else 0.0
    has_wrk = any(p.tool == "wrk" for p in loads)
    window_s = WRK_WINDOW_S if has_wrk else WINDOW_S
    # The first is long: a cold server that meets new connections at every window only piles up.
    length_s = window_s if has_wrk else max(window_s, floor_s - (STABLE_WINDOWS - 1) * window_s)
    started = time.monotonic()
    rates: list[float] = []
    while True:
        length_s = length_s if has_wrk else min(length_s, cap_s)
        done = generate(life, planned, folder, length_s, 0.0)
        rates.append(sum(figures.rps for figures in done.figures.values()))
        elapsed = time.monotonic() - started
        length_s = window_s
        if elapsed + length_s > cap_s or not is_compiled:
            return rates
        if elapsed >= floor_s and is_stable(rates):
            return rates


def is_stable(rates: list[float]) -> bool:
    last = rates[-STABLE_WINDOWS:]
    if len(last) < STABLE_WINDOWS or min(last) <= 0:
        return False
    return max(last) / min(last) - 1 <= STABLE_SHARE
