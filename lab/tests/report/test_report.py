"""The page, the tables and the charts of whole made-up runs."""

from __future__ import annotations

import csv
import errno
import io
import itertools
import json
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from report.make_run import KINDS, Kind, make_run
from rich.console import Console

from wirespeed.analysis import gate
from wirespeed.analysis.summary import load
from wirespeed.cli.app import app
from wirespeed.errors import ResultsError, StorageError
from wirespeed.report import (
    cards,
    charts,
    files,
    page,
    plot,
    source,
    story,
    tables,
    terminal,
    wording,
)
from wirespeed.results import store
from wirespeed.runner import session
from wirespeed.topology import roles_of

VOID = {"meta", "br", "img", "input", "link", "hr"}


@pytest.fixture(scope="module", params=sorted(KINDS))
def run(request, tmp_path_factory):
    return make_run(KINDS[request.param](), tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def text(run):
    return page.write(run).read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Checks nesting and collects what a page would load and the words it shows."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.loads += [
            values[name] for name in ("src", "srcset", "data", "action") if name in values
        ]
        if tag == "link":
            self.loads.append(values.get("href", ""))
        if tag == "a":
            self.links.append(values["href"])
        if "id" in values:
            self.ids.append(values["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()


def test_the_page_is_small_and_whole(run, text):
    assert len(text.encode()) < page.PAGE_BYTES_MAX
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert all(link[0] == "#" and link[1:] in reader.ids for link in reader.links)


def test_the_page_loads_nothing(text):
    reader = Reader()
    reader.feed(text)
    assert reader.loads == []
    assert not re.search(r"url\(|@import|\bfetch\(|XMLHttpRequest|<iframe|<object", text)


def test_every_cell_of_the_plan_is_on_the_page(run, text):
    summary = load(run)
    shown = [row for sheet in summary.sheets for row in tables.grid(summary, sheet).rows]
    placed = {cell.key for sheet in summary.sheets for cell in sheet.cells.values()}
    assert placed == {cell.key for cell in summary.cells}
    for labels, entries in shown:
        for entry in entries:
            assert entry.text in text.replace("&#39;", "'")
        assert all(label in text for label in labels)


def test_omitted_cells_are_reported(run, text):
    summary = load(run)
    for sentence in summary.run.thinned:
        assert text.count(sentence) > len(summary.sheets)  # on the front and below every table
    for state, reason, _, _ in story.unmeasured(summary):
        assert state in text
        assert reason.replace("'", "&#39;") in text


def test_shared_cores_are_said_on_every_chart(tmp_path):
    summary = load(make_run(KINDS["netty"](), tmp_path))
    drawn = [chart for sheet in summary.sheets for chart in charts.sheet_charts(summary, sheet)]
    drawn += [chart for sheet in summary.sheets for chart in charts.resource_charts(summary, sheet)]
    assert len(drawn) > 4
    assert all(charts.SHARED in chart.caption for chart in drawn)


def test_pairs_are_said_on_every_chart(tmp_path):
    kind = KINDS["netty"]()
    kind.fit = "pairs"
    summary = load(make_run(kind, tmp_path))
    drawn = [chart for sheet in summary.sheets for chart in charts.sheet_charts(summary, sheet)]
    assert drawn
    assert all(charts.PAIRS in chart.caption for chart in drawn)


@pytest.mark.parametrize(
    ("fit", "said"),
    [
        ("share", "Instances share cores (fit = share): "),
        ("strict", "Instances share cores: "),  # a machine with a single one
        ("pairs", "One server and one generator share each core (fit = pairs)."),
    ],
)
def test_the_front_says_which_cores_are_shared_and_by_what(tmp_path, fit, said):
    """Pairs, and a machine with one core, were put down to --fit share."""
    run_dir = make_run(KINDS["netty"](), tmp_path)
    summary = load(run_dir)
    assert any(cell.shares_cores for cell in summary.cells)
    found = story.warnings(replace(summary, run=replace(summary.run, fit=fit)))
    (about,) = (text for text in found if "share" in text)
    assert about.startswith(said)


def test_the_front_of_a_good_run_says_no_more_of_cores_than_is_so(tmp_path):
    """Below four cores an origin shares the generator's: not each program had cores of its own."""
    kind = KINDS["quickstart"]()
    kind.thinned = []
    shown = page.write(make_run(kind, tmp_path)).read_text(encoding="utf-8")
    assert "servers and generators on different cores" in shown
    roles = roles_of([0, 1], has_origin=True)
    assert roles["origin"] == roles["load"] != roles["server"]


def test_every_chart_is_well_formed_and_inside_its_box(text):
    drawings = re.findall(r"<svg.*?</svg>", text, re.S)
    assert drawings
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        width, height = (float(v) for v in root.get("viewBox").split()[2:])
        for path in root.iter("path"):
            for x, y in re.findall(r"M(-?[\d.]+) (-?[\d.]+)", path.get("d")):
                assert 0 <= float(x) <= width
                assert 0 <= float(y) <= height
        assert "nan" not in drawing.lower()


def test_a_chart_of_its_own_is_an_image_with_colours_for_light_and_dark(run, tmp_path):
    out = charts.write_chart(run, tmp_path / "images" / "chart.svg")
    drawing = out.read_text()
    root = ElementTree.fromstring(drawing)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme:dark" in drawing
    assert "href" not in drawing
    assert root.find("{*}desc").text == f"run {run.name}"


def test_a_table_that_is_not_there_cannot_be_drawn(run, tmp_path):
    with pytest.raises(ResultsError, match="table 99 does not exist"):
        charts.write_chart(run, tmp_path / "chart.svg", table=99)


def test_results_csv_has_every_trial_and_every_unmeasured_cell(run):
    files.write(run)
    summary = load(run)
    rows = list(csv.DictReader(io.StringIO((run / "derived/results.csv").read_text())))
    trials = [row for row in rows if row["position"]]
    assert len(trials) == len(summary.valid) + len(summary.invalid)
    assert len(rows) - len(trials) == len(summary.unmeasured)
    first = next(t for t in summary.valid if t.position == min(v.position for v in summary.valid))
    row = next(row for row in trials if row["position"] == str(first.position))
    assert float(row["rps"]) == first.metrics["rps"]


def test_markdown_tables_are_rectangular(run):
    summary = load(run)
    for sheet in summary.sheets:
        lines = files.grid_markdown(tables.grid(summary, sheet)).splitlines()
        widths = {line.count(" |") for line in lines if line.startswith("|")}
        assert len(widths) == 1


def test_the_terminal_shows_each_table_and_fits(run):
    out = io.StringIO()
    terminal.show(run, Console(file=out, width=100, color_system=None))
    shown = out.getvalue()
    for sheet in load(run).sheets:
        assert sheet.title in shown
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_brackets_of_a_title_and_of_values_are_shown(tmp_path):
    """`[/index.html]` in a title ended the command with a traceback, `[beta]` was not shown."""
    table = {"title": "GET [/index.html] [beta]", "rows": "path", "columns": "stack",
             "value": "rps", "gain": {"over": "kernel"}}  # fmt: skip
    axes = {"path": ["[/a]", "[b]"], "stack": ["kernel", "[/fast]"]}
    kind = Kind("brackets", "Brackets", axes, [table], lambda _: 1000.0)
    out = io.StringIO()
    terminal.show(make_run(kind, tmp_path), Console(file=out, width=160, color_system=None))
    shown = ("[/index.html] [beta]", "[/a]", "[b]", "[/fast]")
    assert all(text in out.getvalue() for text in shown)


def test_a_narrow_terminal_says_what_it_leaves_out(tmp_path):
    out = io.StringIO()
    run = make_run(KINDS["netty"](), tmp_path)
    terminal.show(run, Console(file=out, width=60, color_system=None))
    assert "more columns in tables.md and report.html" in out.getvalue()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    run = make_run(KINDS["zuul"](), tmp_path)
    (run / "derived").write_text("in the way")
    with pytest.raises(StorageError, match=r"cannot write .*tables\.md"):
        files.write(run)
    with pytest.raises(StorageError, match=r"cannot write .*report\.html"):
        page.write(run)


SAVE = """
import pathlib, sys
from wirespeed.report import files
files.save(pathlib.Path(sys.argv[1]), "b")
"""


def test_two_commands_may_report_one_run_at_a_time(tmp_path, monkeypatch):
    """Both wrote one temporary file, and the second to end found it gone."""
    path, replace = tmp_path / "derived" / "tables.md", Path.replace

    def after_the_other(own, to):
        monkeypatch.setattr(Path, "replace", replace)
        subprocess.run([sys.executable, "-c", SAVE, path], check=True)
        return replace(own, to)

    monkeypatch.setattr(Path, "replace", after_the_other)
    files.save(path, "a")
    assert path.read_text() == "a" and list(path.parent.iterdir()) == [path]


def test_a_full_disk_leaves_no_half_of_a_report(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(StorageError, match="No space left on device"):
        files.save(tmp_path / "derived" / "tables.md", "a")
    assert not list((tmp_path / "derived").iterdir())


def test_remarks_of_trials_are_counted_and_accepted_noise_is_said(tmp_path):
    run = make_run(KINDS["zuul"](), tmp_path)
    for i, path in enumerate(sorted(run.glob("trials/*/trial.json"))[:3]):
        trial = json.loads(path.read_text())
        trial["notes"] = [f"other programs took {i + 3}.1 % of the cores"]
        path.write_text(json.dumps(trial))
    found = json.loads((run / "run.json").read_text())
    found["argv"].append("--accept-noise")
    found["thinned"] = [*found.get("thinned", []), session.NOISE_ACCEPTED]
    (run / "run.json").write_text(json.dumps(found))
    summary = load(run)
    doubts = story.doubts(summary)
    assert [text for text in doubts if text.startswith("In 3 valid trials: other programs took")]
    assert sum("--accept-noise" in text for text in story.warnings(summary)) == 1


def test_the_front_names_best_and_worst_and_counts_all(tmp_path):
    summary = load(make_run(KINDS["quickstart"](), tmp_path))
    front = " ".join(story.front(summary))
    for word in ("best", "worst", "geometric mean", "Noise floor", "5 invalid"):
        assert word in front


def test_a_table_without_columns_is_headed_by_its_metric_and_unit(tmp_path):
    kind = KINDS["quickstart"]()
    where = {"server": ["netty"], "payload": [128], "stack": ["kernel"]}
    kind.tables = [
        {"rows": ["connections"], "value": value, "where": where}
        for value in ("rps", "latency.p99")
    ]
    summary = load(make_run(kind, tmp_path))
    text = files.markdown(summary)
    assert "None" not in text and ">None" not in page.html(summary)
    heads = [line for line in text.splitlines() if line.startswith("| connections")]
    assert "requests/s" in heads[0] and "latency p99<br>µs" in heads[1]


def test_a_part_with_one_side_of_each_comparison_says_so(tmp_path):
    kind = KINDS["quickstart"]()
    one = {"stack": "kernel", "server": "nginx"}
    kind.state = lambda axes: ("planned" if one.items() <= axes.items() else "thinned", "")
    front = story.front(load(make_run(kind, tmp_path)))
    assert front[0] == "No comparison has a measured cell on both sides, so nothing is compared."


def test_hostile_names_stay_text(tmp_path):
    kind = KINDS["quickstart"]()
    kind.title = kind.tables[0]["title"] = '<script>alert(1)</script> "x" & {nothing}'
    text = page.html(load(make_run(kind, tmp_path)))
    assert "<script>alert" not in text
    reader = Reader()
    reader.feed(text)
    assert reader.open == []


def test_a_page_with_too_much_in_it_drops_resource_charts_first(tmp_path, monkeypatch):
    summary = load(make_run(KINDS["quickstart"](), tmp_path))
    full = page.html(summary)
    monkeypatch.setattr(page, "PAGE_BYTES_MAX", len(full.encode()) - 1)
    reduced = page.html(summary)
    assert len(reduced) < len(full)
    assert "left out to keep this page small" in reduced


def test_the_whole_nginx_cookbook_measured_in_full_is_one_small_page(tmp_path):
    kind = KINDS["nginx"]()
    kind.state = lambda axes: ("planned", "")
    summary = load(make_run(kind, tmp_path))
    assert len(summary.measured) == 432
    assert len(page.html(summary).encode()) < page.PAGE_BYTES_MAX


def test_an_unfinished_run_has_a_page_that_says_so(tmp_path):
    run = make_run(KINDS["zuul"](), tmp_path)
    for folder in (run / "trials").iterdir():
        (folder / "trial.json").unlink()
    (run / "run.json").write_text(
        (run / "run.json").read_text().replace('"state": "done"', '"state": "interrupted"')
    )
    text = page.write(run).read_text()
    assert "Nothing has been measured yet." in text
    assert "interrupted" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [(74090.4, "74,090"), (12.34, "12.3"), (1.5, "1.50"), (0.071, "0.071"), (0, "0"),
     (-0.5, "−0.50"), (None, "–"), (0.00042, "0.00042")],
)  # fmt: skip
def test_numbers(value, text):
    assert wording.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.26, "+26 %"), (0.031, "+3.1 %"), (-0.031, "−3.1 %"), (3.2, "+320 %"), (0.0001, "0 %"),
     (0.0996, "+10 %")],
)  # fmt: skip
def test_gains_in_words(value, text):
    assert wording.signed(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(3.2, "×4.20"), (-0.031, "×0.97"), (0.0, "×1.00"), (20.5, "×21.5"), (448.7, "×450")],
)
def test_gains_in_ratios(value, text):
    assert wording.signed(value, times=True) == text


