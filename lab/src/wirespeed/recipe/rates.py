"""The same recipe as an open loop: its generator keeps each of several rates in turn."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

from wirespeed.errors import InputError
from wirespeed.recipe import compose
from wirespeed.recipe.model import Recipe
from wirespeed.recipe.resolve import RATE_TOOLS

AXIS = "rate"
#: Of a rate that the number of generators does not divide, the first ones offer one more.
SHARE = "{{ rate // count + (1 if i < rate % count else 0) }}"
NAMES = (AXIS, "count", "i")  # of SHARE: an axis would hide what a generator has by that name


def at_rates(text: str, rates: Sequence[int], window_s: float = 0.0) -> tuple[Recipe, str]:
    """The recipe and its text with an axis `rate`, walked in order inside one server's life.

    Windows are at least `window_s` long.
    """
    data = tomllib.loads(text)
    axes = data.setdefault("axes", {})
    if taken := [name for name in NAMES if name in axes]:
        raise InputError(
            f"the recipe has an axis {taken[0]!r} of its own, which knee needs (rename it)"
        )
    if any(isinstance(values, dict) for values in axes.values()):
        raise InputError("the recipe has a ramp already (--set axes.NAME='[1, 2]' makes it a list)")
    axes[AXIS] = {"ramp": list(rates)}
    for process in _generators(data):
        process["argv"] = ["-R", SHARE, *process["argv"]]
    data.get("plan", {}).pop("restart", None)
    data["plan"] = {**data.get("plan", {}), "restart": "ramp"}
    data["table"] = [{"rows": AXIS, "values": _values(data)}]
    recipe = Recipe.model_validate(data)
    if recipe.plan.duration >= window_s:
        return recipe, compose.toml(data)
    data["plan"]["duration"] = f"{window_s:g}s"
    return Recipe.model_validate(data), compose.toml(data)


def _generators(data: dict[str, Any]) -> list[dict[str, Any]]:
    generators = [process for process in data["process"] if process["role"] == "load"]
    for process in generators:
        if process.get("tool") not in RATE_TOOLS:
            tools = " or ".join(RATE_TOOLS)
            raise InputError(
                f"the generator {process['name']!r} has no open loop (its tool is {tools})"
            )
        if any(word.startswith("-R") for word in process["argv"] if isinstance(word, str)):
            raise InputError(f"the generator {process['name']!r} has a rate (-R) of its own")
    return generators


def _values(data: dict[str, Any]) -> list[str]:
    metrics = data.get("metric", [])
    return [str(m["name"]) for m in metrics if m.get("combine") != "histogram"] or ["rps"]
