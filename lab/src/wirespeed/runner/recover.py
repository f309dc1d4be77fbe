"""Cleans up after runs that were killed: `wirespeed recover`, and the note at the next call."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from wirespeed.agent import leftovers
from wirespeed.errors import BusyError, StorageError
from wirespeed.fleet.fleet import LOOK_S, Fleet
from wirespeed.fleet.host import END_S
from wirespeed.results import store
from wirespeed.runner import execute, tune
from wirespeed.runner.files import scratch_folder


@dataclass(frozen=True)
class Recovered:
    runs: list[str]
    processes: list[int]
    folders: list[str]
    settings: list[str]
    left: list[str]  # runs that another machine may be at work on, or that have a reason below
    reasons: dict[str, str] = field(default_factory=dict)  # why a run cannot be written


def wait_for_ending() -> None:
    """An agent whose lab was killed a moment ago still tidies up and puts settings back: it holds
    the machine's lock, and what it has not put back yet (the cores of this shell) would count."""
    deadline = time.monotonic() + END_S
    while leftovers.is_ending() and time.monotonic() < deadline:
        time.sleep(LOOK_S)


def cut_off(runs: Path) -> list[Path]:
    """Runs of this machine whose state is "running" although no process works on them."""
    return [run_dir for run_dir in store.list_runs(runs) if execute.is_cut_off(run_dir)]


def is_latest_cut_off(runs: Path) -> Path | None:
    """The cheap question of every call: the newest run only."""
    latest = runs / "latest"
    return latest.resolve() if store.is_run(latest) and execute.is_cut_off(latest) else None


def with_hosts(done: Recovered, fleet: Fleet) -> Recovered:
    """The same with what was left on the machines of a site."""
    settings = list(done.settings)
    processes, folders = list(done.processes), list(done.folders)
    for name, left in fleet.tidy().items():
        processes += left["processes"]
        folders += [f"{name}:{folder}" for folder in left["folders"]]
    for name, answer in fleet.each(fleet.machines, "put_back").items():
        back = answer["restored"]
        if back and not back["by"] and "files" in back:
            settings += [f"{name}: {line}" for line in tune.restored(back)]
    return replace(done, processes=processes, folders=folders, settings=settings)


def recover(runs: Path) -> Recovered:
    """Ends what dead runs left, and marks them as interrupted, so that they can be resumed."""
    wait_for_ending()
    done = leftovers.tidy()
    processes, folders = done["processes"], done["folders"]
    names: list[str] = []
    reasons: dict[str, str] = {}
    for run_dir in cut_off(runs):
        try:
            holder = execute.hold(run_dir)
        except BusyError:  # it goes on just now
            continue
        except StorageError as error:  # another user's, or on a read-only disk
            reasons[run_dir.name] = str(error)
            continue
        with holder:
            run = store.read_run(run_dir)
            if run.state != "running":  # it went on since, and has said how it ended
                continue
            scratch = scratch_folder(run_dir.name)
            if scratch.exists():
                shutil.rmtree(scratch, ignore_errors=True)
                folders.append(str(scratch))
            execute.remove_unfinished(run_dir)
            try:
                store.write_run(run_dir, replace(run, state="interrupted", ended=execute.now()))
                store.append_event(run_dir, "recovered")
            except StorageError as error:  # a full disk keeps neither other runs nor settings
                reasons[run_dir.name] = str(error)
                continue
            names.append(run_dir.name)
    for folder in store.half_made(runs):
        shutil.rmtree(folder, ignore_errors=True)
        folders.append(str(folder))
    elsewhere = [one.name for one in store.list_runs(runs) if execute.may_run_elsewhere(one)]
    left = [*reasons, *elsewhere]
    return Recovered(names, processes, folders, tune.put_back(), left, reasons)
