"""Tables as grids of text: what the page, the Markdown and the terminal print.

All of them print the same Grid, so that they always agree. Where a document published figures for a
table, its figures stand next to ours, in the document's own rounding, under a head that says that
they come from different hardware.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from wirespeed.analysis.cells import is_time
from wirespeed.analysis.comparisons import DUET, TRIALS
from wirespeed.analysis.summary import Cell, Gain, Sheet, Summary
from wirespeed.published.figures import HEAD, Document, Figure, document_of
from wirespeed.report import recipe_copy, wording
from wirespeed.stats.comparison import CONFIDENCE, geometric_mean, rank_correlation

OURS = "this run"
COUNTED = ("req/s", "conn/s", "1/s", "rps")  # requests per second, for which we have no unit
WRK_GBPS = 1.048576  # of wrk's "MB" times 8 / 1000 in decimal Gb/s; docs/published.md shows it


@dataclass(frozen=True)
class Entry:
    """One cell of a printed table: its text, what kind it is, and a longer explanation."""

    text: str
    kind: str = "figure"  # figure, state, published, gain, loss, even, open, withheld
    note: str = ""
    interval: str = ""  # of a gain; shown next to the text where a tooltip is missing


@dataclass(frozen=True)
class Column:
    group: str
    label: str


@dataclass(frozen=True)
class Grid:
    """One printed table."""

    title: str
    heads: tuple[str, ...]  # the row axes
    columns: tuple[Column, ...]
    rows: tuple[tuple[tuple[str, ...], tuple[Entry, ...]], ...]
    notes: tuple[str, ...] = ()
    open: tuple[str, ...] = ()  # each kind of missing verdict or figure: why, and where
    figures: str = ""  # what they are and their unit, where no head of a column says it

    @property
    def card_labels(self) -> list[str]:
        """The labels of the columns where their heads are not above the values."""
        return [
            column.label if column.group == OURS else f"{column.group}: {column.label}"
            for column in self.columns
        ]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Neighbouring columns of one group: what the upper head spans."""
        spans: list[tuple[str, int]] = []
        for column in self.columns:
            if spans and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1] + 1)
            else:
                spans.append((column.group, 1))
        return spans


@dataclass(frozen=True)
class Printed:
    """The document next to a sheet, and how our cells find their figure in it."""

    document: Document
    stacks: Mapping[str, str]
    scale: float
    variables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def figure(self, cell: Cell, metric: str) -> Figure | None:
        merged: dict[str, Any] = {}
        for axis, value in cell.axes.items():
            variables = self.variables.get(axis, {}).get(str(value), {})
            merged.update(variables if isinstance(variables, dict) else {})
        return self.document.figure(metric, cell.axes, merged, self.stacks, self.scale)


def source(summary: Summary, sheet: Sheet) -> Printed | None:
    """The published figures that belong to a sheet."""
    spec = sheet.spec.get("published")
    if not isinstance(spec, dict):
        return None
    document = document_of(str(spec.get("file", "")), summary.run_dir)
    if document is None:
        return None
    variables = recipe_copy.axis_variables(summary.run_dir)
    scale = float(spec.get("scale", 1.0))
    return Printed(document, spec.get("stacks", {}), scale, variables)


def grid(summary: Summary, sheet: Sheet) -> Grid:
    """A sheet as it is printed."""
    printed = source(summary, sheet)
    wide = len(sheet.columns) * len(sheet.metrics)
    columns = _columns(sheet, printed)
    times = wording.in_times(gain.found.gain for gain in sheet.gains.values() if gain.found)
    rows = []
    for row in sheet.rows:
        ours = _own_entries(summary, sheet, row, printed)
        gains = _gain_entries(sheet, row, times)
        theirs = _published_entries(sheet, row, printed) if printed else []
        assert len(ours) == wide
        rows.append((tuple(str(value) for value in row), tuple(ours + gains + theirs)))
    heads = tuple(axis.replace("_", " ") for axis in sheet.row_axes)
    notes = _notes(summary, sheet, printed)
    figures = _figures_text(sheet, printed)
    return Grid(
        sheet.title, heads, tuple(columns), tuple(rows), notes, _open(sheet, times), figures
    )


def _figures_text(sheet: Sheet, printed: Printed | None) -> str:
    """The description of the values, where the heads of columns do not give it."""
    if len(sheet.metrics) > 1 or sheet.columns == (None,):
        return ""
    measure = _measure(sheet, sheet.metrics[0], printed)
    return f"{measure.label}, {measure.unit}" if measure.unit else measure.label


