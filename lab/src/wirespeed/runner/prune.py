"""Removes runs that are not kept (results/retention.py); never one that a command works on."""

from __future__ import annotations

import shutil
from pathlib import Path

from wirespeed.errors import StorageError
from wirespeed.results import retention, store
from wirespeed.results.retention import Kept
from wirespeed.runner import execute


def removable(runs: Path, newest: int) -> list[Kept]:
    """Every run with the reason why it stays; a run that a command has open stays, too."""
    return [
        Kept(one.run_dir, one.recipe, "a command is at work on it")
        if not one.why and execute.is_held(one.run_dir)
        else one
        for one in retention.judged(runs, newest)
    ]


def remove(run_dir: Path) -> None:
    """Raises BusyError when somebody began to work on it meanwhile.

    Its run.json changes its name first and goes last: the rest of a removal that is cut off does
    not count as a run, and `recover` knows that it may remove it.
    """
    if run_dir.is_symlink():
        raise StorageError(f"{run_dir.name} is a link to another folder: remove it yourself")
    holder = execute.hold(run_dir)
    try:
        (run_dir / "run.json").rename(run_dir / store.GOING)
        for path in list(run_dir.iterdir()):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != store.GOING:
                path.unlink()
        shutil.rmtree(run_dir)
    except OSError as error:
        raise StorageError(
            f"cannot remove {error.filename or run_dir}: {error.strerror}"
        ) from error
    finally:
        holder.close()
