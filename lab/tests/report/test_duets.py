"""A run some of whose duets have no figure, or in which a program failed while taking turns."""

import math
from dataclasses import replace

import pytest
from rich.console import Console

from wirespeed.analysis import gate, two_runs
from wirespeed.analysis.summary import summarize
from wirespeed.report import ci, story, tables, terminal, wording
from wirespeed.results.model import Duet, DuetRatio, PlannedTrial, Run, RunPlan, Trial

ROUNDS = 6
GOOD = Duet("a", {"rps": DuetRatio(math.log(1.1), 0.001, 4)}, how="cgroup.freeze")
STUCK = Duet("a", problem="14 of 80 groups did not drain", how="cgroup.freeze")
FAILED = Duet("a", problem="812 of 9000 responses of the contender were not 2xx", is_failure=True)


def summary_of(tmp_path, duets):
    """B against A in six rounds, one duet in each."""
    plan, trials = [], []
    for number, one in enumerate(duets, 1):
        for key, variant, duet in (("a", "A", None), ("b", "B", one)):
            axes, position = {"variant": variant}, 2 * number + (key == "b")
            over = "a" if duet else ""
            plan.append(PlannedTrial(position, number, key, f"{key}{number}", axes, over=over))
            trials.append(
                Trial(f"{key}{number}", key, number, position, axes=axes, bottleneck="server",
                      metrics={"rps": 1000.0 + number}, duet=duet, t_start=float(position))
            )  # fmt: skip
    run = Run(
        "run", "recipe", state="done", idle_held=True, axes={"variant": ["A", "B"]},
        plan=RunPlan(repeat=ROUNDS, baseline={"variant": "A"}, duet={"pair": 8.0, "slice": 0.025}),
        metrics=[{"name": "rps"}],
        tables=[{"columns": "variant", "value": "rps", "gain": {"over": "A"}}],
    )  # fmt: skip
    (tmp_path / "recipe.toml").write_text("wirespeed = 1\n")
    return summarize(tmp_path, run, plan, trials)


def test_duets_without_a_figure_are_counted_wherever_the_verdict_stands(tmp_path):
    """Three of six counted, and no word of it."""
    other = Duet("a", problem="9 of 81 groups did not drain")
    found = summary_of(tmp_path, [GOOD] * 4 + [STUCK, other])
    sentence = "4 of 6 duets count; 2: 14 of 80 groups did not drain."
    assert sentence in story.front(found)
    assert f"- {sentence}" in ci.comment(found)
    (sheet,) = found.sheets
    assert "in 4 of 6 pairs that took turns." in " ".join(tables.grid(found, sheet).notes)
    console = Console(width=200, record=True)
    terminal.show_summary(found, console)
    assert sentence in console.export_text()


def test_nothing_is_said_of_duets_that_all_count(tmp_path):
    found = summary_of(tmp_path, [GOOD] * ROUNDS)
    assert not any("duets count" in sentence for sentence in story.front(found))
    (sheet,) = found.sheets
    assert "in 6 pairs that took turns." in " ".join(tables.grid(found, sheet).notes)


@pytest.mark.parametrize("fail_on", ["loss", "undecided"])
def test_a_contender_that_fails_only_while_taking_turns_fails_the_check(tmp_path, fail_on):
    """Its trial alone was valid, and five other duets made a gain of it."""
    found = summary_of(tmp_path, [GOOD] * 5 + [FAILED])
    lines = gate.broken(found, gate.Criteria((fail_on,)))
    assert lines[0] == (
        "variant B: failed 1 of 6 trials: while taking turns: "
        "812 of 9000 responses of the contender were not 2xx"
    )
    (gain,) = found.gains
    assert gain.verdict.word == "not comparable" and "failed 1 of 6" in gain.verdict.reason
    assert gate.broken(found, gate.Criteria((fail_on,), allow_missing=True))


def test_turns_that_were_not_possible_fail_no_check(tmp_path):
    found = summary_of(tmp_path, [GOOD] * 5 + [STUCK])
    assert gate.broken(found, gate.Criteria(("loss",))) == []


def test_a_run_whose_turns_fail_now_is_worse(tmp_path):
    before = summary_of(tmp_path, [GOOD] * ROUNDS)
    after = summary_of(tmp_path, [GOOD] * 5 + [FAILED])
    found = two_runs.compare(before, after, ["rps"])
    assert {one.axes["variant"]: one.word for one in found.differences}["B"] == "worse"


def test_a_lower_cost_per_request_is_shown_as_a_gain(tmp_path):
    """The report said `best −72 % gain`."""
    found = summary_of(tmp_path, [GOOD] * ROUNDS)
    (gain,) = found.gains
    lower = replace(gain, better="lower", found=replace(gain.found, gain=-0.72))
    assert wording.verdict(lower) == "−72 % (gain)"
    assert wording.verdict(gain) == "+10 % gain"
