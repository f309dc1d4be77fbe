"""Settings of the machine: changed for a run, restored whatever ends it."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from wirespeed.agent import tuning
from wirespeed.errors import HostError
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.host import Host

PATIENCE_S = 120.0
CORES = sorted(os.sched_getaffinity(0))
SETTING = "net.unix.max_dgram_qlen"  # no other test sets it
SETTING_FILE = "/proc/sys/net/unix/max_dgram_qlen"

# A program with a second thread; on a line from outside it starts a child and prints its id.
PROGRAM = """
import subprocess, sys, threading, time
threading.Thread(target=time.sleep, args=(500,), daemon=True).start()
print("ready", flush=True)
for _ in sys.stdin:
    print(subprocess.Popen(["sleep", "500"]).pid, flush=True)
"""

two_cores = pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
may_set = pytest.mark.skipif(not os.access(SETTING_FILE, os.W_OK), reason="needs root's sysctls")


class Program:
    """Simulates all other programs on the machine."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout.readline() == "ready\n"
        self.pid = self.process.pid

    def starts_a_child(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def cores(self):
        """The sets of cores that its threads may use."""
        return {
            tuple(sorted(os.sched_getaffinity(int(tid))))
            for tid in os.listdir(f"/proc/{self.pid}/task")
        }


@pytest.fixture
def program():
    one = Program()
    yield one
    os.killpg(one.pid, signal.SIGKILL)
    one.process.wait()


@pytest.fixture
def state(tmp_path):
    return str(tmp_path / "tuned.json")


@contextmanager
def agent(tmp_path):
    order = {"mark": f"{os.getpid()}-{tmp_path.name}", "cgroups": False}
    host = Host(Transport("here", python=sys.executable), order)
    try:
        host.greet()
        yield host
    finally:
        host.close()


def tune(host, state, under, sysctl=None, clear=None, **more):
    return host.ask(
        "tune",
        sysctl=sysctl or {},
        limits={},
        clear=CORES[:1] if clear is None else clear,
        to=CORES[1:2],
        state=state,
        under=under,
        **more,
    )


@two_cores
def test_others_leave_the_core_and_come_back(tmp_path, program, state):
    with agent(tmp_path) as host:
        assert tune(host, state, program.pid)["threads"] == 2
        assert program.cores() == {(CORES[1],)}
        assert host.ask("restore")["restored"]["threads"] == 2
    assert program.cores() == {tuple(CORES)}
    assert not os.path.exists(state)


@two_cores
def test_the_agents_end_puts_back_what_it_moved_and_what_that_started(tmp_path, program, state):
    with agent(tmp_path) as host:
        tune(host, state, program.pid)
        child = program.starts_a_child()
        assert os.sched_getaffinity(child) == {CORES[1]}
    assert program.cores() == {tuple(CORES)}
    assert sorted(os.sched_getaffinity(child)) == CORES


@two_cores
def test_threads_that_their_owner_pinned_stay_and_are_named(tmp_path, program, state):
    for tid in os.listdir(f"/proc/{program.pid}/task"):
        os.sched_setaffinity(int(tid), CORES[:1])
    with agent(tmp_path) as host:
        told = tune(host, state, program.pid)
        assert told["threads"] == 0
        assert len(told["pinned"]) == 1
        assert program.cores() == {(CORES[0],)}


@two_cores
def test_the_state_outlives_an_agent_that_is_killed(tmp_path, program, state):
    with agent(tmp_path) as host:
        tune(host, state, program.pid)
        assert tuning.restore(state) == {"by": host.info["pid"]}
        assert program.cores() == {(CORES[1],)}
        os.kill(host.info["pid"], signal.SIGKILL)
        host.channel.process.wait(PATIENCE_S)
    assert program.cores() == {(CORES[1],)}
    assert tuning.restore(state)["threads"] == 2
    assert program.cores() == {tuple(CORES)}
    assert tuning.restore(state) is None


@two_cores
def test_two_agents_do_not_tune_at_once(tmp_path, program, state):
    with agent(tmp_path) as first, agent(tmp_path) as second:
        tune(first, state, program.pid)
        with pytest.raises(HostError, match="has tuned this machine and still runs"):
            tune(second, state, program.pid)
        assert program.cores() == {(CORES[1],)}


@may_set
def test_a_sysctl_is_set_and_put_back(tmp_path, program, state):
    was = tuning.sysctl_now(SETTING)
    with agent(tmp_path) as host:
        told = tune(host, state, program.pid, {SETTING: int(was) + 1}, clear=[])
        assert told["sysctl"] == [[SETTING, was, str(int(was) + 1)]]
        assert tuning.sysctl_now(SETTING) == str(int(was) + 1)
    assert tuning.sysctl_now(SETTING) == was


@may_set
def test_a_value_that_the_kernel_rounds_is_put_back_too(tmp_path, program, state):
    """The largest pipe is a power of two: the restored value looked like another program's."""
    name = "fs.pipe-max-size"
    was = tuning.sysctl_now(name)
    try:
        with agent(tmp_path) as host:
            told = tune(host, state, program.pid, {name: int(was) + 1}, clear=[])
            assert told["sysctl"] == [[name, was, str(2 * int(was))]]
            done = host.ask("restore")["restored"]
        assert (done["kept"], done["files"]) == ([], 1)
        assert tuning.sysctl_now(name) == was
    finally:
        tuning.write_text("/proc/sys/fs/pipe-max-size", was)


@may_set
def test_a_setting_that_was_changed_since_is_kept(tmp_path, program, state):
    was = tuning.sysctl_now(SETTING)
    try:
        with agent(tmp_path) as host:
            tune(host, state, program.pid, {SETTING: int(was) + 1}, clear=[])
            tuning.write_text(SETTING_FILE, str(int(was) + 2))
            kept = host.ask("restore")["restored"]["kept"]
        assert kept == [f"{SETTING} is {int(was) + 2}: somebody else set it"]
        assert tuning.sysctl_now(SETTING) == str(int(was) + 2)
    finally:
        tuning.write_text(SETTING_FILE, was)


def test_a_sysctl_that_is_not_there_is_refused_and_named(tmp_path, program, state):
    with agent(tmp_path) as host:
        told = tune(host, state, program.pid, {"net.no_such_setting": 1}, clear=[])
    assert told["refused"] == [["net.no_such_setting", "there is none here"]]


def test_a_name_that_leaves_the_folder_of_sysctls_is_refused(tmp_path, program, state):
    with agent(tmp_path) as host, pytest.raises(HostError, match="not the name of a sysctl"):
        tune(host, state, program.pid, {"../../etc/passwd": 1}, clear=[])


def test_a_bound_that_is_higher_already_stays():
    assert tuning.is_enough("net.core.somaxconn", "8192", "5000")
    assert not tuning.is_enough("net.core.somaxconn", "4096", "5000")
    assert not tuning.is_enough("net.ipv4.tcp_timestamps", "1", "0")


def test_huge_pages_never_take_most_of_the_memory():
    assert "half of the free memory" in tuning.unfit("vm.nr_hugepages", 10**9)
    assert tuning.unfit("vm.nr_hugepages", 0) == ""


def test_the_state_of_an_earlier_boot_is_dropped_unread(program, state):
    was = [[program.pid, tuning.start_ticks(program.pid), [CORES[0]]]]
    record = {"boot": "another", "by": [1, 1], "since": 0, "to": CORES, "under": 0}
    tuning.save(state, record | {"files": [[SETTING_FILE, "1", "2"]], "threads": was})
    assert tuning.restore(state) == {"by": 0, "files": 0, "threads": 0, "kept": []}
    assert program.cores() == {tuple(CORES)}
    assert not os.path.exists(state)


def test_a_torn_or_strange_state_file_changes_nothing(state, tmp_path):
    with open(state, "w") as file:
        file.write('{"boot": ')
    assert tuning.restore(state) is None
    (tmp_path / "real.json").write_text(json.dumps({"boot": "x"}))
    os.unlink(state)
    os.symlink(tmp_path / "real.json", state)
    assert tuning.restore(state) is None


def test_a_thread_that_ended_is_not_mistaken_for_another(program):
    ticks = tuning.start_ticks(program.pid)
    assert not tuning.place(program.pid, ticks + 1, CORES[:1])
    assert program.cores() == {tuple(CORES)}


def test_masks_and_lists_are_read_as_the_kernel_writes_them():
    assert tuning.cores_in("0-2,5\n") == [0, 1, 2, 5]
    assert tuning.cores_in("") == []
    assert tuning.mask_of([0, 5]) == "21"
    assert tuning.mask_of([0, 32, 35]) == "9,00000001"


def test_a_process_that_ends_meanwhile_is_passed_over(state):
    process = subprocess.Popen(["sleep", "0.2"])
    deadline = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < deadline:
        tuning.movable(CORES[:1], CORES[-1:], process.pid, {"pinned": []})
    assert tuning.movable(CORES[:1], CORES[-1:], process.pid, {"pinned": []}) == []


FAKE = """#!{python}
# Stands for systemctl and ethtool of a machine that has them: its settings are files.
import json, pathlib, sys
store = pathlib.Path("{store}")
state = json.loads(store.read_text())
words = sys.argv[1:]
if words[0] == "is-active":
    print(state["service"].get(words[1], "unknown"))
elif words[0] in ("start", "stop"):
    state["service"][words[1]] = "active" if words[0] == "start" else "inactive"
elif "--show-coalesce" in words:
    if words[0] == "--json":
        sys.exit(1)  # as older versions do
    card = state["card"]
    print("Coalesce parameters for eth9:")
    print("Adaptive RX: %s  TX: n/a" % card["adaptive-rx"])
    print("rx-usecs:\\t%s" % card["rx-usecs"])
elif words[0] == "-C":
    even = int(words[3]) & ~1 if words[3] == "5" else words[3]
    state["card"][words[2]] = str(even)
store.write_text(json.dumps(state))
"""
SWITCHES = [
    ["service", "irqbalance", "", "inactive"],
    ["service", "powerd", "", "inactive"],
    ["coalesce", "eth9", "adaptive-rx", "off"],
    ["coalesce", "eth9", "rx-usecs", "0"],
]


@pytest.fixture
def devices(tmp_path, monkeypatch):
    """Programs in front of the PATH, with a service that runs and a card that adapts."""
    store, folder = tmp_path / "devices.json", tmp_path / "bin"
    folder.mkdir()
    first = {"service": {"irqbalance": "active"}, "card": {"adaptive-rx": "on", "rx-usecs": "16"}}
    store.write_text(json.dumps(first))
    for name in ("systemctl", "ethtool"):
        program = folder / name
        program.write_text(FAKE.format(python=sys.executable, store=store))
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return lambda: json.loads(store.read_text()), first


def test_services_and_cards_are_set_and_put_back(tmp_path, program, state, devices):
    now, first = devices
    with agent(tmp_path) as host:
        told = tune(host, state, program.pid, clear=[], switches=SWITCHES)
        assert told["switches"] == [
            ["service irqbalance", "active", "inactive"],
            ["coalescing adaptive-rx of eth9", "on", "off"],
            ["coalescing rx-usecs of eth9", "16", "0"],
        ]
        assert told["refused"] == [["service powerd", "there is none here"]]
        assert now()["card"] == {"adaptive-rx": "off", "rx-usecs": "0"}
        assert now()["service"]["irqbalance"] == "inactive"
    assert now() == first


def test_a_card_that_rounds_a_value_is_put_back_too(tmp_path, program, state, devices):
    now, first = devices
    with agent(tmp_path) as host:
        usecs = ["coalesce", "eth9", "rx-usecs", "5"]
        told = tune(host, state, program.pid, clear=[], switches=[usecs])
        assert told["switches"] == [["coalescing rx-usecs of eth9", "16", "4"]]
        assert host.ask("restore")["restored"]["kept"] == []
    assert now() == first


def test_a_card_that_somebody_else_set_meanwhile_is_kept(tmp_path, program, state, devices):
    now, _ = devices
    with agent(tmp_path) as host:
        tune(host, state, program.pid, clear=[], switches=SWITCHES)
        subprocess.run(["ethtool", "-C", "eth9", "rx-usecs", "7"], check=True)
        kept = host.ask("restore")["restored"]["kept"]
    assert kept == ["coalescing rx-usecs of eth9 is 7: somebody else set it"]
    assert now()["card"] == {"adaptive-rx": "on", "rx-usecs": "7"}


def test_services_and_cards_are_put_back_after_kill_9_of_the_agent(
    tmp_path, program, state, devices
):
    now, first = devices
    with agent(tmp_path) as host:
        tune(host, state, program.pid, clear=[], switches=SWITCHES)
        os.kill(host.info["pid"], signal.SIGKILL)
        host.channel.process.wait(PATIENCE_S)
    assert now() != first
    assert tuning.restore(state)["files"] == 3
    assert now() == first


@may_set
def test_what_is_meant_to_stand_outlives_the_agent_until_it_is_asked_for(tmp_path, program, state):
    was = tuning.sysctl_now(SETTING)
    new = str(int(was) + 1)
    try:
        with agent(tmp_path) as host:
            tune(host, state, program.pid, {SETTING: new}, clear=[], standing=True)
        assert tuning.sysctl_now(SETTING) == new
        assert tuning.restore(state) == {"by": 0, "standing": True}
        with agent(tmp_path) as host:
            with pytest.raises(HostError, match="tuned already; `wirespeed tune restore`"):
                tune(host, state, program.pid, {SETTING: new}, clear=[])
            status = host.ask("tuned", state=state)["status"]
            assert status["rows"] == [[SETTING, was, new, new]] and status["standing"]
            assert host.ask("restore_standing", state=state)["restored"]["files"] == 1
        assert tuning.sysctl_now(SETTING) == was
        assert tuning.status(state) is None
    finally:
        tuning.write_text(SETTING_FILE, was)