def test_a_table_has_one_notation(tmp_path):
    """A gain of ×5 turns its whole table to ratios; another table keeps its percent."""
    kind = KINDS["quickstart"]()
    plain = kind.rate

    def rate(axes):
        is_far = axes["payload"] == 128 and axes["connections"] == 1 and axes["stack"] == "balanced"
        return plain(axes) * (5 if is_far else 1)

    kind.rate = rate
    summary = load(make_run(kind, tmp_path))
    for sheet in summary.sheets:
        texts = [e.text for _, row in tables.grid(summary, sheet).rows for e in row]
        shown = [text for text in texts if "gain" in text or "not decided" in text]
        marks = {"×" if "×" in text else "%" for text in shown if "(" not in text}
        assert len(marks) <= 1, texts


@pytest.mark.parametrize(
    ("value", "decimals", "text"),
    [(0.5545, 0, "55%"), (-0.0024, 2, "−0.24%"), (-0.0001, 0, "0%"), (7.0891, 2, "708.91%")],
)
def test_gains_as_the_documents_print_them(value, decimals, text):
    assert wording.percent(value, decimals) == text


def test_ticks_are_round_and_cover_the_values():
    assert plot.ticks(0, 100) == [0, 20, 40, 60, 80, 100]
    assert plot.ticks_above(116_000)[-1] >= 116_000
    assert plot.ticks_above(0) == [0, 1]
    assert plot.ticks(-7, 7) == [-6, -4, -2, 0, 2, 4, 6] or plot.ticks(-7, 7) == [-5, 0, 5]


