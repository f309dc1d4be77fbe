"""The exception tree. Each message is the one line that the user reads.

WirespeedError
├── InputError        bad input: exit code 2
│   ├── UnitError     a duration, size or rate that cannot be read
│   ├── RecipeError   a key of a recipe or site, with file and key
│   └── ResultsError  a run directory that cannot be read or does not fit
└── RunError          a measurement failed: exit code 1
    ├── HostError     the host agent refused what it was asked
    │   └── LostHostError  the host agent is gone
    ├── ProcessError  a process of a trial did not start, become ready or stay alive
    │   └── LastingError  it would go the same way at every attempt
    ├── BusyError     another run holds this machine
    └── StorageError  the run directory cannot be written
"""

from __future__ import annotations

import os
from pathlib import Path

#: How this program was called: commands that a message names can be typed as they stand.
COMMAND = os.environ.get("WIRESPEED_COMMAND", "wirespeed")


class WirespeedError(Exception):
    """The root: the command line prints the message and exits with status `exit_code`."""

    exit_code = 1


class InputError(WirespeedError):
    """Bad input; nothing has been started."""

    exit_code = 2


class UnitError(InputError):
    """A duration, size or rate that cannot be read."""


class RecipeError(InputError):
    """A key of a recipe or site that is unknown, missing or has a wrong value."""

    def __init__(self, file: str | Path, key: str, problem: str) -> None:
        self.file, self.key, self.problem = str(file), key, problem
        where = f"{file}: {key}: " if key else f"{file}: "
        super().__init__(where + problem)


class ResultsError(InputError):
    """A run directory that cannot be read, or that does not fit what was asked."""


class RunError(WirespeedError):
    """A measurement failed."""


class HostError(RunError):
    """The host agent refused what it was asked, or is gone."""


class LostHostError(HostError):
    """The host agent is gone, or does not answer any more: another one can take its place."""


class ProcessError(RunError):
    """A process of a trial did not start, did not become ready, or died."""


class LastingError(ProcessError):
    """What a trial was asked to do cannot work, so another attempt would end the same way."""


class BusyError(RunError):
    """Another run holds this machine."""


class StorageError(RunError):
    """The run directory cannot be written, for example because the disk is full."""
