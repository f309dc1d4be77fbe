"""Runs under names: `main` stands for the run that others are compared with.

A baseline is a link in the folder of runs: RUNS/baselines/NAME → ../RUN. Without it the run stays.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from wirespeed.errors import COMMAND, InputError, StorageError
from wirespeed.results import store

FOLDER = store.BASELINES
NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")


def save(runs: Path, name: str, run_dir: Path) -> None:
    """Names a run, or gives the name to another one."""
    if not NAME.fullmatch(name) or name == "latest":
        raise InputError(
            f"{name!r}: not a name for a baseline (100 letters, digits, . - _; not latest)"
        )
    if (runs / name / "run.json").exists():
        raise InputError(f"{name!r}: already the name of a run (choose another)")
    # As the kernel will follow it: the folder of runs may be a link to a larger disk.
    folder = (runs / FOLDER).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fresh = folder / f".{name}-{os.getpid()}"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(os.path.relpath(run_dir.resolve(), folder))
        os.replace(fresh, folder / name)
    except OSError as error:
        raise StorageError(f"cannot write {folder / name}: {error.strerror}") from error


def remove(runs: Path, name: str) -> None:
    link = runs / FOLDER / name
    if not NAME.fullmatch(name) or not link.is_symlink():
        raise InputError(f"baseline {name!r}: not found (`{COMMAND} baseline list` lists them)")
    link.unlink()


def every(runs: Path) -> dict[str, str]:
    """Each name with its run's; of a run that was deleted the name stays, and says so."""
    links = sorted((runs / FOLDER).glob("[!.]*")) if (runs / FOLDER).is_dir() else []
    return {
        link.name: Path(os.path.realpath(link)).name
        + ("" if (link / "run.json").exists() else " (gone)")
        for link in links
    }
