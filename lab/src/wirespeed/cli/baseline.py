"""`wirespeed baseline`: names of runs to compare with."""

from __future__ import annotations

from pathlib import Path

from wirespeed.cli import output
from wirespeed.errors import COMMAND
from wirespeed.results import baselines, store


def save(runs: Path, name: str, run: str, as_json: bool) -> None:
    run_dir = store.find_run(runs, run)
    baselines.save(runs, name, run_dir)
    if as_json:
        output.write({name: run_dir.name})
    else:
        print(f"{name} is {run_dir.name}")


def show(runs: Path, as_json: bool) -> None:
    names = baselines.every(runs)
    if as_json:
        output.write(names)
        return
    for name, run in names.items():
        print(f"{name}  {run}")
    if not names:
        print(f"no baselines; `{COMMAND} baseline save NAME RUN` makes one")


def remove(runs: Path, name: str, as_json: bool) -> None:
    """Prints nothing but JSON: success needs no message."""
    baselines.remove(runs, name)
    if as_json:
        output.write({"removed": name})