def test_on_a_phone_every_value_of_a_row_has_its_name(tmp_path):
    text = page.html(load(make_run(KINDS["quickstart"](), tmp_path)))
    for label in ("connections ", "against kernel: balanced", "geometric mean"):
        assert f'::before{{content:"{label}"}}' in text
    assert 'class="cards c1"' in text


def test_a_label_cannot_end_the_style_sheet_it_stands_in():
    assert cards.css_text('a"}</style>\\') == '"a\\22 \\7d \\3c /style\\3e \\5c "'


def test_a_table_without_columns_is_headed_by_its_figure_and_unit(tmp_path):
    kind = KINDS["netty"]()
    kind.tables = [{"title": "One", "rows": ["payload", "instances", "stack"], "value": "rps"}]
    summary = load(make_run(kind, tmp_path))
    (sheet,) = summary.sheets
    heads = [column.label for column in tables.grid(summary, sheet).columns]
    assert heads == ["requests/s"]
    assert "None" not in files.markdown(summary)


def test_the_page_says_how_to_repeat_the_same_order(run, text):
    seed = load(run).run.seed
    assert f"--seed {seed}" in page.repeat_command(load(run))
    assert f"--seed {seed}" in text


@pytest.mark.parametrize(("typed", "again"), [
    ("/kit/build/venv/bin/wirespeed run quickstart --only payload=16",
     "wirespeed run quickstart --only payload=16 --seed {seed}"),
    ("/usr/lib/wirespeed/python run quickstart", "wirespeed run quickstart --seed {seed}"),
    ("wirespeed compare --run './a {{port}}' --run './b {{port}}'", "wirespeed reproduce {run}"),
    ("wirespeed compare --run ./a --run ./b --runs /data/r --port 80",
     "wirespeed reproduce {run} --runs /data/r"),
    ("wirespeed compare --runs=r --run ./a --run ./b", "wirespeed reproduce {run} --runs=r"),
    ("wirespeed compare --rev main --rev HEAD --run ./a", None),
    ("wirespeed knee my.toml --require 'p99 < 5ms'", None),
    ("wirespeed reproduce latest", None),
])  # fmt: skip
def test_the_command_to_repeat_a_run_is_one_that_exists(run, typed, again):
    """`--seed` was appended to commands that do not have it."""
    summary = load(run)
    argv = shlex.split(typed.format())
    told = page.repeat_command(replace(summary, run=replace(summary.run, argv=argv)))
    wanted = (again or typed).format(seed=summary.run.seed, run=summary.run.run_id)
    assert told == wanted
    name, *words = shlex.split(told)[1:]
    command = typer.main.get_command(app).commands[name]
    command.make_context(name, words, resilient_parsing=False)


