"""Properties that must be unchanged when a run is resumed."""

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from wirespeed.errors import BusyError, InputError, LostHostError, RecipeError, ResultsError
from wirespeed.recipe.model import Recipe
from wirespeed.recipe.resolve import Place
from wirespeed.recipe.sweep import SweepPoint
from wirespeed.results import store
from wirespeed.results.model import Process, Run, Trial
from wirespeed.runner import place, plan, session
from wirespeed.runner.cells import PlannedCell
from wirespeed.topology import Seat, one_host, roles_of

RECIPE = """wirespeed = 2
name = "r"
process = [
  { name = "app", role = "server", argv = ["./app"], pin = {} },
  { name = "gen", role = "load", tool = "load", argv = ["http://x/"], pin = {} },
]
"""
SAME = {"cpu_model": "EPYC", "cores": 2, "kernel": "6.18", "memory_mib": 4096}


def host(name, boot, **changes):
    return SimpleNamespace(name=name, info={"boot_id": boot}, facts={**SAME, **changes})


class Hosts(dict):
    @property
    def machines(self):
        return list(self.values())


def differing(monkeypatch, begun, *hosts, tuned=None, is_scheduled=False, started=None):
    monkeypatch.setattr(session.machine, "facts", lambda host, *_: host.facts)
    monkeypatch.setattr(session.programs, "started", lambda *_: started or {})
    run = SimpleNamespace(facts=begun, tuned=tuned)
    fleet = Hosts({one.name: one for one in hosts})
    where = SimpleNamespace(
        topology=SimpleNamespace(hosts=lambda _: [hosts[0].name]), java="java"
    )
    return session._other_machine(run, fleet, SimpleNamespace(place=where), is_scheduled)


def test_the_generators_machine_is_compared_too(monkeypatch):
    """A run was resumed with another generator host, and the results of both were mixed."""
    begun = {**SAME, "hosts": {"load": SAME}}
    server, load = host("server", "a"), host("load", "b", kernel="6.1")
    text = differing(monkeypatch, begun, server, load)
    assert text == "load differs from the one that began the run: kernel was 6.18, is 6.1"
    assert not differing(monkeypatch, begun, server, host("other-node", "b"))


def test_a_machine_more_or_less_is_another_site(monkeypatch):
    text = differing(monkeypatch, {**SAME, "hosts": {"load": SAME}}, host("server", "a"))
    assert text == "the run began on 2 machines, these are 1"
    assert not differing(monkeypatch, SAME, host("server", "a"))
    assert "cores was 2, is 4" in differing(monkeypatch, SAME, host("server", "a", cores=4))


def test_another_guest_of_the_same_kind_is_another_machine(monkeypatch):
    """Two guests of one type are the same in everything else."""
    begun, now = {**SAME, "machine": "1a"}, host("server", "a", machine="2b")
    assert "machine was 1a, is 2b" in differing(monkeypatch, begun, now)
    assert not differing(monkeypatch, SAME, now), "an earlier run did not record it"
    assert not differing(monkeypatch, begun, now, is_scheduled=True)


def test_settings_are_compared_where_the_run_itself_does_not_change_them(monkeypatch):
    begun = {**SAME, "governor": "performance"}
    now = host("server", "a", governor="powersave")
    assert "governor was performance, is powersave" in differing(monkeypatch, begun, now)
    assert not differing(monkeypatch, begun, now, tuned=[])


def test_programs_are_compared_on_the_machines_that_start_them(monkeypatch):
    """After an upgrade of NGINX a run of Python servers was refused."""
    begun = {**SAME, "java": "17", "nginx": "1.26", "hosts": {"load": {**SAME, "wrk": "4.1"}}}
    now = [host("server", "a", java="21", nginx="1.28"), host("load", "b", wrk="4.2")]
    assert not differing(monkeypatch, begun, *now)
    assert not differing(monkeypatch, begun, *now, started={"a": {"wrk"}, "b": {"java"}})
    text = differing(monkeypatch, begun, *now, started={"a": {"java"}, "b": {"wrk"}})
    assert "java was 17, is 21" in text and "wrk was 4.1, is 4.2" in text
    assert "nginx" not in text


@pytest.mark.parametrize(
    ("argv", "tool", "names"),
    [
        (["python3", "-m", "http.server", "{{ port }}"], "load", set()),
        (["/usr/sbin/nginx", "-p", "{{ port }}"], "wrk", {"nginx", "wrk"}),
        (["sh", "-c", "exec java -jar app.jar {{ port }}"], "wrk2", {"java"}),
    ],
)
def test_the_commands_of_the_schedule_say_which_programs_are_started(argv, tool, names):
    server = {"name": "app", "role": "server", "argv": argv, "port": {"base": 8000}, "pin": {}}
    rate = ["-R", "9"] if tool == "wrk2" else []
    load = {"name": "gen", "role": "load", "tool": tool, "argv": [*rate, "http://x/"], "pin": {}}
    recipe = Recipe.model_validate({"wirespeed": 2, "name": "r", "process": [server, load]})
    where = Place(Path("/nowhere"), Path("r.toml"), one_host(roles_of([0, 1], False)))
    schedule = plan.make(recipe, where, plan.PlanOptions(seed=1))
    (own,) = {seat.host for seats in schedule.cells[0].seats.values() for seat in seats}
    fleet = Hosts({own: host(own, "a")})
    assert session.programs.started(fleet, schedule, session.machine.PROGRAMS) == {"a": names}


