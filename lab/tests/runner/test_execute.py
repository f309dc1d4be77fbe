"""Trials whose programs fail."""

import io
import resource
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from wirespeed.cli import hosts
from wirespeed.errors import BusyError, HostError, ProcessError, StorageError
from wirespeed.interrupts import signals_as_interrupts
from wirespeed.results.model import Duet, PlannedTrial, Run, Trial
from wirespeed.runner import duets, execute, recover, turns
from wirespeed.runner import trial as trials
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.server_session import StartError
from wirespeed.runner.time_budget import TimeBudget
from wirespeed.runner.trial import Attempt


def test_a_cell_that_has_worked_is_tried_to_the_end():
    """One response of 503 as a round began ended its cell, whose other rounds were all well."""
    good = Trial("t1", "c", 1, 1)
    failures = execute.Failures([good])
    failures.lasting |= {"c", "d"}
    for number in range(2, 6):
        failures.saw(trials.failed(attempt_of("c", number), "status 503", 0.0, 0.0))
    assert not failures.is_hopeless("c") and failures.is_hopeless("d")


def attempt_of(cell, number):
    line = PlannedTrial(number, number, cell, f"t{number}")
    return Attempt(line, PlannedCell(None), Path(), 1, False)


class Fleet:
    def __init__(self, has_died):
        self.has_died = has_died

    def all(self):
        return ["server", "load"]

    def each(self, hosts, op):
        if self.has_died:
            raise HostError("server: the agent has ended")
        return dict.fromkeys(hosts)


def refused(*_):
    raise ProcessError("gen-0 failed (exit code 1): connection refused")


def attempted(monkeypatch, tmp_path, has_died, measure=refused):
    monkeypatch.setattr(execute.trials, "measure", measure)
    runner = object.__new__(execute.Runner)
    runner.run_dir, runner.fleet, runner.context = tmp_path, Fleet(has_died), None
    runner.watcher = SimpleNamespace(phase=lambda *_: None)
    runner.progress = lambda: None
    line = PlannedTrial(1, 1, "c1", "t1", {"connections": 1})
    planned = SimpleNamespace(shared_cores=False)
    session = SimpleNamespace(check_alive=lambda: None)
    return runner._attempt(session, Attempt(line, planned, tmp_path, 1, True))


def test_a_generator_that_fails_is_a_result(monkeypatch, tmp_path):
    trial, alive = attempted(monkeypatch, tmp_path, has_died=False)
    assert alive and not trial.valid and "connection refused" in trial.reasons[0]


def test_a_generator_that_fails_because_an_agent_was_killed_is_none(monkeypatch, tmp_path):
    """The server dies with its agent; the trial counted as failed, which `--resume` cannot fix."""
    with pytest.raises(HostError, match="has ended"):
        attempted(monkeypatch, tmp_path, has_died=True)


def test_a_trial_that_fails_because_it_was_interrupted_ends_the_run(monkeypatch, tmp_path):
    """The programs that the interrupt ended failed, and the run went on with the next trial."""
    asked = []

    def clock(*_):
        asked.append(1)

    def measure(*_):
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            raise ProcessError("gen-0 cannot be killed")

    monkeypatch.setattr(Fleet, "each", clock)
    with pytest.raises(KeyboardInterrupt), signals_as_interrupts():
        attempted(monkeypatch, tmp_path, has_died=False, measure=measure)
    assert not asked


@pytest.mark.parametrize("is_ended", [True, False])
def test_a_run_that_fails_as_a_signal_ends_it_is_interrupted(monkeypatch, tmp_path, is_ended):
    """It said that it had failed."""
    states = []

    def all_sessions():
        try:
            if is_ended:
                signal.raise_signal(signal.SIGTERM)
        finally:
            raise HostError("half an answer")

    def kind(*_):
        return SimpleNamespace(all_sessions=all_sessions)

    monkeypatch.setattr(execute, "_finish", lambda _, __, state: states.append(state))
    wanted = KeyboardInterrupt if is_ended else HostError
    with pytest.raises(wanted), signals_as_interrupts():
        execute.execute(tmp_path, None, None, None, None, io.StringIO(), kind)
    assert states == ["interrupted" if is_ended else "failed"]