@pytest.mark.parametrize(("typed", "shown"), [
    ("/home/alice/kit/wirespeed", "./wirespeed"), ("./wirespeed", "./wirespeed"),
    ("wirespeed", "wirespeed"),
])  # fmt: skip
def test_the_command_to_repeat_a_run_names_no_folder_of_its_user(run, typed, shown, monkeypatch):
    monkeypatch.setattr(page, "COMMAND", typed)
    summary = load(run)
    argv = ["/kit/build/venv/bin/wirespeed", "run", "quickstart", "--seed", "1"]
    told = page.repeat_command(replace(summary, run=replace(summary.run, argv=argv)))
    assert told == f"{shown} run quickstart --seed 1"


def test_files_for_other_programs_name_units(run):
    summary = load(run)
    rows = list(csv.DictReader(io.StringIO(files.cells_csv(summary))))
    assert len(rows) == len(summary.cells)
    assert any("(" in head for head in rows[0])
    assert len({row["cell"] for row in rows}) == len(rows)
    for sheet in summary.sheets:
        if len(sheet.metrics) == 1 and sheet.metrics[0] == "rps":
            assert "requests/s" in files.grid_markdown(tables.grid(summary, sheet))


def test_what_is_not_decided_is_drawn_hollow_and_print_shows_what_is_folded():
    style = (Path(page.__file__).parent / "templates" / "report.css").read_text()
    assert re.search(r"\.bar \.open{fill:none;", style)
    assert re.search(r"\.bar \.withheld{fill:none;", style)
    printed = style.partition("@media print{")[2]
    assert "details" in printed and "break-inside:avoid" in printed


