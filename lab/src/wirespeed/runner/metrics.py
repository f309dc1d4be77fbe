"""The flat metrics of a trial: generators' figures combined, and what they cost in the window."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from hdrh.histogram import HdrHistogram

from wirespeed.driver.base import Figures, Latency, Window
from wirespeed.probe.gc import Collections
from wirespeed.probe.window import Usage
from wirespeed.recipe.model import Metric
from wirespeed.units import BYTE_RATES

Flat = dict[str, float | None]

QUANTILES: list[float | str] = ["mean", 0.5, 0.75, 0.9, 0.99, 0.999, "max"]
SAMPLES_PER_TAIL = 10  # a quantile q is shown with at least 10/(1-q) samples behind it
_HIGHEST_NS = 3_600_000_000_000  # an hour: the range that the histograms are opened with


def common_window(figures: Mapping[str, Figures]) -> Window | None:
    """The time in which every generator measured; rates outside it do not add up."""
    if not figures:
        return None
    starts = [f.window.start_unix_ns for f in figures.values()]
    ends = [f.window.start_unix_ns + f.window.length_ns for f in figures.values()]
    return Window(max(starts), max(0, min(ends) - max(starts)))


def combined(metrics: Sequence[Metric], by_process: Mapping[str, list[Figures]]) -> Flat:
    """Each metric of the recipe, as the report and the tables name them."""
    flat: Flat = {}
    for metric in metrics:
        figures = by_process.get(metric.from_, [])
        if not figures:
            continue
        if metric.combine == "histogram":
            flat |= latencies(metric, figures)
        else:
            flat |= summed(metric, figures)
    return flat


def summed(metric: Metric, figures: Sequence[Figures]) -> Flat:
    if metric.field == "bytes_per_second":
        scale = BYTE_RATES[metric.unit]
        values = [f.bytes_per_second * scale for f in figures]
    else:
        values = [f.rps for f in figures]
    flat: Flat = {metric.name: sum(values)}
    if len(values) > 1:
        flat |= {f"{metric.name}[{index}]": value for index, value in enumerate(values)}
    return flat


def latencies(metric: Metric, figures: Sequence[Figures]) -> Flat:
    """Merged histograms, in microseconds. An open loop counts from the intended time."""
    kind = metric.field or ("service" if figures[0].closed_loop else "response")
    parts = [f.latency[kind] for f in figures if kind in f.latency]
    wanted = list(metric.quantiles) or QUANTILES
    if len(parts) == 1 and not parts[0].hdr:
        return {f"{metric.name}.{_name(q)}": _of_text(parts[0], q) for q in wanted}
    if not parts or not all(part.hdr for part in parts):
        return {f"{metric.name}.{_name(q)}": None for q in wanted}
    merged = _merged(parts)
    return {f"{metric.name}.{_name(q)}": _of_histogram(merged, parts, q) for q in wanted}


def _merged(parts: Sequence[Latency]) -> HdrHistogram:
    merged = HdrHistogram(1, _HIGHEST_NS, 3)
    for part in parts:
        merged.decode_and_add(part.hdr)
    return merged


def _of_histogram(merged: HdrHistogram, parts: Sequence[Latency], q: float | str) -> float | None:
    if q == "mean":
        count = sum(part.count for part in parts)
        return sum(part.mean_ns * part.count for part in parts) / count / 1e3
    if q == "max":
        return max(part.max_ns for part in parts) / 1e3
    if not has_enough(float(q), merged.get_total_count()):
        return None
    return float(merged.get_value_at_percentile(float(q) * 100)) / 1e3


def _of_text(part: Latency, q: float | str) -> float | None:
    if q == "mean":
        return part.mean_ns / 1e3
    if q == "max":
        return part.max_ns / 1e3
    value = part.quantiles_ns.get(float(q))
    return value / 1e3 if value is not None and has_enough(float(q), part.count) else None


def has_enough(q: float, count: int) -> bool:
    # Rounded: 1 - 0.99 is a little less than a hundredth.
    return round(count * (1 - q), 9) >= SAMPLES_PER_TAIL


def _name(q: float | str) -> str:
    """0.999 → p99_9: the names of docs/results-format.md."""
    if isinstance(q, str):
        return q
    return "p" + f"{q * 100:.6g}".replace(".", "_")


def costs(figures: Mapping[str, Figures], usage: Usage | None, roles: Mapping[str, str]) -> Flat:
    """Errors, and CPU seconds a request for each role. `roles` is label → role."""
    flat: Flat = {
        "errors": float(sum(f.errors for f in figures.values())),
        "non_2xx": float(sum(f.non_2xx for f in figures.values())),
        "timeouts": float(sum(f.timeouts for f in figures.values())),
        "little_residual": _residual(figures),
    }
    if usage is None:
        return flat
    flat |= {name: round(value, 6) for name, value in usage.values.items()}
    completed = sum(f.completed_in(usage.seconds) for f in figures.values())
    for role in ("server", "load"):
        cpu_s = sum(s for label, s in usage.process_cpu_s.items() if roles[label] == role)
        flat[f"{role}.cpu_us_per_request"] = cpu_s * 1e6 / completed if completed else None
    switches = [a_second for label, a_second in usage.switches.items() if roles[label] == "server"]
    if switches and completed:
        flat["server.context_switches_per_request"] = sum(switches) * usage.seconds / completed
    return flat


def collections(logs: Sequence[Collections], window_s: float) -> Flat:
    """Garbage collections of all JVMs of the trial; nothing without a JVM."""
    if not logs:
        return {}
    return {
        "gc.count": float(sum(one.count for one in logs)),
        "gc.pause_ms": sum(one.pause_ms for one in logs),
        "gc.throughput": sum(one.throughput(window_s) for one in logs) / len(logs),
    }


def _residual(figures: Mapping[str, Figures]) -> float | None:
    """The worst generator's: mean/(N/X) - 1 in a closed loop."""
    residuals = [f.little_residual for f in figures.values() if f.little_residual is not None]
    return max(residuals, key=abs) if residuals else None


def is_finite(flat: Flat) -> Flat:
    """JSON has no NaN: a figure that is not a number is left out."""
    return {k: (v if v is None or math.isfinite(v) else None) for k, v in flat.items()}
