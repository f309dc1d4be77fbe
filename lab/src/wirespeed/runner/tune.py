"""What a run may change on the machine (`--tune`): decided here, done and undone by the agent."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from wirespeed.agent import tuning
from wirespeed.errors import COMMAND, HostError
from wirespeed.fleet.fleet import Fleet
from wirespeed.recipe.model import Recipe, Scalar, Tune
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.plan import Schedule
from wirespeed.topology import ROLES, Topology

MOVED = "threads and interrupts of other programs"
NAMES_SHOWN_MAX = 4


@dataclass(frozen=True)
class Wanted:
    """What a recipe asks of one machine."""

    sysctl: dict[str, Scalar]
    limits: dict[str, int]
    clear: list[int]  # cores that others leave
    to: list[int]  # where they go
    services: list[str] = field(default_factory=list)  # to be stopped
    coalesce: dict[str, str] = field(default_factory=dict)  # of the cards of the measured links


def wanted(
    schedule: Schedule,
    cores: Iterable[int],
    hosts: Container[str] | None = None,
    roles: Sequence[str] = ROLES,
) -> Wanted:
    """`hosts` are those of one machine, `roles` what runs on them; None: everything is here."""
    clear, to = emptied(schedule.cells, schedule.recipe, cores, hosts)
    tune = schedule.recipe.tune
    if tune is None or not set(tune.role) & set(roles):
        return Wanted({}, {}, clear, to)
    return Wanted(
        sysctl=_of_roles(tune, roles),
        limits={str(name): value for name, value in tune.limits.items()},
        clear=clear,
        to=to,
        services=tune.services.stop,
        coalesce={name: _word(value) for name, value in tune.coalesce.items()},
    )


def _word(value: Scalar) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def emptied(
    cells: Iterable[PlannedCell],
    recipe: Recipe,
    cores: Iterable[int],
    hosts: Container[str] | None = None,
) -> tuple[list[int], list[int]]:
    """(cores to empty, cores for the others): all that is measured, else all but the generators'.

    Without a core to spare the others must run next to somebody; a generator waits more often
    than a server that is driven to its limit. `hosts` are those of one machine; None: all.
    """
    roles = {process.name: process.role for process in recipe.process}
    used: dict[str, set[int]] = {"server": set(), "load": set(), "origin": set()}
    for cell in cells:
        for label, seats in cell.seats.items():
            used[roles[label.rpartition("-")[0]]] |= {
                seat.core for seat in seats if hosts is None or seat.host in hosts
            }
    here = set(cores)
    measured = set().union(*used.values()) & here
    spare = here - measured
    if not spare:
        spare = (used["load"] & here) - used["server"] - used["origin"]
    return (sorted(measured - spare), sorted(spare)) if spare else ([], [])


def _of_roles(tune: Tune, roles: Sequence[str]) -> dict[str, Scalar]:
    """Of a value for each role the largest serves all that run on the machine."""
    values: dict[str, Scalar] = {}
    for name, value in tune.sysctl.items():
        if not isinstance(value, dict):
            values[name] = value
        elif numbers := [number for role, number in value.items() if role in roles]:
            values[name] = max(numbers)
    return values


def foreseen(schedule: Schedule, is_asked_for: bool) -> list[str]:
    """What `plan` says about the machine; nothing where a recipe asks for nothing."""
    want = wanted(schedule, os.sched_getaffinity(0))
    tune = schedule.recipe.tune
    settings = [f"{name} = {value} (is {_now(name)})" for name, value in want.sysctl.items()]
    settings += [f"{name} up to {value} a process" for name, value in want.limits.items()]
    settings += [f"service {name} stopped" for name in want.services]
    settings += [f"coalescing {name} {value}" for name, value in want.coalesce.items()]
    lines = []
    if is_asked_for:
        lines.append(f"for the time of the run: {_moving(want)}")
        lines += [f"for the time of the run: {text}" for text in settings]
    elif settings:
        lines.append(f"the recipe asks for (set with --tune): {', '.join(settings)}")
    if tune and tune.expect:
        texts = [f"{name} {value}" for name, value in tune.expect.items()]
        lines.append(
            f"the method also had (firmware, yours to set; {COMMAND} audit shows them): "
            f"{'; '.join(texts)}"
        )
    return lines


def differences(schedule: Schedule) -> list[list[str]]:
    """[what, here, what the method had] of settings that only --tune would change."""
    want = wanted(schedule, os.sched_getaffinity(0))
    rows = [
        [name, _now(name), f"the method had {value}"]
        for name, value in want.sysctl.items()
        if _now(name).split() != str(value).split()
    ]
    tune = schedule.recipe.tune
    for name, value in tune.expect.items() if tune else ():
        rows.append([f"firmware: {name}", "not set by the lab", f"the method had {value}"])
    return rows


def _now(name: str) -> str:
    return str(tuning.sysctl_now(name)) or "not there"


def _moving(want: Wanted) -> str:
    if not want.clear:
        return f"{MOVED} stay, as every core is shared by servers and generators"
    return f"{MOVED} leave {_cores(want.clear)} for {_cores(want.to)}"


def _cores(cores: list[int]) -> str:
    return f"core{'s' if len(cores) > 1 else ''} {', '.join(map(str, cores))}"


def apply(fleet: Fleet, schedule: Schedule) -> list[str]:
    """Tunes every machine of the site; returns what was done and what was not, a sentence each."""
    done = []
    topology = schedule.place.topology
    for machine in fleet.machines:
        hosts = {host.name for host in fleet.on_machine_of(machine)}
        want = wanted(schedule, machine.info["cores"], hosts, roles_on(topology, hosts))
        where = f"{machine.name}: " if len(fleet.machines) > 1 else ""
        here = want.sysctl
        if not machine.far.is_seat:  # its network is not the one that is measured
            here = {name: value for name, value in here.items() if not name.startswith("net.")}
        order = _order(replace(want, sysctl=here), cards(fleet, schedule, hosts))
        applied = machine.ask("tune", **order)
        done += [where + sentence for sentence in sentences(want, applied)]
        for host in fleet.seats:
            if host.far.has_own_network and host.name in hosts:
                sysctls = {name: v for name, v in want.sysctl.items() if name.startswith("net.")}
                applied = host.ask("set_own", sysctl=sysctls, limits=want.limits)
                done += [
                    f"{host.name}: {name} was {was}, is {now}"
                    for name, was, now in applied["sysctl"]
                ]
    return done


def roles_on(topology: Topology, hosts: set[str]) -> list[str]:
    """The roles on the machine with these hosts."""
    return [role for role in ROLES if hosts & set(topology.hosts(role))]


def _order(want: Wanted, interfaces: Sequence[str], is_standing: bool = False) -> dict[str, Any]:
    """The agent's request. Cores are emptied for a run only: what starts later would not move."""
    switches = [["service", name, "", "inactive"] for name in want.services]
    for interface in interfaces:
        switches += [["coalesce", interface, name, to] for name, to in want.coalesce.items()]
    return {
        "sysctl": want.sysctl,
        "limits": want.limits,
        "clear": [] if is_standing else want.clear,
        "to": want.to,
        "switches": switches,
        "standing": is_standing,
        "state": os.environ.get("WIRESPEED_TUNED"),
        "under": int(os.environ.get("WIRESPEED_TUNE_UNDER", "0")),
    }


