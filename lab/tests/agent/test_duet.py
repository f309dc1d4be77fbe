"""Contenders that take turns: the waiting one is frozen, and no process stays frozen or alive."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import marked

from wirespeed.agent.duet import Longer
from wirespeed.analysis import duet as analysis
from wirespeed.errors import HostError
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.host import Host
from wirespeed.runner import turns

GATED = Path(__file__).parent.parent / "fakes" / "gated.py"
SERVER = "import os, time\nos.fork()\nwhile True: time.sleep(0.0005)"
REALTIME = """
import os, time
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
print(1, flush=True)
while True:
    end = time.monotonic() + 0.01
    while time.monotonic() < end:
        pass
    time.sleep(0.01)
"""
PATIENCE_S = 120.0


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_frozen(pid):
    """Stopped, or in a frozen cgroup."""
    if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
        return True
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        for tree in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
            events = Path(tree + line[3:] + "/cgroup.events")
            if line.startswith("0::") and events.exists():
                return "frozen 1" in events.read_text()
    return False


@pytest.fixture(params=[True, False], ids=["cgroups", "no-cgroups"])
def duo(request, tmp_path):
    """An agent with two servers, each with a generator: `ask` lets them take turns."""
    mark = f"{os.getpid()}-{tmp_path.name}"
    order = {"mark": mark, "cgroups": request.param, "lab_pid": os.getpid()}
    host = Host(Transport("here", python=sys.executable), order)
    host.greet()
    host.mark, host.folder, host.pids = mark, tmp_path, {}
    yield host
    host.close()
    assert not marked(mark)


def spawn(host, name, argv):
    folder = str(host.folder)
    host.pids[name] = host.ask(
        "spawn", name=name, argv=argv, folder=folder, cwd=folder,
        stdout=f"{folder}/{name}.out", stderr=f"{folder}/{name}.err",
    )["pid"]  # fmt: skip


def start(host, *more):
    for side in "ab":
        spawn(host, f"server-{side}", [sys.executable, "-c", SERVER])
        control = str(host.folder / f"control-{side}")
        spawn(host, f"load-{side}", [sys.executable, str(GATED), control, *more])


def message(host, length_s, **more):
    words = {
        "sides": [{"servers": [f"server-{s}"], "loads": [f"load-{s}"]} for s in "ab"],
        "controls": [[str(host.folder / f"control-{s}")] for s in "ab"],
        "slice_s": 0.02, "skip_s": 0.004, "drain_s": 1.0, "length_s": length_s, "seed": 7,
        "core": max(os.sched_getaffinity(0)),
        "cores": [],  # no look for programs with real-time priority: other tests' duets have it
    }  # fmt: skip
    return {**words, **more}


def test_the_sides_take_turns_and_rest_frozen(duo):
    start(duo)
    # Long enough for many turns, and for a generator that gets no core for a while.
    found = duo.ask("duet", PATIENCE_S, **message(duo, 2.0, drain_s=60.0))
    rows = found["slices"]
    assert found["how"] == ("cgroup.freeze" if duo.info["cgroup"] else "SIGSTOP")
    assert len(rows) % 4 == 0 and len(rows) >= 4
    assert found["longer_s"] == 0 and found["seconds"] >= 2.0
    for number in range(0, len(rows), 4):
        sides = [row[1] for row in rows[number : number + 4]]
        assert sides in ([0, 1, 1, 0], [1, 0, 0, 1])
        assert len({row[0] for row in rows[number : number + 4]}) == 1
    for _, _, seconds, responses, cpu_s, counted_s, counted, is_drained, freezing_s in rows:
        assert is_drained and seconds >= 0.02 and 0 <= freezing_s < 5
        assert responses >= counted >= 0 and cpu_s >= 0 and counted_s <= seconds - 0.004 + 1e-6
    for side in (0, 1):
        mine = [row for row in rows if row[1] == side]
        assert sum(row[3] for row in mine) > 0 and sum(row[4] for row in mine) > 0
    for name, pid in duo.pids.items():
        wait_until(lambda pid=pid: not is_frozen(pid))
        assert duo.ask("state", name=name)["code"] is None


def test_a_pair_goes_on_until_enough_of_its_groups_drained(duo):
    """With a thousand connections or with steal a pair of a second had four groups of the five
    that a figure takes, and was given up."""
    start(duo)
    wanted = {**turns.enough(1.0), "groups": 3, "left_out": 1.0, "more_s": 60.0}
    found = duo.ask("duet", PATIENCE_S, **message(duo, 0.001, drain_s=60.0, enough=wanted))
    rows = found["slices"]
    taken_s = [sum(row[2] + row[8] for row in rows[at : at + 4]) for at in range(0, len(rows), 4)]
    assert found["seconds"] >= sum(taken_s) - 1e-4, "what it took, and not what was planned"
    assert sum(taken_s[1:]) - 1e-4 <= found["longer_s"] < found["seconds"]
    assert len(rows) >= 12 and all(row[7] for row in rows)
    assert not goes_on(rows, wanted) and goes_on(rows[:-4], wanted)


def goes_on(rows, wanted, beyond_s=0.0):
    return Longer(wanted).goes_on(rows, beyond_s)


def made_rows(dice, groups):
    """Rows of slices of which some did not drain."""
    share = dice.choice([0.0, 0.1, 0.25, 0.5])
    return [
        [group, side, dice.uniform(0.02, 0.1), 50, 0.02, 0.02, 40,
         int(dice.random() >= share / 4), 0.001]
        for group in range(groups)
        for side in (0, 1, 1, 0)
    ]  # fmt: skip


def test_a_pair_ends_when_it_has_a_figure_and_goes_on_while_it_has_none():
    dice, seen = random.Random(2), set()
    for _ in range(300):
        rows = made_rows(dice, dice.randrange(1, 30))
        told = analysis.of_slices([analysis.Slice(*row) for row in rows], 2.0, True)
        drains = any(all(row[7] for row in rows[at : at + 4]) for at in range(0, len(rows), 4))
        assert goes_on(rows, turns.enough(1.0), 0.5) == (bool(told.problem) and drains)
        assert not goes_on(rows, turns.enough(1.0), 2.0), "no longer than it may"
        seen.add(told.problem.split(" ")[-1])
    assert seen == {"", "drain", "few"}
    stuck = [[*row[:7], 0, row[8]] for row in made_rows(dice, 6)]
    assert not goes_on(stuck, turns.enough(1.0), 0.1), "nothing drains: more of it is of no use"
    assert not goes_on(stuck, None, 0.1)
    assert turns.enough(8.0)["more_s"] == 4.0 and turns.enough(1.0)["more_s"] == 2.0
    assert turns.enough(8.0, 0.5)["more_s"] == 0.5, "no more than the run has left for it"


def drained_or_not(pattern):
    """Groups of a tenth of a second: + drained, - did not."""
    return [
        [group, side, 0.024, 50, 0.02, 0.02, 40, int(one == "+"), 0.001]
        for group, one in enumerate(pattern)
        for side in (0, 1, 1, 0)
    ]


def looked_at(pattern, first):
    """Whether it goes on when this pattern has come group by group since the look at the first."""
    longer = Longer({**turns.enough(1.0), "settle_s": 0.0, "more_s": 1e9})
    looks = (longer.goes_on(drained_or_not(pattern[:at]), 0.1 * (at - first))
             for at in range(first, len(pattern) + 1))  # fmt: skip
    return all(looks)


def test_the_share_left_out_is_judged_once_and_not_until_it_is_little_enough():
    """A pair of which 30 % do not drain has moments with 25 %, and ended at the first of them."""
    assert looked_at("+++++--", 7) and looked_at("+++++--" + 20 * "+", 7), "over 25 %: to the end"
    assert looked_at("++++", 4) and not looked_at("+++++", 4), "few groups: until five are there"
    assert not looked_at("++++-+", 4), "one of six is none too many"
    assert looked_at("++++--+++++", 4), "beyond the quarter on the way to five"


def test_whether_a_pair_goes_on_does_not_depend_on_its_responses():
    rows = drained_or_not("+++++")
    silent = [[*row[:6], 0, *row[7:]] for row in rows]
    assert goes_on(rows, turns.enough(1.0)) == goes_on(silent, turns.enough(1.0))


def test_a_side_at_rest_counts_nothing(duo):
    """The responses of all slices, and the ones before the first, add up to the total."""
    start(duo)
    before = message(duo, 0.3)
    rows = duo.ask("duet", PATIENCE_S, **before)["slices"]
    for side in (0, 1):
        mine = [row for row in rows if row[1] == side]
        # two hundred microseconds each: a side that went on at rest would have twice as many
        assert sum(row[3] for row in mine) <= sum(row[2] for row in mine) / 0.0002


def test_a_generator_that_does_not_drain_is_frozen_all_the_same_and_reported(duo):
    start(duo, "ungated")
    rows = duo.ask("duet", PATIENCE_S, **message(duo, 0.1, drain_s=0.002))["slices"]
    assert rows and all(row[7] == 0 for row in rows)


@pytest.mark.parametrize("frozen", ["server-a", "load-b"])
def test_a_stop_in_the_middle_ends_all_of_them(duo, frozen):
    start(duo)
    serial = duo.send("duet", **message(duo, 60))
    wait_until(lambda: is_frozen(duo.pids[frozen]))
    answer = duo.ask("stop", PATIENCE_S, names=list(duo.pids), grace_s=60)
    assert answer == {"killed": [], "left": []}
    with pytest.raises(HostError, match="ended"):
        duo.answer(serial, "duet")
    assert not marked(duo.mark)


def test_the_end_of_the_lab_in_the_middle_leaves_nothing(duo):
    start(duo)
    duo.send("duet", **message(duo, 60))
    wait_until(lambda: is_frozen(duo.pids["server-a"]) or is_frozen(duo.pids["server-b"]))
    duo.close()
    assert not marked(duo.mark)


def test_an_agent_that_is_killed_in_the_middle_leaves_nothing_alive_or_frozen(duo):
    """The kernel ends its children; their own children are frozen, and receive no signal."""
    start(duo)
    duo.send("duet", **message(duo, 60))
    wait_until(lambda: is_frozen(duo.pids["server-a"]) or is_frozen(duo.pids["server-b"]))
    os.kill(duo.info["pid"], signal.SIGKILL)
    wait_until(lambda: not marked(duo.mark))


def test_a_server_that_rests_is_ended_with_its_agent(duo):
    spawn(duo, "server-a", [sys.executable, "-c", SERVER])
    wait_until(lambda: len(marked(duo.mark)) == 2)
    duo.ask("freeze", names=["server-a"])
    assert is_frozen(duo.pids["server-a"])
    duo.ask("thaw", names=["server-a"])
    wait_until(lambda: not is_frozen(duo.pids["server-a"]))
    duo.ask("freeze", names=["server-a"])
    os.kill(duo.info["pid"], signal.SIGKILL)
    wait_until(lambda: not marked(duo.mark))


@pytest.mark.parametrize("stopped", [[], ["server-b"]], ids=["both", "one-is-stopped"])
def test_servers_that_were_frozen_one_by_one_are_all_ended_with_their_agent(duo, stopped):
    """The guard watched only the latest server, and forgot the others at each stop."""
    for side in "ab":
        spawn(duo, f"server-{side}", [sys.executable, "-c", SERVER])
    wait_until(lambda: len(marked(duo.mark)) == 4)
    for side in "ab":
        duo.ask("freeze", names=[f"server-{side}"])
    duo.ask("stop", PATIENCE_S, names=stopped, grace_s=60)
    assert is_frozen(duo.pids["server-a"])
    os.kill(duo.info["pid"], signal.SIGKILL)
    wait_until(lambda: not marked(duo.mark))


def test_a_server_that_dies_ends_the_turns(duo):
    start(duo)
    serial = duo.send("duet", **message(duo, 60))
    wait_until(lambda: is_frozen(duo.pids["server-a"]))
    os.kill(duo.pids["load-a"], signal.SIGKILL)
    os.kill(duo.pids["load-b"], signal.SIGKILL)
    rows = duo.answer(serial, "duet", PATIENCE_S)["slices"]
    assert rows[-1][3] == 0


@pytest.mark.parametrize("duo", [False], indirect=True, ids=["no-cgroups"])
def test_a_program_that_refuses_to_freeze_goes_on(duo):
    """A process in a session of its own is not stopped with its group; what was stayed so."""
    own_session = "import os, time\nos.fork() or os.setsid()\nwhile True: time.sleep(0.01)"
    spawn(duo, "server", [sys.executable, "-c", own_session])
    wait_until(lambda: len(duo.ask("state", name="server")["members"]) == 2)
    members = duo.ask("state", name="server")["members"]
    wait_until(lambda: len({os.getsid(pid) for pid in members}) == 2)
    with pytest.raises(HostError, match="server cannot be frozen"):
        duo.ask("freeze", names=["server"])
    assert not any(is_frozen(pid) for pid in members)


def test_a_program_with_real_time_priority_prevents_a_duet(duo):
    core = max(os.sched_getaffinity(0))
    other = subprocess.Popen(
        ["taskset", "-c", str(core), sys.executable, "-c", REALTIME], stdout=subprocess.PIPE
    )
    try:
        if not other.stdout.read(1):
            pytest.skip("this user may not have real-time priority")
        start(duo)
        with pytest.raises(HostError, match=f"process {other.pid}.*real-time priority"):
            duo.ask("duet", PATIENCE_S, **message(duo, 0.2, cores=[core]))
    finally:
        other.kill()
        other.wait()


def test_a_file_that_is_none_of_a_generator_is_refused(duo):
    start(duo)
    (duo.folder / "control-a").unlink(missing_ok=True)
    wait_until(lambda: (duo.folder / "control-b").exists())
    (duo.folder / "control-b").write_bytes(bytes(200))
    words = message(duo, 0.2, controls=[[str(duo.folder / "control-b")]] * 2)
    with pytest.raises(HostError, match="is not a control file of wirespeed-load"):
        duo.ask("duet", PATIENCE_S, **words)
