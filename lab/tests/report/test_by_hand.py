"""A report's results, computed again from trial.json alone, without code of the lab."""

from __future__ import annotations

import csv
import dataclasses
import html
import json
import math
import re
import zipfile
from itertools import pairwise
from statistics import fmean, median, variance

import pytest
from report.make_run import KINDS, make_run

from wirespeed.analysis.summary import load
from wirespeed.report import files, page, spreadsheet

NUMBER = re.compile(r"[−+]?[\d,]*\.?\d+")
MEDIAN = r"MEDIAN\(repeats!\$([A-Z]+)\$(\d+):\$\1\$(\d+)\)(\*\d+)?"


def with_a_share(kind):
    """With a table of a metric that is stored as a share and printed in per cent."""
    table = {"title": "Doubts", "rows": list(kind.axes), "values": ["rps", "little_residual"]}
    return dataclasses.replace(kind, tables=[*kind.tables, table])


@pytest.fixture(scope="module", params=["quickstart", "netty"])
def run(request, tmp_path_factory):
    made = make_run(with_a_share(KINDS[request.param]()), tmp_path_factory.mktemp("runs"))
    summary = load(made)
    files.write_files(summary)
    spreadsheet.write(summary)
    page.write(made)
    return made


def valid_trials(run):
    found = [json.loads(path.read_text()) for path in run.glob("trials/*/trial.json")]
    return [trial for trial in found if trial["valid"]]


def medians(run):
    """{cell: {metric: median}}."""
    figures = {}
    for trial in valid_trials(run):
        for name, value in trial["metrics"].items():
            figures.setdefault((trial["cell"], name), []).append(value)
    return {key: median(values) for key, values in figures.items()}


def at(axes):
    return json.dumps(axes, sort_keys=True)


# -- the statistics, each from its definition ------------------------------------------------------


def t_quantile(df, tail):
    """Student's t with `tail` above it: the density added up by Simpson's rule, then bisection."""
    logs = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - math.log(df * math.pi) / 2
    scale = math.exp(logs)

    def above(t):
        steps = 240
        width = t / steps
        ordinates = [(1 + (i * width) ** 2 / df) ** (-(df + 1) / 2) for i in range(steps + 1)]
        inner = ordinates[0] + ordinates[-1] + 4 * sum(ordinates[1:-1:2])
        return 0.5 - scale * width / 3 * (inner + 2 * sum(ordinates[2:-1:2]))

    low, high = 0.0, 60.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) > tail else (low, middle)
    return (low + high) / 2


def psi(x, order):
    """Digamma (0) and trigamma (1) as series, with the tail as an integral."""
    terms = 800
    if order:
        return sum(1 / (x + n) ** 2 for n in range(terms)) + 1 / (x + terms - 0.5)
    limit = sum(1 / (n + 1) - 1 / (n + x) for n in range(terms))
    return limit - 0.5772156649015329 + (x - 1) / (terms + (x + 1) / 2 - 0.5)


def shared_spread(groups):
    """Smyth's moment estimates from the log ratios of each comparison: (df0, variance0)."""
    spreads = [(variance(logs), len(logs) - 1) for logs in groups if len(logs) > 1]
    if len(spreads) < 2:
        return 0.0, 0.0
    most = min(10.0, (len(spreads) - 1) * min(df for _, df in spreads) / 2)
    e = [math.log(v) - psi(df / 2, 0) + math.log(df / 2) for v, df in spreads]
    rest = variance(e) - fmean(psi(df / 2, 1) for _, df in spreads)
    if rest <= 0:
        return most, sum(v * df for v, df in spreads) / sum(df for _, df in spreads)
    low, high = 1e-6, 1e6
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if psi(middle, 1) > rest else (low, middle)
    df0 = min(2 * low, most)
    return df0, math.exp(fmean(e) + psi(df0 / 2, 0) - math.log(df0 / 2))


def interval(logs, df0, variance0):
    """(gain, low, high) of one comparison."""
    df = len(logs) - 1 + df0
    own = variance(logs)
    taken = max(own, (df0 * variance0 + (len(logs) - 1) * own) / df)
    reach = t_quantile(round(df, 1), 0.025) * math.sqrt(taken / len(logs))
    return tuple(math.expm1(fmean(logs) + side * reach) for side in (0, -1, 1))


