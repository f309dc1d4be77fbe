"""Output of commands for programs: one JSON document on standard output (docs/json-output.md)."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wirespeed.analysis.summary import Cell, Summary
from wirespeed.errors import InputError
from wirespeed.report import files


def printable(text: str) -> str:
    """A text of somebody else, in which no control character changes what a terminal shows."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def write_file(path: Path, text: str, newline: str = "\n") -> None:
    """A user's file, by a rename: a full disk leaves it as it was. Raises InputError."""
    where = path.resolve()  # of a link the file that it names
    fresh = where.with_name(f".{where.name}.{os.getpid()}")
    try:
        fresh.write_text(text, encoding="utf-8", newline=newline)
        if where.exists():
            fresh.chmod(where.stat().st_mode)
        fresh.replace(where)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def write(document: Any) -> None:
    """Paths become texts; everything else is JSON's own."""
    print(json.dumps(document, indent=1, default=str))


def records(rows: list[Any]) -> list[dict[str, Any]]:
    """Data classes as the objects that they are."""
    return [asdict(one) for one in rows]


def result(summary: Summary) -> dict[str, Any]:
    """A run for programs: verdicts as in verdict.json, and every cell with its medians."""
    run_dir = summary.run_dir
    return {
        **files.verdicts(summary),
        "recipe": summary.run.recipe,
        "state": summary.run.state,
        "folder": run_dir,
        "report": run_dir / "derived" / "report.html",
        "valid_trials": len(summary.valid),
        "invalid_trials": len(summary.invalid),
        "cells": [_cell(cell) for cell in summary.cells],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    names = sorted({name for trial in cell.trials for name in trial.metrics})
    return {
        "cell": cell.key, "axes": cell.axes, "state": cell.state, "reason": cell.reason,
        "limit": cell.bottleneck if cell.trials else None, "trials": len(cell.trials),
        "medians": {name: cell.median(name) for name in names},
    }  # fmt: skip