def cards(fleet: Fleet, schedule: Schedule, hosts: Container[str]) -> list[str]:
    """The interfaces of the run's links on one machine; none on the loopback."""
    topology = schedule.place.topology
    interfaces = []
    for role in ("server", "load"):
        for name in topology.hosts(role):
            host = fleet[name]
            if name not in hosts or host.far.has_own_network:
                continue
            for link in topology.links.values():
                interface = getattr(link, role)
                if interface and interface not in interfaces:
                    interfaces.append(interface)
    return interfaces


def stand(fleet: Fleet, schedule: Schedule) -> list[str]:
    """Sets what the recipe asks for until `restore`, beyond the end of this command."""
    done = []
    for machine in fleet.machines:
        hosts = {host.name for host in fleet.on_machine_of(machine)}
        roles = roles_on(schedule.place.topology, hosts)
        want = wanted(schedule, machine.info["cores"], hosts, roles)
        order = _order(want, cards(fleet, schedule, hosts), is_standing=True)
        answer = machine.ask("tune", **order)
        want = replace(want, clear=[])
        lines = [text for text in sentences(want, answer) if not text.startswith(MOVED)]
        done += [f"{machine.name}: {line}" for line in lines]
    return done


def standing(fleet: Fleet) -> dict[str, Any]:
    """What is changed on each machine at present; None where nothing is."""
    state = os.environ.get("WIRESPEED_TUNED")
    answers = fleet.each(fleet.machines, "tuned", state=state)
    return {name: answer["status"] for name, answer in answers.items()}


def end_standing(fleet: Fleet) -> list[str]:
    """Puts back what stands, and what a killed run left."""
    state = os.environ.get("WIRESPEED_TUNED")
    lines = []
    for name, answer in fleet.each(fleet.machines, "restore_standing", state=state).items():
        done = answer["restored"]
        if done and done["by"]:
            lines.append(f"{name}: a run of process {done['by']} is at work; it puts back its own")
        elif done:
            lines += [f"{name}: {line}" for line in restored(done)]
    return lines


def sentences(want: Wanted, applied: dict[str, Any]) -> list[str]:
    changed = applied["sysctl"] + applied["switches"]
    lines = [f"{name} was {was}, is {now}" for name, was, now in changed]
    moved = f"{applied['threads']} threads and {applied['irqs']} interrupts of other programs"
    if not want.clear:
        lines.append(_moving(want))
    elif applied["threads"] or applied["irqs"]:
        lines.append(f"{moved} left {_cores(want.clear)} for {_cores(want.to)}")
    else:
        lines.append("no other program's threads could be moved; that needs root (CAP_SYS_NICE)")
    if applied["pinned"]:
        names = list(dict.fromkeys(applied["pinned"]))
        more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
        shown = ", ".join(names[:NAMES_SHOWN_MAX]) + more
        lines.append(f"left where their owners pinned them: {shown}")
    return lines + [f"{name} is not set: {why}" for name, why in applied["refused"]]


def undo(fleet: Fleet) -> list[str]:
    """Puts the machines back while the agents live; their end does the same without words.

    Where an agent was killed, this machine is put back from here; another one is named.
    """
    lines = []
    for machine in fleet.machines:
        try:
            done = machine.ask("restore")["restored"]
            lines += restored(done) if done else []
        except HostError:
            if machine.far.shares_files:
                lines += put_back()
            else:
                lines.append(
                    f"{machine.name} may still be tuned: `{COMMAND} recover --site NAME` puts it "
                    "back when it can be reached"
                )
    return lines


def put_back() -> list[str]:
    """What a run that was killed together with its agent left changed."""
    done = tuning.restore(str(state_file()))
    return restored(done) if done and not done["by"] and "files" in done else []


def restored(done: dict[str, Any]) -> list[str]:
    settings, threads = done["files"], done["threads"]
    return [f"put back {settings} settings and the cores of {threads} threads", *done["kept"]]


def state_file() -> Path:
    """Where an agent of this user writes what it has changed."""
    return Path(tuning.state_file())
