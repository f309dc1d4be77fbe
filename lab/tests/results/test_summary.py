"""Cells, tables and verdicts of whole made-up runs."""

from __future__ import annotations

import dataclasses

import pytest
from report.make_run import Kind, make_run, netty, nginx, quickstart, zuul

from wirespeed.results import store, summary


def load(kind, tmp_path, **changes):
    return summary.load(make_run(dataclasses.replace(kind, **changes), tmp_path))


def small(rate, **changes) -> Kind:
    """Two stacks over three counts of connections."""
    table = {"rows": "connections", "columns": "stack", "value": "rps", "gain": {"over": "kernel"}}
    axes = {"connections": [10, 100, 1000], "stack": ["kernel", "balanced"]}
    return dataclasses.replace(Kind("small", "Small", axes, [table], rate), **changes)


def words(found):
    return {gain.verdict.word for gain in found.gains}


def test_every_cell_of_the_plan_is_there_with_its_state(tmp_path):
    found = load(netty(), tmp_path)
    assert len(found.cells) == 6 * 11 * 3
    states = {cell.state for cell in found.cells}
    assert states == {"measured", "not-runnable", "does-not-fit", "thinned"}
    assert all(cell.reason for cell in found.unmeasured)
    assert len(found.sheets) == 6
    assert all(len(sheet.cells) == 33 for sheet in found.sheets)


def test_rows_and_columns_keep_the_recipes_order(tmp_path):
    sheet = load(netty(), tmp_path).sheets[0]
    assert [row[0] for row in sheet.rows] == [1, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40]
    assert sheet.columns == ("kernel", "balanced", "performance")
    assert sheet.title == "Loopback with 16 byte payload"


def test_invalid_trials_are_kept_and_count_nowhere(tmp_path):
    found = load(quickstart(), tmp_path)
    assert len(found.invalid) == 5
    assert len(found.valid) == 155
    cell = next(cell for cell in found.cells if cell.invalid)
    assert len(cell.values("rps")) == 5 - len(cell.invalid)


def test_a_clear_difference_is_a_gain_and_the_other_way_round_a_loss(tmp_path):
    faster = load(small(lambda a: 1000 * (1.5 if a["stack"] == "balanced" else 1)), tmp_path / "a")
    slower = load(small(lambda a: 1000 * (0.6 if a["stack"] == "balanced" else 1)), tmp_path / "b")
    assert words(faster) == {"gain"}
    assert words(slower) == {"loss"}


def test_the_same_stack_under_two_names_is_never_a_gain(tmp_path):
    for seed in range(20):
        kind = small(lambda a: 1000.0, noise=0.05)
        found = summary.load(make_run(kind, tmp_path / str(seed), seed))
        # 3 comparisons a run at a level of 96.8 %: the floor and q keep out most chance finds
        assert sum(gain.verdict.word in ("gain", "loss") for gain in found.gains) <= 1


def test_still_trials_show_no_difference(tmp_path):
    found = load(small(lambda a: 1000.0, noise=0.002), tmp_path)
    assert words(found) == {"no difference"}


def test_blocked_order_withholds_every_verdict(tmp_path):
    found = load(nginx(), tmp_path)
    assert words(found) == {"not comparable"}
    assert "blocks" in found.gains[0].verdict.reason
    assert all(family.mean is None for family in found.families)


def test_a_client_at_its_limit_makes_the_gain_a_lower_bound(tmp_path):
    found = load(quickstart(), tmp_path)
    held = [gain for gain in found.gains if gain.cell.bottleneck == "client"]
    assert held
    assert {gain.verdict.word for gain in held} == {"not comparable"}
    assert {gain.verdict.bound for gain in held} == {"≥"}


def test_a_baseline_held_by_the_client_makes_the_gain_an_upper_bound(tmp_path):
    held = small(
        lambda a: 1500.0 if a["stack"] == "balanced" else 1000.0,
        bottleneck=lambda a: "client" if a["stack"] == "kernel" else "server",
    )
    assert {gain.verdict.bound for gain in load(held, tmp_path).gains} == {"≤"}


def test_free_idle_states_withhold_cells_with_few_connections(tmp_path):
    kind = small(lambda a: 1500.0 if a["stack"] == "balanced" else 1000.0)
    axes = {"connections": [1, 100], "stack": ["kernel", "balanced"]}
    found = load(kind, tmp_path, axes=axes, idle_held=False)
    by_connections = {gain.cell.axes["connections"]: gain.verdict.word for gain in found.gains}
    assert by_connections == {1: "not comparable", 100: "gain"}


def test_three_trials_are_never_a_verdict(tmp_path):
    found = load(zuul(), tmp_path)
    assert words(found) == {"not decided"}
    assert {gain.over for gain in found.gains} == {"tomcat"}


def test_scaling_is_measured_against_the_smallest_count(tmp_path):
    found = load(netty(), tmp_path)
    efficiency = summary.scaling(found.sheets[0], "kernel", "rps")
    assert efficiency[(1,)] == pytest.approx(1)
    assert efficiency[(4,)] == pytest.approx(2**0.9 / 4, rel=0.05)
    assert summary.scaling(load(quickstart(), tmp_path).sheets[0], "kernel", "rps") == {}


def test_an_axis_that_a_table_forgot_splits_it(tmp_path):
    kind = small(lambda a: 1000.0 + a["payload"])
    axes = {"payload": [1, 2], **kind.axes}
    found = load(kind, tmp_path, axes=axes)
    assert [sheet.fixed for sheet in found.sheets] == [{"payload": 1}, {"payload": 2}]


def test_a_run_that_was_cut_short_shows_what_is_missing(tmp_path):
    run = make_run(small(lambda a: 1000.0), tmp_path)
    _, *others = sorted((run / "trials").iterdir())
    for folder in others:
        (folder / "trial.json").unlink()
    found = summary.load(run)
    assert len(found.measured) == 1
    assert {cell.state for cell in found.unmeasured} == {"not measured yet"}


def test_a_run_without_trials_or_tables_is_still_summarized(tmp_path):
    run = make_run(small(lambda a: 1000.0, tables=[], repeat=0), tmp_path)
    found = summary.load(run)
    assert (found.sheets, found.gains, found.floors) == ((), (), {"rps": None, "latency": None})


def test_trials_survive_a_round_trip_through_the_store(tmp_path):
    run = make_run(small(lambda a: 1000.0), tmp_path)
    trial = store.read_trials(run)[0]
    store.write_trial(store.trial_dir(run, trial.position, trial.key), trial)
    assert store.read_trials(run)[0] == trial
