"""The run as a spreadsheet: a sheet per table with formulas and charts, all repeats, the audit.

Medians and gains are formulas over the repeats, so that a reader who strikes out a repeat sees what
becomes of them. The verdict is the lab's and stands as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import xlsxwriter
from xlsxwriter.utility import xl_rowcol_to_cell
from xlsxwriter.workbook import Workbook
from xlsxwriter.worksheet import Worksheet

from wirespeed.analysis.summary import Cell, Sheet, Summary
from wirespeed.report import files, story, wording

REPEATS = "repeats"
LINE_POINTS, LINE_LETTERS = 15, 110  # of the summary, whose rows no program makes higher itself
NAME_MAX = 31  # letters of a sheet's name (ECMA-376, Excel's limit)
_FORBIDDEN = re.compile(r"[\[\]:*?/\\']")
# What a recipe or a program wrote stays a text: neither a formula nor a link.
PLAIN = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
OWN = ("cell", "round", "valid", "limit", "disturbed")


@dataclass(frozen=True)
class Book:
    """The workbook with its formats, and where each cell's repeats of a metric stand."""

    out: Workbook
    bold: Any
    figure: Any
    gain: Any
    places: Mapping[tuple[str, str], str]  # cell and metric → range of its valid repeats


def write(summary: Summary) -> Path:
    """Writes derived/report.xlsx; returns its path."""
    memory = BytesIO()
    with xlsxwriter.Workbook(memory, PLAIN) as out:
        _fill(out, summary)
    path = summary.run_dir / "derived" / "report.xlsx"
    files.save(path, memory.getvalue())
    return path


def _fill(out: Workbook, summary: Summary) -> None:
    bold = out.add_format({"bold": True, "text_wrap": True, "valign": "top"})
    figure = out.add_format({"num_format": "[>=100]#,##0;#,##0.00"})
    gain = out.add_format({"num_format": "+0.0%;-0.0%;0.0%"})
    wrapped = out.add_format({"text_wrap": True, "valign": "top"})
    _front(out.add_worksheet("summary"), summary, bold, wrapped)
    names = _names(summary.sheets)
    pages = [out.add_worksheet(name) for name in names]
    places = _repeats(out.add_worksheet(REPEATS), summary, bold)
    _audit(out.add_worksheet("audit"), summary, bold)
    for page in out.worksheets():
        page.set_landscape()
        page.fit_to_pages(1, 0)
    book = Book(out, bold, figure, gain, places)
    for page, sheet in zip(pages, summary.sheets, strict=True):
        _Page(book, page, sheet).write()


def _names(sheets: Iterable[Sheet]) -> list[str]:
    """One for each sheet: its number keeps them apart, its title says what it is."""
    return [
        f"{sheet.number} {_FORBIDDEN.sub(' ', sheet.title)}"[:NAME_MAX].strip() for sheet in sheets
    ]


