"""What a run may change on the machine (`--tune`): decided here, done and undone by the agent."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirespeed.errors import HostError
from wirespeed.host import tuning
from wirespeed.host.base import Host
from wirespeed.recipe.model import Recipe, Scalar, Tune
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.plan import Schedule

MOVED = "threads and interrupts of others"
NAMES_SHOWN_MAX = 4


@dataclass(frozen=True)
class Wanted:
    """What a schedule asks of the machine."""

    sysctl: dict[str, Scalar]
    limits: dict[str, int]
    clear: list[int]  # cores that others leave
    to: list[int]  # where they go


def wanted(schedule: Schedule, cores: Iterable[int]) -> Wanted:
    clear, to = emptied(schedule.cells, schedule.recipe, cores)
    tune = schedule.recipe.tune
    if tune is None:
        return Wanted({}, {}, clear, to)
    return Wanted(_one_machine(tune), {str(k): v for k, v in tune.limits.items()}, clear, to)


def emptied(
    cells: Iterable[PlannedCell], recipe: Recipe, cores: Iterable[int]
) -> tuple[list[int], list[int]]:
    """(cores to empty, cores for the others): all that is measured, else all but the generators'.

    Without a core to spare the others must run beside somebody; a generator waits more often
    than a server that is driven to its limit.
    """
    roles = {process.name: process.role for process in recipe.process}
    used: dict[str, set[int]] = {"server": set(), "load": set(), "origin": set()}
    for cell in cells:
        for label, own in cell.cores.items():
            used[roles[label.rpartition("-")[0]]] |= set(own)
    here = set(cores)
    measured = set().union(*used.values()) & here
    spare = here - measured
    if not spare:
        spare = (used["load"] & here) - used["server"] - used["origin"]
    return (sorted(measured - spare), sorted(spare)) if spare else ([], [])


def _one_machine(tune: Tune) -> dict[str, Scalar]:
    """All roles are on this machine: of a value for each role the largest serves both."""
    return {
        name: max(value.values()) if isinstance(value, dict) else value
        for name, value in tune.sysctl.items()
    }


def foreseen(schedule: Schedule, is_asked_for: bool) -> list[str]:
    """What `plan` says about the machine; nothing where a recipe asks for nothing."""
    want = wanted(schedule, os.sched_getaffinity(0))
    tune = schedule.recipe.tune
    settings = [f"{name} = {value} (is {_now(name)})" for name, value in want.sysctl.items()]
    settings += [f"{name} up to {value} a process" for name, value in want.limits.items()]
    found = []
    if is_asked_for:
        found.append(f"for the time of the run: {_moving(want)}")
        found += [f"for the time of the run: {text}" for text in settings]
    elif settings:
        found.append(f"the recipe asks for (set with --tune): {', '.join(settings)}")
    if tune:
        found += _by_hand(tune.services.stop, tune.coalesce, tune.expect)
    return found


def _by_hand(
    services: list[str], coalesce: dict[str, Scalar], expect: dict[str, Scalar]
) -> list[str]:
    texts = [f"no {', '.join(services)}"] if services else []
    texts += [f"ethtool --coalesce {name} {value}" for name, value in coalesce.items()]
    texts += [f"{name} {value}" for name, value in expect.items()]
    return [f"the method also had (yours to set): {'; '.join(texts)}"] if texts else []


def _now(name: str) -> str:
    return str(tuning.sysctl_now(name)) or "not there"  # type: ignore[no-untyped-call]


def _moving(want: Wanted) -> str:
    if not want.clear:
        return f"{MOVED} stay, as every core is shared by servers and generators"
    return f"{MOVED} leave {_cores(want.clear)} for {_cores(want.to)}"


def _cores(cores: list[int]) -> str:
    return f"core{'s' if len(cores) > 1 else ''} {', '.join(map(str, cores))}"


def apply(host: Host, schedule: Schedule) -> list[str]:
    """Tunes the machine; returns what was done and what was not, a sentence each."""
    want = wanted(schedule, host.info["cores"])
    told = host.ask(
        "tune",
        sysctl=want.sysctl,
        limits=want.limits,
        clear=want.clear,
        to=want.to,
        state=str(state_file()),
        under=int(os.environ.get("WIRESPEED_TUNE_UNDER", "0")),
    )
    return sentences(want, told)


def sentences(want: Wanted, told: dict[str, Any]) -> list[str]:
    found = [f"{name} was {was}, is {now}" for name, was, now in told["sysctl"]]
    moved = f"{told['threads']} threads and {told['irqs']} interrupts of others"
    if not want.clear:
        found.append(_moving(want))
    elif told["threads"] or told["irqs"]:
        found.append(f"{moved} left {_cores(want.clear)} for {_cores(want.to)}")
    else:
        found.append("nothing of others could be moved; it takes root (CAP_SYS_NICE)")
    if told["pinned"]:
        names = list(dict.fromkeys(told["pinned"]))
        more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
        shown = ", ".join(names[:NAMES_SHOWN_MAX]) + more
        found.append(f"left where their owners pinned them: {shown}")
    return found + [f"{name} is not set: {why}" for name, why in told["refused"]]


def undo(host: Host) -> list[str]:
    """Puts the machine back while the agent lives; its end does the same without words."""
    try:
        done = host.ask("restore")["restored"]
    except HostError:
        return []
    return restored(done) if done else []


def put_back() -> list[str]:
    """What a run that was killed together with its agent left changed."""
    done = tuning.restore(str(state_file()))  # type: ignore[no-untyped-call]
    return restored(done) if done and not done["by"] else []


def restored(done: dict[str, Any]) -> list[str]:
    settings, threads = done["files"], done["threads"]
    return [f"put back {settings} settings and the cores of {threads} threads", *done["kept"]]


def state_file() -> Path:
    """In memory that a restart empties; the lock of runs lies beside it."""
    if "WIRESPEED_TUNED" in os.environ:
        return Path(os.environ["WIRESPEED_TUNED"])
    user = os.geteuid()
    own = Path("/run") if user == 0 else Path(f"/run/user/{user}")
    return (
        own / "wirespeed-tuned.json" if own.is_dir() else Path(f"/tmp/wirespeed-tuned-{user}.json")
    )
