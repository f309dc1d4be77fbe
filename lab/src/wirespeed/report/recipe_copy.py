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
    tables = _table(_recipe(run_dir), "axis")
    return {axis: _table(tables, axis) for axis in tables}


def restart(run_dir: Path) -> str:
    """How long a server lives: `trial`, `ramp`, or the axes whose change starts a new one."""
    return str(_table(_recipe(run_dir), "plan").get("restart", "trial"))


def sampled(run_dir: Path) -> dict[str, list[str]]:
    """Which resources the report shall chart over a window, by role."""
    tables = _table(_recipe(run_dir), "sample")
    return {role: names for role, names in tables.items() if isinstance(names, list)}


def _recipe(run_dir: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((run_dir / "recipe.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        return {}


def _table(data: dict[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name, {})
    return value if isinstance(value, dict) else {}
