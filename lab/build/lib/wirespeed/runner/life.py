"""One server's life: origins and servers started, found ready, kept for its trials, stopped."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from wirespeed.driver import command
from wirespeed.errors import ProcessError
from wirespeed.host.base import Host
from wirespeed.process import ready, start, stop
from wirespeed.process.start import Started
from wirespeed.recipe.resolve import Place, Resolver
from wirespeed.runner import files
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.plan import Schedule


class StartError(ProcessError):
    """A server did not come up: the next ones would not either, so the run ends."""


@dataclass
class Life:
    """The running servers of one life; `begin` starts them, `end` stops them."""

    host: Host
    schedule: Schedule
    planned: PlannedCell
    folder: Path
    scratch: Path
    running: list[Started] = field(default_factory=list)
    started_s: dict[str, float] = field(default_factory=dict)

    @property
    def place(self) -> Place:
        return replace(self.schedule.place, run_dir=str(self.folder), run_tmp=str(self.scratch))

    def resolver(self, planned: PlannedCell, duration_s: float | None = None) -> Resolver:
        place = self.place if duration_s is None else replace(self.place, duration_s=duration_s)
        return Resolver(self.schedule.recipe, planned.cell, place)

    def begin(self, cells: list[PlannedCell]) -> None:
        self.scratch.mkdir(parents=True, exist_ok=True)
        for planned in cells:
            files.make(self.resolver(planned).files())
        try:
            for role in ("origin", "server"):
                self._start(role)
                for started in self.running:
                    if started.instance.role == role:
                        ready.wait_ready(self.host, started)
        except ProcessError as error:
            raise StartError(str(error)) from error
        self._settle()

    def _start(self, role: str) -> None:
        schedule = self.schedule
        for instance in self.resolver(self.planned).instances(self.planned.cores):
            if instance.role != role:
                continue
            made = command.for_server(
                schedule.place.root, schedule.place.recipe_file, instance, self.folder
            )
            address = schedule.place.addresses[role]
            self.started_s[instance.label] = time.time()
            self.running.append(
                start.start(self.host, instance, made.argv, made.env, self.folder, address)
            )

    def _settle(self) -> None:
        deadline = time.monotonic() + self.schedule.times.settle_s
        while time.monotonic() < deadline:
            self.check_alive()
            self.host.poll(min(0.1, deadline - time.monotonic()))

    def check_alive(self) -> None:
        for started in self.running:
            ready.fail_if_dead(self.host, started)

    def end(self, grace_s: float = stop.GRACE_S) -> list[str]:
        """Stops everything; returns the labels that did not heed TERM."""
        running, self.running = self.running, []
        killed = stop.stop(self.host, running, grace_s)
        self.host.ask("forget", names=[started.label for started in running])
        return killed
