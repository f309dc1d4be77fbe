"""The interface of a load generator's driver, and the common parts of drivers of other tools."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirespeed import units
from wirespeed.driver.base import Command, Figures, Instance, Latency, LoadRun
from wirespeed.errors import ProcessError
from wirespeed.process.start import readable

TIME_NS = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9}


@dataclass(frozen=True)
class Output:
    """What a generator left: its text, when it was started, and when it had ended."""

    stdout: Path
    last_words: str
    started_unix_ns: int
    ended_unix_ns: int

    @property
    def text(self) -> str:
        try:
            return self.stdout.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""


@dataclass(frozen=True)
class Generator:
    """A load generator: how it is started for a window, and how its figures are read."""

    command: Callable[[Path, Instance, LoadRun], Command]
    read: Callable[[Instance, LoadRun, Output], Figures]


def has(argv: Collection[str], *options: str) -> bool:
    """Whether one of the options stands there: alone, joined, or with an equals sign."""
    for word in argv:
        for option in options:
            is_joined = not option.startswith("--") and len(option) == 2 and word.startswith(option)
            if word == option or word.startswith(f"{option}=") or is_joined:
                return True
    return False


def number_after(argv: list[str], default: int, *options: str) -> int:
    """The whole number of an option, however it is written; wrk takes 1k for 1000."""
    for place, word in enumerate(argv):
        for option in options:
            rest = word[len(option):].lstrip("=") if word.startswith(option) else ""  # fmt: skip
            after = argv[place + 1] if word == option and place + 1 < len(argv) else rest
            if found := re.fullmatch(r"([0-9]+)([kMG]?)", after, re.IGNORECASE):
                scale = " KMG".index(found[2].upper() or " ")
                return int(found[1]) * int(1000**scale)
    return default


def whole_seconds(argv: list[str], *options: str) -> list[str]:
    """For tools that read no fractions: a duration is rounded up."""
    result = list(argv)
    for place, word in enumerate(argv[:-1]):
        if word in options:
            result[place + 1] = f"{math.ceil(units.duration_s(argv[place + 1]))}s"
    return result


def found(pattern: str, text: str) -> float | None:
    match = re.search(pattern, text, re.M)
    return float(match[1]) if match else None


def json_of(instance: Instance, tool: str, text: str, last_words: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError:
        raise no_result(instance, tool, last_words or text) from None
    if not isinstance(data, dict):
        raise no_result(instance, tool, last_words)
    return data


def no_result(instance: Instance, tool: str, text: str) -> ProcessError:
    lines = list(filter(None, map(readable, text.splitlines())))
    return ProcessError(f"{instance.label}: {tool} printed no result: {lines[-1] if lines else ''}")


def little(latency: Latency | None, connections: int, rps: float) -> float | None:
    """mean / (N / X) - 1: nothing in a closed loop that measures what it waits for."""
    if not latency or not rps or not connections:
        return None
    return latency.mean_ns / (connections / rps * 1e9) - 1