# -- what stands in the files ----------------------------------------------------------------------


def test_gains_and_intervals_are_those_of_the_raw_rounds(run):
    told = json.loads((run / "derived" / "verdict.json").read_text())["comparisons"]
    rounds = {}
    for trial in valid_trials(run):
        rounds.setdefault(trial["cell"], {})[trial["round"]] = trial["metrics"]
    middle = medians(run)
    by_metric = {}
    for one in told:
        ours, theirs, name = rounds[one["cell"]], rounds[one["against"]], one["metric"]
        logs = [math.log(ours[n][name] / theirs[n][name]) for n in sorted(ours) if n in theirs]
        by_metric.setdefault(name, []).append((one, logs))
        of_medians = middle[one["cell"], name] / middle[one["against"], name] - 1
        assert one["gain_of_medians"] == pytest.approx(of_medians)
    assert told
    for pairs in by_metric.values():
        prior = shared_spread([logs for _, logs in pairs])
        for one, logs in pairs:
            assert one["rounds"] == len(logs)
            expected = interval(logs, *prior)
            assert (one["gain"], one["low"], one["high"]) == pytest.approx(expected, abs=2e-4)


def test_cells_csv_holds_the_medians_in_the_units_of_its_head(run):
    middle, declared = medians(run), json.loads((run / "run.json").read_text())["metrics"]
    units = {one["name"]: one.get("unit") for one in declared}
    rows = list(csv.DictReader((run / "derived" / "cells.csv").open()))
    assert rows
    for row in rows:
        for head, text in row.items():
            name, _, unit = head.partition(" (")
            if (row["cell"], name) in middle:
                assert float(text) == pytest.approx(middle[row["cell"], name])
            if units.get(name):
                assert unit == units[name] + ")"
            assert name != "little_residual" or unit != "%)", "a share is printed in per cent"


def tables_of(text):
    """{title: (heads, rows)} of Markdown."""
    found = {}
    for part in text.split("\n## ")[1:]:
        lines = [line for line in part.splitlines() if line.startswith("| ")]
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        found[part.splitlines()[0]] = (cells[0], cells[2:])
    return found


def digit(text):
    """The value of the last digit of a printed number."""
    return 10.0 ** -len(text.partition(".")[2])


def test_tables_md_and_the_page_print_the_medians(run):
    middle, data = medians(run), json.loads((run / "run.json").read_text())
    cells = {at(t["axes"]): t["cell"] for t in valid_trials(run)}
    printed = tables_of((run / "derived" / "tables.md").read_text())
    shown = rows_of((run / "derived" / "report.html").read_text())
    checked = 0
    for spec in data["tables"]:
        rows, each, column = listed(spec["rows"]), listed(spec.get("each")), spec.get("columns")
        metrics = listed(spec.get("values") or spec.get("value"))
        for title, (heads, body) in printed.items():
            fixed = matched(spec["title"], title, each, data["axes"])
            if fixed is None:
                continue
            for line in body:
                axes = {**{k: v[0] for k, v in spec.get("where", {}).items()}, **fixed}
                axes |= {a: typed(data["axes"][a], t) for a, t in zip(rows, line, strict=False)}
                for head, text in list(zip(heads, line, strict=True))[len(rows) :]:
                    metric, place = what(head, column, metrics, axes, data["axes"])
                    if place not in cells or not NUMBER.fullmatch(text):
                        continue
                    scale = 1e-3 if ", ms" in head else 100 if ", %" in head else 1
                    value = middle[cells[place], metric] * scale
                    figure = float(text.replace(",", "").replace("−", "-"))
                    assert figure == pytest.approx(value, abs=0.51 * digit(text)), (title, line)
                    wanted = {*line[: len(rows)], text}
                    assert any(wanted <= row for row in shown), (title, line, text)
                    checked += 1
    assert checked > 10


def rows_of(page_text):
    """The texts in each row of the page's tables."""
    rows = re.findall(r"<tr[ >].*?</tr>", page_text, re.S)
    return [
        {html.unescape(text).strip().lstrip("~") for text in re.findall(r">([^<>]+)<", row)}
        for row in rows
    ]


def listed(value):
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def typed(values, text):
    return next(value for value in values if str(value) == text)


