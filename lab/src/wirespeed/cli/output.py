"""Output of commands for programs: one JSON document on standard output (docs/json-output.md)."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from wirespeed.analysis.summary import Cell, Summary
from wirespeed.report import files


def write(document: Any) -> None:
    """Paths become texts; everything else is JSON's own."""
    print(json.dumps(document, indent=1, default=str))


def records(found: list[Any]) -> list[dict[str, Any]]:
    """Data classes as the objects that they are."""
    return [asdict(one) for one in found]


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
