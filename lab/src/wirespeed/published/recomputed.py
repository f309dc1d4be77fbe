"""Recomputes the published figures and writes docs/published.md: what does not add up, and why.

    python -m wirespeed.published.recomputed recipes/published > docs/published.md

Every number of that page comes from the CSV files through this module; a test compares.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from wirespeed.stats.comparison import geometric_mean

WRK_GBPS = 1.048576  # wrk's megabytes (2^20 bytes) times 8 / 1000, in decimal Gb/s
FRAME_BYTES = 38 + 20 + 20  # Ethernet with preamble, check and gap; IPv4; TCP without options
MSS = 1460
LINK_25G = 25.0


@dataclass(frozen=True)
class PublishedFigure:
    """One figure of a cookbook."""

    table: str
    metric: str
    payload: int
    link: str
    count: int
    stack: str
    value: float


class Cookbook:
    """The figures of one cookbook, found by table, count and stack."""

    def __init__(self, path: Path) -> None:
        with path.open(newline="", encoding="utf-8") as lines:
            self.rows = [_row(row) for row in csv.DictReader(lines)]
        self._raw = {
            (row.table, row.count, row.stack): row.value for row in self.raw()
        }  # fmt: skip

    def raw(self) -> list[PublishedFigure]:
        return [row for row in self.rows if row.metric != "gain_printed"]

    def printed(self) -> list[PublishedFigure]:
        return [row for row in self.rows if row.metric == "gain_printed"]

    def at(self, table: str, count: int, stack: str = "kernel") -> float:
        return self._raw[table, count, stack]

    def gain(self, row: PublishedFigure) -> float:
        """The gain of a printed row, recomputed, in percent."""
        return (self.at(row.table, row.count, row.stack) / self.at(row.table, row.count) - 1) * 100

    def worst_difference(self) -> float:
        return max(abs(self.gain(row) - row.value) for row in self.printed())


def _row(row: Mapping[str, str]) -> PublishedFigure:
    return PublishedFigure(
        row["table"], row["metric"], int(row["payload_bytes"]), row["link_gbps"],
        int(row["instances_or_connections"]), row["stack"], float(row["value"]),
    )  # fmt: skip


def page(folder: Path) -> str:
    """docs/published.md from the CSV files of a folder."""
    netty = Cookbook(folder / "netty_onload_cookbook.csv")
    nginx = Cookbook(folder / "nginx_onload_cookbook.csv")
    environment = Environment(
        loader=PackageLoader("wirespeed.published"), undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    environment.filters["f"] = _formatted
    steps = ramp(folder / "zuul_ramp.csv")
    rest = [step for step in steps if (step["server"], step["connections"]) != ("tomcat", 2000)]
    facts = {
        "tomcat": lambda n: next(
            s for s in steps if s["server"] == "tomcat" and s["connections"] == n
        ),
        "others": _range(step["bytes"] for step in rest),
        "arithmetic": arithmetic(netty, nginx),
        "unit": unit(nginx),
        "link": link(nginx),
        "baseline": baseline(nginx),
        "losses": losses(nginx),
        "profiles": profiles(nginx),
        "peaks": {table: _peak(nginx, table) for table in ("T3", "T4")},
        "ramp": steps,
        "average": average(netty),
        "maxima": maxima(netty),
        "saving": {"at_70": 1 - 1 / 1.7, "at_50": 1 - 1 / 1.5},
    }
    return environment.get_template("published.md.j2").render(facts)


def _formatted(value: float, pattern: str) -> str:
    return format(value, pattern).replace("-", "\u2212")


def arithmetic(netty: Cookbook, nginx: Cookbook) -> dict[str, float]:
    """Do the printed gains follow from the printed figures?"""
    return {
        "gains": len(netty.printed()) + len(nginx.printed()),
        "netty": netty.worst_difference(),
        "nginx": nginx.worst_difference(),
    }


def unit(nginx: Cookbook) -> dict[str, Any]:
    """Bytes per response, from throughput and requests/s of the same test, for three readings."""
    bits = {"wrk": WRK_GBPS * 1e9, "decimal": 1e9, "binary": 2.0**30}
    found = {
        name: {pair: _range(_bytes_a_response(nginx, pair, scale)) for pair in ("T7/T6", "T16/T15")}
        for name, scale in bits.items()
    }
    printed = nginx.at("T7", 28)
    return {**found, "printed": printed, "true": printed * WRK_GBPS, "excess": WRK_GBPS - 1}


def _bytes_a_response(nginx: Cookbook, pair: str, bits: float) -> Iterable[float]:
    over, rate = pair.split("/")
    for row in nginx.raw():
        if row.table == over:
            yield row.value * bits / 8 / nginx.at(rate, row.count, row.stack)


def _range(values: Iterable[float]) -> tuple[float, float]:
    found = list(values)
    return min(found), max(found)


def wire_gbps(rate_rps: float, response_bytes: int) -> float:
    """What a rate of responses takes on the wire with full segments of MSS 1460."""
    frames = math.ceil(response_bytes / MSS)
    return rate_rps * (response_bytes + frames * FRAME_BYTES) * 8 / 1e9


def link(nginx: Cookbook) -> dict[str, float]:
    """25 GbE: the 10 kB and 1 KB tests fill it. The exact header is 258 bytes at 100 kB."""
    return {
        "rate_10k": nginx.at("T5", 28),
        "wire_10k": wire_gbps(nginx.at("T5", 28), 10_000 + 257),
        "wire_1k": wire_gbps(nginx.at("T4", 28, "onload-balanced"), 1_000 + 256),
        "first_kernel": _first_full(nginx, "kernel"),
        "first_onload": _first_full(nginx, "onload-balanced"),
    }


def _first_full(nginx: Cookbook, stack: str) -> int:
    rows = [row for row in nginx.raw() if row.table == "T5" and row.stack == stack]
    full = [row.count for row in rows if wire_gbps(row.value, 10_257) > 0.99 * LINK_25G]
    return min(full)


def baseline(nginx: Cookbook) -> list[dict[str, Any]]:
    """One worker, kernel: the same test over the two links, and what the gain becomes."""
    rows = []
    for what, slow, fast in (
        ("TPS", "T2", "T11"), ("0 KB", "T3", "T12"), ("1 KB", "T4", "T13"), ("10 KB", "T5", "T14"),
    ):  # fmt: skip
        onload = nginx.at(slow, 1, "onload-balanced")
        others = [n for n in (2, 4, 8, 16, 28) if what != "10 KB" or n < 8]
        rows.append({
            "what": what,
            "table": slow,
            "ratio": nginx.at(fast, 1) / nginx.at(slow, 1),
            "others": _range(nginx.at(fast, n) / nginx.at(slow, n) for n in others),
            "scaling": nginx.at(slow, 2) / nginx.at(slow, 1),
            "printed": (onload / nginx.at(slow, 1) - 1) * 100,
            "corrected": (onload / nginx.at(fast, 1) - 1) * 100,
        })  # fmt: skip
    return rows


def losses(nginx: Cookbook) -> dict[str, Any]:
    """The printed gains that are none."""
    printed = nginx.printed()
    worst = min(printed, key=lambda row: row.value)
    return {
        "all": len(printed),
        "negative": sum(row.value < 0 for row in printed),
        "by_ten": sum(row.value <= -10 for row in printed),
        "worst": worst,
    }


def profiles(nginx: Cookbook) -> dict[str, Any]:
    """Do the two profiles differ?"""
    ratios = [
        row.value / nginx.at(row.table, row.count, "onload-balanced")
        for row in nginx.raw()
        if row.stack == "onload-performance"
    ]
    return {
        "cells": len(ratios),
        "mean": geometric_mean(ratios),
        "range": _range(ratios),
        "better": sum(ratio > 1 for ratio in ratios),
    }


def _peak(nginx: Cookbook, table: str) -> PublishedFigure:
    return max((row for row in nginx.printed() if row.table == table), key=lambda row: row.value)


def ramp(path: Path) -> list[dict[str, Any]]:
    """Little's law over the ramp: mean latency against connections / rate; bytes per request."""
    figures: dict[tuple[str, int], dict[str, float]] = {}
    with path.open(newline="", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            key = (row["server"], int(row["connections"]))
            figures.setdefault(key, {})[row["metric"]] = float(row["value"])
    return [
        {
            "server": server,
            "connections": connections,
            "printed_ms": found["latency_mean"],
            "little_ms": connections / found["rps"] * 1e3,
            "ratio": found["latency_mean"] / (connections / found["rps"] * 1e3),
            "p75_ms": found["latency_p75"],
            "p90_ms": found["latency_p90"],
            "bytes": found["network"] * 1e6 / 8 / found["rps"],
        }
        for (server, connections), found in sorted(figures.items())
    ]


def average(netty: Cookbook) -> dict[str, Any]:
    """The 70 % on average: the mean over ten counts at 128 bytes, and over the rest."""
    by_payload: dict[int, list[float]] = {}
    for row in netty.printed():
        by_payload.setdefault(row.payload, []).append(row.value)
    own = [netty.gain(row) for row in netty.printed() if row.table == "T4"]
    onload = sum(r.value for r in netty.raw() if r.table == "T4" and r.stack != "kernel")
    kernel = sum(r.value for r in netty.raw() if r.table == "T4" and r.stack == "kernel")
    at_36 = next(r.value for r in netty.printed() if r.table == "T4" and r.count == 36)
    return {
        "printed": fmean(by_payload[128]),
        "recomputed": fmean(own),
        "of_sums": (onload / kernel - 1) * 100,
        "geometric": (geometric_mean([1 + gain / 100 for gain in own]) - 1) * 100,
        "at_36": at_36,
        "all": fmean(row.value for row in netty.printed()),
        "by_payload": {payload: fmean(gains) for payload, gains in by_payload.items()},
        "counts": sorted({row.count for row in netty.printed()}),
    }


def maxima(netty: Cookbook) -> dict[str, Any]:
    """The highest figures of each stack, over all payloads and at 128 bytes."""
    kernel = [row for row in netty.raw() if row.stack == "kernel"]
    onload = [row for row in netty.raw() if row.stack != "kernel"]
    top, top_onload = (max(rows, key=lambda row: row.value) for rows in (kernel, onload))
    at_128 = max(row.value for row in kernel if row.payload == 128)
    onload_128 = max(row.value for row in onload if row.payload == 128)
    return {
        "kernel": top,
        "onload": top_onload,
        "gain": (top_onload.value / top.value - 1) * 100,
        "kernel_128": at_128,
        "gain_128": (onload_128 / at_128 - 1) * 100,
    }


if __name__ == "__main__":
    sys.stdout.write(page(Path(sys.argv[1])))
