"""The census of other processes: every process but our own, the largest first."""

import os
import subprocess
import sys

import pytest

from wirespeed.agent import census


@pytest.fixture
def sleeper():
    process = subprocess.Popen(["sleep", "500"])
    yield process
    process.kill()
    process.wait()


def test_a_census_sees_every_process_but_our_own(sleeper, monkeypatch):
    monkeypatch.setattr(census, "CENSUS_S_MAX", 60.0)
    found = census.census({os.getpid()})
    assert os.getpid() not in found
    assert found[sleeper.pid].cpu_ns >= 0 and found[sleeper.pid].parent == os.getpid()
    assert os.getpid() in census.census(set())


def test_a_machine_with_too_many_processes_is_not_read_to_the_end(monkeypatch):
    monkeypatch.setattr(census, "CENSUS_S_MAX", -1.0)
    assert census.census(set()) is None
    one = census.Census()
    assert one.take(set()) == {"used": [], "is_whole": False}
    assert not one.take(set())["is_whole"], "what was not read is not counted as nothing"


S = 1_000_000_000


def process(name, cpu_s, parent=1, ended_s=0.0, started=0, core=0):
    return census.ProcessUse(name, parent, int(cpu_s * S), int(ended_s * S), started, core)


def taken(monkeypatch, first, second, cores=None):
    """The use between two censuses, the first of which was taken at tick 100."""
    rounds, moments = [first, second], [100, 200]
    monkeypatch.setattr(census, "census", lambda _ours: rounds.pop(0))
    monkeypatch.setattr(census, "now_ticks", lambda: moments.pop(0))
    one = census.Census()
    assert one.take(set(), cores) == {"used": [], "is_whole": False}
    answer = one.take(set(), cores)
    assert answer["is_whole"]
    return {name: pytest.approx(seconds) for name, seconds in answer["used"]}


def test_use_since_the_census_before_is_summed_by_name(monkeypatch):
    first = {1: process("init", 5), 2: process("kdamond.0", 0), 3: process("cc1", 0),
             4: process("cc1", 1)}  # fmt: skip
    second = {1: process("init", 5), 2: process("kdamond.0", 1), 3: process("cc1", 2),
              4: process("cc1", 2)}  # fmt: skip
    assert taken(monkeypatch, first, second) == {"cc1": 3.0, "kdamond.0": 1.0}


def test_processes_that_were_born_since_or_have_ended_count(monkeypatch):
    """A loop of short programs filled a core, and a census saw no process."""
    first = {7: process("sh", 0, ended_s=40.0), 8: process("cc1", 9, parent=7, started=5)}
    second = {
        7: process("sh", 0, ended_s=52.0),  # of which cc1 had used 9 s before it ended
        9: process("make", 2.0, parent=7, started=150),  # 2 s, all of them since
        8: process("ld", 0.5, parent=7, started=160),  # it has the number of the one that ended
        10: process("old", 70.0, parent=7, started=50),  # that the first census did not reach
    }
    assert taken(monkeypatch, first, second) == {
        "ended children of sh": 3.0, "make": 2.0, "ld": 0.5,
    }  # fmt: skip


def test_processes_on_other_cores_are_not_counted(monkeypatch):
    first = {1: process("far", 0, core=3), 2: process("near", 0), 3: process("moved", 0, core=3)}
    second = {1: process("far", 4, core=2), 2: process("near", 1), 3: process("moved", 1, core=1)}
    assert taken(monkeypatch, first, second, [0, 1]) == {"near": 1.0, "moved": 1.0}


def test_small_users_are_summed(monkeypatch):
    first = {pid: process(f"p{pid}", 0) for pid in range(9)}
    second = {pid: process(f"p{pid}", 1) for pid in range(9)}
    assert taken(monkeypatch, first, second)["smaller ones"] == 4.0


def test_short_programs_are_counted_by_what_their_parent_waited_for(monkeypatch):
    """With real processes: none of them is there at either end."""
    monkeypatch.setattr(census, "CENSUS_S_MAX", 60.0)
    spin = "import time\nend = time.process_time() + 0.1\nwhile time.process_time() < end: pass"
    each = f"for i in 1 2 3; do {sys.executable} -c '{spin}'; done"
    command = ["bash", "-c", f"read line; {each}; echo done; read line"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as shell:
        one = census.Census()
        one.take(set())
        shell.stdin.write("go\n")
        shell.stdin.flush()
        assert shell.stdout.readline() == "done\n"
        before, now = one.before, census.census(set())
        used = census.uses({shell.pid: before[shell.pid]}, {shell.pid: now[shell.pid]}, 0, None)
        shell.stdin.close()
    assert dict(used)["ended children of bash"] >= 0.25 * S


def test_a_process_that_has_gone_has_no_use():
    assert census.process_of(2**22 + 1) is None
