"""Runs with holes: missing metrics, trials, samples and keys must not prevent a report."""

from __future__ import annotations

import io
import json
import random

import pytest
from report.make_run import KINDS, make_run
from rich.console import Console

from wirespeed.report import files, page, terminal


def punch(run, rng):
    """Removes or damages parts of trials, as interrupted runs and unusual machines do."""
    for path in sorted(run.glob("trials/*/trial.json")):
        trial = json.loads(path.read_text())
        for name in list(trial["metrics"]):
            trial["metrics"][name] = rng.choice([trial["metrics"][name]] * 12 + [None, 0])
        trial["calibration"] = rng.choice([trial["calibration"], None])
        trial["window"] = rng.choice([trial["window"], None])
        trial["processes"] = rng.choice([trial["processes"], []])
        trial["valid"] = rng.random() > 0.3
        path.write_text(json.dumps(trial))
        if rng.random() < 0.2:
            path.unlink()
        elif rng.random() < 0.2:
            (path.parent / "samples.jsonl").write_text('{"t_ns":1,"values":{}}\n{"t_n')


def change(run, **keys):
    found = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**found, **keys}))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["quickstart", "netty", "zuul"])
def test_a_run_with_holes_has_a_report(tmp_path, name, seed):
    run = make_run(KINDS[name](), tmp_path, seed)
    punch(run, random.Random(seed))
    changes = [{}, {"metrics": []}, {"plan": {}, "facts": {}}, {"axes": {}}][seed]
    change(run, **changes)
    (run / "recipe.toml").write_text("= not TOML" if seed else "")
    assert page.write(run).stat().st_size > 10_000
    files.write(run)
    terminal.show(run, Console(file=io.StringIO(), width=90))


def test_several_metrics_stand_below_each_column(tmp_path):
    kind = KINDS["quickstart"]()
    kind.tables = [
        {"rows": ["connections"], "columns": "stack", "values": ["rps", "latency.p99"],
         "where": {"server": ["netty"], "payload": [128]}}
    ]  # fmt: skip
    run = make_run(kind, tmp_path)
    files.write(run)
    lines = (run / "derived/tables.md").read_text().splitlines()
    head = next(line for line in lines if line.startswith("| connections"))
    assert "kernel requests/s | kernel latency p99, ms" in head
    assert page.write(run).exists()