def matched(pattern, title, each, axes):
    """{axis: value} of the axes that stand in a table's title; None of another table."""
    words = re.split(r"(\{\w+\})", pattern)
    names = [word[1:-1] for word in words if word.startswith("{")]
    found = re.fullmatch("".join("(.+?)" if w.startswith("{") else re.escape(w) for w in words),
                         title)  # fmt: skip
    if not found or not set(each) <= set(names):
        return None
    texts = dict(zip(names, found.groups(), strict=True))
    known = {name: text for name, text in texts.items() if name in axes}
    if any(text not in map(str, axes[name]) for name, text in known.items()):
        return None
    return {name: typed(axes[name], text) for name, text in known.items()}


LABELS = {
    "requests/s": "rps",
    "server CPU, cores": "server.cpu",
    "Little residual, %": "little_residual",
}


def what(head, column, metrics, axes, known):
    """(metric, cell) that a column of a table shows."""
    if column and head in map(str, known[column]):
        return metrics[0], at({**axes, column: typed(known[column], head)})
    label = head.partition("<br>")[0]
    quantile = re.fullmatch(r"latency (\w+(?:\.\d+)?), (?:µs|ms)", label)
    name = f"latency.{quantile[1].replace('.', '_')}" if quantile else LABELS.get(label)
    return name, at(axes) if name in metrics and "published" not in head else None


def test_the_spreadsheet_keeps_the_medians_of_its_own_repeats(run):
    """Every MEDIAN as the file keeps it, over the rows that it names."""
    with zipfile.ZipFile(run / "derived" / "report.xlsx") as packed:
        texts = {name: packed.read(name).decode() for name in packed.namelist()}
    workbook = texts["xl/workbook.xml"]
    names = re.findall(r'<sheet name="([^"]+)"', workbook)
    words = re.findall(r"<si><t[^>]*>(.*?)</t></si>", texts["xl/sharedStrings.xml"], re.S)
    number = names.index("repeats") + 1
    repeats = cells_of(texts[f"xl/worksheets/sheet{number}.xml"])
    heads = {ref[:-1]: words[int(v)] for ref, (v, kind, _) in repeats.items()
             if kind == "s" and re.fullmatch(r"[A-Z]+1", ref)}  # fmt: skip
    middle, checked = medians(run), 0
    for index in range(2, number):
        sheet = cells_of(texts[f"xl/worksheets/sheet{index}.xml"])
        for value, _, formula in sheet.values():
            found = re.fullmatch(MEDIAN, formula)
            if not found:
                continue
            letters, first, last = found[1], int(found[2]), int(found[3])
            figures = [float(repeats[f"{letters}{row}"][0]) for row in range(first, last + 1)]
            of_cells = {words[int(repeats[f"A{row}"][0])] for row in range(first, last + 1)}
            assert len(of_cells) == 1
            metric = heads[letters]
            expected = middle[of_cells.pop(), metric]
            scale = 100 if metric == "little_residual" else 1
            assert median(figures) == pytest.approx(expected)
            assert float(value) == pytest.approx(expected * scale), metric
            assert float((found[4] or "*1")[1:]) == scale
            checked += 1
    assert checked > 10


def cells_of(text):
    """{reference: (value, type, formula)}."""
    found = {}
    for ref, attributes, inner in re.findall(r'<c r="([A-Z]+\d+)"([^>]*)>(.*?)</c>', text):
        value = re.search(r"<v>(.*?)</v>", inner)
        formula = re.search(r"<f>(.*?)</f>", inner)
        kind = re.search(r't="(\w+)"', attributes)
        found[ref] = (value[1] if value else "", kind[1] if kind else "",
                      formula[1] if formula else "")  # fmt: skip
    return found


def test_the_definitions_used_here_are_right():
    assert t_quantile(4, 0.025) == pytest.approx(2.776445, abs=1e-5)
    assert t_quantile(14, 0.025) == pytest.approx(2.144787, abs=1e-5)
    assert psi(1.0, 0) == pytest.approx(-0.5772157, abs=1e-6)
    assert psi(0.5, 0) == pytest.approx(-1.9635100, abs=1e-6)
    assert psi(1.0, 1) == pytest.approx(math.pi**2 / 6, abs=1e-6)
    assert all(t_quantile(a, 0.025) > t_quantile(b, 0.025) for a, b in pairwise([2, 5, 9]))