def test_times_have_their_unit_whatever_the_recipe_calls_them():
    """Tables showed a histogram with another name than `latency` without a unit, and a rule for it
    accepted no duration."""
    assert wording.measure("answer_time.p99_9").head == "answer time p99.9, µs"
    assert wording.measure("latency.mean", is_ms=True).head == "latency mean, ms"
    assert wording.measure("gc.pause_ms").head == "GC pauses, ms"
    assert gate.rule("answer_time.p99 < 5ms").limit == 5000
    assert gate.rule("p99 < 5ms").limit == 5000 and gate.rule("rps > 10k").limit == 10_000


def test_a_chart_says_how_many_lines_it_leaves_out(tmp_path):
    """Two of eight stacks were silently not drawn."""
    stacks = ["kernel", *(f"stack{number}" for number in range(7))]
    axes = {"connections": [1, 10, 100], "stack": stacks}
    table = {"rows": "connections", "columns": "stack", "value": "rps"}
    summary = load(make_run(Kind("wide", "Wide", axes, [table], lambda _: 1000.0), tmp_path))
    first, *_others = charts.sheet_charts(summary, summary.sheets[0])
    assert first.svg.count("<polyline") == plot.SERIES_MAX
    assert "2 lines more: see the table." in first.caption


@pytest.mark.parametrize("points", [3, 30, 100])
def test_bottlenecks_of_cells_are_next_to_each_other(points):
    """The letters of forty cells overlapped."""
    line = plot.Series("a", 1, tuple(plot.Point(n, 1.0, (), "server") for n in range(points)))
    svg = plot.line_chart([line], plot.Labels("t", "x", "y"))
    found = re.findall(r"M([\d.]+) [\d.]+h([\d.]+)v12", svg)
    boxes = [(float(x), float(w)) for x, w in found]
    assert len(boxes) == points
    assert all(a + w <= b for (a, w), (b, _) in itertools.pairwise(boxes))
    assert ('class="letter"' in svg) == (points < 50)


