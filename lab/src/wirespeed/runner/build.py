"""Has `./wirespeed build` build what a recipe needs, before the run starts anything."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from wirespeed.errors import RunError
from wirespeed.interrupts import held_back

ANSWER_S = 30.0
END_S = 10.0  # for a package manager to end what it is at


class BuildError(RunError):
    """The front door could not build a part; it has said why. Its exit code is passed on."""


@dataclass(frozen=True)
class Missing:
    """The parts that `build` would make or install first, and about how long that takes."""

    parts: tuple[str, ...] = ()
    seconds: float = 0.0


def build(root: Path, names: list[str]) -> None:
    door = root / "wirespeed"
    if not names or not door.is_file():
        return
    code = _code_of([str(door), "build", *names], root)
    if code:
        error = BuildError(f"./wirespeed build {' '.join(names)} failed; nothing was measured")
        error.exit_code = code
        raise error


def _code_of(command: list[str], root: Path) -> int:
    """Its exit code. A stop ends it with all that it started, which would build on without it."""
    process: subprocess.Popen[bytes] | None = None
    try:
        with held_back():  # else what has just been started is not known yet
            process = subprocess.Popen(command, cwd=root, start_new_session=True)
        return process.wait()
    except BaseException:
        if process is not None:
            with held_back():
                _end(process)
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    """Politely: a package manager that is killed leaves half of a package."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def missing(root: Path, names: list[str]) -> Missing:
    """The given parts that are missing or stale; nothing is built."""
    door = root / "wirespeed"
    if not names or not door.is_file():
        return Missing()
    command = [str(door), "build", "--list", "--json", *names]
    try:
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, check=True, timeout=ANSWER_S
        )
    except (OSError, subprocess.SubprocessError):
        return Missing()  # a plan goes without; the run will say what is wrong
    listed = json.loads(done.stdout)
    parts = tuple(part["name"] for part in listed["parts"] if part["state"] == "missing")
    return Missing(parts, float(listed["seconds"]))
