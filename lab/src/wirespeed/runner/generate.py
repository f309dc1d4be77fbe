"""Runs the generators of a trial once: all at the same instant, watched, read."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wirespeed.agent import clock
from wirespeed.driver import command
from wirespeed.driver.base import Figures, LoadRun, Window
from wirespeed.driver.generator import Output
from wirespeed.errors import LastingError, ProcessError
from wirespeed.fleet.fleet import Fleet
from wirespeed.fleet.host import Host
from wirespeed.probe import merge, window
from wirespeed.probe.merge import HostSamples
from wirespeed.probe.parse import CoreName
from wirespeed.process import start, stop
from wirespeed.process.start import Order, Started, StartFailed
from wirespeed.recipe.resolve import Instance
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.server_session import ServerSession

LEAD_S = 0.06  # from the first spawn to the common start; a spawn takes 2-4 ms, and so do samples
LEAD_EACH_S = 0.01
LEAD_HOST_S = 0.005  # a host more is a channel more to write to
STARTS_MAX = 5  # each with three times the lead of the one before: the last has six seconds
EXIT_USAGE = 2  # of most programs: they were called wrongly, and will be again
OWN_COUNTERS = ("/proc/net/snmp",)  # of a network namespace, where the rest is the machine's
OTHERS_EVERY_S = 1.0  # besides the window's two edges, between which counters are a straight line
OVERTIME_S = 20.0  # a generator that is this late will not end on its own


@dataclass(frozen=True)
class Generated:
    """The results of one run of all generators."""

    started: list[Started]
    figures: dict[str, Figures]  # by label; a program the lab cannot read is not in it
    samples: list[dict[str, Any]]
    state: dict[str, dict[str, Any]]  # what the host knows of each process at the end
    t_start: float
    t_end: float
    lab_core: int | None = None  # where the lab stayed meanwhile
    others: tuple[tuple[str, float], ...] | None = None  # who else ran: (name, share of a core)
    before_s: float = 0.0  # of load before the window
    clock_step_s: float = 0.0  # how far somebody set a clock meanwhile


@dataclass(frozen=True)
class Sampling:
    """How a measured window is watched."""

    every_s: float
    with_census: bool = False
    events: tuple[str, ...] = ()  # of the processor, counted for the servers


def generate(
    session: ServerSession,
    planned: PlannedCell,
    folder: Path,
    duration_s: float,
    warmup_s: float,
    sampling: Sampling | None = None,
    timeout_s: float | None = None,
) -> Generated:
    """Starts the cell's generators, waits for them, reads them; a warm-up is not sampled."""
    instances = [
        instance
        for instance in session.resolver(planned, duration_s).instances(planned.seats)
        if instance.role == "load"
    ]
    fleet = session.fleet
    warmup_s = warmup_s if _warm_up(instances) else 0.0
    _empty(fleet, instances, folder)
    census = bool(sampling and sampling.with_census)
    cores = _measured_cores(session, instances) if census else {}
    if census:
        fleet.census(cores)
    fleet.measure_clocks()
    t_start = clock.now()
    running: list[Started] = []
    samples: list[Any] = []
    try:
        run, running, lab_core = _start(
            session, instances, LoadRun(folder, duration_s, warmup_s, 0.0, timeout_s), sampling
        )
        ended = _wait(session, running, run)
        if sampling:
            samples = merged(session, _sampled(session, running))
            session.bring_back(session.running)
        everyone = [*session.running, *running]
        state = {s.label: fleet.state(s.label) for s in everyone}
        session.check_alive()  # after each host was asked: an end that it reported is known now
        figures = _read(session, running, run, ended)
    except StartFailed as error:
        running = error.started
        raise
    except ProcessError:
        if sampling:  # else the lab stays on one core, and the agents go on reading
            _sampled(session, running)
        raise
    finally:
        stop.stop(fleet, running)
    t_end = clock.now()
    step_s = fleet.clock_step_s()
    used = fleet.census(cores) if census else None
    others = None if used is None else _shares(used, t_end - t_start)
    fleet.forget(started.label for started in running)
    return Generated(
        running, figures, samples, state, t_start, t_end, lab_core, others, warmup_s, step_s
    )


def _measured_cores(session: ServerSession, instances: Sequence[Instance]) -> dict[str, set[int]]:
    """machine → its cores that a process of the trial is pinned to."""
    cores: dict[str, set[int]] = {}
    for one in [*(started.instance for started in session.running), *instances]:
        machine = session.fleet.machine_of(session.fleet[one.host]).name
        cores.setdefault(machine, set()).update(one.cores)
    return cores


