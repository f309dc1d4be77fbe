"""A run that goes on until it is decided: only as far as more rounds can decide it."""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from report.make_run import KINDS, make_run

from wirespeed.analysis import comparisons
from wirespeed.analysis.summary import load
from wirespeed.cli import run as command
from wirespeed.errors import InputError, StorageError
from wirespeed.results import store
from wirespeed.results.model import Run, RunPlan
from wirespeed.runner import extend

OLD_RUN = Path(__file__).parents[1] / "analysis" / "old_runs" / "first"


def summary(*comparisons, analyses=1, rounds_max=0, repeat=5):
    """Comparisons as (metric, verdict, rounds that would decide it)."""
    gains = [
        SimpleNamespace(metric=metric, verdict=SimpleNamespace(word=word, more_rounds=rounds))
        for metric, word, rounds in comparisons
    ]
    plan = SimpleNamespace(repeat=repeat)
    run = SimpleNamespace(analyses=analyses, rounds_max=rounds_max, plan=plan)
    return SimpleNamespace(primary="rps", gains=gains, run=run)


@pytest.mark.parametrize(
    ("found", "rounds"),
    [
        (summary(("rps", "gain", 0), ("rps", "not decided", 3)), 3),
        (summary(("rps", "not decided", 3), ("rps", "not decided", 7)), 7),
        (summary(("rps", "not decided", 3), ("rps", "not decided", 400)), 3),
        (summary(("rps", "not decided", 400)), 0),
        (summary(("rps", "not comparable", 3)), 0),
        (summary(("server.cpu_us_per_request", "not decided", 3)), 0),
        (summary(("rps", "not decided", None)), 0),
        (summary(("rps", "not decided", 3), analyses=extend.ANALYSES_MAX), 0),
        (summary(("rps", "not decided", 3), analyses=9, rounds_max=20), 3),
        (summary(("rps", "not decided", 12), rounds_max=20), 12),
        (summary(("rps", "not decided", 16), rounds_max=20), 0),
        (summary(("rps", "not decided", 1), rounds_max=6), 1),
        (summary(("rps", "not decided", 1), rounds_max=5), 0),
    ],
)
def test_rounds_are_added_only_where_they_decide(found, rounds):
    assert extend.rounds_to_decide(found) == rounds


def test_rounds_are_added_to_a_run_whose_recipe_has_the_earlier_format(tmp_path):
    run_dir = Path(shutil.copytree(OLD_RUN, tmp_path / "first"))
    before = len(store.read_plan(run_dir))
    extend.add_rounds(run_dir, 2)
    assert len(store.read_plan(run_dir)) == 3 * before


def test_rounds_that_a_killed_lab_had_planned_are_counted(tmp_path, monkeypatch):
    """The plan was written first: the run went on with its rounds as if there were one analysis."""
    run_dir = Path(shutil.copytree(OLD_RUN, tmp_path / "first"))
    monkeypatch.setattr(extend.store, "write_plan", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        extend.add_rounds(run_dir, 2)
    assert store.read_run(run_dir).analyses == 2


def test_rounds_for_which_the_disk_has_no_room_leave_the_run_as_it_was(tmp_path, monkeypatch):
    run_dir = Path(shutil.copytree(OLD_RUN, tmp_path / "first"))
    before = store.read_run(run_dir)

    def full(*_):
        raise StorageError("the disk is full")

    monkeypatch.setattr(extend.store, "write_plan", full)
    with pytest.raises(StorageError):
        extend.add_rounds(run_dir, 2)
    assert store.read_run(run_dir) == before


def of_rounds(tmp_path, most):
    run_dir = Path(shutil.copytree(OLD_RUN, tmp_path / "first"))
    run = store.read_run(run_dir)
    rounds = run.plan.repeat
    run = replace(run, is_sequential=True, analysed_at=[rounds], rounds_max=rounds + most)
    store.write_run(run_dir, run)
    return run_dir


@pytest.mark.parametrize(("left", "why"), [(0, "are used up"), (2, "2 of them are left")])
def test_rounds_of_which_no_analysis_may_spend_anything_are_refused(tmp_path, left, why):
    """They turned every verdict into "not decided", and `--fail-on loss` let the run pass."""
    run_dir = of_rounds(tmp_path, left)
    before = store.read_run(run_dir), store.read_plan(run_dir)
    with pytest.raises(InputError, match=why):
        command.resume("first", tmp_path, command.More(add_rounds=3))
    with pytest.raises(InputError, match=why):
        extend.add_rounds(run_dir, 3)
    assert (store.read_run(run_dir), store.read_plan(run_dir)) == before


def test_a_complete_run_without_rounds_left_is_not_sent_to_add_some(tmp_path):
    of_rounds(tmp_path, 0)
    with pytest.raises(InputError) as refused:
        command.resume("first", tmp_path, command.More(until_decided=True))
    assert "are used up" in str(refused.value) and "--add-rounds" not in str(refused.value)


def test_verdicts_are_kept_with_the_run_when_rounds_are_added(tmp_path, monkeypatch):
    run_dir = make_run(KINDS["quickstart"](), tmp_path)
    shutil.copy(OLD_RUN / "recipe.toml", run_dir)  # a made-up run has none that can be planned
    monkeypatch.setattr(extend.plans, "with_values", lambda recipe, axes: recipe)
    found = load(run_dir)
    stands = comparisons.decided(found.run, found.gains, found.families)
    assert stands and {one["rounds"] for one in stands} == {found.run.plan.repeat}
    assert extend.add_rounds(run_dir, 2).decided == store.read_run(run_dir).decided == stands


@pytest.mark.parametrize(("force", "accept_noise"), [(True, False), (False, True)])
def test_rounds_that_decide_are_measured_under_the_options_of_the_run(
    monkeypatch, tmp_path, force, accept_noise
):
    given, wanted = [], iter([3, 0])
    monkeypatch.setattr(command, "load", lambda run_dir: None)
    monkeypatch.setattr(command.extend, "rounds_to_decide", lambda summary: next(wanted))
    monkeypatch.setattr(
        command.session,
        "resume",
        lambda run_dir, display, more: given.append(more) or (run_dir, []),
    )
    display = SimpleNamespace(notify=lambda text: None)
    more = command.session.More(until_decided=True, force=force, accept_noise=accept_noise)
    command._extended((tmp_path, []), display, more)
    assert given == [command.session.More(3, True, force, accept_noise)]


def test_the_rounds_of_a_run_that_goes_on_are_known_before_it_begins():
    run = Run("r", "r", plan=RunPlan(repeat=5))
    begun = extend.begun(run, seconds=60.0, for_s=600.0)
    assert (begun.analysed_at, begun.rounds_max, begun.is_sequential) == ([5], 50, True)
    assert extend.begun(run).rounds_max == 20
    assert extend.begun(run, 60.0, 10.0).rounds_max == 5, "the planned rounds are measured"
    read = replace(run, analyses=2)
    assert extend.begun(read) == read, "its verdicts were read"