def _front(page: Worksheet, summary: Summary, bold: Any, wrapped: Any) -> None:
    page.set_column(0, 0, LINE_LETTERS)
    page.write(0, 0, summary.run.title or summary.run.recipe, bold)
    for number, sentence in enumerate(story.front(summary), 2):
        page.set_row(number, LINE_POINTS * -(-len(sentence) // LINE_LETTERS))
        page.write_string(number, 0, sentence, wrapped)


def _audit(page: Worksheet, summary: Summary, bold: Any) -> None:
    run = summary.run
    facts = {
        "run": run.run_id, "recipe": run.recipe, "started": run.started, "commit": run.commit,
        "repeat": run.plan.repeat, "order": run.plan.order, "window, s": run.plan.duration_s,
        "seed": run.seed, **run.facts,
    }  # fmt: skip
    page.set_column(0, 0, 30)
    page.set_column(1, 1, 80)
    for row, (name, value) in enumerate(facts.items()):
        page.write(row, 0, name, bold)
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        page.write(row, 1, value if plain else str(value))


def _repeats(page: Worksheet, summary: Summary, bold: Any) -> dict[tuple[str, str], str]:
    """Every trial; a cell's valid ones stand one below the other, so that a range holds them."""
    axes = list(summary.run.axes)
    trials = [trial for cell in summary.cells for trial in (*cell.trials, *cell.invalid)]
    metrics = sorted({name for trial in trials for name in trial.metrics})
    page.freeze_panes(1, 1)
    for column, head in enumerate([*OWN, *axes, *metrics]):
        page.write(0, column, head, bold)
    places: dict[tuple[str, str], str] = {}
    row = 1
    for cell in summary.cells:
        first = row
        for trial in (*cell.trials, *cell.invalid):
            fields = [cell.key, trial.round, trial.valid, trial.bottleneck, trial.disturbed]
            values = [*fields, *(trial.axes.get(axis) for axis in axes)]
            for column, value in enumerate([*values, *map(trial.metrics.get, metrics)]):
                page.write(row, column, value)
            row += 1
        if cell.trials:
            last = first + len(cell.trials) - 1
            for number, metric in enumerate(metrics, len(OWN) + len(axes)):
                corners = (xl_rowcol_to_cell(place, number, True, True) for place in (first, last))
                places[cell.key, metric] = f"{REPEATS}!{':'.join(corners)}"
    return places


class _Page:
    """One table: medians, gains over the baseline's column, verdicts, and a chart below."""

    def __init__(self, book: Book, page: Worksheet, sheet: Sheet) -> None:
        self.book, self.page, self.sheet = book, page, sheet
        self.heads = len(sheet.row_axes)
        self.top = 3  # title, an empty line, heads

    def write(self) -> None:
        self.page.write(0, 0, self.sheet.title)
        self.page.set_column(0, 40, 16)
        self.page.set_row(self.top - 1, 2 * LINE_POINTS)
        self.page.freeze_panes(self.top, self.heads)
        for column, axis in enumerate(self.sheet.row_axes):
            self.page.write(self.top - 1, column, axis, self.book.bold)
            for number, row in enumerate(self.sheet.rows):
                self.page.write(self.top + number, column, row[column])
        column = self.heads
        for metric in self.sheet.metrics:
            column = self._medians(metric, column)
        self._gains(column)
        self._chart()

    def _medians(self, metric: str, column: int) -> int:
        measure = wording.measure(metric, self.sheet.units.get(metric, ""))
        for value in self.sheet.columns:
            label = measure.head if value is None else f"{value}\n{measure.head}"
            self.page.write(self.top - 1, column, label, self.book.bold)
            for number, row in enumerate(self.sheet.rows):
                self._median(self.top + number, column, self.sheet.cells.get((row, value)), metric)
            column += 1
        return column

    def _median(self, row: int, column: int, cell: Cell | None, metric: str) -> None:
        place = self.book.places.get((cell.key, cell.stored(metric))) if cell else None
        shown = cell.median(metric) if cell else None
        if place is None:
            self.page.write_string(row, column, wording.state(cell))
        elif shown is None:  # measured, but its trials have no such figure
            self.page.write_blank(row, column, None, self.book.figure)
        else:
            scale = wording.measure(metric).scale  # of the unit that the head names
            formula = f"=MEDIAN({place})" + (f"*{scale:g}" if scale != 1 else "")
            self.page.write_formula(row, column, formula, self.book.figure, shown * scale)

    def _gains(self, column: int) -> None:
        """The gain of the two medians as a formula; the verdict of the paired rounds as text."""
        sheet = self.sheet
        if sheet.over not in sheet.columns:  # none asked for, or the baseline is not in the run
            return
        base = self.heads + sheet.columns.index(sheet.over)
        judged = {value for _, value in sheet.gains}
        for place, value in enumerate(sheet.columns):
            if value not in judged:
                continue
            self.page.set_column(column + 1, column + 1, 36)
            self.page.write(self.top - 1, column, f"{value}\ngain", self.book.bold)
            self.page.write(self.top - 1, column + 1, f"{value}\nverdict", self.book.bold)
            for number, row in enumerate(sheet.rows):
                gain = sheet.gains.get((row, value))
                if gain is None or gain.of_medians is None:
                    continue
                at = self.top + number
                ours, theirs = (xl_rowcol_to_cell(at, c) for c in (self.heads + place, base))
                formula = f"={ours}/{theirs}-1"
                self.page.write_formula(at, column, formula, self.book.gain, gain.of_medians)
                said = f"{wording.verdict(gain)} ({wording.interval(gain.found)})"
                self.page.write_string(at, column + 1, said.removesuffix(" ()"))
            column += 2

    def _chart(self) -> None:
        """The first metric over the rows: lines over numbers, else columns."""
        sheet = self.sheet
        if not sheet.row_axes:  # one row, which needs no chart and has no categories
            return
        numbers = all(isinstance(value, int | float) for row in sheet.rows for value in row)
        chart = self.book.out.add_chart({"type": "line" if numbers else "column"})
        last = self.top + len(sheet.rows) - 1
        name = self.page.get_name()
        drawn = False
        for place, value in enumerate(sheet.columns):
            cells = (sheet.cells.get((row, value)) for row in sheet.rows)
            if not any(cell and cell.trials for cell in cells):
                continue
            column, drawn = self.heads + place, True
            chart.add_series({
                "name": str(value) if value is not None else sheet.metrics[0],
                "categories": [name, self.top, 0, last, self.heads - 1],
                "values": [name, self.top, column, last, column],
                "marker": {"type": "circle"},
            })  # fmt: skip
        if not drawn:
            return
        measure = wording.measure(sheet.metrics[0], sheet.units.get(sheet.metrics[0], ""))
        chart.set_title({"name": sheet.title})
        chart.set_x_axis({"name": ", ".join(sheet.row_axes)})
        chart.set_y_axis({"name": measure.head, "min": 0})
        chart.set_size({"width": 720, "height": 380})
        self.page.insert_chart(last + 2, 0, chart)
