"""What a run must show to pass a check, in CI for example: no losses, metrics within limits.

A cell that was not measured shows nothing, so it fails the check: cells without a valid trial,
cells that were not runnable or left out, a run that did not end, a recipe that compares nothing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wirespeed import units
from wirespeed.analysis.cells import Cell, full_name, is_time
from wirespeed.analysis.summary import Summary
from wirespeed.errors import InputError

FAIL_ON = ("loss", "undecided")
UNDECIDED = ("not decided", "not comparable")
#: Counts that make trials invalid: their medians over valid ones say nothing.
COUNTS = ("errors", "non_2xx", "timeouts")
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_RULE = re.compile(
    r"(?:(?P<where>[\w-]+=[^:]*):)?\s*(?P<metric>[A-Za-z][\w.\[\]]*)\s*"
    r"(?P<sign><=|>=|<|>)\s*(?P<limit>\S+)\s*"
)


@dataclass(frozen=True)
class Rule:
    """`stack=bypass: latency.p99 < 5ms`: the figure of every such cell keeps a limit."""

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
            f"--require {text!r}: not a rule (such as 'p99 < 5ms' or 'stack=bypass: rps > 100k')"
        )
    pairs = [part.partition("=") for part in (match["where"] or "").split(",") if part]
    where = tuple((axis.strip(), value.strip()) for axis, _, value in pairs)
    metric = full_name(match["metric"])
    return Rule(text.strip(), where, metric, match["sign"], _limit(metric, match["limit"]))


def _limit(metric: str, text: str) -> float:
    """In the unit that the metric is stored in: times of histograms in microseconds."""
    if is_time(metric):
        return units.duration_s(text) * 1e6
    try:
        return float(text)
    except ValueError:
        return float(units.count(text))


@dataclass(frozen=True)
class Criteria:
    """The check that a run must pass: `--fail-on`, `--require`, `--allow-missing`."""

    fail_on: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    allow_missing: bool = False

    @property
    def is_asked(self) -> bool:
        return bool(self.fail_on or self.rules)

    def covers(self, cell: Cell) -> bool:
        """The cells that the check is about: all of them, or the ones its rules cover."""
        return bool(self.fail_on) or any(one.covers(cell) for one in self.rules)


def broken(summary: Summary, check: Criteria) -> list[str]:
    """One line for each thing that fails the check."""
    lines = [] if summary.run.state == "done" else [f"the run did not end: {summary.run.state}"]
    for cell in filter(check.covers, summary.cells):
        if cell.failures:
            lines.append(_of_failures(cell))
        elif not cell.trials and not check.allow_missing:
            lines.append(f"{_place(cell)}: not measured: {cell.reason or cell.state}")
    if check.fail_on and not summary.gains:
        lines.append("nothing was compared: no cell and its baseline have valid trials")
    if "loss" in check.fail_on:
        lines += _of_words(summary, ("loss",)) + _of_pooled(summary) + _of_zeros(summary)
    if "undecided" in check.fail_on:
        lines += _of_words(summary, UNDECIDED)
    for one in check.rules:
        lines += _of_rule(summary, one)
    return lines


def _of_failures(cell: Cell) -> str:
    return f"{_place(cell)}: {cell.failures} trials: {cell.failure}"


def _of_words(summary: Summary, words: Sequence[str]) -> list[str]:
    return [
        f"{_place(gain.cell)}: {gain.metric}: {gain.verdict.word} against {gain.over}"
        f" ({gain.verdict.reason})"
        for gain in summary.gains
        if gain.verdict.word in words
    ]


def _of_zeros(summary: Summary) -> list[str]:
    """Rates of 0 have no ratio and so no verdict, and nothing is slower than they are."""
    lines = []
    for gain in summary.gains:
        values = gain.cell.by_round(gain.metric).values()
        count = sum(value <= 0 for value in values)
        if gain.better == "higher" and count:
            rounds = f"0 in {count} of {len(values)} rounds"
            lines.append(f"{_place(gain.cell)}: {gain.metric}: {rounds}")
    return lines


def _of_pooled(summary: Summary) -> list[str]:
    """Losses that single cells are too few to show."""
    return [
        f"{one.contender}: {one.metric}: loss against {one.over} over all cells"
        f" ({one.verdict.reason})"
        for one in summary.families
        if one.verdict.word == "loss" and not any(g.verdict.word == "loss" for g in one.gains)
    ]


def _of_rule(summary: Summary, one: Rule) -> list[str]:
    cells = [cell for cell in summary.cells if one.covers(cell) and (cell.trials or cell.invalid)]
    if not cells:
        return [f"{one.text}: no measured cell is meant"]
    lines = []
    for cell in cells:
        value = figure(cell, one.metric)
        if value is None and not cell.trials:
            lines.append(f"{_place(cell)}: {one.text}: no valid trial")
        elif value is None:
            known = sorted({name for trial in cell.trials for name in trial.metrics})
            return [f"{one.text}: unknown metric {one.metric!r} (metrics: {', '.join(known)})"]
        elif not one.is_kept(value):
            what = "the most is" if one.metric in COUNTS else "the median is"
            unit = " µs" if is_time(one.metric) else ""
            lines.append(f"{_place(cell)}: {one.text}: {what} {value:,.6g}{unit}")
    return lines


def figure(cell: Cell, metric: str) -> float | None:
    """The median of valid trials; of what makes a trial invalid the most in any trial."""
    if metric not in COUNTS:
        return cell.median(metric)
    found = (trial.metrics.get(metric) for trial in (*cell.trials, *cell.invalid))
    return max((value for value in found if value is not None), default=None)


def _place(cell: Cell) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in cell.axes.items())