def _warm_up(instances: list[Instance]) -> bool:
    """Whether there is load before the window. Other people's tools have none: their window is
    their whole run, and it begins with it."""
    return any(one.tool == "load" for one in instances)


def _empty(fleet: Fleet, instances: list[Instance], folder: Path) -> None:
    """Before generators start: what they wrote there in a window before is never read as theirs,
    whether they end without figures or with a file of the same length."""
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
    hosts = {one.host: fleet[one.host] for one in instances}
    fleet.together(
        [
            (host, "remove", {"folder": host.folder_there(folder)})
            for host in hosts.values()
            if not host.far.shares_files
        ]
    )


def core_for_lab(session: ServerSession, running: list[Started]) -> int | None:
    """The core where the lab disturbs least: one without measured work, else a generator's last.

    Of the machine that the lab itself is on; None when it measures on others only.
    """
    local = next((host for host in session.fleet.all() if host.far.shares_files), None)
    if local is None:
        return None
    free = set(local.info["cores"])
    here = {host.name for host in session.fleet.on_machine_of(local)}
    ours = [s.instance for s in [*session.running, *running] if s.instance.host in here]
    left = free - {core for instance in ours for core in instance.cores}
    load = [core for i in ours if i.role == "load" for core in i.cores if core in free]
    return max(left) if left else (max(load) if load else None)


def core_names(session: ServerSession, instance: Instance) -> tuple[CoreName, ...]:
    """The cores of a process as samples name them."""
    machine = session.fleet.machine_of(session.fleet[instance.host]).name
    server = next((s.instance.host for s in session.running), instance.host)
    server_machine = session.fleet.machine_of(session.fleet[server]).name
    return tuple(merge.core_name(core, machine, server_machine) for core in instance.cores)


def link_share(
    session: ServerSession, planned: PlannedCell, done: Generated, measured: Window
) -> float:
    """How full the cell's link was in the window; 0 where no link was measured."""
    capacity = session.fleet.capacities.get(session.resolver(planned).link)
    if capacity is None:
        return 0.0
    received_bps, sent_bps = window.interface_bps(
        done.samples, measured.start_unix_ns, measured.length_ns, capacity.interface
    )
    return float(capacity.share(received_bps, sent_bps))


def _shares(used: list[list[Any]], seconds: float) -> tuple[tuple[str, float], ...]:
    return tuple((str(name), float(cpu_s) / seconds) for name, cpu_s in used)


def _start(
    session: ServerSession, instances: list[Instance], run: LoadRun, sampling: Sampling | None
) -> tuple[LoadRun, list[Started], int | None]:
    """Starts all generators for one instant, and the sampling before their window; what comes too
    late is tried with more time. Returns the core to which the lab has moved, too.

    Programs that know `--start-at` wait on their own; others are held back until the window.
    """
    fullest = max(Counter(instance.host for instance in instances).values(), default=0)
    trip_s = max((host.trip_s for host in session.fleet.seats), default=0.0)
    lead_s = LEAD_S + LEAD_EACH_S * fullest + LEAD_HOST_S * len(session.fleet.seats) + 4 * trip_s
    for _ in range(STARTS_MAX):
        run = replace(run, start_at=clock.now() + lead_s)
        running = start.start_all(
            session.fleet, [_order(session, one, run) for one in instances], session.ours
        )
        try:
            if clock.now() < run.start_at:
                lab_core = _watched(session, running, run, sampling) if sampling else None
                if not sampling or clock.now() < run.start_at + run.warmup_s:
                    return run, running, lab_core
                _sampled(session, running)
        except BaseException:  # Ctrl-C, too: the caller does not know these generators yet
            stop.stop(session.fleet, running, 0.0)
            raise
        stop.stop(session.fleet, running, 0.0)
        lead_s *= 3
    raise ProcessError(f"the generators could not be started within {lead_s / 3:.1f} s")


def _watched(
    session: ServerSession, running: list[Started], run: LoadRun, sampling: Sampling
) -> int | None:
    """Begins to sample; returns the core to which the lab has moved."""
    lab_core = core_for_lab(session, running)
    _sample(session, running, run, sampling, lab_core)
    return lab_core


def _order(session: ServerSession, instance: Instance, run: LoadRun) -> Order:
    host = session.fleet[instance.host]
    there = replace(run, start_at=run.start_at + host.wall_ahead_s)
    made = command.for_load(session.schedule.place.root, instance, there)
    is_held = instance.tool != "load"
    held = run.start_at + host.offset_s + run.warmup_s if is_held else None
    return Order(instance, made.argv, made.env, run.folder, held, made.along)


