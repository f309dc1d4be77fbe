"""All hosts of a site together: one question to many, one wait for all, one clock."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from wirespeed.agent import clock, leftovers
from wirespeed.errors import BusyError, HostError
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.host import ANSWER_S, END_S, Host, pump

START_S = 180.0  # until the last host has answered for the first time; a queue, or a loaded host
LOOK_S = 0.05  # between two looks at a lock whose agent is ending


class Fleet:
    """The running agents of a site, by the name of their host."""

    def __init__(self, transports: Sequence[Transport], mark: str, cgroups: bool = True) -> None:
        """Starts all agents in parallel; when one fails, none stays."""
        self._selector = selectors.DefaultSelector()
        self.hosts: dict[str, Host] = {}
        self._places: dict[str, Host] = {}  # label of a process → its host
        self.capacities: dict[str, Any] = {}  # link → what it was found to carry (links.py)
        self.undo: list[Any] = []  # what a site has to do after its agents have ended
        own_boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        try:
            for far in transports:
                lab_pid = os.getpid() if far.shares_files and not far.prefix else None
                order: dict[str, Any] = {"mark": mark, "cgroups": cgroups, "lab_pid": lab_pid}
                if far.lease_s is None:
                    order["clock_since_s"] = clock.STEADY.since_s
                self.hosts[far.name] = Host(far, order, self._selector)
            deadline = time.monotonic() + START_S
            for host in self.hosts.values():
                host.greet(max(1.0, deadline - time.monotonic()))
            self.measure_clocks(host for host in self.all() if host.info["boot_id"] != own_boot)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Host:
        return self.hosts[name]

    def all(self) -> list[Host]:
        return list(self.hosts.values())

    @property
    def seats(self) -> list[Host]:
        """Hosts on which measured programs run."""
        return [host for host in self.all() if host.far.is_seat]

    @property
    def machines(self) -> list[Host]:
        """One host for each kernel: locks, settings and processes are per kernel."""
        first: dict[str, Host] = {}
        for host in sorted(self.all(), key=lambda host: host.far.is_seat):
            first.setdefault(host.info["boot_id"], host)
        return list(first.values())

    def machine_of(self, host: Host) -> Host:
        boot = host.info["boot_id"]
        return next(one for one in self.machines if one.info["boot_id"] == boot)

    def on_machine_of(self, host: Host) -> list[Host]:
        return [one for one in self.all() if one.info["boot_id"] == host.info["boot_id"]]

    # -- many hosts at once -----------------------------------------------------------------

    def each(
        self, hosts: Iterable[Host], op: str, timeout_s: float = ANSWER_S, **arguments: Any
    ) -> dict[str, Any]:
        """One question to several hosts at once; their answers by name."""
        return self.together([(host, op, arguments) for host in hosts], timeout_s)

    def together(
        self, questions: Sequence[tuple[Host, str, dict[str, Any]]], timeout_s: float = ANSWER_S
    ) -> dict[str, Any]:
        """Sends every question, then waits for every answer: a barrier over hosts."""
        sent = [(host, op, host.send(op, **arguments)) for host, op, arguments in questions]
        answers: dict[str, Any] = {}
        failure: HostError | None = None
        for host, op, serial in sent:
            try:
                answers[host.name] = host.answer(serial, op, timeout_s)
            except HostError as error:
                failure = failure or error
        if failure:
            raise failure
        return answers

    def poll(self, timeout_s: float) -> bool:
        return pump(self._selector, timeout_s)

    def measure_clocks(self, hosts: Iterable[Host] | None = None) -> None:
        for host in self.seats if hosts is None else hosts:
            host.measure_clock()

    def clock_step_s(self) -> float:
        """The furthest that a wall clock was set since `measure_clocks`; 0 where none was."""
        furthest_s = max((host.clock_step_s() for host in self.seats), default=0.0)
        return furthest_s if furthest_s > clock.SET_S else 0.0

    # -- processes --------------------------------------------------------------------------

    def place(self, label: str, host: Host) -> None:
        """Remembers where a process runs; labels are unique in a run."""
        host.exits.pop(label, None)
        self._places[label] = host

    def host_of(self, label: str) -> Host:
        return self._places[label]

    def by_host(self, labels: Iterable[str]) -> list[tuple[Host, list[str]]]:
        labels_of: dict[str, list[str]] = {}
        for label in labels:
            labels_of.setdefault(self._places[label].name, []).append(label)
        return [(self.hosts[name], own) for name, own in labels_of.items()]

    def exit_of(self, label: str) -> int | None:
        return self._places[label].exits.get(label)

    def wait_exit(self, labels: Sequence[str], timeout_s: float) -> str | None:
        """Waits until one of these processes has ended, and says which; None after the time."""
        deadline = time.monotonic() + timeout_s
        while True:
            for label in labels:
                if self.exit_of(label) is not None:
                    return label
            for label in labels:
                self._places[label].check_lost()
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            self.poll(left)

    def state(self, label: str) -> dict[str, Any]:
        answer: dict[str, Any] = self._places[label].ask("state", name=label)
        return answer

    def forget(self, labels: Iterable[str]) -> None:
        for host, own in self.by_host(labels):
            host.ask("forget", names=own)

    # -- the machines -----------------------------------------------------------------------

    def lock(self, owner: str) -> None:
        """One run a machine: on each of them, or on none."""
        paths = [os.environ["WIRESPEED_LOCK"]] if "WIRESPEED_LOCK" in os.environ else None
        deadline = time.monotonic() + END_S
        for name, answer in self.each(self.machines, "lock", paths=paths, owner=owner).items():
            while answer["held_by"] == leftovers.ENDING and time.monotonic() < deadline:
                time.sleep(LOOK_S)
                answer = self[name].ask("lock", paths=paths, owner=owner)
            if answer["held_by"]:
                where = "this machine" if len(self.machines) == 1 else name
                raise BusyError(
                    f"run {answer['held_by']} is measuring on {where}; two at a time slow each "
                    "other down. Wait until it ends, or stop it with Ctrl-C in its terminal"
                )

    def hold_idle(self) -> bool:
        """Holds the cores out of idle states; whether every machine lets us."""
        return all(answer["held"] for answer in self.each(self.machines, "hold_idle").values())

    def release_idle(self) -> None:
        self.each(self.machines, "release_idle")

    def prefer(self, nice: int) -> int:
        """Measured programs before others on every host, or on none: contenders are alike."""
        given = [
            int(answer["nice"]) for answer in self.each(self.seats, "prefer", nice=nice).values()
        ]
        if any(one != nice for one in given):
            self.each(self.seats, "prefer", nice=0)
            nice = 0
        for host in self.seats:
            host.nice = nice
        return nice

    def census(self, cores: Mapping[str, Collection[int]]) -> list[list[Any]] | None:
        """[[name, CPU seconds since the census before], …] of other processes on these cores of
        each machine; None where a machine has too many processes to count them all."""
        rows: list[list[Any]] = []
        is_whole = True
        for machine in self.machines:
            others = [host for host in self.on_machine_of(machine) if host is not machine]
            ours = [pid for pids in self.each(others, "members").values() for pid in pids]
            own = sorted(cores.get(machine.name, ()))
            answer = machine.ask("census", ours=[*ours, os.getpid()], cores=own)
            is_whole = is_whole and answer["is_whole"]
            rows += answer["used"] if own else []
        return sorted(rows, key=lambda row: -row[1]) if is_whole else None

    def tidy(self) -> dict[str, Any]:
        """Ends and removes what killed agents have left on every machine."""
        return self.each(self.machines, "leftovers", END_S)

    def close(self) -> bool:
        """Ends every agent and with it everything it started; returns when they have.

        True when one of them had been killed and could not tidy up.
        """
        for host in self.hosts.values():
            host.leave()
        for host in self.hosts.values():
            host.channel.wait(END_S)
        for undo in self.undo:
            undo()
        self._selector.close()
        return any(host.channel.process.returncode for host in self.hosts.values())
