"""What a run must show for a gate, in CI for example, to open: no losses, metrics within limits."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from wirespeed import units
from wirespeed.errors import InputError
from wirespeed.results.cells import Cell
from wirespeed.results.summary import Summary

FAIL_ON = ("loss", "undecided")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_RULE = re.compile(
    r"(?:(?P<where>[\w-]+=[^:]*):)?\s*(?P<metric>[A-Za-z][\w.\[\]]*)\s*"
    r"(?P<sign><=|>=|<|>)\s*(?P<limit>\S+)\s*"
)


@dataclass(frozen=True)
class Rule:
    """`stack=bypass: latency.p99 < 5ms`: the median of every such cell keeps a limit."""

    text: str
    where: tuple[tuple[str, str], ...]
    metric: str
    sign: str
    limit: float

    def covers(self, cell: Cell) -> bool:
        return all(str(cell.axes.get(axis)) == value for axis, value in self.where)

    def is_kept(self, value: float) -> bool:
        return _COMPARE[self.sign](value, self.limit)


def rule(text: str) -> Rule:
    """Reads one rule; raises InputError."""
    match = _RULE.fullmatch(text.strip())
    if not match:
        raise InputError(
            f"--require {text!r}: write it like 'p99 < 5ms' or 'stack=bypass: rps > 100k'"
        )
    pairs = [part.partition("=") for part in (match["where"] or "").split(",") if part]
    where = tuple((axis.strip(), value.strip()) for axis, _, value in pairs)
    metric = match["metric"]
    metric = f"latency.{metric}" if re.fullmatch(r"p\d+(_\d+)?|mean|max", metric) else metric
    return Rule(text.strip(), where, metric, match["sign"], _limit(metric, match["limit"]))


def _limit(metric: str, text: str) -> float:
    """In the unit that the metric is stored in: latencies in microseconds."""
    if metric.startswith("latency."):
        return units.duration_s(text) * 1e6
    try:
        return float(text)
    except ValueError:
        return float(units.count(text))


def broken(summary: Summary, fail_on: Iterable[str], rules: Iterable[Rule]) -> list[str]:
    """One line for each thing that keeps the gate shut."""
    lines = []
    for gain in summary.gains:
        word = gain.verdict.word
        is_shut = (word == "loss" and "loss" in fail_on) or (
            word == "not decided" and "undecided" in fail_on
        )
        if is_shut:
            lines.append(
                f"{_place(gain.cell)}: {gain.metric}: {word} against {gain.over}"
                f" ({gain.verdict.reason})"
            )
    for one in rules:
        lines += _of_rule(summary, one)
    return lines


def _of_rule(summary: Summary, one: Rule) -> list[str]:
    cells = [cell for cell in summary.measured if one.covers(cell)]
    if not cells:
        return [f"{one.text}: no measured cell is meant"]
    lines = []
    for cell in cells:
        value = cell.median(one.metric)
        if value is None:
            known = sorted({name for trial in cell.trials for name in trial.metrics})
            return [f"{one.text}: there is no metric {one.metric!r}; there are {', '.join(known)}"]
        if not one.is_kept(value):
            unit = " µs" if one.metric.startswith("latency.") else ""
            lines.append(f"{_place(cell)}: {one.text}: the median is {value:,.6g}{unit}")
    return lines


def _place(cell: Cell) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in cell.axes.items())
