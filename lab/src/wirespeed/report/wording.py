"""How figures are written: units, rounding, percentages, intervals, and the words for states."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from wirespeed.analysis.cells import is_time
from wirespeed.analysis.cells import place as axes_in_words
from wirespeed.analysis.comparisons import DUET
from wirespeed.analysis.summary import Cell, Family, Gain, Sheet
from wirespeed.analysis.trend import Change
from wirespeed.stats.comparison import Comparison

MINUS = "\u2212"
NONE = "–"
NOISY = "~"  # before a figure whose trials had interference

STATES = {
    "not-runnable": "not runnable here",
    "does-not-fit": "does not fit",
    "thinned": "left out",
    "no valid trial": "no valid trial",
    "not measured yet": "not measured",
}
BOTTLENECKS = {
    "server": "the server",
    "client": "the load generator",
    "both": "server and load generator, both full",
    "link": "the link",
    "concurrency": "server not busy (too few connections, or it waits)",
    "unknown": "unknown",
}


@dataclass(frozen=True)
class Measure:
    """What a metric is called and in which unit it is shown."""

    label: str
    unit: str = ""
    scale: float = 1.0

    @property
    def stored_unit(self) -> str:
        """The unit of figures as trials have them: what is shown in per cent is a share."""
        return self.unit if self.scale == 1 else "share"

    @property
    def head(self) -> str:
        return f"{self.label}, {self.unit}" if self.unit else self.label


MEASURES = {
    "rps": Measure("requests/s"),
    "throughput": Measure("throughput", "B/s"),
    "server.cpu": Measure("server CPU", "cores"),
    "server.fullest_thread": Measure("fullest server thread", "cores"),
    "load.cpu": Measure("load CPU", "cores"),
    "origin.cpu": Measure("origin CPU", "cores"),
    "server.cpu_us_per_request": Measure("server CPU per request", "µs"),
    "server.work_us_per_request": Measure("server CPU per request", "µs"),
    "load.cpu_us_per_request": Measure("load CPU per request", "µs"),
    "server.instructions_per_request": Measure("server instructions per request"),
    "server.cycles_per_request": Measure("server cycles per request"),
    "server.cache_misses_per_request": Measure("server cache misses per request"),
    "server.instructions_per_cycle": Measure("server instructions per cycle"),
    "server.context_switches_per_request": Measure("server context switches per request"),
    "load.headroom": Measure("generator's headroom", "×"),
    "loadavg": Measure("load average"),
    "server.loadavg": Measure("load average"),
    "context_switches": Measure("context switches", "1/s"),
    "server.context_switches": Measure("context switches", "1/s"),
    "network_mbps": Measure("network", "Mb/s"),
    "server.network_mbps": Measure("network", "Mb/s"),
    "memory_mib": Measure("memory used", "MiB"),
    "server.rss_mib": Measure("server memory", "MiB"),
    "runqueue": Measure("run queue", "tasks"),
    "gc.pause_ms": Measure("GC pauses", "ms"),
    "gc.count": Measure("GC runs"),
    "gc.throughput": Measure("GC throughput", "%"),
    "little_residual": Measure("Little residual", "%", 100.0),
}
LATENCY_MS_FROM_US = 5_000.0  # medians from 5 ms on are shown in ms


def measure(metric: str, unit: str = "", *, is_ms: bool = False) -> Measure:
    """The name and unit of a metric; `unit` is the recipe's, latencies are stored in µs."""
    if is_time(metric):
        name, _, quantile = metric.rpartition(".")
        label = f"{name.replace('_', ' ')} {quantile.replace('_', '.')}"
        return Measure(label, *(("ms", 1e-3) if is_ms else ("µs", 1.0)))
    if metric.startswith("cpu."):
        return Measure(f"core {metric[4:]} busy", "share")
    known = MEASURES.get(metric, Measure(metric.replace("_", " ")))
    return replace(known, unit=unit) if unit else known


BARS = "▁▂▃▄▅▆▇█"


def course(values: Iterable[float]) -> str:
    """Values over runs as bars between the lowest and the highest."""
    values = list(values)
    low, reach = min(values), max(values) - min(values)
    top = len(BARS) - 1
    return "".join(BARS[round((value - low) / reach * top) if reach else 0] for value in values)


def change(one: Change) -> str:
    """`−15 % from RUN (COMMIT) on, worse (also changed: kernel)`."""
    commit = f" ({one.commit})" if one.commit else ""
    also = f" (also changed: {', '.join(one.conditions)})" if one.conditions else ""
    return f"{signed(one.change)} from {one.run}{commit} on, {one.word}{also}"


def is_long(latency_us: float) -> bool:
    """Whether a latency is better given in ms."""
    return latency_us >= LATENCY_MS_FROM_US


