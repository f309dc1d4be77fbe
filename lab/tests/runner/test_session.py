"""Properties that must be unchanged when a run is resumed."""

from types import SimpleNamespace

import pytest

from wirespeed.errors import BusyError, LostHostError, ResultsError
from wirespeed.runner import session

SAME = {"cpu_model": "EPYC", "cores": 2, "kernel": "6.18", "memory_mib": 4096}


def host(name, boot, **changes):
    return SimpleNamespace(name=name, info={"boot_id": boot}, facts={**SAME, **changes})


class Hosts(dict):
    @property
    def machines(self):
        return list(self.values())


def resumed(monkeypatch, begun, *hosts, force=False):
    monkeypatch.setattr(session.machine, "facts", lambda host, *_: host.facts)
    run = SimpleNamespace(facts=begun)
    fleet = Hosts({one.name: one for one in hosts})
    topology = SimpleNamespace(hosts=lambda _: [hosts[0].name])
    session._same_machine(run, fleet, topology, force)


def test_the_generators_machine_is_compared_too(monkeypatch):
    """A run was resumed with another generator host, and the results of both were mixed."""
    begun = {**SAME, "hosts": {"load": SAME}}
    server, load = host("server", "a"), host("load", "b", kernel="6.1")
    with pytest.raises(ResultsError, match=r"load differs .* kernel was 6.18, is 6.1;"):
        resumed(monkeypatch, begun, server, load)
    resumed(monkeypatch, begun, server, load, force=True)
    resumed(monkeypatch, begun, server, host("other-node", "b"))


def test_a_machine_more_or_less_is_another_site(monkeypatch):
    with pytest.raises(ResultsError, match="began on 2 machines, these are 1"):
        resumed(monkeypatch, {**SAME, "hosts": {"load": SAME}}, host("server", "a"))
    resumed(monkeypatch, SAME, host("server", "a"))
    with pytest.raises(ResultsError, match="this machine differs"):
        resumed(monkeypatch, SAME, host("server", "a", cores=4))


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
    watcher = SimpleNamespace(told=told.append)
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