def _open(sheet: Sheet, times: bool) -> tuple[str, ...]:
    """What a reader would ask next: why a cell has no verdict or no figure, and what would help."""
    groups: dict[str, list[str]] = {}
    for (row, column), gain in sheet.gains.items():
        if gain.verdict.word in ("not decided", "not comparable"):
            where = _row_place(sheet, row, column)
            figure = wording.interval(gain.found, times)
            more = wording.more_rounds(gain).removeprefix(", ")
            text = ", ".join(part for part in (figure, more) if part)
            entry = f"{where} ({text})" if text else where
            groups.setdefault(f"{gain.verdict.word}: {gain.verdict.reason}", []).append(entry)
    for (row, column), cell in sheet.cells.items():
        where = _row_place(sheet, row, column)
        if cell.state == "no valid trial":
            groups.setdefault(f"{cell.failures or cell.state}: {cell.reason}", []).append(where)
        elif cell.failures:
            groups.setdefault(f"{cell.failures} trials: {cell.failure}", []).append(where)
    return tuple(f"{reason}: {'; '.join(places)}." for reason, places in groups.items())


def _row_place(sheet: Sheet, row: tuple[Any, ...], column: Any) -> str:
    """`connections 100, balanced`."""
    parts = [f"{axis} {value}" for axis, value in zip(sheet.row_axes, row, strict=True)]
    return ", ".join([*parts, *([str(column)] if column is not None else [])])


def _columns(sheet: Sheet, printed: Printed | None) -> list[Column]:
    unit = _measure(sheet, sheet.metrics[0], printed).unit if len(sheet.metrics) == 1 else ""
    ours = f"{OURS}, {unit}" if unit else OURS
    columns = [Column(ours, label) for label in _value_heads(sheet, printed)]
    gains = [Column(wording.verdict_text(sheet), str(one)) for one in _contenders(sheet)]
    theirs = []
    if printed:
        theirs = [Column(HEAD, label) for label in _published_heads(sheet, printed)]
        theirs += [Column(HEAD, f"{name} gain") for name in _published_contenders(sheet, printed)]
    return columns + gains + theirs


def _value_heads(sheet: Sheet, printed: Printed | None) -> list[str]:
    if len(sheet.metrics) == 1:
        head = _measure(sheet, sheet.metrics[0], printed).label
        return [head if column is None else str(column) for column in sheet.columns]
    return [
        f"{column} {head}" if column is not None else head
        for column in sheet.columns
        for head in (_measure(sheet, metric, printed).head for metric in sheet.metrics)
    ]


def _published_heads(sheet: Sheet, printed: Printed) -> list[str]:
    if len(sheet.metrics) > 1:
        return [
            f"{_measure(sheet, metric, printed).label}, {unit}".removesuffix(", ")
            for metric, unit in _published_units(sheet, printed).items()
        ]
    end = _other_unit(sheet, printed)
    return [f"{column}{end}" for column in sheet.columns if _has_figures(sheet, column, printed)]


def _other_unit(sheet: Sheet, printed: Printed) -> str:
    """The document's unit, where its figures are neither in ours nor scaled to it."""
    ours = _measure(sheet, sheet.metrics[0], printed).unit
    theirs = _published_units(sheet, printed).get(sheet.metrics[0], "").partition(" ")[0]
    is_same = theirs in ("", ours, *(COUNTED if not ours else ()))
    return "" if is_same or printed.scale != 1.0 else f", {theirs}"


def _measure(sheet: Sheet, metric: str, printed: Printed | None) -> wording.Measure:
    """Published latencies are in ms; a table with a column for each metric chooses for each."""
    if printed and is_time(metric):
        return wording.measure(metric, sheet.units.get(metric, ""), is_ms=True)
    is_ms = len(sheet.metrics) > 1 and wording.is_long(sheet.highest.get(metric, 0.0))
    return wording.measure(metric, sheet.units.get(metric, ""), is_ms=is_ms)


def _published_units(sheet: Sheet, printed: Printed) -> dict[str, str]:
    """The metrics that the document has, with its units."""
    units: dict[str, str] = {}
    for metric in sheet.metrics:
        figures = (printed.figure(cell, metric) for cell in sheet.cells.values())
        found = next((figure for figure in figures if figure), None)
        if found:
            units[metric] = "" if found.unit in ("req/s", "1") else found.unit
    return units