def number(value: float | None) -> str:
    """A figure with as many digits as it deserves: 74,090 or 12.3 or 0.071."""
    if value is None:
        return NONE
    size = abs(value)
    decimals = 0 if size >= 100 or value == int(value) else 1 if size >= 10 else 2
    if 0 < size < 0.1:
        return _signed_minus(f"{value:.2g}" if size < 0.001 else f"{value:.3f}")
    return _signed_minus(f"{value:,.{decimals}f}")


def compact(value: float) -> str:
    """A tick of an axis: 1.5M, 20k, 0.25."""
    for step, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= step:
            return f"{value / step:.3g}{letter}"
    return f"{value:.3g}"


def percent(value: float | None, decimals: int = 0) -> str:
    """A gain as the documents print it: 55% or −0.24%."""
    if value is None:
        return NONE
    text = f"{value * 100:.{decimals}f}"
    return _signed_minus("0" + text[2:] if float(text) == 0 and text[0] == "-" else text) + "%"


TIMES_FROM = 3.0  # a column with a gain of +300 % or more is written in ratios


def in_times(gains: Iterable[float | None]) -> bool:
    """Whether a column of gains is better written as ×4.2 than as +320 %."""
    return any(gain is not None and gain >= TIMES_FROM for gain in gains)


def signed(value: float | None, times: bool = False) -> str:
    """A gain as a report says it: +26 %, −3.1 %; in a column of ratios ×4.2, ×0.97."""
    if value is None:
        return NONE
    if times:
        ratio = 1 + value
        return f"×{ratio:,.0f}" if ratio >= 100 else f"×{ratio:.{1 if ratio >= 10 else 2}f}"
    decimals = 0 if abs(value) >= 0.0995 else 1
    text = f"{abs(value) * 100:,.{decimals}f}"
    if float(text.replace(",", "")) == 0:
        return "0 %"
    return f"{'+' if value > 0 else MINUS}{text} %"


def interval(found: Comparison | None, times: bool = False) -> str:
    if found is None or found.low is None or found.high is None:
        return ""
    return f"{signed(found.low, times)} … {signed(found.high, times)}"


def verdict_word(gain: Gain | Family) -> str:
    """`gain`, or `gain, latency-bound` where a server was not busy; `gain after 5 rounds` where
    more rounds do not show it again."""
    scope, decided_at = gain.verdict.scope, gain.verdict.decided_at
    word = gain.verdict.word + (f" after {count(decided_at, 'round')}" if decided_at else "")
    return f"{word}, {scope}" if scope else word


def figure(gain: Gain | Family, times: bool = False) -> str:
    """The gain with its bound: `≥ +26 %`."""
    if gain.found is None:
        return NONE
    return f"{gain.verdict.bound} {signed(gain.found.gain, times)}".strip()


def verdict(gain: Gain, times: bool = False) -> str:
    """The gain and what may be said about it, in one cell of a table."""
    word = verdict_word(gain)
    if gain.found is None:
        return word
    if gain.verdict.word == "not comparable" and not gain.verdict.bound:
        return f"({figure(gain, times)}) {word}"
    if gain.better == "lower" and gain.verdict.word in ("gain", "loss"):
        return f"{figure(gain, times)} ({word})"  # a negative gain reads as a loss
    return f"{figure(gain, times)} {word}"


def evidence(gain: Gain) -> str:
    """What a gain is made of: `5 rounds` of separate trials, `6 pairs` that took turns, or `3 of 6
    pairs` where the others have no figure."""
    rounds = gain.found.rounds if gain.found else 0
    if gain.method != DUET:
        return count(rounds, "round")
    pairs = count(max(rounds, gain.duets), "pair")
    return f"{rounds} of {pairs}" if gain.duets > rounds else pairs


def methods(gains: Iterable[Gain]) -> str:
    """`duet`, `separate trials` or both."""
    return " and ".join(sorted({gain.method for gain in gains if gain.method}))


def more_rounds(gain: Gain | Family) -> str:
    """The number of rounds that would decide an undecided gain."""
    more = gain.verdict.more_rounds
    return f", about {count(more, 'more round')}" if more else ""


def state(cell: Cell | None) -> str:
    if cell is None:
        return NONE
    return STATES.get(cell.state, cell.state)


def place(cell: Cell, without: Iterable[str] = ()) -> str:
    """A cell in words: `payload 128, connections 100`."""
    leave = set(without)
    return axes_in_words({name: value for name, value in cell.axes.items() if name not in leave})


def mark(cell: Cell) -> str:
    return NOISY if cell.disturbed > 0 else ""


def verdict_text(sheet: Sheet) -> str:
    """The head above the judged gains."""
    return f"against {sheet.over}"


def count(number_of: int, thing: str, things: str = "") -> str:
    """`1 trial`, `3 trials`."""
    return f"{number_of:,} {thing if number_of == 1 else things or thing + 's'}"


def listed(parts: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _signed_minus(text: str) -> str:
    return text.replace("-", MINUS)
