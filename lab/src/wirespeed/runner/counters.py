"""Instructions, cycles and cache misses per request: the processor's counters, where it has any.

They are far steadier than time: what a request costs in instructions differs by less than a per
cent between windows. Counting slows every switch between the server and other programs, so it has a
short window of its own after a trial's, and that window counts for nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from wirespeed.errors import HostError
from wirespeed.fleet.fleet import Fleet
from wirespeed.fleet.host import Host
from wirespeed.probe import window
from wirespeed.process.start import Started
from wirespeed.runner import metrics, proof
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.generate import Generated, Sampling, generate
from wirespeed.runner.server_session import ServerSession
from wirespeed.runner.warm import short_s, step_s, timeout_s

ROUNDS = 5  # the first ones; more would say the same
FOLDER = "counters"
#: The metric's part of its name → the event.
EVENTS = {"instructions": "instructions", "cycles": "cycles", "cache_misses": "cache-misses"}


@dataclass
class Counting:
    """Whether a host can count; each is asked once a run."""

    is_wanted: bool = True
    known: dict[str, str] = field(default_factory=dict)  # host → why it cannot; "" where it can

    def is_possible(self, host: Host) -> bool:
        if host.name not in self.known:
            self.known[host.name] = why_not(host)
        return self.is_wanted and not self.known[host.name]

    def give_up(self) -> None:
        """Counting is an extra: what it lacks (descriptors, for example) costs no trial."""
        self.is_wanted = False


def why_not(host: Host) -> str:
    """Why this host counts nothing; empty where it does."""
    try:
        return str(host.ask("uncountable", events=list(EVENTS.values()))["why"])
    except HostError as error:
        host.check_lost()
        return str(error)


def fact(fleet: Fleet, server_host: str) -> dict[str, str]:
    """For the report, said once: what is counted, or why nothing is."""
    why = why_not(fleet[server_host])
    return {"counters": f"none: {why}" if why else ", ".join(EVENTS.values())}


def is_asked(session: ServerSession, counting: Counting, round_: int) -> bool:
    """Not of a stack that polls: its empty looks are instructions that belong to no request."""
    servers = servers_of(session)
    hosts = [session.fleet.host_of(one.label) for one in servers]
    is_open = bool(servers) and round_ <= ROUNDS and not proof.has_stack(session)
    return is_open and all(counting.is_possible(host) for host in hosts)


def servers_of(session: ServerSession) -> list[Started]:
    return [started for started in session.running if started.instance.role == "server"]


def count(session: ServerSession, planned: PlannedCell, folder: Path) -> metrics.Flat:
    """The metrics of one more window; raises ProcessError as any window does."""
    length_s = short_s(session.schedule.recipe)
    sampling = Sampling(length_s, events=tuple(EVENTS.values()))
    step, longest = step_s(session, planned), timeout_s(session, planned)
    return of_window(session, generate(session, planned, folder, length_s, step, sampling, longest))


def of_window(session: ServerSession, done: Generated) -> metrics.Flat:
    measured = metrics.common_window(done.figures)
    if measured is None or not measured.length_ns:
        return {}
    counts = window.counts(done.samples, measured.start_unix_ns, measured.length_ns)
    seconds = measured.length_ns / 1e9
    requests = sum(figures.completed_in(seconds) for figures in done.figures.values())
    events = [counts[one.label] for one in servers_of(session) if one.label in counts]
    if not events or not requests:
        return {}
    totals = {name: sum(one[event] for one in events) for name, event in EVENTS.items()}
    flat: metrics.Flat = {f"server.{name}_per_request": n / requests for name, n in totals.items()}
    if totals["cycles"]:
        flat["server.instructions_per_cycle"] = totals["instructions"] / totals["cycles"]
    return flat