def _sample(
    session: ServerSession,
    running: list[Started],
    run: LoadRun,
    sampling: Sampling,
    lab_core: int | None,
) -> None:
    """Every host reads its own processes and counters, at its own time of the same instants."""
    every_s = sampling.every_s
    servers = [one.label for one in session.running if one.instance.role == "server"]
    window_start = run.start_at + run.warmup_s
    instants = [window_start, window_start + run.duration_s]
    questions = []
    for host, labels in _sampled_hosts(session, running):
        order = {
            "names": labels,
            "every_s": every_s,
            "instants": [instant + host.offset_s for instant in instants],
            "lab_core": lab_core if host.far.shares_files else None,
        }
        if sampling.events and not set(servers).isdisjoint(labels):
            order["counted"] = {"names": servers, "events": list(sampling.events)}
        questions.append((host, "sample_start", {**order, **_less_of(session, host, every_s)}))
    session.fleet.together(questions)


def _less_of(session: ServerSession, host: Host, every_s: float) -> dict[str, Any]:
    """The counters that another host on the server's machine need not read: the machine's are read
    once, by the server's own agent, and every sample more disturbs the cores that are measured."""
    server = next((session.fleet[s.instance.host] for s in session.running), host)
    if host is server or session.fleet.machine_of(host) is not session.fleet.machine_of(server):
        return {}
    return {"paths": OWN_COUNTERS, "every_s": max(every_s, OTHERS_EVERY_S)}


def _sampled_hosts(session: ServerSession, running: list[Started]) -> list[tuple[Host, list[str]]]:
    """Hosts with processes of this trial, and the machine under namespaces for the lab itself."""
    by_host = session.fleet.by_host(started.label for started in [*session.running, *running])
    known = {host.name for host, _ in by_host}
    return by_host + [(host, []) for host in session.fleet.machines if host.name not in known]


def _sampled(session: ServerSession, running: list[Started]) -> dict[str, list[dict[str, Any]]]:
    hosts = [host for host, _ in _sampled_hosts(session, running)]
    return session.fleet.each(hosts, "sample_stop")


def merged(session: ServerSession, by_host: dict[str, list[dict[str, Any]]]) -> list[Any]:
    """One series of samples on the lab's clock, with the server's host as its measure."""
    server = next((s.instance.host for s in session.running), next(iter(by_host)))
    sources = [
        HostSamples(
            name,
            session.fleet.machine_of(session.fleet[name]).name,
            session.fleet[name].offset_s,
            samples,
        )
        for name, samples in by_host.items()
    ]
    return merge.merged(sources, server)


def _wait(session: ServerSession, running: list[Started], run: LoadRun) -> dict[str, float]:
    """When each generator ended, on the lab's clock; a server that ends first fails the trial."""
    fleet = session.fleet
    deadline = time.monotonic() + run.start_at - clock.now()
    deadline += run.warmup_s + run.duration_s + OVERTIME_S
    left = {started.label: started for started in running}
    servers = [started.label for started in session.running]
    ended_at: dict[str, float] = {}
    while left:
        label = fleet.wait_exit([*left, *servers], deadline - time.monotonic())
        if label is None:
            raise ProcessError(
                f"{', '.join(left)} did not end {OVERTIME_S:.0f} s after the planned time"
            )
        if label in servers:
            session.check_alive()
        ended = left.pop(label)
        ended_at[label] = clock.now()
        code = fleet.exit_of(label)
        if code != 0:
            words = ended.last_words(fleet)
            kind = LastingError if code == EXIT_USAGE else ProcessError
            raise kind(f"{label} failed (exit code {code})" + (f": {words}" if words else ""))
    return ended_at


def _read(
    session: ServerSession, running: list[Started], run: LoadRun, ended: dict[str, float]
) -> dict[str, Figures]:
    for host, _ in session.fleet.by_host(started.label for started in running):
        host.bring_back(run.folder)
    figures = {}
    for started in running:
        found = command.figures_of(
            started.instance,
            run,
            Output(
                started.stdout,
                started.last_words(session.fleet),
                int((run.start_at + run.warmup_s) * 1e9),
                int(ended[started.label] * 1e9),
            ),
        )
        if found is not None:
            offset_ns = int(session.fleet.host_of(started.label).wall_ahead_s * 1e9)
            is_far = started.instance.tool == "load"  # others do not report a clock of their own
            figures[started.label] = found.shifted(-offset_ns if is_far else 0)
    return figures
