"""The documents' tables, rebuilt from recipes/published through the recipes' own table specs."""

from __future__ import annotations

import csv
import json

import pytest
from report.make_run import make_run, netty, nginx, zuul

from wirespeed.analysis.summary import load
from wirespeed.published import figures
from wirespeed.report import files, tables

TABLE_1 = """\
1 74,090 115,172 55%
4 247,057 416,578 69%
8 452,195 733,459 62%
12 632,339 1,015,292 61%
16 821,361 1,322,151 61%
20 1,023,532 1,586,738 55%
24 1,224,885 1,819,246 49%
28 1,390,398 2,036,244 46%
32 1,539,189 2,207,269 43%
36 1,587,437 2,398,869 51%
40 – – –"""
TABLE_2_OF_NGINX = """\
1 35890.70 126007.00 125273.00 251.09% 249.04%
2 73226.10 198366.00 201056.00 170.90% 174.57%
4 128555.00 404713.00 407412.00 214.82% 216.92%
8 209513.00 755081.00 779808.00 260.40% 272.20%
16 278366.00 1454320.00 1434150.00 422.45% 415.20%
28 288632.00 2334780.00 2302380.00 708.91% 697.69%"""
RAMP = """\
700 tomcat 12148 61.25 53.51 54.63 58.00 61.02 9.30 71946.30 306.81
700 netty 13283 52.65 52.10 52.83 54.25 47.32 6.93 93207.48 313.06
900 tomcat 15277 71.55 54.80 57.29 64.19 74.12 14.85 74591.69 373.70
900 netty 16701 54.01 52.72 54.24 56.98 57.50 7.93 89477.57 400.00
1100 tomcat 15385 6410.00 58.81 71.22 58000.00 79.57 18.10 69413.10 367.46
1100 netty 19806 55.71 53.73 56.48 60.80 64.23 8.60 80201.63 475.56"""


def published_lines(summary, sheet):
    """The published half of a printed table, as the document has it."""
    grid = tables.grid(summary, sheet)
    columns = [i for i, column in enumerate(grid.columns) if column.group == figures.HEAD]
    return [
        " ".join([*labels, *(entries[i].text for i in columns)]) for labels, entries in grid.rows
    ]


def sheet_of(summary, link, test):
    wanted = {"link": link, "test": test}
    return next(sheet for sheet in summary.sheets if sheet.fixed == wanted)


def test_the_netty_cookbooks_first_table_is_reproduced(tmp_path):
    summary = load(make_run(netty(), tmp_path))
    assert published_lines(summary, summary.sheets[0]) == TABLE_1.splitlines()


def test_the_nginx_cookbooks_first_table_is_reproduced(tmp_path):
    summary = load(make_run(nginx(), tmp_path))
    found = published_lines(summary, sheet_of(summary, "25G", "tps"))
    assert found == TABLE_2_OF_NGINX.splitlines()


def test_every_table_of_the_nginx_cookbook_has_its_place(tmp_path):
    summary = load(make_run(nginx(), tmp_path))
    over = {link: "" for link in ("25G", "100G", "loopback")}
    for sheet in summary.sheets:
        over[sheet.fixed["link"]] += " ".join(tables.grid(summary, sheet).notes)
    for number in range(2, 11):
        assert f"Table {number} (25 GbE)" in over["25G"]
        assert f"Table {number + 9} (100 GbE)" in over["100G"]
    assert "25 GbE" not in over["loopback"]


def test_a_link_without_a_rate_is_next_to_the_fastest(tmp_path):
    summary = load(make_run(nginx(), tmp_path))
    found = published_lines(summary, sheet_of(summary, "loopback", "tps"))
    assert found[0] == "1 42836.30 103569.00 106688.00 141.78% 149.06%"


def test_the_ramp_is_reproduced(tmp_path):
    summary = load(make_run(zuul(), tmp_path))
    lines = [
        line
        for line in published_lines(summary, summary.sheets[0])
        if " tomcat-virtual " not in line
    ]
    assert lines[:6] == RAMP.splitlines()
    assert len(lines) == 16


