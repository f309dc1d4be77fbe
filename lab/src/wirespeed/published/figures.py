"""The published figures: which one belongs to which cell, and how it is printed.

The files in recipes/published hold one figure a row. A recipe's table names a file and
says which of its stacks corresponds to which published one; everything else (payload,
link, count, metric) is found from the cell's axes and their variables.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HEAD = "published (different hardware)"

# Our metric names -> the documents'. The first one that a file has is taken.
METRICS = {
    "latency.mean": "latency_mean",
    "latency.p50": "latency_p50",
    "latency.p75": "latency_p75",
    "latency.p90": "latency_p90",
    "server.cpu": "cpu",
    "loadavg": "load_average",
    "server.loadavg": "load_average",
    "context_switches": "context_switches",
    "server.context_switches": "context_switches",
    "network_mbps": "network",
    "server.network_mbps": "network",
}
COUNTS = ("instances", "workers", "connections")
CONTENDERS = ("stack", "gateway", "server")


@dataclass(frozen=True)
class Style:
    """How a document prints its figures."""

    decimals: int
    is_grouped: bool

    def text(self, value: float) -> str:
        return f"{value:,.{self.decimals}f}" if self.is_grouped else f"{value:.{self.decimals}f}"


STYLES = {
    ("netty_onload_cookbook.csv", "rps"): Style(0, True),
    ("zuul_ramp.csv", "rps"): Style(0, False),
}
STYLE_OTHER = Style(2, False)  # the NGINX cookbook, and the ramp's resources


@dataclass(frozen=True)
class Figure:
    """One published figure, as printed and as a number in our units."""

    value: float
    text: str
    unit: str
    table: str
    link_gbps: str = ""


@dataclass(frozen=True)
class Document:
    """One file of published figures, looked up by what identifies a figure."""

    name: str
    figures: Mapping[tuple[str, ...], tuple[float, str, str, str]]

    def figure(
        self,
        metric: str,
        axes: Mapping[str, object],
        variables: Mapping[str, object],
        stacks: Mapping[str, str],
        scale: float = 1.0,
    ) -> Figure | None:
        """The figure that stands next to a cell, if the document has one."""
        metric = "tps" if metric == "rps" and variables.get("close") else metric
        metric = METRICS.get(metric, metric)
        payload = axes.get("payload", variables.get("bytes"))
        count = next((axes[name] for name in COUNTS if name in axes), "")
        for contender in (axes[name] for name in CONTENDERS if name in axes):
            who = stacks.get(str(contender), str(contender))
            key = (metric, _plain(payload), _link(axes.get("link")), _plain(count), who)
            found = self.figures.get(key)
            if found:
                value, unit, table, link = found
                text = self.style(metric).text(value * scale)
                return Figure(value * scale, text, unit, table, link)
        return None

    def gain(self, table: str, count: object, who: str) -> float | None:
        """The gain in percent as the document prints it."""
        found = self.figures.get(("gain_printed", table, _plain(count), who))
        return found[0] if found else None

    def style(self, metric: str) -> Style:
        return STYLES.get((self.name, metric), STYLE_OTHER)


def folder() -> Path | None:
    """Where the published figures lie: next to the checkout's recipes."""
    root = os.environ.get("WIRESPEED_ROOT")
    places = [Path(root)] if root else []
    places += list(Path(__file__).resolve().parents)
    return next(
        (p / "recipes/published" for p in places if (p / "recipes/published").is_dir()), None
    )


def document_of(name: str, run_dir: Path) -> Document | None:
    """The document of a file name: the run's copy, or the kit's for older runs."""
    if Path(name).name != name:
        return None
    kits = folder()
    places = [run_dir / "published" / name, *([kits / name] if kits else [])]
    return next((_read(path) for path in places if path.is_file()), None)


@cache
def _read(path: Path) -> Document:
    with path.open(newline="", encoding="utf-8") as lines:
        return Document(path.name, dict(_keyed(csv.DictReader(lines))))


def _keyed(
    rows: Iterable[Mapping[str, str]],
) -> Iterable[tuple[tuple[str, ...], tuple[float, str, str, str]]]:
    for row in sorted(rows, key=lambda row: float(row.get("link_gbps") or 0)):
        count = row.get("instances_or_connections") or row.get("connections") or ""
        who = row.get("stack") or row.get("server") or ""
        table, link = row.get("table", ""), row.get("link_gbps", "")
        entry = (float(row["value"]), row["unit"], table, link)
        if row["metric"] == "gain_printed":
            yield ("gain_printed", table, count, who), entry
            continue
        payload = row.get("payload_bytes", "")
        yield (row["metric"], payload, link, count, who), entry
        # A cell whose link has no rate (loopback) stands next to the fastest published link.
        yield (row["metric"], payload, "", count, who), entry


def _plain(value: object) -> str:
    return "" if value is None else str(value)


def _link(value: object) -> str:
    match = re.match(r"\d+", str(value or ""))
    return match.group() if match else ""