def test_a_difference_is_refused_or_said_in_the_report():
    """A forced run of two machines looked like one of a single machine."""
    with pytest.raises(ResultsError, match=r"^a differs; --force goes on all the same$"):
        session._overlooked(["", "a differs", "b"], session.MIXED_PLACES, session.More())
    forced = session.More(force=True)
    (told,) = session._overlooked(["", "a differs", "b"], session.MIXED_PLACES, forced)
    assert told == "Machines or settings are mixed: the run went on all the same (--force): " \
        "a differs; b."  # fmt: skip
    assert session._overlooked(["", ""], session.MIXED_PLACES, session.More()) == []


def test_programs_are_pinned_to_the_cores_of_the_trials_that_are_finished():
    """With another core set (taskset, a site that was edited) half of a cell ran elsewhere."""
    trial = Trial("k", "c", 1, 1, processes=[Process("app", 0, "server", cores=[0, 1])])

    def other(*cores):
        seats = {"app-0": [Seat("here", core, "127.0.0.1") for core in cores]}
        cell = PlannedCell(SweepPoint("c", {}), seats=seats)
        return session._other_cores([trial], SimpleNamespace(cells=[cell]))

    assert other(1, 0) == ""
    assert other(2, 3) == "app-0 ran on cores [0, 1], now it is [2, 3]"


def test_a_run_that_another_command_has_gone_on_with_meanwhile_is_left(tmp_path, monkeypatch):
    """On a shared folder its count of interim analyses was written over."""
    store.write_run(tmp_path, Run("r", "r", analyses=2))
    for name in ("files", "prefer", "measure_links", "commit_of", "programs"):
        monkeypatch.setattr(session, name, Mock(return_value=0))
    monkeypatch.setattr(session, "_other_machine", lambda *_: "")
    monkeypatch.setattr(session, "_other_build", lambda *_: "")
    (tmp_path / "recipe.toml").write_text("")
    (tmp_path / "trials").mkdir()
    what = (Mock(), Mock(), SimpleNamespace(place=None, cells=[]))
    with pytest.raises(BusyError, match="another command went on with"):
        session._resumed_on(tmp_path, Run("r", "r", analyses=1), what, Mock(), session.More())


def gone_on(monkeypatch, attempts, trial_s=60.0):
    """The course of a run after a loss: each attempt finishes so many trials, then fails so."""
    moments, finished, left = [0.0], [], list(attempts)
    monkeypatch.setattr(session.time, "sleep", lambda s: moments.append(moments[-1] + s))
    monkeypatch.setattr(session.time, "monotonic", lambda: moments[-1])
    monkeypatch.setattr(session.store, "read_trials", lambda _: list(finished))

    def resumed(*_):
        trials, error = left.pop(0) if len(left) > 1 else left[0]
        finished.extend([SimpleNamespace(valid=True)] * trials)
        moments.append(moments[-1] + trials * trial_s)
        if error:
            raise error

    monkeypatch.setattr(session, "_resumed", resumed)
    told = []
    watcher = SimpleNamespace(notify=told.append)
    found = session._gone_on("run", watcher, session.More(), LostHostError("load: gone"))
    assert "load: gone; its site is opened again" in told[0]
    return found, moments[-1]


def test_a_run_goes_on_for_as_long_as_trials_are_finished(monkeypatch):
    """However long a trial takes, and however often an agent is lost."""
    lost = LostHostError("load: gone")
    again = [(1, lost), (2, lost), (0, BusyError("held")), (1, lost), (1, None)]
    assert gone_on(monkeypatch, again) == (("run", []), pytest.approx(310.0))


def test_a_host_that_stays_away_ends_the_run(monkeypatch):
    with pytest.raises(LostHostError, match="no route"):
        gone_on(monkeypatch, [(1, LostHostError("gone")), (0, LostHostError("no route"))])


def test_a_clock_behind_the_last_run_is_said(tmp_path, monkeypatch):
    last = "20261130T120000Z-r-aaaaaaaa"
    monkeypatch.setattr(session.time, "time", lambda: store.stamp_s(last) - 7200)
    assert session._of_clock(tmp_path / last).startswith("the clock is 2 h 0 min behind the last")
    assert session._of_clock(store.create(tmp_path, "r")) == ""


def test_a_run_whose_site_this_version_does_not_know_is_one_line(tmp_path):
    """Resumed or reproduced, it ended in a traceback."""
    (tmp_path / "recipe.toml").write_text(RECIPE)
    (tmp_path / "site.json").write_text('{"kind": "local", "satellite": true}')
    with pytest.raises(RecipeError, match=r"^site\.json: satellite: unknown key"):
        session.source_of(tmp_path, Run("run", "r"))


def test_a_user_without_a_home_is_asked_for_a_folder(monkeypatch, tmp_path):
    """In a container with an arbitrary user id, an installed lab ended in a traceback."""
    (tmp_path / "INSTALLED").touch()
    monkeypatch.setenv("WIRESPEED_ROOT", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(Path, "home", classmethod(lambda _: (_ for _ in ()).throw(RuntimeError())))
    with pytest.raises(InputError, match="no home for runs: name a folder with --runs"):
        place.runs_folder()
