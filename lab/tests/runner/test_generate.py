"""What the hosts of a trial are asked for while it is measured."""

from types import SimpleNamespace

from wirespeed.runner import generate


def host(name, kernel):
    far = SimpleNamespace(shares_files=True)
    return SimpleNamespace(name=name, far=far, offset_s=0.0, info={"kernel": kernel})


class Hosts:
    """Server and load on one kernel, a third host on another; asked questions are kept."""

    def __init__(self):
        self.hosts = {"server": host("server", 1), "load": host("load", 1), "far": host("far", 2)}
        self.machines = [host("machine", 1)]
        self.asked = {}

    def __getitem__(self, name):
        return self.hosts[name]

    def machine_of(self, one):
        return self.machines[0] if one.info["kernel"] == 1 else one

    def by_host(self, labels):
        return [(self.hosts[label], [label]) for label in labels]

    def together(self, questions):
        self.asked = {one.name: arguments for one, _, arguments in questions}


def test_the_counters_of_a_machine_are_read_by_one_agent_only():
    """Three agents that read all of them were half a per cent of a core on two namespaces."""
    fleet = Hosts()
    server = SimpleNamespace(label="server", instance=SimpleNamespace(host="server"))
    loads = [SimpleNamespace(label=label) for label in ("load", "far")]
    run = SimpleNamespace(start_at=10.0, warmup_s=1.0, duration_s=2.0)
    generate._sample(SimpleNamespace(fleet=fleet, running=[server]), loads, run, 0.2, None)
    assert "paths" not in fleet.asked["server"] and fleet.asked["server"]["every_s"] == 0.2
    assert "paths" not in fleet.asked["far"], "another machine has counters of its own"
    for name in ("load", "machine"):
        assert fleet.asked[name]["paths"] == ("/proc/net/snmp",)
        assert fleet.asked[name]["every_s"] >= 1.0
    assert all(asked["instants"] == [11.0, 13.0] for asked in fleet.asked.values())
