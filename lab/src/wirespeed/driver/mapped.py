"""A user's own load tool: its JSON or text, read as the recipe's `figures` says.

    figures = { json = { rps = "summary.rate", p99 = "latency.p99" }, unit = "ms" }
    figures = { text = { rps = 'tps = ([0-9.]+)', mean = 'average = ([0-9.]+) ms' }, unit = "ms" }

A path's steps are separated by dots; a key that holds dots itself is found too. A text's pattern
has one group, and its last match counts: tools print intervals first and the total at the end.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from wirespeed import units
from wirespeed.driver.base import Command, Figures, Instance, Latency, LoadRun, Window
from wirespeed.driver.generator import TIME_NS, Generator, Output, little, no_result
from wirespeed.errors import ProcessError, UnitError
from wirespeed.recipe.model import FigureNames

_QUANTILE = re.compile(r"p(\d+)(?:_(\d+))?")


def command(_root: Path, instance: Instance, _run: LoadRun) -> Command:
    return Command(instance.argv)


def read(instance: Instance, run: LoadRun, output: Output) -> Figures:
    figures = instance.figures
    assert figures is not None, "a recipe is refused when a metric is read of such a process"
    if figures.json_:
        values = _of_json(instance, figures, output)
    else:
        values = {n: _match(instance, n, p, output) for n, p in figures.text.items()}
    return _figures(values, _seconds(values, run, output), output.started_unix_ns, figures.unit)


def _seconds(values: dict[FigureNames, float], run: LoadRun, output: Output) -> float:
    """The window's length. A tool that counts requests may end long before the plan's window does,
    and what the server used is divided by what was done in the same time."""
    if "seconds" in values:
        return values["seconds"]
    if values.get("completed") and values["rps"]:
        return values["completed"] / values["rps"]
    lived_s = (output.ended_unix_ns - output.started_unix_ns) / 1e9
    return min(run.duration_s, lived_s)


def _figures(values: dict[FigureNames, float], seconds: float, started: int, unit: str) -> Figures:
    rps = values["rps"]
    connections = int(values.get("connections", 0))
    completed = int(values.get("completed", rps * seconds))
    latency = _latency(values, completed, TIME_NS[unit])
    return Figures(
        rps=rps,
        bytes_per_second=values.get("bytes_per_second", 0.0),
        window=Window(started, int(seconds * 1e9)),
        completed=completed,
        errors=int(values.get("errors", 0)),
        non_2xx=int(values.get("non_2xx", 0)),
        timeouts=0,
        connections=connections,
        closed_loop=True,
        little_residual=little(latency, connections, rps),
        latency={"service": latency} if latency else {},
    )


def _latency(values: dict[FigureNames, float], count: int, unit_ns: float) -> Latency | None:
    quantiles: dict[float, float | None] = {
        _share(name): value * unit_ns for name, value in values.items() if _QUANTILE.match(name)
    }
    if "mean" not in values and not quantiles:
        return None
    mean = values.get("mean", float("nan"))  # a NaN is left out of a trial's metrics
    longest = values.get("max", float("nan"))
    return Latency(mean * unit_ns, longest * unit_ns, count, quantiles)


def _share(name: str) -> float:
    whole, rest = _QUANTILE.fullmatch(name).groups()  # type: ignore[union-attr]
    return round(float(f"{whole}.{rest or 0}") / 100, 7)


def _of_json(instance: Instance, figures: Any, output: Output) -> dict[FigureNames, float]:
    data = _last_json(output.text)
    if data is None:
        raise no_result(instance, instance.argv[0], output.last_words or output.text)
    values: dict[FigureNames, float] = {}
    for name, path in figures.json_.items():
        value = _step(data, path)
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise ProcessError(f"{instance.label}: its JSON has no number at {path!r} ({name})")
        values[name] = _number(instance, name, str(value))
    return values


def _last_json(text: str) -> Any:
    """The whole output, or its last line that is JSON: many tools print a banner first."""
    for part in [text, *reversed(text.splitlines())]:
        try:
            data = json.loads(part)
        except ValueError:
            continue
        if isinstance(data, dict | list):
            return data
    return None


def _step(data: Any, path: str) -> Any:
    """The value at a dotted path; the longest key that fits is taken at each step."""
    if not path:
        return data
    if isinstance(data, list):
        head, _, rest = path.partition(".")
        is_place = head.lstrip("-").isdigit() and -len(data) <= int(head) < len(data)
        return _step(data[int(head)], rest) if is_place else None
    if not isinstance(data, dict):
        return None
    for end in sorted((m.start() for m in re.finditer(r"\.|$", path)), reverse=True):
        if path[:end] in data:
            return _step(data[path[:end]], path[end + 1 :])
    return None


def _match(instance: Instance, name: str, pattern: str, output: Output) -> float:
    matches = re.findall(pattern, output.text, re.M)
    if not matches:
        words = output.last_words or "nothing"
        raise ProcessError(
            f"{instance.label}: its output has nothing like {pattern!r} ({name}); "
            f"it ended with: {words}"
        )
    return _number(instance, name, matches[-1])


def _number(instance: Instance, name: str, text: str) -> float:
    try:
        value = units.grouped(text)
    except UnitError as error:
        raise ProcessError(f"{instance.label}: {error} ({name})") from None
    if not math.isfinite(value):
        raise ProcessError(f"{instance.label}: {text!r} is not a finite number ({name})")
    return value


GENERATOR = Generator(command, read)