def test_the_name_of_a_row_ends_before_its_figure():
    points = (plot.Point(0.0, 0.0),)
    name = (
        "test rps100k, workers 28, stack performance, link loopback, server nginx, payload 102400"
    )
    row = plot.StripRow(name, "1,234,567", 1, points, ())
    svg = plot.rows_chart([row], 4.0, plot.Labels("t", "x", "y"))
    (shown,) = re.findall(r'<text x="0" y="[\d.]+">([^<]+)</text>', svg)
    assert shown.endswith("…") and (len(shown) + len(row.text)) * plot.CHAR < plot.WIDTH


def test_a_run_without_a_valid_trial_does_not_say_that_it_has_not_begun(tmp_path):
    """Eighteen refused trials of a busy machine were "Nothing has been measured yet."."""
    run = make_run(Kind("none", "None", {"connections": [1]}, [], lambda _: 1.0), tmp_path)
    for path in run.glob("trials/*/trial.json"):
        path.write_text(path.read_text().replace('"valid": true', '"valid": false'))
    (sentence, *_) = story.front(load(run))
    assert sentence == "No trial is valid."


def test_the_terminal_begins_with_one_line_for_each_contender(tmp_path, capsys):
    """A new user had to read ten lines to find out which stack is faster."""
    run = make_run(KINDS["quickstart"](), tmp_path)
    for path in run.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        cost = 20.0 if trial["axes"]["stack"] == "balanced" else 50.0
        trial["metrics"]["server.work_us_per_request"] = cost * (1 + trial["position"] % 5 / 1000)
        path.write_text(json.dumps(trial))
    terminal.show(run, Console(width=400))
    first = next(line for line in capsys.readouterr().out.splitlines() if line.strip())
    assert first.startswith("balanced against kernel: requests/s: ")
    assert "of 16 faster, +2" in first
    rates = [cell for cell in load(run).measured if cell.axes["stack"] == "balanced"]
    best = max(rates, key=lambda cell: cell.median("rps"))
    place = ", ".join(f"{k} {best.axes[k]}" for k in best.axes if k != "stack")
    found = re.search(r"; highest ([\d,]+) requests/s against ([\d,]+) at ([^;]*);", first)
    assert found and found[1] == f"{best.median('rps'):,.0f}" and found[3] == place
    assert found[2].replace(",", "").isdigit() and found[2] != found[1]
    assert "server CPU per request −60 % (gain), that is ×2.50 requests per core" in first


