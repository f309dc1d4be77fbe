"""Requests to the hosts of a trial during its window."""

from types import SimpleNamespace

import pytest

from wirespeed.errors import ProcessError
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
    server = SimpleNamespace(label="server", instance=SimpleNamespace(host="server", role="server"))
    loads = [SimpleNamespace(label=label) for label in ("load", "far")]
    run = SimpleNamespace(start_at=10.0, warmup_s=1.0, duration_s=2.0)
    session = SimpleNamespace(fleet=fleet, running=[server])
    generate._sample(session, loads, run, generate.Sampling(0.2), None)
    assert not any("counted" in asked for asked in fleet.asked.values())
    assert "paths" not in fleet.asked["server"] and fleet.asked["server"]["every_s"] == 0.2
    assert "paths" not in fleet.asked["far"], "another machine has counters of its own"
    for name in ("load", "machine"):
        assert fleet.asked[name]["paths"] == ("/proc/net/snmp",)
        assert fleet.asked[name]["every_s"] >= 1.0
    assert all(asked["instants"] == [11.0, 13.0] for asked in fleet.asked.values())
    generate._sample(session, loads, run, generate.Sampling(0.2, events=("cycles",)), None)
    counted = {name: asked["counted"] for name, asked in fleet.asked.items() if "counted" in asked}
    assert counted == {"server": {"names": ["server"], "events": ["cycles"]}}


def test_a_window_that_fails_ends_the_sampling_too(monkeypatch, tmp_path):
    """The lab stayed on the one core where it disturbs least, and the agents went on reading."""

    def dies(*_):
        raise ProcessError("gen-0 failed (exit code 1)")

    ended = []
    run = SimpleNamespace()
    monkeypatch.setattr(generate, "_start", lambda *_: (run, ["gen-0"], 0))
    monkeypatch.setattr(generate, "_wait", dies)
    monkeypatch.setattr(generate, "_sampled", lambda _, running: ended.append(list(running)))
    monkeypatch.setattr(generate.stop, "stop", lambda *_: [])
    fleet = SimpleNamespace(measure_clocks=lambda: None, together=lambda _: {})
    resolver = SimpleNamespace(instances=lambda _: [])
    session = SimpleNamespace(fleet=fleet, resolver=lambda *_: resolver, running=[])
    planned = SimpleNamespace(seats={})
    with pytest.raises(ProcessError):
        generate.generate(session, planned, tmp_path, 1.0, 0.0, generate.Sampling(0.1))
    assert ended == [["gen-0"]]


@pytest.mark.parametrize(("warmup_s", "late_s"), [(0.0, 0.2), (0.0, 0.0), (0.5, 0.2)])
def test_samples_that_begin_after_their_window_are_begun_again(
    monkeypatch, tmp_path, warmup_s, late_s
):
    """On a busy machine the first sample was one of the window's middle or of its end, and what
    came before it was not counted: CPU per request was too small, down to nothing."""
    time, done = [100.0], []

    def sample(*_):
        done.append("sample")
        time[0] += late_s if len(done) < 2 else 0.0

    monkeypatch.setattr(generate.clock, "now", lambda: time[0])
    monkeypatch.setattr(generate.start, "start_all", lambda *_: ["gen-0"])
    monkeypatch.setattr(generate.stop, "stop", lambda *_: done.append("stop"))
    monkeypatch.setattr(generate, "core_for_lab", lambda *_: 1)
    monkeypatch.setattr(generate, "_sample", sample)
    monkeypatch.setattr(generate, "_sampled", lambda *_: done.append("sampled"))
    session = SimpleNamespace(fleet=SimpleNamespace(seats=[]), ours=[])
    asked = generate.LoadRun(tmp_path, 1.0, warmup_s, 0.0, None)
    run, running, core = generate._start(session, [], asked, generate.Sampling(0.1))
    is_late = late_s > warmup_s
    assert done == (["sample", "sampled", "stop"] if is_late else []) + ["sample"]
    assert time[0] < run.start_at + warmup_s and (running, core) == (["gen-0"], 1)


def test_a_server_that_dies_as_its_generators_end_has_died(monkeypatch, tmp_path):
    """The lab waited for whichever came first: behind a generator's end it did not see that of the
    server, and reported the errors of a server that was not there."""
    known, ended = set(), []

    def state(label):
        known.add(label)  # the answer of a host comes behind the ends that it has reported
        return {}

    def check_alive():
        if "app-0" in known:
            raise ProcessError("app-0 died (exit code 3)")

    server = SimpleNamespace(label="app-0")
    monkeypatch.setattr(generate, "_start", lambda *_: (SimpleNamespace(), [], None))
    monkeypatch.setattr(generate, "_wait", lambda *_: {})
    monkeypatch.setattr(generate.stop, "stop", lambda _, running: ended.append(running))
    fleet = SimpleNamespace(measure_clocks=lambda: None, together=lambda _: {}, state=state)
    resolver = SimpleNamespace(instances=lambda _: [])
    session = SimpleNamespace(
        fleet=fleet, resolver=lambda *_: resolver, running=[server], check_alive=check_alive
    )
    with pytest.raises(ProcessError, match="app-0 died"):
        generate.generate(session, SimpleNamespace(seats={}), tmp_path, 1.0, 0.0)
    assert ended == [[]]


@pytest.mark.parametrize(("tool", "before_s"), [("load", 0.25), ("wrk", 0.0), ("ab", 0.0)])
def test_without_a_warm_up_a_generator_starts_with_its_window(
    monkeypatch, tmp_path, tool, before_s
):
    """CPU per request of a server that polls was divided by a quarter of a second more than wrk had
    run: a fifth less than it was in a window of one second, of that side alone."""
    asked = []

    def start(_, __, run, ___):
        asked.append(run.warmup_s)
        return run, [], None

    monkeypatch.setattr(generate, "_start", start)
    monkeypatch.setattr(generate, "_wait", lambda *_: {})
    monkeypatch.setattr(generate, "_read", lambda *_: {})
    monkeypatch.setattr(generate.stop, "stop", lambda *_: [])
    one = SimpleNamespace(role="load", tool=tool, host="here")
    here = SimpleNamespace(name="here", far=SimpleNamespace(shares_files=True))
    fleet = SimpleNamespace(
        measure_clocks=lambda: None, together=lambda _: {}, forget=lambda _: None,
        __getitem__=lambda _: here, clock_step_s=lambda: 0.0,
    )  # fmt: skip
    monkeypatch.setattr(generate, "_empty", lambda *_: None)
    resolver = SimpleNamespace(instances=lambda _: [one])
    session = SimpleNamespace(
        fleet=fleet, resolver=lambda *_: resolver, running=[], check_alive=lambda: None
    )
    planned = SimpleNamespace(seats={})
    done = generate.generate(session, planned, tmp_path, 1.0, 0.25)
    assert asked == [before_s] and done.before_s == before_s
