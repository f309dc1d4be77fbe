"""Facts in a run's recipe that run.json lacks: variables of axis values, server lifetimes, charts.

The copy in the run directory counts, not the recipe of today. A copy that cannot be read
says nothing, since the figures themselves do not depend on it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any


def axis_variables(run_dir: Path) -> dict[str, dict[str, Any]]:
    """[axis.x]: what a value of an axis carries, by axis and value."""
    found = _table(_recipe(run_dir), "axis")
    return {axis: _table(found, axis) for axis in found}


def restart(run_dir: Path) -> str:
    """How long a server lives: `trial`, `ramp`, or the axes whose change starts a new one."""
    return str(_table(_recipe(run_dir), "plan").get("restart", "trial"))


def sampled(run_dir: Path) -> dict[str, list[str]]:
    """Which resources the report shall chart over a window, by role."""
    found = _table(_recipe(run_dir), "sample")
    return {role: names for role, names in found.items() if isinstance(names, list)}


def _recipe(run_dir: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((run_dir / "recipe.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}


def _table(found: dict[str, Any], name: str) -> dict[str, Any]:
    value = found.get(name, {})
    return value if isinstance(value, dict) else {}