def _has_figures(sheet: Sheet, column: Any, printed: Printed) -> bool:
    cells = (sheet.cells.get((row, column)) for row in sheet.rows)
    return any(cell and printed.figure(cell, sheet.metrics[0]) for cell in cells)


def _contenders(sheet: Sheet) -> list[Any]:
    """The columns that have a gain; one that was never measured gets no column of dashes."""
    judged = {column for _, column in sheet.gains}
    return [column for column in sheet.columns if column in judged]


def _published_contenders(sheet: Sheet, printed: Printed) -> list[Any]:
    if sheet.over is None:
        return []
    others = [column for column in sheet.columns if column != sheet.over]
    return [name for name in others if _has_figures(sheet, name, printed)]


def _own_entries(
    summary: Summary, sheet: Sheet, row: tuple[Any, ...], printed: Printed | None
) -> list[Entry]:
    entries = []
    for column in sheet.columns:
        cell = sheet.cells.get((row, column))
        for metric in sheet.metrics:
            entries.append(_own_entry(sheet, cell, metric, printed))
    return entries


def _own_entry(sheet: Sheet, cell: Cell | None, metric: str, printed: Printed | None) -> Entry:
    if cell is None or not cell.trials:
        return Entry(wording.state(cell), "state", cell.reason if cell else "")
    value = cell.median(metric)
    if value is None:
        return Entry(wording.NONE, "state", f"the trials hold no figure for {metric}")
    scaled = value * _measure(sheet, metric, printed).scale
    style = printed.document.style(metric) if printed else None
    text = style.text(scaled) if style else wording.number(scaled)
    repeats = ", ".join(wording.number(v) for v in cell.values(metric))
    held = wording.BOTTLENECKS[cell.bottleneck]
    note = f"median of {repeats}; limit: {held}"
    if cell.failures:
        note += f"; {cell.failures} trials: {cell.failure}"
    if cell.disturbed > 0:
        count = sum(trial.disturbed > 0 for trial in cell.trials)
        lost = cell.disturbed
        note += (
            f"; interference in {count} of {len(cell.trials)} trials, estimated loss "
            f"{lost:.0%} on average"
        )
    return Entry(wording.mark(cell) + text, "figure", note)


def _gain_entries(sheet: Sheet, row: tuple[Any, ...], times: bool) -> list[Entry]:
    gains = (sheet.gains.get((row, contender)) for contender in _contenders(sheet))
    return [verdict_entry(one, times) if one else Entry(wording.NONE, "state") for one in gains]


VERDICT_KINDS = {
    "gain": "gain",
    "loss": "loss",
    "no difference": "even",
    "not decided": "open",
    "not comparable": "withheld",
}


def verdict_entry(gain: Gain, times: bool = False) -> Entry:
    """The verdict with its interval and the reason for it."""
    found = gain.found
    parts = [gain.verdict.reason + wording.more_rounds(gain)]
    interval = wording.interval(found, times)
    if found and interval:
        parts.append(
            f"{CONFIDENCE:.0%} interval {interval}, {wording.evidence(gain)}, q {gain.q:.3f}"
        )
    kind = VERDICT_KINDS[gain.verdict.word]
    return Entry(wording.verdict(gain, times), kind, "; ".join(parts), interval)


def _published_entries(sheet: Sheet, row: tuple[Any, ...], printed: Printed) -> list[Entry]:
    entries = []
    if len(sheet.metrics) > 1:
        cell = sheet.cells.get((row, sheet.columns[0]))
        for metric in _published_units(sheet, printed):
            entries.append(_published_entry(cell, metric, printed))
        return entries
    for column in sheet.columns:
        if _has_figures(sheet, column, printed):
            cell = sheet.cells.get((row, column))
            entries.append(_published_entry(cell, sheet.metrics[0], printed))
    for name in _published_contenders(sheet, printed):
        entries.append(_published_gain(sheet, row, name, printed))
    return entries


def _published_entry(cell: Cell | None, metric: str, printed: Printed) -> Entry:
    figure = printed.figure(cell, metric) if cell else None
    return Entry(figure.text if figure else wording.NONE, "published")


def _published_gain(sheet: Sheet, row: tuple[Any, ...], name: Any, printed: Printed) -> Entry:
    percent = _printed_gain(sheet, row, name, printed)
    text = wording.percent(percent / 100 if percent is not None else None, sheet.gain_decimals)
    return Entry(text, "published")


