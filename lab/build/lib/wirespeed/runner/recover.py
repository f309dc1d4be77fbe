"""Tidies up after runs that were killed: `wirespeed recover`, and the note at the next call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from wirespeed.errors import ResultsError
from wirespeed.host import leftovers
from wirespeed.results import store
from wirespeed.runner import execute, tune
from wirespeed.runner.files import scratch_folder


@dataclass(frozen=True)
class Recovered:
    runs: list[str]
    processes: list[int]
    folders: list[str]
    settings: list[str]


def cut_off(runs: Path) -> list[Path]:
    """Runs that say "running" though nobody works on them."""
    found = []
    for run_dir in store.list_runs(runs):
        try:
            is_open = store.read_run(run_dir).state == "running"
        except ResultsError:
            continue
        if is_open and not execute.is_held(run_dir):
            found.append(run_dir)
    return found


def is_latest_cut_off(runs: Path) -> Path | None:
    """The cheap question of every call: the newest run only."""
    latest = runs / "latest"
    if not (latest / "run.json").exists():
        return None
    try:
        is_open = store.read_run(latest).state == "running"
    except ResultsError:
        return None
    return latest.resolve() if is_open and not execute.is_held(latest) else None


def recover(runs: Path) -> Recovered:
    """Ends what dead runs left, and marks them as interrupted, so that they can be resumed."""
    processes = leftovers.kill_processes()
    folders = leftovers.remove_cgroups()
    names = []
    for run_dir in cut_off(runs):
        scratch = scratch_folder(run_dir.name)
        folders += [str(scratch)] if leftovers.remove_scratch(scratch) else []
        execute.remove_unfinished(run_dir)
        run = store.read_run(run_dir)
        store.write_run(run_dir, replace(run, state="interrupted", ended=execute.now()))
        store.append_event(run_dir, "recovered")
        names.append(run_dir.name)
    return Recovered(names, processes, folders, tune.put_back())
