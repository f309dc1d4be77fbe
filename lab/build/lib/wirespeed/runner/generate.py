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
    lab_core: int | None = None  # where the lab stayed meanwhile
    others: tuple[tuple[str, float], ...] = ()  # who else used the machine: (name, share of a core)


@dataclass(frozen=True)
class Sampling:
    """How a measured window is watched."""

    every_s: float
    with_census: bool = False


def generate(
    life: Life,
    planned: PlannedCell,
    folder: Path,
    duration_s: float,
    warmup_s: float,
    sampling: Sampling | None = None,
) -> Generated:
    """Starts the cell's generators, waits for them, reads them; a warm-up is not sampled."""
    instances = [
        instance
        for instance in life.resolver(planned, duration_s).instances(planned.cores)
        if instance.role == "load"
    ]
    census = bool(sampling and sampling.with_census)
    if census:
        life.host.ask("census")
    t_start = time.time()
    run = LoadRun(folder, duration_s, warmup_s, t_start + LEAD_S + LEAD_EACH_S * len(instances))
    running: list[Started] = []
    samples, lab_core = [], None
    try:
        for instance in instances:
            running.append(_start(life, instance, run))
        if sampling:
            lab_core = core_for_lab(life, running)
            _sample(life, running, run, sampling.every_s, lab_core)
        _wait(life, running, run)
        if sampling:
            samples = life.host.ask("sample_stop")
        everyone = [*life.running, *running]
        state = {s.label: life.host.ask("state", name=s.label) for s in everyone}
        figures = _read(running, run)
    finally:
        stop.stop(life.host, running)
    t_end = time.time()
    others = _shares(life.host.ask("census"), t_end - t_start) if census else ()
    life.host.ask("forget", names=[started.label for started in running])
    return Generated(running, figures, samples, state, t_start, t_end, lab_core, others)


def core_for_lab(life: Life, running: list[Started]) -> int | None:
    """Where the lab disturbs least: a core that nobody measured uses, else a generator's last."""
    free = set(life.host.info["cores"])
    ours = [started.instance for started in [*life.running, *running]]
    left = free - {core for instance in ours for core in instance.cores}
    load = [core for i in ours if i.role == "load" for core in i.cores if core in free]
    return max(left) if left else (max(load) if load else None)


def _shares(used: list[list[Any]], seconds: float) -> tuple[tuple[str, float], ...]:
    return tuple((str(name), float(cpu_s) / seconds) for name, cpu_s in used)


def _start(life: Life, instance: Any, run: LoadRun) -> Started:
    schedule = life.schedule
    made = command.for_load(schedule.place.root, instance, run)
    address = schedule.place.addresses["load"]
    return start.start(life.host, instance, made.argv, made.env, run.folder, address)


def _sample(
    life: Life, running: list[Started], run: LoadRun, every_s: float, lab_core: int | None
) -> None:
    window_start = run.start_at + run.warmup_s
    life.host.ask(
        "sample_start",
        names=[started.label for started in [*life.running, *running]],
        every_s=every_s,
        instants=[window_start, window_start + run.duration_s],
        lab_core=lab_core,
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