def _notes(summary: Summary, sheet: Sheet, printed: Printed | None) -> tuple[str, ...]:
    notes = list(summary.run.thinned)
    most = max((cell.disturbed for cell in sheet.cells.values()), default=0.0)
    if most > 0:
        notes.append(
            f"{wording.NOISY} measured with interference from other processes, CPU steal or a "
            f"slow host: such a figure lost an estimated {most:.0%} at most. Verdicts allow for it."
        )
    notes += _method_notes(summary, sheet)
    if sheet.shares_cores:
        notes.append("Instances share cores (fit = share).")
    if printed and printed.scale != 1.0:
        notes.append(
            f"Published figures are multiplied by {printed.scale:g}{_why_scaled(printed.scale)}."
        )
    if printed:
        notes += _document_note(_figures(sheet, printed), str(sheet.fixed.get("link", "")))
    return tuple(notes)


def _method_notes(summary: Summary, sheet: Sheet) -> list[str]:
    """Of a run with duets: which method gave the gains of a table, and with what interval."""
    if not summary.run.plan.duet or not sheet.gains:
        return []
    notes = []
    for (row, column), gain in sheet.gains.items():
        if gain.method == DUET and gain.found:
            interval = wording.interval(gain.found) or "no interval"
            notes.append(
                f"{_row_place(sheet, row, column)}: {wording.signed(gain.found.gain)} ({interval}) "
                f"in {wording.evidence(gain)} that took turns."
            )
    method = wording.methods(sheet.gains.values())
    what = "figures and gains are" if method == TRIALS else "figures are"
    by = "" if method == TRIALS else f"Gains by {method}; "
    return [*notes, f"{by}{what} of each server's trial alone."]


def _why_scaled(scale: float) -> str:
    return (
        ": the document's “Gb/s” are 2^20-byte megabytes a second times 8 / 1000"
        if scale == WRK_GBPS
        else ""
    )


def _document_note(figures: Sequence[Figure], link: str) -> list[str]:
    """Which table of the document stands here, and over which link it was measured."""
    names = [
        f"Table {table[1:]}" + (f" ({gbps} GbE)" if link and gbps else "")
        for table, gbps in sorted({(figure.table, figure.link_gbps) for figure in figures})
        if table[:1] == "T"
    ]
    return [f"Published: {wording.listed(names)} of the document."] if names else []


def _figures(sheet: Sheet, printed: Printed) -> list[Figure]:
    figures = (
        printed.figure(cell, metric) for cell in sheet.cells.values() for metric in sheet.metrics
    )
    return [figure for figure in figures if figure]


def shapes(summary: Summary) -> list[str]:
    """Against the documents: the shape of the gains, since absolute values cannot be compared."""
    pairs: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    withheld: Counter[tuple[str, str, str]] = Counter()
    for sheet in summary.sheets:
        printed = source(summary, sheet)
        for (row, column), gain in sheet.gains.items() if printed else ():
            percent = _printed_gain(sheet, row, column, printed) if printed else None
            if percent is not None and gain.found is not None:
                key = (gain.contender, gain.over, gain.metric)
                pairs.setdefault(key, []).append((gain.found.gain, percent / 100))
                withheld[key] += gain.verdict.word == "not comparable"
    return [_shape(key, found, withheld[key]) for key, found in pairs.items()]


def _shape(
    names: tuple[str, str, str], pairs: Sequence[tuple[float, float]], withheld: int
) -> str:
    """A document does not say what was the limit, so ours count with and without verdicts, and the
    sentence says how many have none."""
    contender, over, metric = names
    ours, theirs = zip(*pairs, strict=True)
    means = [geometric_mean([1 + gain for gain in gains]) - 1 for gains in (ours, theirs)]
    rho = rank_correlation(ours, theirs)
    order = f"; rank correlation {rho:.2f}".replace("-", wording.MINUS) if rho is not None else ""
    doubt = f"; {withheld} of them not comparable here, see their verdicts" if withheld else ""
    return (
        f"{contender} against {over}, {wording.measure(metric).label}, in the "
        f"{wording.count(len(pairs), 'cell')} that the document also has: here "
        f"{wording.signed(means[0])} on the geometric mean, published (different hardware) "
        f"{wording.signed(means[1])}{order}{doubt}."
    )


def _printed_gain(sheet: Sheet, row: tuple[Any, ...], name: Any, printed: Printed) -> float | None:
    cell = sheet.cells.get((row, name))
    figure = printed.figure(cell, sheet.metrics[0]) if cell else None
    if figure is None:
        return None
    return printed.document.gain(figure.table, row[0], printed.stacks.get(str(name), str(name)))
