"""What a run reports to a watcher; the command line shows it, tests count it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wirespeed.results.model import PlannedTrial, Trial
from wirespeed.runner.plan import Schedule


@dataclass(frozen=True)
class Progress:
    """Where a run stands."""

    done: int
    total: int
    seconds_left: float


class Watcher:
    """Does nothing; whoever wants to see something overrides it."""

    def began(self, run_dir: Path, schedule: Schedule, progress: Progress) -> None:
        """The run directory exists and the first session is about to start."""

    def phase(self, line: PlannedTrial, text: str, progress: Progress) -> None:
        """A trial enters a phase."""

    def recorded(self, trial: Trial, progress: Progress) -> None:
        """A trial is on the disk."""

    def notify(self, text: str) -> None:
        """Something worth a line: a retry, a server that had to be killed."""
