"""Properties that must be unchanged when a run is resumed."""

from types import SimpleNamespace

import pytest

from wirespeed.errors import ResultsError
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
