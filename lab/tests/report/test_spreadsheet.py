"""The spreadsheet: its formulas, recomputed by LibreOffice, give the report's figures."""

from __future__ import annotations

import csv
import dataclasses
import re
import shutil
import subprocess
import zipfile

import pytest
from report.make_run import KINDS, make_run

from wirespeed.analysis.summary import load
from wirespeed.report import spreadsheet

RECOMPUTE = """<?xml version="1.0" encoding="UTF-8"?>
<oor:items xmlns:oor="http://openoffice.org/2001/registry">
<item oor:path="/org.openoffice.Office.Calc/Formula/Load">
<prop oor:name="OOXMLRecalcMode" oor:op="fuse"><value>0</value></prop></item>
</oor:items>
"""
ALL_SHEETS = "csv:Text - txt - csv (StarCalc):44,34,76,1,,0,false,false,false,false,false,-1"


@pytest.fixture(scope="module", params=sorted(KINDS))
def run(request, tmp_path_factory):
    return make_run(KINDS[request.param](), tmp_path_factory.mktemp("runs"))


def parts(path):
    with zipfile.ZipFile(path) as packed:
        return {name: packed.read(name).decode() for name in packed.namelist() if "xml" in name}


def test_every_table_has_a_sheet_with_formulas_and_a_chart(run):
    summary = load(run)
    found = parts(spreadsheet.write(summary))
    names = re.findall(r'<sheet name="([^"]+)"', found["xl/workbook.xml"])
    assert len(names) == len(summary.sheets) + 3 and len(set(names)) == len(names)
    assert max(map(len, names)) <= spreadsheet.NAME_MAX
    with_figures = [s for s in summary.sheets if any(c.trials for c in s.cells.values())]
    charts = [name for name in found if re.fullmatch(r"xl/charts/chart\d+\.xml", name)]
    assert len(charts) == len(with_figures)
    assert "MEDIAN(repeats!" in "".join(found.values())


def test_what_a_recipe_wrote_is_neither_a_link_nor_a_formula(tmp_path):
    kind = KINDS["quickstart"]()
    evil = ["http://evil.example/", "external:\\\\evil\\share", "=1+1", "{=1+1}"]
    kind = dataclasses.replace(kind, axes={**kind.axes, "stack": ["kernel", *evil]})
    found = parts(spreadsheet.write(load(make_run(kind, tmp_path))))
    sheets = "".join(text for name, text in found.items() if "worksheets/sheet" in name)
    assert "evil.example" in found["xl/sharedStrings.xml"]
    assert "hyperlink" not in sheets and "1+1" not in sheets
    assert "evil" not in "".join(text for name, text in found.items() if name.endswith(".rels"))


def test_no_figure_of_a_measured_row_is_text(run):
    """A recipe may use another name for a metric: server.loadavg is loadavg in the trials."""
    summary = load(run)
    found = parts(spreadsheet.write(summary))
    for number, sheet in enumerate(summary.sheets, 2):
        rows = re.findall(r"<row [^>]*>(.*?)</row>", found[f"xl/worksheets/sheet{number}.xml"])
        columns = len(sheet.columns) * len(sheet.metrics)
        for row, text in zip(sheet.rows, rows[-len(sheet.rows) :], strict=True):
            if all(sheet.cells[row, value].trials for value in sheet.columns):
                figures = re.findall(r"<c [^>]*>.*?</c>", text)[len(sheet.row_axes) :][:columns]
                assert len(figures) == columns
                assert all("<f>MEDIAN(" in figure for figure in figures), (sheet.title, row)


def without_cached_figures(path):
    """The same workbook with 0 where a formula's result is kept."""
    target = path.with_name("stale.xlsx")
    with zipfile.ZipFile(path) as packed, zipfile.ZipFile(target, "w") as out:
        for name in packed.namelist():
            text = packed.read(name)
            if name.startswith("xl/worksheets/sheet"):
                text = re.sub(rb"(</f>)<v>[^<]*</v>", rb"\1<v>0</v>", text)
            out.writestr(name, text)
    return target


@pytest.mark.skipif(not shutil.which("soffice"), reason="needs libreoffice-calc-nogui")
def test_libreoffice_computes_the_reports_figures(tmp_path):
    run = make_run(KINDS["quickstart"](), tmp_path)
    summary = load(run)
    stale = without_cached_figures(spreadsheet.write(summary))
    profile = tmp_path / "profile"
    (profile / "user").mkdir(parents=True)
    (profile / "user" / "registrymodifications.xcu").write_text(RECOMPUTE)
    command = ["soffice", f"-env:UserInstallation=file://{profile}", "--headless"]
    subprocess.run([*command, "--convert-to", ALL_SHEETS, "--outdir", tmp_path, stale], check=True,
                   capture_output=True, timeout=300)  # fmt: skip
    (path,) = tmp_path.glob("stale-1 *.csv")
    rows = list(csv.reader(path.open(encoding="utf-8")))
    sheet, compared = summary.sheets[0], 0
    for number, row in enumerate(sheet.rows):
        shown = rows[3 + number][len(sheet.row_axes) :]
        for column, value in enumerate(sheet.columns):
            cell = sheet.cells[row, value]
            if cell.trials:
                assert float(shown[column]) == pytest.approx(cell.median(sheet.metrics[0]))
                compared += 1
        judged = {value for _, value in sheet.gains}
        for place, value in enumerate(v for v in sheet.columns if v in judged):
            gain = sheet.gains.get((row, value))
            if gain:
                text = shown[len(sheet.columns) + 2 * place]
                assert float(text.rstrip("%")) / 100 == pytest.approx(gain.of_medians, abs=1e-6)
                compared += 1
    assert compared > 10
