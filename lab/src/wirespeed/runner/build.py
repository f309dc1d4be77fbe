"""Has `./wirespeed build` build what a recipe needs, before the run starts anything."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from wirespeed.errors import RunError

ANSWER_S = 30.0


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
    code = subprocess.run([str(door), "build", *names], cwd=root, check=False).returncode
    if code:
        error = BuildError(f"./wirespeed build {' '.join(names)} failed; nothing was measured")
        error.exit_code = code
        raise error


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
