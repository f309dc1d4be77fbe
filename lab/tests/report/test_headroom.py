"""The headroom verdict: what carries the load is measured without the server in the same run."""

from __future__ import annotations

import dataclasses

from report.make_run import Kind, make_run

from wirespeed.analysis import summary
from wirespeed.report import headroom
from wirespeed.results import store


def found(tmp_path, carried):
    """Two gateways and what generator and origin reach alone, over two counts of connections."""
    top = {"tomcat": 10_000, "netty": 20_000, "direct": carried}
    axes = {"gateway": ["tomcat", "netty", "direct"], "connections": [700, 2000]}
    table = {"rows": ["connections", "gateway"], "values": ["rps"]}
    kind = Kind(
        "ramp", "Ramp", axes, [table], lambda a: top[a["gateway"]] * a["connections"] / 2000,
        baseline={"gateway": "tomcat"}, noise=0.0,
    )  # fmt: skip
    run_dir = make_run(kind, tmp_path)
    run = store.read_run(run_dir)
    plan = dataclasses.replace(run.plan, ceiling={"gateway": "direct"})
    run = dataclasses.replace(run, plan=plan)
    return summary.summarize(run_dir, run, store.read_plan(run_dir), store.read_trials(run_dir))


def test_enough_headroom_is_said_with_its_figures(tmp_path):
    [text] = headroom.sentences(found(tmp_path, 40_000))
    assert "reach 40,000 requests/s" in text
    assert "tomcat 10,000 (4.00×), netty 20,000 (2.00×)" in text
    assert text.endswith("generator and origin are not the limit.")


def test_too_little_headroom_names_whose_figures_it_holds_back(tmp_path):
    [text] = headroom.sentences(found(tmp_path, 22_000))
    assert text.endswith("take part in the highest figures of netty.")


def test_the_ceiling_is_compared_with_no_one(tmp_path):
    gains = found(tmp_path, 40_000).gains
    assert {gain.contender for gain in gains} == {"netty"}
