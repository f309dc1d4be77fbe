"""Asks the front door for what a recipe needs before the run takes anything."""

from __future__ import annotations

import subprocess
from pathlib import Path

from wirespeed.errors import RunError


class BuildError(RunError):
    """The front door could not build a part; it has said why. Its exit code is passed on."""


def build(root: Path, names: list[str]) -> None:
    door = root / "wirespeed"
    if not names or not door.is_file():
        return
    code = subprocess.run([str(door), "build", *names], cwd=root, check=False).returncode
    if code:
        error = BuildError(f"./wirespeed build {' '.join(names)} failed; nothing was measured")
        error.exit_code = code
        raise error
