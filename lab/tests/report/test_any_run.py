"""Every page, table and file can be made of every run, however little it measured."""

import json
import math
from io import StringIO
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report.make_run import Kind, make_run
from rich.console import Console

from wirespeed.analysis import diagnosis, gate, two_runs
from wirespeed.analysis.cells import Cell
from wirespeed.analysis.summary import load, summarize
from wirespeed.cli import compare
from wirespeed.errors import ResultsError
from wirespeed.report import ci, difference, files, page, tables, terminal
from wirespeed.results import store
from wirespeed.results.model import Duet, DuetRatio, PlannedTrial, Run, RunPlan, Trial

STACKS, SIZES = ["kernel", "fast", 1, False], ["auto", 1, 2.5]
LIMITS = ["server", "client", "both", "link", "concurrency", "unknown"]
VALUES = st.sampled_from([None, 0.0, 1e-9, 1.0, 999.0, 1000.0, 1010.0, 2000.0, 1e12])
TABLES = [
    {"rows": "workers", "columns": "stack", "value": "rps", "gain": {"over": "kernel"}},
    {"rows": ["workers"], "values": ["rps", "latency.p99", "server.cpu"]},
    {"rows": "stack", "each": "workers", "value": "latency.p99", "title": "{{ workers }}"},
]
TRIALS = st.fixed_dictionaries({
    "rps": VALUES, "p99": VALUES, "work": VALUES, "valid": st.booleans(),
    "bottleneck": st.sampled_from(LIMITS), "disturbed": st.sampled_from([0.0, 0.1, 0.9, 1.0]),
    "duet": st.none() | st.floats(-5, 5), "reasons": st.sampled_from([[], ["9 errors"]]),
})  # fmt: skip
STATES = st.sampled_from(["planned", "not-runnable", "does-not-fit", "thinned"])
RUNS = st.fixed_dictionaries({
    "state": st.sampled_from(["done", "running", "interrupted", "failed"]),
    "order": st.sampled_from(["interleaved", "blocked"]), "idle": st.booleans(),
    "baseline": st.sampled_from([{}, {"stack": "kernel"}]),
    "analyses": st.sampled_from([{}, {"analyses": 3}, {"analysed_at": [2, 5], "rounds_max": 20}]),
    "tables": st.lists(st.sampled_from(TABLES), max_size=3),
    "cells": st.lists(st.tuples(STATES, st.lists(TRIALS, max_size=6)), min_size=12, max_size=12),
})  # fmt: skip


def made(drawn, run_dir):
    """The run's directory and its summary."""
    axes = [{"workers": size, "stack": stack} for size in SIZES for stack in STACKS]
    trials, plan = [], []
    for number, (place, (state, own)) in enumerate(zip(axes, drawn["cells"], strict=True)):
        plan.append(PlannedTrial(number, 0 if state != "planned" else 1, f"c{number}", f"p{number}",
                                 place, state, "because"))  # fmt: skip
        base = f"c{number - STACKS.index(place['stack'])}"
        for at, one in enumerate(own, 1):
            duet = one["duet"]
            trials.append(Trial(
                f"k{number}-{at}", f"c{number}", at, len(trials) + 1, axes=place, t_start=float(at),
                valid=one["valid"], reasons=one["reasons"], bottleneck=one["bottleneck"],
                disturbed=one["disturbed"],
                metrics={"rps": one["rps"], "latency.p99": one["p99"],
                         "server.work_us_per_request": one["work"]},
                duet=None if duet is None else Duet(base, {"rps": DuetRatio(duet, None, 1)}),
            ))  # fmt: skip
    run = Run(
        "20261129T000000Z-any-00000000", "any", state=drawn["state"], idle_held=drawn["idle"],
        axes={"workers": SIZES, "stack": STACKS}, tables=drawn["tables"],
        metrics=[{"name": "rps"}, {"name": "latency", "combine": "histogram"}],
        plan=RunPlan(order=drawn["order"], baseline=drawn["baseline"]), **drawn["analyses"],
    )  # fmt: skip
    run_dir.mkdir(exist_ok=True)
    store.write_run(run_dir, run)
    store.write_plan(run_dir, plan)
    return summarize(run_dir, run, plan, trials)


def is_json(document):
    json.dumps(document, allow_nan=False, default=str)
    return True


@settings(max_examples=60)
@given(drawn=RUNS)
def test_any_run_is_reported(drawn, tmp_path_factory):
    run_dir = tmp_path_factory.getbasetemp() / "any"
    summary = made(drawn, run_dir)
    terminal.show_summary(summary, Console(file=StringIO(), width=80))
    assert "<html" in page.html(summary) and ci.comment(summary).startswith(ci.MARKER)
    suite = ElementTree.fromstring(ci.junit(summary))
    assert is_json([ci.bencher(summary), *ci.github_benchmark(summary), files.verdicts(summary)])
    assert all(one.what for one in diagnosis.of_run(summary))
    rules = gate.rule("rps > 1k"), gate.rule("workers=auto: p99 < 1s")
    checks = [gate.Criteria(("loss",)), gate.Criteria(("undecided",), allow_missing=True)]
    for check in (*checks, gate.Criteria(rules=rules)):
        lines = gate.broken(summary, check)
        assert all("\n" not in line for line in lines)
        assert lines or summary.run.state == "done"
    if not gate.broken(summary, gate.Criteria(("loss",))):
        assert suite.get("failures") == suite.get("errors") == "0"
        assert all(cell.trials and not cell.failures for cell in summary.cells)
        assert any(gain.found for gain in summary.gains)
    for gain in summary.gains:
        if gain.found and gain.found.low is not None:
            assert math.isfinite(gain.found.low) and math.isfinite(gain.found.high)


@settings(max_examples=40)
@given(first=RUNS, second=RUNS)
def test_any_two_runs_are_compared_or_refused(first, second, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp()
    pair = [made(one, folder / name) for one, name in ((first, "one"), (second, "two"))]
    try:
        found = two_runs.compare(*pair, ["rps"])
    except ResultsError as refused:
        assert "no measured cell in common" in str(refused)
        return
    except Exception as error:  # a metric that neither has
        assert str(error).startswith("--metric: neither run has 'rps'")
        return
    assert is_json([found.verdict, [one.__dict__ for one in found.differences]])
    assert "<html" in difference.html(*pair, found)
    if not compare.broken(found, ["worse"]):
        assert not found.missing and "worse" not in found.words


@pytest.mark.parametrize("values", [["rps"], ["rps", "latency.p99"]])
def test_a_table_costs_as_much_as_it_has_cells(values, monkeypatch, tmp_path):
    """Each cell asked for the medians of all: the report of 10,000 trials took minutes."""

    def medians(rows):
        table = {"rows": "size", "columns": "stack", "values": values, "gain": {"over": "kernel"}}
        axes = {"size": list(range(rows)), "stack": ["kernel", "fast"]}
        kind = Kind("many", "Many", axes, [table], lambda _: 50_000.0, repeat=3)
        summary = load(make_run(kind, tmp_path / f"{rows}"))
        asked = []
        monkeypatch.setattr(
            Cell, "median", lambda cell, name: asked.append(name) or median(cell, name)
        )
        tables.grid(summary, summary.sheets[0])
        monkeypatch.setattr(Cell, "median", median)
        return len(asked)

    median = Cell.median
    assert medians(24) < 2.5 * medians(12)
