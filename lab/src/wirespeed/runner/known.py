"""Facts from earlier runs about this machine: its best calibration loop, how quiet its trials are.

Kept in the user's state folder, one file per machine, so that a run on a slow host is not its own
standard. A file that is missing or damaged only means that nothing is known yet.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

RUNS_KEPT = 20
IDENTITY = ("cpu_model", "cores", "kernel", "virtualization")


@dataclass(frozen=True)
class Known:
    """`calibrations_ms` and `spreads` of the last runs, the newest last."""

    calibrations_ms: tuple[float, ...] = ()  # each run's own best
    spreads: tuple[float, ...] = ()  # standard deviation of a trial's log rate, each run's typical

    @property
    def best_ms(self) -> float | None:
        return min(self.calibrations_ms, default=None)

    @property
    def spread(self) -> float | None:
        """The typical run's."""
        ordered = sorted(self.spreads)
        return ordered[len(ordered) // 2] if ordered else None


def folder() -> Path:
    if "WIRESPEED_STATE" in os.environ:
        return Path(os.environ["WIRESPEED_STATE"])
    if state := os.environ.get("XDG_STATE_HOME"):
        return Path(state) / "wirespeed"
    try:
        return Path.home() / ".local" / "state" / "wirespeed"
    except RuntimeError:  # a container's user without a name and a home
        return Path(tempfile.gettempdir()) / f"wirespeed-state-{os.geteuid()}"


def of_machine(facts: Mapping[str, Any]) -> Known:
    try:
        data = json.loads(_file(facts).read_text(encoding="utf-8"))
        return Known(
            tuple(float(ms) for ms in data.get("calibrations_ms", data.get("canaries_ms", ()))),
            tuple(float(spread) for spread in data["spreads"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return Known()


def learn(facts: Mapping[str, Any], best_ms: float | None, spread: float | None) -> None:
    """Adds what one run found; a folder that cannot be written does not fail a run."""
    known = of_machine(facts)
    if best_ms is not None:
        known = replace(known, calibrations_ms=(*known.calibrations_ms, best_ms)[-RUNS_KEPT:])
    if spread is not None:
        known = replace(known, spreads=(*known.spreads, spread)[-RUNS_KEPT:])
    path = _file(facts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(asdict(known)) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError:
        pass


def _file(facts: Mapping[str, Any]) -> Path:
    identity = json.dumps([str(facts.get(name, "")) for name in IDENTITY])
    return (
        folder() / f"machine-{hashlib.blake2b(identity.encode(), digest_size=6).hexdigest()}.json"
    )
