"""`wirespeed knee`: the highest rate at which a server meets a limit, for each cell.

First a closed loop finds the maximum of the cell. Then an open loop asks for shares of that,
in rounds, inside one server's life; then once more between the highest rate that kept the limit
and the lowest that broke it. A rate is kept when the medians keep every rule, at least KEPT_MIN
of the asked requests were answered, and no trial failed. Windows are long enough for the quantiles
of the rules; a rate at which too few requests were answered for one is left out.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wirespeed.analysis import gate
from wirespeed.analysis.summary import Cell, Summary, load
from wirespeed.cli import output
from wirespeed.cli import run as runs_of
from wirespeed.cli.live import Display
from wirespeed.errors import InputError, ResultsError
from wirespeed.interrupts import signals_as_interrupts
from wirespeed.recipe import rates
from wirespeed.recipe.model import Recipe
from wirespeed.report import wording
from wirespeed.runner import metrics, session
from wirespeed.runner.plan import PlanOptions

SHARES = (0.2, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0)  # of what the closed loop carried
BETWEEN = 4  # rates between the last that kept the limit and the first that broke it
KEPT_MIN = 0.98
CELLS_MAX = 12  # each takes two runs of its own
WINDOW_MAX_S = 30.0
UnitOf = Callable[[str], str]


@dataclass(frozen=True)
class Search:
    """What is searched for, and how thoroughly."""

    rules: list[str]
    only: str
    repeat: int
    accept_noise: bool


@dataclass(frozen=True)
class Knee:
    """Of one cell: the highest rate that kept the limit, the lowest that broke it."""

    axes: dict[str, object]
    closed_rps: float
    kept: int | None
    broke: int | None
    at_kept: dict[str, float | None]  # the rules' metrics there
    why: str  # what broke first
    runs: list[str]


def knee(origin: session.Source, search: Search, runs: Path, as_json: bool) -> int:
    rules = [gate.rule(text) for text in search.rules]
    rates.at_rates(origin.text, [1])  # refuses what keeps no rate, before anything is measured
    counts = _rate_of(origin.recipe)
    try:
        closed = _measured(origin, _options(search, search.only), runs)
        if not closed.measured:
            raise ResultsError("no cell has a valid trial in a closed loop")
        if len(closed.measured) > CELLS_MAX:
            raise InputError(
                f"{len(closed.measured)} cells are searched one by one, {CELLS_MAX} at most; "
                "--only chooses some"
            )
        searched = [(cell, _rules_of(cell, rules)) for cell in closed.measured]
        knees = [
            _of_cell(origin, search, _Start(cell, cell.median(counts) or 0.0, counts, closed),
                     meant, runs)
            for cell, meant in searched
        ]  # fmt: skip
    except KeyboardInterrupt as stop:
        print("wirespeed: stopped; the finished runs are kept", file=sys.stderr)
        return runs_of.code_of(stop)
    if as_json:
        output.write(output.records(knees))
    else:
        _show(knees, rules, closed.unit)
    return 0


def _rate_of(recipe: Recipe) -> str:
    """The metric that counts requests; the first of a recipe may be bytes or a time."""
    for metric in recipe.metric:
        if metric.combine == "sum" and metric.field in ("rps", ""):
            return str(metric.name)
    raise InputError(
        "the recipe has no metric of requests per second, which knee searches for (add a "
        '[[metric]] with name = "rps" and from = the generator)'
    )


def _rules_of(cell: Cell, rules: Sequence[gate.Rule]) -> list[gate.Rule]:
    """A cell that no rule means has no limit to keep, and no knee."""
    meant = [rule for rule in rules if rule.covers(cell)]
    if rules and not meant:
        raise InputError(
            f"no --require means {', '.join(f'{a} {v}' for a, v in cell.axes.items())}; "
            "--only leaves such cells out"
        )
    return meant


def _options(search: Search, only: str) -> PlanOptions:
    return PlanOptions(only=only, repeat=search.repeat, accept_noise=search.accept_noise)


def _measured(origin: session.Source, options: PlanOptions, runs: Path) -> Summary:
    """One run without its report: the live display, and what it found."""
    display = Display(Console(stderr=True, emoji=False))
    with signals_as_interrupts(), display:
        run_dir, _ = session.start(origin, options, runs, display)
    return load(run_dir)


@dataclass(frozen=True)
class _Start:
    """A cell in the closed loop: its requests per second, and by which metric."""

    cell: Cell
    most: float
    counts: str
    closed: Summary


def _of_cell(
    origin: session.Source, search: Search, start: _Start, rules: list[gate.Rule], runs: Path
) -> Knee:
    cell, most = start.cell, start.most
    only = ",".join(f"{axis}={_text(value)}" for axis, value in cell.axes.items())
    options = _options(search, only)
    tried: dict[int, str] = {}  # rate → why it was not kept, empty when it was
    shown: dict[int, dict[str, float | None]] = {}
    names = [start.closed.run.run_id]
    least = _generators(cell)
    if round(most) < least:
        reason = f"too few requests for its generators ({least}; lower their count)"
        return Knee(dict(cell.axes), most, None, None, {}, reason, names)
    for step in range(2):
        next_rates = _rates(most, tried) if step else [round(most * share) for share in SHARES]
        next_rates = sorted({rate for rate in next_rates if rate >= least} - set(tried))
        if not next_rates:
            break
        recipe, text = rates.at_rates(origin.text, next_rates, _window_s(rules, next_rates[0]))
        summary = _measured(replace(origin, recipe=recipe, text=text), options, runs)
        names.append(summary.run.run_id)
        _refuse_unknown(summary, rules)
        for one in summary.cells:
            rate = int(one.axes[rates.AXIS])
            why = _why_broken(one, rate, start.counts, rules, summary.unit)
            if why is not None:
                tried[rate] = why
                shown[rate] = {rule.metric: gate.figure(one, rule.metric) for rule in rules}
    kept, broke = _edge(tried)
    at_kept = shown.get(kept, {}) if kept else {}
    why = tried[broke] if broke else ""
    return Knee(dict(cell.axes), most, kept, broke, at_kept, why, names)


def _generators(cell: Cell) -> int:
    """How many processes share a rate."""
    names = (one.name for one in cell.trials[0].processes if one.role == "load")
    return max(Counter(names).values(), default=1)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rates(most: float, tried: dict[int, str]) -> list[int]:
    """Between the two that the first round left; beyond the end where nothing broke."""
    kept, broke = _edge(tried)
    low, high = kept or 0, broke or round(most * 1.3)
    gap = (high - low) / (BETWEEN + 1)
    return [round(low + gap * number) for number in range(1, BETWEEN + 1)]


def _edge(tried: dict[int, str]) -> tuple[int | None, int | None]:
    """The highest rate below which everything was kept, and the lowest that was not."""
    kept = None
    for rate in sorted(tried):
        if tried[rate]:
            return kept, rate
        kept = rate
    return kept, None


def _window_s(rules: Sequence[gate.Rule], lowest: int) -> float:
    """Long enough for the furthest quantile of the rules at the lowest rate, within reason."""
    tails = [
        1 - float(found[1].replace("_", ".")) / 100
        for rule in rules
        if (found := re.fullmatch(r"latency\.p(\d+(?:_\d+)?)", rule.metric))
    ]
    samples = max((metrics.SAMPLES_PER_TAIL / tail for tail in tails if tail > 0), default=0.0)
    return min(WINDOW_MAX_S, math.ceil(samples / (KEPT_MIN * lowest)))


def _refuse_unknown(summary: Summary, rules: Sequence[gate.Rule]) -> None:
    known = {name for cell in summary.measured for trial in cell.trials for name in trial.metrics}
    for rule in rules:
        if known and rule.metric not in known:
            raise InputError(
                f"--require {rule.text!r}: these trials have no metric {rule.metric!r}, or too few "
                f"requests for it (metrics: {', '.join(sorted(known))})"
            )


def _why_broken(
    cell: Cell, rate: int, counts: str, rules: Sequence[gate.Rule], unit: UnitOf = lambda _: ""
) -> str | None:
    """Empty when the rate was kept; None when it is not known."""
    if cell.failures:
        return f"{cell.failures} trials: {cell.failure}"
    if not cell.trials:
        return None
    done = cell.median(counts) or 0.0
    if done < KEPT_MIN * rate:
        return f"{done / rate:.0%} of the asked requests were answered"
    figures = [(rule, gate.figure(cell, rule.metric)) for rule in rules]
    for rule, value in figures:
        if value is not None and not rule.is_kept(value):
            return f"{rule.metric} was {_figure(rule.metric, value, unit)}"
    return None if any(value is None for _, value in figures) else ""


def _figure(metric: str, value: float, unit: UnitOf) -> str:
    """In the unit of the tables: the recipe's, where it names one."""
    measure = wording.measure(metric, unit(metric))
    return f"{wording.number(value * measure.scale)} {measure.unit}".strip()


def _show(knees: list[Knee], rules: list[gate.Rule], unit: UnitOf) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for axis in knees[0].axes:
        table.add_column(axis)
    for head in ("closed loop, rps", "kept up to, rps", "broke at, rps"):
        table.add_column(head, justify="right")
    table.add_column("there")
    table.add_column("why it broke")
    for one in knees:
        there = ", ".join(
            f"{metric} {_figure(metric, value, unit)}"
            for metric, value in one.at_kept.items()
            if value is not None
        )
        table.add_row(
            *(escape(str(value)) for value in one.axes.values()),
            wording.number(one.closed_rps), wording.number(one.kept) if one.kept else "none",
            wording.number(one.broke) if one.broke else "not found", escape(there),
            escape(one.why),
        )  # fmt: skip
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, 140)
    limits = " and ".join(rule.text for rule in rules)
    console.print(f"Highest rate with {limits}:", markup=False)
    console.print(table)
