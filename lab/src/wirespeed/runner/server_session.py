"""One server's session: origins and servers started, found ready, kept for its trials, stopped."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from wirespeed.agent import clock
from wirespeed.driver import command
from wirespeed.errors import ProcessError
from wirespeed.fleet.fleet import Fleet
from wirespeed.process import ready, start, stop
from wirespeed.process.start import Order, Started, StartFailed
from wirespeed.recipe.resolve import Instance, Place, Resolver
from wirespeed.runner import files
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.plan import Schedule

PREPARE_S = 600.0  # a database that is filled


class StartError(ProcessError):
    """A server did not come up; its trials have no result."""


@dataclass
class ServerSession:
    """The running servers of one session; `begin` starts them, `end` stops them."""

    fleet: Fleet
    schedule: Schedule
    planned: PlannedCell
    folder: Path
    scratch: Path
    running: list[Started] = field(default_factory=list)
    started_s: dict[str, float] = field(default_factory=dict)
    answer_s: dict[str, float] = field(
        default_factory=dict
    )  # by cell; every session of a run adds to it
    reached: dict[str, float | None] = field(default_factory=dict)  # headroom.py has its keys
    urls: set[str] = field(default_factory=set)  # that were asked for once
    side: str = ""  # not empty where it is the second of two that live next to each other

    @property
    def place(self) -> Place:
        return replace(
            self.schedule.place,
            run_dir=str(self.folder), run_tmp=str(self.scratch), side=self.side,
        )  # fmt: skip

    def resolver(self, planned: PlannedCell, duration_s: float | None = None) -> Resolver:
        place = self.place if duration_s is None else replace(self.place, duration_s=duration_s)
        return Resolver(self.schedule.recipe, planned.cell, place)

    @property
    def ours(self) -> list[Path]:
        """Folders whose files hosts that do not share ours are sent, when a command names them."""
        place = self.schedule.place
        return [place.root, place.recipe_file.resolve().parent]

    def begin(self, cells: list[PlannedCell]) -> None:
        files.claim(self.scratch)
        for planned in cells:
            resolver = self.resolver(planned)
            files.make(self.fleet, resolver.topology, resolver.files())
        try:
            for role in ("origin", "server"):
                self._start(role)
                for started in self.running:
                    if started.instance.role == role:
                        ready.wait_ready(self.fleet, started)
            self._check_reach()
        except ProcessError as error:
            raise StartError(str(error)) from error
        self._settle()

    def instances_of(self, role: str) -> list[Instance]:
        everyone = self.resolver(self.planned).instances(self.planned.seats)
        return [instance for instance in everyone if instance.role == role]

    def _start(self, role: str) -> None:
        place = self.schedule.place
        orders = []
        for instance in self.instances_of(role):
            made = command.for_server(place.root, place.recipe_file, instance, self.folder)
            self._prepare(instance)
            self.started_s[instance.label] = clock.now()
            orders.append(
                Order(instance, made.argv, made.env, self.folder, along=made.along)
            )
        try:
            self.running += start.start_all(self.fleet, orders, self.ours)
        except StartFailed as error:
            self.running += error.started
            raise

    def _prepare(self, instance: Instance) -> None:
        """Runs what has to be done before this server starts to its end, on its host and cores."""
        if not instance.prepare:
            return
        name, argv = f"{instance.name}-prepare", list(instance.prepare)
        one = replace(instance, name=name, argv=argv, port=None, ready=None)
        (started,) = start.start_all(
            self.fleet, [Order(one, argv, one.env, self.folder)], self.ours
        )
        try:
            self.fleet.wait_exit([started.label], PREPARE_S)
            code = self.fleet.exit_of(started.label)
            if code != 0:
                how = "did not end in time" if code is None else f"failed (exit code {code})"
                words = started.last_words(self.fleet)
                raise ProcessError(
                    f"{instance.label} cannot be prepared: {argv[0]} {how}"
                    + (f": {words}" if words else "")
                )
        finally:
            stop.stop(self.fleet, [started], 0.0)
            self.fleet.forget([started.label])

    def _check_reach(self) -> None:
        instances = self.resolver(self.planned).instances(self.planned.seats)
        hosts = list(dict.fromkeys(one.host for one in instances if one.role == "load"))
        for started in self.running:
            if started.instance.role == "server":
                ready.check_reach(self.fleet, started, hosts)

    def check_urls(self, planned: PlannedCell) -> None:
        """Before a cell is measured for the first time: what its generators ask for is there."""
        for instance in self.resolver(planned).instances(planned.seats):
            url = command.checked_url(instance)
            if url and url not in self.urls:
                self.urls.add(url)
                ready.check_url(self.fleet, instance.label, instance.host, url)

    def _settle(self) -> None:
        deadline = time.monotonic() + self.schedule.times.settle_s
        while time.monotonic() < deadline:
            self.check_alive()
            self.fleet.poll(min(0.1, deadline - time.monotonic()))

    def check_alive(self) -> None:
        for started in self.running:
            ready.fail_if_dead(self.fleet, started)

    def end(self, grace_s: float = stop.GRACE_S) -> list[str]:
        """Stops everything; returns the labels that SIGTERM did not end."""
        running, self.running = self.running, []
        killed = stop.stop(self.fleet, running, grace_s)
        self.bring_back(running)
        self.fleet.forget(started.label for started in running)
        return killed

    def bring_back(self, running: list[Started]) -> None:
        """Copies the output of servers on other hosts next to the output of this one's."""
        for host, _ in self.fleet.by_host(started.label for started in running):
            host.bring_back(self.folder)
