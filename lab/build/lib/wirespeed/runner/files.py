"""The files that a recipe's servers serve, made before they start in the run's scratch folder."""

from __future__ import annotations

import os
import random
from pathlib import Path

from wirespeed.errors import StorageError
from wirespeed.recipe.resolve import FileSet

_BLOCK_BYTES = 1 << 20
_SEED = 1  # the same bytes in every run, so that payloads compare


def make(sets: list[FileSet]) -> None:
    """Writes each file once; a file that has its size already is left alone."""
    for files in sets:
        path = Path(files.folder) / files.name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.stat().st_size != files.size_bytes:
                _write(path, files)
        except OSError as error:
            raise StorageError(f"cannot write the payload {path}: {error.strerror}") from error


def _write(path: Path, files: FileSet) -> None:
    chance = random.Random(_SEED)
    left = files.size_bytes
    with open(path, "wb") as file:
        while left:
            size = min(left, _BLOCK_BYTES)
            file.write(chance.randbytes(size) if files.fill == "random" else bytes(size))
            left -= size


def scratch_folder(run_id: str) -> Path:
    """Where payloads and configurations live while a run lasts: memory, where there is some."""
    memory = Path("/dev/shm")
    if os.access(memory, os.W_OK):
        return memory / f"wirespeed-{run_id}"
    return Path(os.environ.get("TMPDIR", "/tmp")) / f"wirespeed-{run_id}"