def test_a_difference_that_may_be_none_is_not_given_as_capacity(tmp_path):
    """A reader took `×0.99 requests per core` for a loss, and `1 no difference` for a riddle."""
    table = {"columns": "stack", "value": "rps", "gain": {"over": "kernel"}}
    axes = {"stack": ["kernel", "balanced"]}
    kind = Kind("even", "Even", axes, [table], lambda _: 1000.0, noise=0.0001)
    run = make_run(kind, tmp_path)
    for path in run.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        trial["metrics"]["server.work_us_per_request"] = 20 + trial["position"] % 5 / 1000
        path.write_text(json.dumps(trial))
    (line,) = story.headlines(load(run))
    assert line.startswith("balanced against kernel: requests/s: no difference in 1 of 1; highest ")
    assert "(no difference)" in line and "requests per core" not in line


def test_the_first_screen_explains_its_terms(tmp_path):
    kind = KINDS["quickstart"]()
    text = unescape(page.html(load(make_run(kind, tmp_path))))
    for term in ("cell", "noise floor", "kernel", "balanced"):
        assert text.count(f"<b>{term}</b>: ") == 1, term
    assert "<b>~</b>" not in text, "no trial had interference"
    assert "else of bypass" in text and "<b>performance</b>" not in text


@pytest.mark.parametrize(
    ("stack", "text"),
    [
        (None, ""),
        ({}, "the kernel's sockets"),
        ({"provider": "bypass", "profile": "throughput"}, "sockets of bypass, profile throughput"),
        ({"provider": "bypass", "profile": "{{ server.best }}"}, "sockets of bypass"),
        ({"provider": "of a newer version"}, ""),
    ],
)
def test_a_stack_is_explained_by_its_provider_and_profile(stack, text):
    assert story._stack(stack) == text


def test_the_page_of_a_large_run_is_drawn_once(tmp_path, monkeypatch):
    """Of thousands of trials each level of detail was drawn, to find that its data alone is too
    large."""
    summary = load(make_run(KINDS["quickstart"](), tmp_path))
    large = {"all": "x" * (page.PAGE_BYTES_MAX + 1), "declared": "x" * (page.PAGE_BYTES_MAX + 1)}
    monkeypatch.setattr(page, "_carried", lambda _, detail: large.get(detail.carried, ""))
    drawn = []
    render = page._render
    monkeypatch.setattr(page, "_render", lambda *words: drawn.append(words) or render(*words))
    assert "<html" in page.html(summary)
    assert len(drawn) == 1 and drawn[0][1] is page.DETAILS[-1]


def test_latencies_of_a_closed_loop_are_called_service_times(tmp_path):
    summary = load(make_run(KINDS["quickstart"](), tmp_path))
    closed = any("little_residual" in trial.metrics for trial in summary.valid)
    assert ("service times of a closed loop" in story.method(summary)) == closed


def test_the_first_screen_has_one_sentence_with_absolute_figures_for_each_contender(run, text):
    """The page began with means and intervals; the terminal, with the figures that people quote."""
    summary = load(run)
    lead = re.search(r'<div class="lead">(.*?)</div>', text, re.S)[1]
    headlines = story.headlines(summary)
    assert lead.count("<p>") == len(headlines or story.front(summary))
    for headline in headlines:
        name, _, rest = headline.partition(": ")
        assert f"<b>{name}:</b> {rest.replace(' %', chr(160) + '%')}" in unescape(lead)
    if headlines:
        assert text.index('class="tiles"') < text.index('class="full"') < text.index("<nav ")


def test_the_page_of_a_run_that_got_more_rounds_is_laid_out_next_to_the_one_before(tmp_path):
    """The new page was sent, and the run of the old one was measured again."""
    run_dir = make_run(KINDS[sorted(KINDS)[0]](), tmp_path / "runs")
    sent, kept = tmp_path / "report.html", tmp_path / "from-reports"
    before = []
    for rounds in (5, 7):
        run = store.read_run(run_dir)
        store.write_run(run_dir, replace(run, plan=replace(run.plan, repeat=rounds)))
        sent.write_text(page.html(load(run_dir)))
        unpacked = source.unpack(sent, kept)
        before.append(unpacked)
        assert store.read_run(unpacked).plan.repeat == rounds
    assert store.read_run(before[0]).plan.repeat == 5, "rounds were added to it, perhaps"
    (unpacked / "mark").touch()
    assert source.unpack(sent, kept) == unpacked and (unpacked / "mark").exists(), "as it is there"