def test_every_figure_of_the_netty_cookbook_finds_its_place(tmp_path):
    summary = load(make_run(netty(), tmp_path))
    shown = [" ".join(published_lines(summary, sheet)) for sheet in summary.sheets]
    path = figures.folder() / "netty_onload_cookbook.csv"
    with path.open(newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["metric"] == "rps"]
    assert len(rows) == 120
    for row in rows:
        table = int(row["table"][1:]) - 1
        assert f"{int(row['value']):,}" in shown[table].split()


def test_the_documents_unit_is_converted_and_said(tmp_path):
    summary = load(make_run(nginx(), tmp_path))
    sheet = sheet_of(summary, "25G", "thr1M")
    grid = tables.grid(summary, sheet)
    # Table 8, one worker, kernel: 22.68 printed "Gb/s" are 23.78 Gb/s
    assert published_lines(summary, sheet)[0].split()[1] == "23.78"
    assert any("1.04858" in note for note in grid.notes)
    assert any("Table 8 (25 GbE) of the document" in note for note in grid.notes)


def test_a_document_in_another_unit_says_its_own(tmp_path):
    """B/s appeared next to a document's MB/s under one heading, and every factor was explained
    by wrk's megabytes."""
    run_dir = make_run(nginx(), tmp_path)
    path = run_dir / "run.json"
    run = json.loads(path.read_text())
    for spec in run["tables"]:
        spec["published"] = {"file": "mine.csv", "scale": 1.0}
    path.write_text(json.dumps(run))
    (run_dir / "published").mkdir()
    head = "metric,payload_bytes,instances_or_connections,stack,value,unit\n"
    (run_dir / "published" / "mine.csv").write_text(
        head + "throughput,1000000,1,kernel,2960,MB/s\nrps,1000,1,kernel,1000,req/s\n"
    )
    summary = load(run_dir)
    heads = [
        [column.label for column in grid.columns if column.group == figures.HEAD]
        for grid in (tables.grid(summary, sheet_of(summary, "loopback", test))
                     for test in ("thr1M", "rps1k"))
    ]  # fmt: skip
    assert heads[0][0] == "kernel, MB/s" and heads[1][0] == "kernel"
    for spec in run["tables"]:
        spec["published"]["scale"] = 0.008
    path.write_text(json.dumps(run))
    grid = tables.grid(load(run_dir), sheet_of(load(run_dir), "loopback", "thr1M"))
    (note,) = [note for note in grid.notes if "multiplied" in note]
    assert note == "Published figures are multiplied by 0.008."


def test_heads_say_that_the_hardware_differs(tmp_path):
    summary = load(make_run(netty(), tmp_path))
    text = files.markdown(summary)
    assert "published (different hardware)" in text


@pytest.mark.parametrize("name", ["../claims.csv", "nothing.csv", ""])
def test_a_file_that_is_not_a_published_one_is_left_out(name, tmp_path):
    assert figures.document_of(name, tmp_path) is None


def test_the_runs_own_copy_comes_first(tmp_path):
    name = "nginx_onload_cookbook.csv"
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / name).write_text("metric,value,unit\n")
    assert figures.document_of(name, tmp_path).figures == {}


def test_a_document_is_found_by_payload_link_count_and_stack(tmp_path):
    document = figures.document_of("nginx_onload_cookbook.csv", tmp_path)
    axes = {"link": "100G", "workers": 4, "stack": "balanced"}
    figure = document.figure("rps", axes, {"bytes": 1000}, {"balanced": "onload-balanced"})
    assert (figure.text, figure.table) == ("537498.00", "T13")
    assert document.gain("T13", 4, "onload-balanced") == 112.89
    closing = document.figure(
        "rps", axes, {"bytes": 0, "close": True}, {"balanced": "onload-balanced"}
    )
    assert (closing.text, closing.table) == ("381044.00", "T11")
    assert document.figure("rps", {**axes, "workers": 3}, {"bytes": 1000}, {}) is None


def test_a_mean_of_gains_that_are_not_comparable_says_so(tmp_path):
    """A run in blocks, or with a full generator, had a mean of gains without a word about it."""
    (line, *_) = tables.shapes(load(make_run(nginx(), tmp_path / "blocked")))
    assert "of them not comparable here" in line
    assert "not comparable" not in "".join(tables.shapes(load(make_run(netty(), tmp_path / "n"))))