def test_a_run_that_goes_on_counts_on_from_the_attempts_that_were_kept(tmp_path, monkeypatch):
    """Attempts started at 1 again: the second window's folder collided with the first attempt's."""
    line = PlannedTrial(1, 1, "c1", "t1", {"connections": 1})
    folder = execute.store.trial_dir(tmp_path, 1, "t1")
    (folder / "attempt-1" / "window-2").mkdir(parents=True)
    kept = folder / "attempt-1" / "window-2" / "samples.jsonl"
    kept.write_text("of the first attempt")
    taken = []

    def attempt(session, order):
        taken.append(order.attempt)
        (order.folder / "window-2").mkdir()
        (order.folder / "window-2" / "samples.jsonl").write_text("another")
        return trials.failed(order, "disturbed", 1.0, 2.0), True

    runner = object.__new__(execute.Runner)
    runner.run_dir = tmp_path
    runner.watcher = SimpleNamespace(notify=lambda _: None)
    runner.schedule = SimpleNamespace(recipe=SimpleNamespace(plan=SimpleNamespace(restart="cell")))
    runner._attempt, runner._may_retry = attempt, lambda _: True
    runner._cool_down, runner._record = lambda _: None, lambda *_: None
    monkeypatch.setattr(execute, "is_refused", lambda _: True)
    runner._trials_of(None, [(line, SimpleNamespace(shared_cores=False))])
    assert taken == [2, 3]
    assert kept.read_text() == "of the first attempt"
    assert (folder / "attempt-2" / "trial.json").exists()
    assert not (folder / "trial.json").exists(), "killed now, the run has no result of it"


def test_a_command_that_only_asks_does_not_keep_a_run_from_going_on(tmp_path):
    asking = execute.hold(tmp_path)
    threading.Timer(0.2, asking.close).start()
    holder = execute.hold(tmp_path)
    assert execute.is_held(tmp_path)
    holder.close()
    assert not execute.is_held(tmp_path)


def test_a_run_that_somebody_else_measures_is_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "HOLD_S", 0.1)
    with execute.hold(tmp_path), pytest.raises(BusyError, match="another command is at work on"):
        execute.hold(tmp_path)


