"""Runs the generators of a trial once: all at the same instant, watched, read."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirespeed.driver import command
from wirespeed.driver.base import Figures, LoadRun
from wirespeed.errors import ProcessError
from wirespeed.process import start, stop
from wirespeed.process.start import Started
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.life import Life

LEAD_S = 0.06  # from the first spawn to the common start; a spawn takes 2-4 ms
LEAD_EACH_S = 0.01
OVERTIME_S = 20.0  # a generator that is this late will not end by itself


@dataclass(frozen=True)
class Generated:
    """What one run of all generators gave."""

    started: list[Started]
    figures: dict[str, Figures]  # by label; a program the lab cannot read is not in it
    samples: list[dict[str, Any]]
    state: dict[str, dict[str, Any]]  # what the host knows of each process at the end
    t_start: float
    t_end: float


def generate(
    life: Life,
    planned: PlannedCell,
    folder: Path,
    duration_s: float,
    warmup_s: float,
    every_s: float | None,
) -> Generated:
    """Starts the cell's generators, waits for them, reads them. `every_s` None takes no samples."""
    instances = [
        instance
        for instance in life.resolver(planned, duration_s).instances(planned.cores)
        if instance.role == "load"
    ]
    t_start = time.time()
    run = LoadRun(folder, duration_s, warmup_s, t_start + LEAD_S + LEAD_EACH_S * len(instances))
    running: list[Started] = []
    try:
        for instance in instances:
            running.append(_start(life, instance, run))
        if every_s is not None:
            _sample(life, running, run, every_s)
        _wait(life, running, run)
        samples = life.host.ask("sample_stop") if every_s is not None else []
        everyone = [*life.running, *running]
        state = {s.label: life.host.ask("state", name=s.label) for s in everyone}
        figures = _read(running, run)
    finally:
        stop.stop(life.host, running)
    life.host.ask("forget", names=[started.label for started in running])
    return Generated(running, figures, samples, state, t_start, time.time())


def _start(life: Life, instance: Any, run: LoadRun) -> Started:
    schedule = life.schedule
    made = command.for_load(schedule.place.root, instance, run)
    address = schedule.place.addresses["load"]
    return start.start(life.host, instance, made.argv, made.env, run.folder, address)


def _sample(life: Life, running: list[Started], run: LoadRun, every_s: float) -> None:
    window_start = run.start_at + run.warmup_s
    life.host.ask(
        "sample_start",
        names=[started.label for started in [*life.running, *running]],
        every_s=every_s,
        instants=[window_start, window_start + run.duration_s],
    )


def _wait(life: Life, running: list[Started], run: LoadRun) -> None:
    """Returns when every generator has ended; a server that ends first fails the trial."""
    host = life.host
    deadline = time.monotonic() + run.start_at - time.time()
    deadline += run.warmup_s + run.duration_s + OVERTIME_S
    left = {started.label: started for started in running}
    servers = [started.label for started in life.running]
    while left:
        label = host.wait_exit([*left, *servers], deadline - time.monotonic())
        if label is None:
            raise ProcessError(
                f"{', '.join(left)} did not end {OVERTIME_S:.0f} s after the planned time"
            )
        if label in servers:
            life.check_alive()
        ended = left.pop(label)
        code = host.exits[label]
        if code != 0:
            words = ended.last_words()
            raise ProcessError(
                f"{label} failed (exit code {code})" + (f": {words}" if words else "")
            )


def _read(running: list[Started], run: LoadRun) -> dict[str, Figures]:
    figures = {}
    for started in running:
        found = command.figures_of(
            started.instance, run, started.stdout, started.last_words(), int(run.start_at * 1e9)
        )
        if found is not None:
            figures[started.label] = found
    return figures
