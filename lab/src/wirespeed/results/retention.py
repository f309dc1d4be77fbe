"""Which runs may be removed: all but the newest of each recipe, and none with a name or a mark."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from wirespeed.errors import ResultsError
from wirespeed.results import baselines, store


@dataclass(frozen=True)
class Kept:
    """A run, and why it stays; without a reason it may go."""

    run_dir: Path
    recipe: str
    why: str = ""


def judged(runs: Path, newest: int) -> list[Kept]:
    """Every run, oldest first. Runs that cannot be read stay: another version may read them."""
    named = _baselines(runs)
    latest = Path(os.path.realpath(runs / "latest"))  # also of a link that leads to itself
    folders = store.list_runs(runs)
    linked = {one.resolve(): one.name for one in folders if one.is_symlink()}
    judgements: list[Kept] = []
    counts: Counter[str] = Counter()
    for run_dir in reversed(folders):
        try:
            run = store.read_run(run_dir)
        except ResultsError:
            judgements.append(Kept(run_dir, "", "it cannot be read by this version"))
            continue
        if run_dir.is_symlink():  # and no run of its own, that would count among the newest
            judgements.append(Kept(run_dir, run.recipe, "it is a link"))
            continue
        why = ""
        if run_dir.name in named:
            why = f"baseline {', '.join(named[run_dir.name])}"
        elif run_dir.resolve() in linked:
            why = f"the link {linked[run_dir.resolve()]} leads to it"
        elif run.labels or run.note:
            why = "it has a label or a note"
        elif run.state == "running":
            why = "it runs, or was cut off and can go on"
        elif run_dir.resolve() == latest:
            why = "the latest run"
        elif counts[run.recipe] < newest:
            why = f"among the newest {newest} of its recipe"
        counts[run.recipe] += 1
        judgements.append(Kept(run_dir, run.recipe, why))
    return judgements[::-1]


def _baselines(runs: Path) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, run in baselines.every(runs).items():
        names.setdefault(run, []).append(name)
    return names


def size_bytes(run_dir: Path) -> int:
    """On the disk; outputs that several trials share as links count once."""
    seen: dict[tuple[int, int], int] = {}
    for state in _states(run_dir.rglob("*")):
        seen[state[:2]] = state[2]
    return sum(seen.values())


def _states(paths: Iterable[Path]) -> Iterable[tuple[int, int, int]]:
    for path in paths:
        try:
            state = path.lstat()
        except OSError:  # it has gone meanwhile
            continue
        yield state.st_dev, state.st_ino, state.st_blocks * 512
