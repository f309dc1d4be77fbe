"""Events of the processor, counted for a process: with the events that the kernel counts itself, as
most virtual machines have no others."""

import errno
import os
import sys
import time

import pytest

from wirespeed.agent import counters
from wirespeed.agent.children import Cgroups, Child, Refused
from wirespeed.errors import HostError
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.host import Host

PATIENCE_S = 120.0
SOFTWARE = ["task-clock", "context-switches"]
# A child that works in a process and in a thread, both begun after the counting.
WORKS = """
import os, sys, threading, time
sys.stdin.readline()
def work():
    end = time.thread_time() + 0.1
    while time.thread_time() < end: pass
    time.sleep(0.001)
thread = threading.Thread(target=work)
thread.start()
pid = os.fork()
if pid == 0:
    work()
    os._exit(0)
os.waitpid(pid, 0)
thread.join()
os.write(1, b"d")
sys.stdin.readline()
"""


def is_countable():
    try:
        return not counters.missing(SOFTWARE)
    except Refused:
        return False


def piped(argv, cgroup):
    """A process that is in the cgroup before it begins, with a pipe at either end."""
    to_child, from_us = os.pipe()
    from_child, to_us = os.pipe()
    pid = os.fork()
    if pid == 0:
        if cgroup:
            with open(f"{cgroup}/cgroup.procs", "w") as procs:
                procs.write("0")
        os.dup2(to_child, 0)
        os.dup2(to_us, 1)
        os.execv(argv[0], argv)
    os.close(to_child)
    os.close(to_us)
    return pid, from_us, from_child


@pytest.mark.parametrize("with_cgroup", [True, False], ids=["cgroup", "threads"])
def test_what_a_process_forks_and_starts_is_counted(with_cgroup):
    assert is_countable(), "tests run as root, on a kernel with perf events"
    groups = Cgroups(f"count-{os.getpid()}") if with_cgroup else None
    cgroup = groups.make("app") if groups and groups.root else None
    pid, to_child, from_child = piped([sys.executable, "-c", WORKS], cgroup)
    found = None
    try:
        found = counters.Counters(Child("app", pid, cgroup), SOFTWARE)
        before = found.read()
        os.write(to_child, b"go\n")
        assert os.read(from_child, 1) == b"d"
        after = found.read()
        assert after["task-clock"] - before["task-clock"] >= 0.19e9
        assert after["context-switches"] > before["context-switches"]
    finally:
        os.close(to_child)
        os.waitpid(pid, 0)
        os.close(from_child)
        if found:
            found.close()
        if groups:
            groups.remove()


def test_without_the_controller_in_this_tree_of_cgroups_threads_are_counted(monkeypatch, tmp_path):
    """perf_event mounted as cgroup v1: the kernel refuses the folder of the other tree (EBADF)."""
    real = counters.opened

    def opened(name, target, core, bits, flags=0):
        if flags & counters.OF_CGROUP:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return real(name, target, core, bits, flags)

    monkeypatch.setattr(counters, "opened", opened)
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    found = counters.Counters(Child("app", os.getpid(), str(tmp_path)), SOFTWARE)
    before = found.read()["task-clock"]
    sum(range(100_000))
    assert found.read()["task-clock"] > before
    found.close()


def test_an_event_that_shared_a_counter_is_extrapolated(monkeypatch):
    def reading(found, enabled, running):
        data = counters.struct.pack("=QQQ", found, enabled, running)
        monkeypatch.setattr(counters.os, "read", lambda *_: data)
        return counters.count(3)

    assert reading(700, 1000, 1000) == 700
    assert reading(700, 1000, 250) == 2800
    assert reading(0, 1000, 0) == 0


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.ENOENT, "no counters of the processor"),
        (errno.EACCES, "needs root"),
        (errno.ENOSYS, "not implemented"),
    ],
)
def test_the_reason_why_nothing_can_be_counted(monkeypatch, number, said):
    def opened(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(counters, "opened", opened)
    assert said in counters.missing(["instructions"]).lower()


@pytest.fixture(params=[True, False], ids=["cgroups", "no-cgroups"])
def host(request, tmp_path):
    order = {"mark": f"{os.getpid()}-{tmp_path.name}", "cgroups": request.param}
    agent = Host(Transport("here", python=sys.executable), order)
    agent.greet()
    yield agent
    agent.close()


def test_samples_hold_the_counts_of_the_processes_that_were_named(host, tmp_path):
    for name in ("app", "gen"):
        host.ask(
            "spawn", name=name, argv=[sys.executable, "-c", "while True: pass"],
            stdout=str(tmp_path / "out"), stderr=str(tmp_path / "err"),
            folder=str(tmp_path), cwd=str(tmp_path),
        )  # fmt: skip
    assert host.ask("uncountable", events=SOFTWARE) == {"why": ""}
    counted = {"names": ["app"], "events": SOFTWARE}
    host.ask("sample_start", names=["app", "gen"], every_s=60, counted=counted)
    began_us = host.ask("state", name="app")["cpu_us"]
    deadline = time.monotonic() + PATIENCE_S
    while host.ask("state", name="app")["cpu_us"] < began_us + 50_000:
        assert time.monotonic() < deadline
    first, *_, last = host.ask("sample_stop")
    assert set(last["counts"]) == {"app"}
    # Without a cgroup the agent reads CPU time in ticks of 10 ms.
    assert last["counts"]["app"]["task-clock"] - first["counts"]["app"]["task-clock"] >= 35e6
    host.ask("stop", names=["app", "gen"], grace_s=0)


def test_an_unknown_event_is_refused(host):
    with pytest.raises(HostError, match="event tea-breaks: unknown"):
        host.ask("uncountable", events=["tea-breaks"])