def test_a_full_disk_keeps_no_run_from_being_let_go(tmp_path):
    """close() wrote the buffer again, and its error hid the remedy."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        holder = execute.hold(tmp_path)
        assert execute.is_held(tmp_path)
        holder.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / execute.LOCK_FILE).read_bytes() == b""
    assert not execute.is_of_another_machine(tmp_path)


def test_recover_names_the_runs_that_it_leaves(monkeypatch, capsys, tmp_path):
    left = recover.Recovered([], [], [], [], ["r1", "r2"], {"r1": "the disk is read-only"})
    monkeypatch.setattr(hosts.recovery, "recover", lambda _: left)
    hosts.recover(tmp_path, "here", as_json=False)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "left run r1: the disk is read-only"
    assert second.startswith("left run r2: another machine has it (")


def test_a_run_of_another_machine_on_a_shared_folder_is_not_tidied_up(tmp_path, monkeypatch):
    """Where the file system keeps its lock from us, `recover` removed the trial under way."""
    monkeypatch.setattr(recover, "wait_for_ending", lambda: None)
    monkeypatch.setattr(recover.leftovers, "tidy", lambda: {"processes": [], "folders": []})
    monkeypatch.setattr(recover.tune, "put_back", list)
    monkeypatch.setattr(execute, "machine_id", lambda: "there")
    run_dir = execute.store.create(tmp_path, "r")
    execute.store.announce(run_dir, Run(run_dir.name, "r", state="running"))
    (run_dir / "trials" / "000001-k").mkdir()
    execute.hold(run_dir).close()
    monkeypatch.setattr(execute, "machine_id", lambda: "here")
    done = recover.recover(tmp_path)
    assert (done.runs, done.left) == ([], [run_dir.name])
    assert (run_dir / "trials" / "000001-k").exists()
    assert recover.is_latest_cut_off(tmp_path) is None, "`run` does not call it cut off"
    execute.hold(run_dir).close()  # it goes on here
    assert recover.is_latest_cut_off(tmp_path) == run_dir
    done = recover.recover(tmp_path)
    assert (done.runs, done.left) == ([run_dir.name], [])
    assert not (run_dir / "trials" / "000001-k").exists()


def test_a_run_of_another_user_keeps_no_other_from_being_tidied_up(tmp_path, monkeypatch):
    """Its lock cannot be opened, which ended `recover` before it had put the machine back."""
    monkeypatch.setattr(recover, "wait_for_ending", lambda: None)
    monkeypatch.setattr(recover.leftovers, "tidy", lambda: {"processes": [], "folders": []})
    monkeypatch.setattr(recover.tune, "put_back", lambda: ["put back"])
    theirs, own = (execute.store.create(tmp_path, "r") for _ in range(2))
    for run_dir in (theirs, own):
        execute.store.announce(run_dir, Run(run_dir.name, "r", state="running"))
    hold = execute.hold

    def refused(run_dir):
        if run_dir.samefile(theirs):
            raise StorageError("permission denied")
        return hold(run_dir)

    monkeypatch.setattr(execute, "hold", refused)
    done = recover.recover(tmp_path)
    assert (done.left, done.settings) == ([theirs.name], ["put back"]) and own.name in done.runs
    assert done.reasons == {theirs.name: "permission denied"}


def test_a_full_disk_keeps_no_setting_from_being_put_back(tmp_path, monkeypatch):
    """`recover` ended at the first run that it could not mark, with the machine still tuned."""
    monkeypatch.setattr(recover, "wait_for_ending", lambda: None)
    monkeypatch.setattr(recover.leftovers, "tidy", lambda: {"processes": [], "folders": []})
    monkeypatch.setattr(recover.tune, "put_back", lambda: ["put back"])
    run_dir = execute.store.create(tmp_path, "r")
    execute.store.announce(run_dir, Run(run_dir.name, "r", state="running"))

    def full(*_):
        raise StorageError("the disk is full")

    monkeypatch.setattr(execute.store, "write_run", full)
    done = recover.recover(tmp_path)
    assert (done.runs, done.left, done.settings) == ([], [run_dir.name], ["put back"])
    assert done.reasons == {run_dir.name: "the disk is full"}


def test_a_run_that_ends_between_two_looks_was_not_cut_off(tmp_path, monkeypatch):
    """`recover` read that it was running, found it free, and called a finished run interrupted."""
    store = execute.store
    store.write_run(tmp_path, Run("r", "r", state="running"))
    assert execute.is_cut_off(tmp_path)

    def ends(run_dir):
        store.write_run(run_dir, Run("r", "r", state="done"))
        return False

    monkeypatch.setattr(execute, "is_held", ends)
    assert not execute.is_cut_off(tmp_path)


def test_a_duet_whose_server_does_not_start_is_begun_once_more():
    """It ended the whole run."""
    runner, told, begun = object.__new__(duets.DuetRunner), [], []

    def begin(_pair, _queue):
        begun.append(1)
        if len(begun) == 1:
            raise StartError("app-0b did not start")

    runner.alone, runner.have_figures, runner.started_again = {}, {"c0"}, set()
    runner.fleet = Fleet(has_died=False)
    runner.watcher = SimpleNamespace(notify=told.append)
    runner._find_headroom = lambda _queue: None
    runner._new_pair = lambda _queue: SimpleNamespace(end=list)
    runner._begin_pair = begin
    runner._trials_of_pair = lambda _pair, queue: queue.clear()
    runner._one_session([entry(1, "c1", "c0")])
    assert len(begun) == 2 and "started once more" in told[0]


def entry(position, cell, over=""):
    return PlannedTrial(position, 1, cell, f"t{position}", {"stack": cell}, life=1, over=over), None


def test_turns_that_fail_after_a_finished_duet_are_not_tried_for_ever(monkeypatch):
    """A session of two contenders, of which the first has finished."""
    runner, pairs, alone = object.__new__(duets.DuetRunner), [], []

    def refuse(_pair, queue):
        del queue[:2]  # the baseline's trial, and the duet of the first contender
        raise turns.NoTurnsError("app-0b cannot be frozen")

    runner.alone = {}
    runner.watcher = SimpleNamespace(notify=lambda _: None)
    runner._find_headroom = lambda _queue: None
    runner._new_pair = lambda _queue: pairs.append(1) or SimpleNamespace(end=list)
    runner._begin_pair, runner._trials_of_pair = lambda *_: None, refuse
    monkeypatch.setattr(
        execute.Runner, "_one_session",
        lambda _, queue: alone.extend(line.cell for line, _ in queue),
    )
    runner._one_session([entry(1, "c0"), entry(2, "c1", "c0"), entry(3, "c2", "c0")])
    assert len(pairs) == 1 and alone == ["c2"] and runner.alone.keys() == {"c2"}


def test_a_pair_goes_on_for_what_its_run_has_left(monkeypatch):
    runner, offered = object.__new__(duets.DuetRunner), []

    def play(_pair, _cells, _folder, _seed, longer_s):
        offered.append(longer_s)
        return Duet("c0", seconds=1.0 + longer_s), min(longer_s, 5.0)

    monkeypatch.setattr(turns, "play", play)
    runner.time_budget = TimeBudget(100.0, 125.0, 8)  # 8 s, of which a few are free at first
    runner.planned, runner.schedule = {"c0": None}, SimpleNamespace(seed=1)
    runner.watcher = SimpleNamespace(phase=lambda *_: None)
    runner.progress = lambda: None
    line, _ = entry(2, "c1", "c0")
    order, trial = Attempt(line, None, Path(), 1, False), Trial("t2", "c1", 1, 2)
    for _ in range(3):
        runner._with_duet(SimpleNamespace(base=None), order, trial, set())
    assert offered == pytest.approx([1.2, 0.0, 0.0])


@pytest.mark.parametrize("where", ["begin", "trials"])
def test_a_program_that_refuses_to_freeze_is_measured_in_separate_trials(monkeypatch, where):
    """It ended the whole run."""
    runner, told, alone = object.__new__(duets.DuetRunner), [], []

    def refuse(*_):
        raise turns.NoTurnsError("app-0b cannot be frozen")

    ended = []
    runner.alone, runner.have_figures, runner.started_again = {}, {"c0"}, set()
    runner.fleet = Fleet(has_died=False)
    runner.watcher = SimpleNamespace(notify=told.append)
    runner._find_headroom = lambda _queue: None
    runner._new_pair = lambda _queue: SimpleNamespace(end=lambda: ended.append(1) or [])
    runner._begin_pair = refuse if where == "begin" else lambda *_: None
    runner._trials_of_pair = refuse
    monkeypatch.setattr(
        execute.Runner, "_one_session",
        lambda _, queue: alone.append([line.cell for line, _ in queue]),
    )
    runner._one_session([entry(1, "c0"), entry(2, "c1", "c0")])
    assert alone == [["c0"], ["c1"]], "each side in a server of its own"
    assert ended and "no duet, separate trials instead: app-0b cannot be frozen" in told[0]
    runner._one_session([entry(3, "c0"), entry(4, "c1", "c0")])
    assert len(alone) == 4 and len(ended) == 1, "later rounds do not try it again"
    kept = []
    monkeypatch.setattr(execute.Runner, "_record", lambda _, order, trial: kept.append(trial))
    order = Attempt(entry(4, "c1", "c0")[0], SimpleNamespace(shared_cores=False), None, 1, False)
    runner._record(order, trials.failed(order, "", 1.0, 2.0))
    assert kept[0].duet.problem == "app-0b cannot be frozen" and not kept[0].duet.is_failure


def test_a_trial_that_loses_its_agent_twice_has_failed_and_the_run_may_go_on(tmp_path):
    """An agent that was lost ended the run; a server that ends its agent would do so each time."""
    runner, kept = object.__new__(execute.Runner), []
    runner.run_dir, runner.done = tmp_path, {"t1"}
    runner.queue = [entry(1, "c0"), (entry(2, "c1")[0], SimpleNamespace(shared_cores=False))]
    runner._record = lambda order, trial: kept.append(trial)
    assert not execute.has_lost_agents(tmp_path)
    runner.agent_lost("here: the agent has ended")
    assert execute.has_lost_agents(tmp_path, "t2") and not execute.has_lost_agents(tmp_path, "t1")
    assert not kept, "it is measured again"
    runner.agent_lost("here: the agent has ended")
    (trial,) = kept
    assert trial.key == "t2"
    assert trial.reasons == ["an agent was lost twice: here: the agent has ended"]
