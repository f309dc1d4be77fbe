"""Checks of a run, in CI for example: no losses, metrics within limits.

A cell that was not measured shows nothing, so it fails the check: cells without a valid trial,
cells that were not runnable or had no room in the budget, a run that did not end, a recipe that
compares nothing, cells whose baseline alone is left out. Cells that plan.skip or --only leaves out
are not part of the run.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from wirespeed import units
from wirespeed.analysis.cells import Cell, full_name, is_time, is_value, prefix, values_of
from wirespeed.analysis.comparisons import (
    DUET,
    Family,
    Gain,
    Pair,
    as_seen,
    disturbs_itself,
    held_back,
    interference,
    key_of,
    loosened,
    slack,
    unproven_families,
    unproven_losses,
)
from wirespeed.analysis.summary import Summary
from wirespeed.analysis.verdict import Terms, decide
from wirespeed.errors import InputError, UnitError
from wirespeed.stats.comparison import PAIRS_MIN, compare

FAIL_ON = ("loss", "undecided")
UNDECIDED = ("not decided", "not comparable")
#: Counts that make trials invalid: their medians over valid ones say nothing.
COUNTS = ("errors", "non_2xx", "timeouts")
ALONE_P_MAX = 0.002  # of all duets of a run together: each has its verdict besides
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_RULE = re.compile(
    r"(?:(?P<where>[\w-]+=[^:]*):)?\s*(?P<metric>[A-Za-z][\w.\[\]@-]*)\s*"
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
        return all(is_value(cell.axes.get(axis), text) for axis, text in self.where)

    def is_kept(self, value: float) -> bool:
        return _COMPARE[self.sign](value, self.limit)


def rule(text: str) -> Rule:
    """Reads one rule; raises InputError."""
    match = _RULE.fullmatch(text.strip())
    if not match:
        raise InputError(
            f"--require {text!r}: not a rule (such as 'p99 < 5ms' or 'stack=bypass: rps > 100k')"
        )
    where = values_of(f"--require {text!r}", match["where"] or "")
    metric = full_name(match["metric"])
    try:
        limit = _limit(metric, match["limit"])
    except UnitError as error:
        raise InputError(f"--require {text!r}: {error}") from None
    return Rule(text.strip(), where, metric, match["sign"], limit)


def _limit(metric: str, text: str) -> float:
    """In the unit that the metric is stored in: times of histograms in microseconds."""
    try:
        limit = units.duration_s(text) * 1e6 if is_time(metric) else float(text)
    except ValueError:
        limit = float(units.count(text))
    if not math.isfinite(limit):  # every figure keeps such a limit, or none does
        raise UnitError(f"{text!r} is not a finite number")
    return limit


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


def refuse_too_few(check: Criteria, rounds: int | None) -> None:
    """Raises InputError for a run that could only fail its check; None: the plan chooses."""
    if check.fail_on and rounds is not None and rounds < PAIRS_MIN:
        raise InputError(
            f"--repeat {rounds}: too few for --fail-on (a verdict needs {PAIRS_MIN} rounds)"
        )


def broken(summary: Summary, check: Criteria) -> list[str]:
    """One line for each thing that fails the check."""
    lines = [] if summary.run.state == "done" else [f"the run did not end: {summary.run.state}"]
    for cell in filter(check.covers, summary.cells):
        if cell.failures:
            lines.append(_of_failures(cell))
        elif is_missing(cell, check):
            lines.append(f"{prefix(cell.axes)}not measured: {cell.reason or cell.state}")
    if check.fail_on and (reason := undecidable(summary)):
        lines.append(reason)
    lines += [f"{prefix(cell.axes)}{text}" for cell, text in uncompared(summary, check)]
    if "loss" in check.fail_on:
        lines += _of_words(summary, ("loss",)) + _of_pooled(summary)
        lines += [
            f"{prefix(gain.cell.axes)}{gain.metric}: {text}" for gain, text in unjudged(summary)
        ]
        lines += [
            f"{one.contender}: {one.metric}: {text}" for one, text in unjudged_families(summary)
        ]
    if "undecided" in check.fail_on:
        lines += _of_words(summary, UNDECIDED)
    return lines + broken_rules(summary, check)


def broken_rules(summary: Summary, check: Criteria) -> list[str]:
    """The lines of `--require` alone."""
    return [line for one in check.rules for line in _of_rule(summary, one)]


def is_missing(cell: Cell, check: Criteria) -> bool:
    """Whether the check expects a figure of the cell and nothing was measured."""
    is_expected = check.covers(cell) and not cell.is_left_out and not check.allow_missing
    return is_expected and not cell.trials and not cell.failures


def uncompared(summary: Summary, check: Criteria) -> list[tuple[Cell, str]]:
    """Measured contenders that are compared with nothing where others are, and why."""
    if not check.fail_on or check.allow_missing or undecidable(summary):
        return []
    return [
        (pair.cell, f"not compared: its baseline {pair.base.axes[pair.axis]} is {pair.base.reason}")
        for pair in summary.uncompared
    ]


def undecidable(summary: Summary) -> str:
    """Why no comparison of the run can be a loss, so that a check shows nothing; empty where one
    can."""
    rounds = max((gain.found.rounds for gain in summary.gains if gain.found), default=0)
    if not rounds:
        return "nothing was compared: no cell and its baseline have valid trials of a round"
    if rounds < PAIRS_MIN:
        have = f"{rounds} round{'s' * (rounds > 1)}"
        return f"no verdict is possible: it takes {PAIRS_MIN} rounds, and no cell has over {have}"
    if summary.run.plan.order == "blocked":
        return "no verdict is possible: the run was measured in blocks (plan.order)"
    return ""


def _of_failures(cell: Cell) -> str:
    return f"{prefix(cell.axes)}{cell.failures} trials: {cell.failure}"


def _of_words(summary: Summary, words: Sequence[str]) -> list[str]:
    return [
        f"{prefix(gain.cell.axes)}{gain.metric}: {gain.verdict.word} against {gain.over}"
        f" ({gain.verdict.reason})"
        for gain in summary.gains
        if gain.verdict.word in words
    ]


def unjudged(summary: Summary) -> list[tuple[Gain, str]]:
    """Losses without a verdict. Of figures without a ratio: nothing is slower than a rate of 0, a
    cost that the baseline never has is worse in as many rounds as a verdict needs, and a contender
    without the figure is not better (too few responses for a percentile, for example). Of withheld
    ones: whoever is slower in each round is not shown to be as good."""
    losses = []
    slower = unproven_losses(summary.run, summary.gains)
    duets = sum(gain.method == DUET for gain in summary.gains)
    for gain in summary.gains:
        values, base = gain.cell.values(gain.metric), gain.base.values(gain.metric)
        count = sum(value <= 0 for value in values)
        if gain.found is None and base and not values:
            losses.append((gain, f"no such figure, but {gain.over} has one"))
        elif gain.better == "higher" and count:
            losses.append((gain, f"0 in {count} of {len(values)} rounds"))
        elif (
            gain.better == "lower"
            and min(len(values), len(base)) >= PAIRS_MIN
            and not count
            and max(base) <= 0
        ):
            losses.append((gain, f"always more than the 0 of {gain.over}"))
        elif key_of(gain) in slower:
            share = f"{slower[key_of(gain)]:+.0%} against {gain.over}"
            losses.append((gain, f"{share}, although it is not comparable: {gain.verdict.reason}"))
        elif (
            gain.found
            and gain.verdict.word == "not decided"
            and _is_loss_of_its_own(gain, summary.run.plan.threshold)
        ):
            share = f"{gain.found.gain:+.0%} against {gain.over}"
            losses.append((gain, f"{share}, and what took time from it each time may be its own"))
        elif gain.method == DUET and gain.verdict.word != "loss":
            losses += [(gain, text) for text in _of_own_trials(summary, gain, ALONE_P_MAX / duets)]
    return losses


def unjudged_families(summary: Summary) -> list[tuple[Family, str]]:
    """Pooled losses without a verdict, as cells of them are withheld, that no single cell and no
    pooled verdict shows."""
    slower = unproven_losses(summary.run, summary.gains)
    shown = {_names(one) for one in summary.families if one.verdict.word == "loss"}
    shown |= {
        _names(gain)
        for gain in summary.gains
        if gain.verdict.word == "loss" or key_of(gain) in slower
    }
    return [
        (one, _of_withheld(one, summary))
        for one in unproven_families(summary.run, summary.gains)
        if _names(one) not in shown
    ]


def _names(one: Gain | Family) -> tuple[str, str, str]:
    return one.contender, one.over, one.metric


def _of_withheld(one: Family, summary: Summary) -> str:
    withheld = [
        gain
        for gain in summary.gains
        if _names(gain) == _names(one) and gain.verdict.word == "not comparable"
    ]
    share = one.found.gain if one.found else 0.0
    return (
        f"{share:+.0%} against {one.over} over all cells, although {len(withheld)} of "
        f"{len(one.gains)} are not comparable: {withheld[0].verdict.reason}"
    )


def _is_loss_of_its_own(gain: Gain, threshold: float) -> bool:
    """Whether a loss is undecided only because of interference that follows the contender."""
    terms = Terms(q=gain.q, better=gain.better, threshold=threshold)
    is_loss = decide(gain.found, terms).word == "loss"
    return is_loss and gain.method != DUET and disturbs_itself(gain)


def _of_own_trials(summary: Summary, gain: Gain, p_max: float) -> list[str]:
    """A duet trims rare long pauses. The trials that each side has alone hold what those cost, and
    fail a check where chance hardly explains it."""
    pair = Pair(gain.cell, gain.base, gain.axis, gain.metric, is_alone=True)
    names = (gain.contender, gain.over)
    held = held_back(pair, gain.better, summary.run.idle_held, names)
    lost = interference([(gain.cell, gain.base)], gain.better)
    terms = as_seen(
        pair,
        Terms(
            better=gain.better,
            interference=lost,
            threshold=summary.run.plan.threshold,
            **held._asdict(),
        ),
    )
    (alone,) = compare([list(pair.ratios().values())])
    if not terms.is_claimable or alone is None or alone.p > p_max:
        return []
    word = decide(loosened(alone, slack([pair], terms)), terms).word
    line = f"{alone.gain:+.0%} in its own trials: a duet leaves rare long pauses out"
    return [line] if word == "loss" else []


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
    known = sorted({name for cell in cells for trial in cell.trials for name in trial.metrics})
    if one.metric not in known and known:
        return [f"{one.text}: unknown metric {one.metric!r} (metrics: {', '.join(known)})"]
    lines = []
    for cell in cells:
        value = figure(cell, one.metric)
        if value is None:
            missing = "no such figure" if cell.trials else "no valid trial"
            lines.append(f"{prefix(cell.axes)}{one.text}: {missing}")
        elif not one.is_kept(value):
            what = "the most is" if one.metric in COUNTS else "the median is"
            unit = " µs" if is_time(one.metric) else ""
            lines.append(f"{prefix(cell.axes)}{one.text}: {what} {value:,.6g}{unit}")
    return lines


def figure(cell: Cell, metric: str) -> float | None:
    """The median of valid trials; of what makes a trial invalid the most in any trial."""
    if metric not in COUNTS:
        return cell.median(metric)
    figures = (trial.metrics.get(metric) for trial in (*cell.trials, *cell.invalid))
    return max((value for value in figures if value is not None), default=None)
