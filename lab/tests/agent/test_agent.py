"""The host agent over its pipe: nothing survives, samples are real, one run per machine."""

import ctypes
import errno
import fcntl
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from ports import free_port, is_free
from processes import marked

from wirespeed.agent import children, duet, facts, files, helpers, leftovers, main, sampling
from wirespeed.agent.children import Child, Refused, is_alive
from wirespeed.agent.helpers import Helpers, run_program
from wirespeed.errors import BusyError, HostError
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.fleet import Fleet
from wirespeed.fleet.host import Host

NO_MAIN_THREAD = Path(__file__).parents[1] / "fakes" / "no_main_thread.py"
SPAWNS = "setsid sleep 500 & sleep 500 & exec sleep 500"
PATIENCE_S = 120.0


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if condition():  # asked once: what it sees may be passing, as a process that execs
            return True
        time.sleep(0.01)
    return False


@pytest.fixture(params=[True, False], ids=["cgroups", "no-cgroups"])
def host(request, tmp_path):
    mark = f"{os.getpid()}-{tmp_path.name}"
    order = {"mark": mark, "cgroups": request.param, "lab_pid": os.getpid()}
    agent = Host(Transport("here", python=sys.executable), order)
    agent.greet()
    agent.mark = mark
    yield agent
    agent.close()


def spawn(host, tmp_path, name="app", argv=("sh", "-c", SPAWNS), **more):
    return host.ask(
        "spawn",
        name=name,
        argv=list(argv),
        stdout=str(tmp_path / "out"),
        stderr=str(tmp_path / "err"),
        folder=str(tmp_path),
        cwd=str(tmp_path),
        **more,
    )


def test_a_stop_ends_a_process_with_all_it_forked(host, tmp_path):
    spawn(host, tmp_path)
    assert wait_until(lambda: len(marked(host.mark)) == 3)
    answer = host.ask("stop", names=["app"], grace_s=60)
    assert answer == {"killed": [], "left": []}
    host.close()
    assert not marked(host.mark)


def test_a_stop_ends_a_process_whose_main_thread_has_ended(host, tmp_path):
    """It counted as ended, so it kept its port, and the next server was refused it."""
    port = free_port()
    command = f"{sys.executable} {NO_MAIN_THREAD} {port} & exit 0"
    spawn(host, tmp_path, argv=("sh", "-c", command))
    assert host.wait_exit(["app"], PATIENCE_S)
    assert wait_until(lambda: not is_free(port))
    assert len(host.ask("state", name="app")["members"]) == 1
    assert host.ask("stop", names=["app"], grace_s=60) == {"killed": [], "left": []}
    assert is_free(port)


def test_a_daemon_belongs_to_the_process_that_left_it(host, tmp_path):
    """Without cgroups no stop ended it, and its server was said to have ended."""
    spawn(host, tmp_path, name="other", argv=("sleep", "500"))
    spawn(host, tmp_path, argv=("sh", "-c", "(setsid sleep 500 &)"))
    assert host.wait_exit(["app"], PATIENCE_S)
    assert wait_until(lambda: len(host.ask("state", name="app")["members"]) == 1)
    left = host.ask("state", name="app")["members"]
    assert left != host.ask("state", name="other")["members"]
    assert set(left) < set(host.ask("members"))
    assert host.ask("stop", names=["app"], grace_s=60) == {"killed": [], "left": []}
    assert not is_alive(left[0]) and len(marked(host.mark)) == 1


def test_a_process_without_its_main_thread_is_found_and_seen_to_run():
    """A killed agent's was not among what it had left, and a running one counted as stopped."""
    port = free_port()
    # The mark of an agent that lives: runs of other tests end the processes of dead ones.
    environment = {**os.environ, "WIRESPEED_AGENT": leftovers.identity(os.getpid())}
    with subprocess.Popen([sys.executable, NO_MAIN_THREAD, str(port)], env=environment) as process:
        try:
            assert wait_until(lambda: not is_free(port))
            assert is_alive(process.pid) and process.pid in leftovers.marked()
            assert not duet.is_stopped(process.pid)
            process.send_signal(signal.SIGSTOP)
            assert wait_until(lambda: duet.is_stopped(process.pid))
        finally:
            process.kill()
    assert not is_alive(process.pid)


def test_a_process_that_its_cgroup_still_counts_is_not_gone(tmp_path):
    """cgroup.procs leaves out a process whose threads are all about to end."""
    child = Child("app", 1, str(tmp_path))
    child.code = 0
    (tmp_path / "cgroup.procs").write_text("")
    (tmp_path / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    assert not child.is_gone()
    (tmp_path / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    assert child.is_gone()


def test_without_a_cgroup_the_time_of_ended_children_counts():
    """A server that forks for each request had used almost no CPU time."""
    burn = f"{sys.executable} -c 'import time\nwhile time.process_time() < 0.3: pass'"
    command = ["sh", "-c", f"{burn}; echo done; read end"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == b"done\n"
        assert Child("app", process.pid, None).cpu_us() >= 250_000
        process.communicate(b"\n")


def test_the_end_of_stdin_ends_everything(host, tmp_path):
    spawn(host, tmp_path)
    assert wait_until(lambda: len(marked(host.mark)) == 3)
    host.close()
    assert not marked(host.mark)
    for tree in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        assert not list(Path(tree).glob(f"wirespeed-{host.mark}*"))


def test_a_process_that_ignores_term_is_killed_and_named(host, tmp_path):
    trap = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); "
        "print('set', flush=True); time.sleep(500)"
    )
    spawn(host, tmp_path, argv=(sys.executable, "-c", trap))
    assert wait_until(lambda: (tmp_path / "out").exists() and (tmp_path / "out").read_text())
    assert host.ask("stop", names=["app"], grace_s=0.05)["killed"] == ["app"]
    assert host.exits["app"] == -9


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take on another user")
def test_a_program_runs_as_the_user_it_is_for_and_ends_with_the_agent(host, tmp_path):
    """Everything ran as root where the lab did."""
    script = "id -u; id -g; id -G; echo $HOME $USER $MINE; exec sleep 500"
    spawn(host, tmp_path, argv=["sh", "-c", script], user="nobody",
          env={"PATH": "/usr/bin:/bin", "MINE": "kept"})  # fmt: skip
    assert wait_until(lambda: (tmp_path / "out").read_text().count("\n") == 4)
    account = pwd.getpwnam("nobody")
    uid, gid, groups, home = (tmp_path / "out").read_text().splitlines()
    assert (int(uid), int(gid), groups) == (account.pw_uid, account.pw_gid, gid)
    assert home.split() == [account.pw_dir, "nobody", "kept"]
    assert wait_until(lambda: len(marked(host.mark)) == 1)  # while a program begins it has no marks
    os.kill(host.info["pid"], signal.SIGKILL)  # the kernel's promise must survive the new user
    assert wait_until(lambda: not marked(host.mark))
    leftovers.tidy()


def test_a_user_that_is_not_there_is_refused(host, tmp_path):
    with pytest.raises(HostError, match="user nobdoy: not found on this host"):
        spawn(host, tmp_path, user="nobdoy")


def test_an_exit_code_is_reported(host, tmp_path):
    spawn(host, tmp_path, argv=("sh", "-c", "exit 7"))
    assert host.wait_exit(["app"], PATIENCE_S) == "app"
    assert host.exits["app"] == 7


def test_the_output_of_a_program_is_its_own_and_not_the_one_before_its(host, tmp_path):
    """A warm-up and its window run under one name in one folder: the lab read the output of the
    first as the second's."""
    for word in ("first and longer", "second"):
        spawn(host, tmp_path, argv=("sh", "-c", f"echo {word}; echo {word} >&2"))
        assert host.wait_exit(["app"], PATIENCE_S)
        host.ask("stop", names=["app"], grace_s=0)
        host.exits.clear()
    assert (tmp_path / "out").read_text() == (tmp_path / "err").read_text() == "second\n"


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_a_process_may_have_a_name_that_is_not_text(tmp_path, monkeypatch, locale):
    """prctl(2) takes any bytes: such a process broke every agent of the machine."""
    monkeypatch.setenv("LC_ALL", locale)
    monkeypatch.setenv("PYTHONCOERCECLOCALE", "0")
    python = (sys.executable, "-X", "utf8=0", "-c")
    names_itself = (
        "import time; open('/proc/self/comm', 'wb').write(b'a\\xff)');"
        " print('named', flush=True); time.sleep(500)"
    )
    with subprocess.Popen([*python, names_itself], stdout=subprocess.PIPE) as strange:
        try:
            assert strange.stdout.readline() == b"named\n"
            order = {"mark": f"{os.getpid()}-{tmp_path.name}", "cgroups": False}
            host = Host(Transport("here", python=sys.executable), order)
            try:
                host.greet()
                spawn(host, tmp_path, argv=(*python, names_itself))
                assert wait_until(lambda: "named" in (tmp_path / "out").read_text())
                assert host.ask("state", name="app")["members"]
                host.ask("census")
                state = str(tmp_path / "tuned.json")
                core = host.info["cores"][:1]
                more = {"limits": {}, "under": strange.pid, "state": state}
                host.ask("tune", sysctl={}, clear=core, to=host.info["cores"][1:], **more)
                host.ask("restore")
                assert host.ask("stop", names=["app"], grace_s=60) == {"killed": [], "left": []}
                spawn(host, tmp_path, argv=(*python, names_itself))
            finally:
                host.close()
            assert host.channel.process.returncode == 0
        finally:
            strange.kill()


def test_a_program_that_does_not_exist_is_refused(host, tmp_path):
    with pytest.raises(HostError, match="program /no/such not found"):
        spawn(host, tmp_path, argv=("/no/such",))


def test_a_process_is_pinned_and_limited_before_it_starts(host, tmp_path):
    core = host.info["cores"][-1]
    script = (
        "import os, resource as r; "
        "print(sorted(os.sched_getaffinity(0)), r.getrlimit(r.RLIMIT_NOFILE)[0])"
    )
    spawn(host, tmp_path, argv=(sys.executable, "-c", script), cores=[core], limits={"nofile": 123})
    assert host.wait_exit(["app"], PATIENCE_S)
    assert (tmp_path / "out").read_text() == f"[{core}] 123\n"


def test_samples_count_the_cpu_of_a_process(host, tmp_path):
    spawn(host, tmp_path, argv=(sys.executable, "-c", "while True: pass"))
    host.ask("sample_start", names=["app"], every_s=0.05, instants=[time.time() + 0.12])
    began_us = host.ask("state", name="app")["cpu_us"]
    assert wait_until(lambda: host.ask("state", name="app")["cpu_us"] > began_us + 100_000)
    samples = host.ask("sample_stop")
    used = [sample["process"]["app"][0] for sample in samples]
    assert len(samples) >= 3
    assert used == sorted(used) and used[-1] > used[0]
    assert all(sample["text"]["/proc/stat"].startswith("cpu ") for sample in samples)
    host.ask("stop", names=["app"], grace_s=0)


def test_a_second_agent_reads_only_the_requested_counters(host):
    host.ask("sample_start", names=[], every_s=60, instants=[], paths=["/proc/net/snmp"])
    samples = host.ask("sample_stop")
    assert len(samples) == 2
    assert all(list(sample["text"]) == ["/proc/net/snmp"] for sample in samples)


def test_the_cpu_time_of_the_lab_is_read_from_its_clock(host, tmp_path):
    pid = spawn(host, tmp_path, argv=(sys.executable, "-c", "while True: pass"))["pid"]
    assert wait_until(lambda: sampling.process_time_of(pid) > 0.05)
    told_s = host.ask("state", name="app")["cpu_us"] / 1e6
    assert sampling.process_time_of(pid) >= told_s > 0
    host.ask("stop", names=["app"], grace_s=0)
    assert sampling.process_time_of(pid) == 0.0


def test_the_lab_stays_on_one_core_while_samples_are_taken(host):
    before = os.sched_getaffinity(0)
    core = host.info["cores"][-1]
    try:
        host.ask("sample_start", names=[], every_s=0.05, lab_core=core)
        assert os.sched_getaffinity(0) == os.sched_getaffinity(host.info["pid"]) == {core}
        samples = host.ask("sample_stop")
        assert os.sched_getaffinity(0) == os.sched_getaffinity(host.info["pid"]) == before
    finally:
        os.sched_setaffinity(0, before)
    assert samples[-1]["process"]["lab"][0] > 0


def test_a_process_gets_the_priority_that_this_user_may_give(host, tmp_path):
    own_nice = os.getpriority(os.PRIO_PROCESS, 0)
    granted = host.ask("prefer", nice=-20)["nice"]
    assert granted in (0, -20)
    group = Path("/proc/self/autogroup")
    before = group.read_text() if group.exists() else ""
    show = "import os; print(os.getpriority(0, 0)); print(open('/proc/self/autogroup').read())"
    spawn(host, tmp_path, argv=(sys.executable, "-c", show))
    assert host.wait_exit(["app"], PATIENCE_S)
    nice, *words = (tmp_path / "out").read_text().split()
    assert int(nice) == (granted or own_nice)
    if before:
        assert int(words[-1]) == granted
        assert group.read_text() == before
    assert os.getpriority(os.PRIO_PROCESS, 0) == own_nice


def test_the_calibration_takes_time(host):
    assert host.ask("calibration", core=host.info["cores"][0])["ms"] > 0.1


def test_folders_go_away_with_the_agent(host, tmp_path):
    folder = tmp_path / "scratch"
    (folder / "deep").mkdir(parents=True)
    host.ask("clean_up_at_end", folders=[str(folder)])
    host.close()
    assert not folder.exists()


def test_a_lock_is_held_until_the_agent_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("WIRESPEED_LOCK", str(tmp_path / "lock"))
    far = [Transport("here", python=sys.executable)]
    first, other = Fleet(far, "first", cgroups=False), Fleet(far, "other", cgroups=False)
    try:
        first.lock("first")
        with pytest.raises(BusyError, match="first is measuring on this machine"):
            other.lock("second")
        first.close()
        other.lock("second")
    finally:
        other.close()


def test_of_two_runs_that_begin_at_once_one_has_the_machine(tmp_path):
    """Each took a lock that the other had not reached yet, and both were refused."""
    paths = [str(tmp_path / name) for name in ("run", "tmp")]
    first, second = ([leftovers.open_lock(path) for path in paths] for _ in range(2))
    try:
        assert main.is_taken(first[0])  # and the other agent asks before it takes its second
        assert main.first_holder(second) is not None
        assert main.first_holder(first) is None
    finally:
        for handle in (*first, *second):
            os.close(handle)


NOBODY = 65534


@pytest.fixture
def open_folder():
    """A folder that every user may enter; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
@pytest.mark.parametrize("is_root_first", [True, False])
def test_root_and_another_user_do_not_measure_at_once(open_folder, tmp_path, is_root_first):
    """Each had its own lock: root in /run, the other user in a folder that it may write."""
    system = "/usr/bin/python3"  # another user may not reach the one of these tests
    for program in ("setpriv", system):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    folder = open_folder / "run"
    folder.mkdir()
    folder.chmod(0o755)
    both = open_folder / "tmp"
    both.mkdir()
    both.chmod(0o1777)
    paths = [str(folder / "lock"), str(both / "lock")]
    as_nobody = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    order = {"mark": f"{os.getpid()}-{tmp_path.name}", "cgroups": False}
    agents = [
        Host(Transport("root", (), system), order),
        Host(Transport("nobody", as_nobody, system), order),
    ]
    first, other = agents if is_root_first else agents[::-1]
    try:
        first.greet()
        other.greet()
        assert first.ask("lock", paths=paths, owner="first") == {"held_by": None}
        assert other.ask("lock", paths=paths, owner="second") == {"held_by": "first"}
        first.close()
        assert other.ask("lock", paths=paths, owner="second") == {"held_by": None}
    finally:
        first.close()
        other.close()


def test_an_agent_that_ends_is_waited_for_and_no_run_that_measures(tmp_path, monkeypatch):
    monkeypatch.setenv("WIRESPEED_LOCK", str(tmp_path / "lock"))
    fleet = Fleet([Transport("here", python=sys.executable)], "next", cgroups=False)
    handle = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.pwrite(handle, leftovers.ENDING.encode(), 0)
    try:
        assert leftovers.is_ending()
        threading.Timer(0.3, lambda: os.close(handle)).start()
        fleet.lock("next")
        assert not leftovers.is_ending()
    finally:
        fleet.close()
    assert (tmp_path / "lock").read_text().startswith(leftovers.ENDING)
    assert not leftovers.is_ending()  # without an owner


def test_a_folder_that_a_following_run_has_taken_over_is_left_to_it(tmp_path):
    folder = tmp_path / "scratch"
    agents = [Host(Transport("here", python=sys.executable), {"mark": mark, "cgroups": False})
              for mark in ("killed", "next")]  # fmt: skip
    for agent in agents:
        agent.greet()
        agent.ask("clean_up_at_end", folders=[str(folder)])
    agents[0].close()
    assert folder.exists()
    agents[1].close()
    assert not folder.exists()


def test_a_process_forked_in_the_agents_last_moment_ends_too():
    """It would hold the machine's lock, which it inherits."""
    forks = (
        "import os, time\n"
        "from wirespeed.agent.children import die_with\n"
        "agent = os.getpid()\n"
        "if os.fork() == 0:\n"
        "    while os.getppid() == agent: time.sleep(0.01)\n"
        "    os.write(1, b'forked')\n"
        "    die_with(agent)\n"
        "    os.write(1, b' and at work')\n"
    )
    done = subprocess.run([sys.executable, "-c", forks], capture_output=True, timeout=PATIENCE_S)
    assert done.stdout == b"forked"


def test_an_unknown_request_and_a_mistaken_one_are_answered(host):
    with pytest.raises(HostError, match="knows no request 'fly'"):
        host.ask("fly")
    with pytest.raises(HostError, match="bad request: KeyError: 'argv'"):
        host.ask("run")
    with pytest.raises(HostError, match="bad request: KeyError"):
        host.ask("spawn", name="app")
    host.channel.process.stdin.write(b"this is not JSON\n")
    assert host.ask("clock")["now"] > 0


def test_requests_are_answered_without_waiting_for_slow_ones(host):
    slow = host.send("run", argv=["sleep", "500"], timeout_s=500)
    assert host.ask("clock")["now"] > 0
    assert not host.has_answered(slow)


def test_a_helper_is_gone_before_its_child_is_stopped():
    """One that was just freezing the child did so after the stop had thawed it."""
    ended = Helpers()
    ended.start(1, signal.pause, "app")
    ((pipe, (_, pid, _, _)),) = ended.running.items()
    ended.end(["another"])
    assert is_alive(pid)
    ended.end(["another", "app"])
    assert not is_alive(pid)
    os.close(pipe)


def test_a_port_that_is_in_use_is_refused_before_anything_starts(host, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(HostError, match=f"port {port} on 127.0.0.1: Address already in use"):
            spawn(host, tmp_path, listen=["127.0.0.1", port])
    assert not marked(host.mark)


def test_a_program_is_held_back_until_its_instant(host, tmp_path):
    at = time.time() + 0.3
    show = "import time; print(time.time())"
    argv = (sys.executable, "-c", show)
    spawn(host, tmp_path, argv=argv, at=at, env={"PATH": os.environ["PATH"]})
    assert host.wait_exit(["app"], PATIENCE_S)
    assert float((tmp_path / "out").read_text()) >= at
    with pytest.raises(HostError, match="program no-such not found"):
        spawn(host, tmp_path, argv=("no-such",), at=at, env={"PATH": "/bin"})


def test_a_long_file_of_the_kernel_is_read_to_its_end(tmp_path):
    """Of /proc/stat with hundreds of cores the last lines were missing, and counted as 0."""
    (tmp_path / "stat").write_text("intr " + "0 " * 50_000 + "\nctxt 7\n")
    handle = sampling.open_fd(str(tmp_path / "stat"))
    assert sampling.pread(handle).endswith(b"\nctxt 7\n")
    os.close(handle)


def test_a_signal_that_is_not_permitted_stops_nothing_else(monkeypatch):
    """A server under sudo: the agent died in its end, and left the others, settings and folders."""
    def not_permitted(pid, sign):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", not_permitted)
    child = Child("app", os.getpid(), None)
    child.terminate()
    child.kill()


def test_sudo_is_refused_where_what_it_starts_could_not_be_ended(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Refused, match="sudo starts a program that this user could not end"):
        children.spawn({"argv": ["/usr/bin/sudo", "./server"]}, None, "mark")


def test_silence_longer_than_the_lease_ends_everything(tmp_path):
    mark = f"{os.getpid()}-{tmp_path.name}"
    far = Transport("here", python=sys.executable, lease_s=6.0)
    host = Host(far, {"mark": mark, "cgroups": False})
    host.greet()
    try:
        spawn(host, tmp_path)
        assert wait_until(lambda: len(marked(mark)) == 3)
        time.sleep(7.0)  # more than a lease, which signs of life keep
        assert len(marked(mark)) == 3
        host.channel._closing.set()  # as after a pulled cable: open, and nothing comes
        assert wait_until(lambda: not marked(mark))
    finally:
        host.close()


def test_files_are_sent_by_hash_and_come_back_whole(host, tmp_path):
    here, there = tmp_path / "here.bin", tmp_path / "far" / "there.bin"
    here.write_bytes(os.urandom(3 << 20))
    here.chmod(0o750)
    host.put_file(here, str(there))
    assert there.read_bytes() == here.read_bytes() == b"".join(host.pieces(str(there)))
    assert there.stat().st_mode & 0o777 == 0o750
    before = there.stat().st_mtime_ns
    host.put_file(here, str(there))
    assert there.stat().st_mtime_ns == before
    with pytest.raises(HostError, match="did not arrive whole"):
        host.ask("put", path=str(there), sha256="0", data="", offset=0, is_last=True, mode=0o600)


def test_what_a_killed_agent_left_is_ended_by_the_next(tmp_path):
    mark = f"{os.getpid()}-{tmp_path.name}"
    scratch = Path("/dev/shm") / f"wirespeed-test-{tmp_path.name}-{os.getpid()}"
    order = {"mark": mark, "cgroups": False}
    first, second = (Host(Transport("here", python=sys.executable), order) for _ in range(2))
    try:
        first.greet()
        second.greet()
        first.ask("clean_up_at_end", folders=[str(scratch)])
        assert str(scratch) not in second.ask("leftovers")["folders"]
        # A member of another session outlives the kernel's signal at its parent's death.
        spawn(first, tmp_path, argv=("sh", "-c", "setsid sleep 500 & wait"))
        assert wait_until(lambda: len(marked(mark)) == 2)
        os.kill(first.info["pid"], signal.SIGKILL)
        first.channel.process.wait()
        # Agents of tests that run in parallel may do it first, or at the same time.
        second.ask("leftovers")
        assert wait_until(lambda: not scratch.exists() and not marked(mark))
    finally:
        first.close()
        second.close()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces and mounts")


@needs_root
def test_files_of_an_agent_in_another_pid_namespace_are_kept(tmp_path):
    """A batch step or a container has other process ids and the same /dev/shm: it deleted the files
    of a running measurement as leftovers."""
    mark = f"{os.getpid()}-{tmp_path.name}"
    scratch = Path("/dev/shm") / f"wirespeed-test-{tmp_path.name}-{os.getpid()}"
    order = {"mark": mark, "cgroups": True}
    apart = ("unshare", "-pf", "--kill-child=KILL", "--mount-proc")
    here = Host(Transport("here", python=sys.executable), order)
    there = Host(Transport("there", apart, sys.executable), order)
    try:
        here.greet()
        there.greet()
        here.ask("clean_up_at_end", folders=[str(scratch)])
        spawn(here, tmp_path, argv=("sleep", "500"))
        spawn(there, tmp_path, name="far", argv=("sleep", "500"))
        assert wait_until(lambda: len(marked(mark)) == 2)
        for agent in (here, there):
            found = agent.ask("leftovers")
            assert not [path for path in found["folders"] if mark in path or path == str(scratch)]
        assert scratch.exists() and len(marked(mark)) == 2
    finally:
        here.close()
        there.close()


@needs_root
def test_programs_are_sent_where_they_can_be_started():
    """Hardened hosts mount /dev/shm with noexec: the generator could not start there."""
    ask = "from wirespeed.agent import files; print(files.memory_folder())"
    script = (
        "mount --make-rprivate / && mount -t tmpfs -o noexec tmpfs /dev/shm && "
        f"TMPDIR=/var/tmp exec {sys.executable} -c '{ask}'"
    )
    mounts = ["unshare", "-m", "sh", "-c", "mount --make-rprivate / && mount -t tmpfs t /dev/shm"]
    if not shutil.which("unshare") or subprocess.run(mounts, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    if os.statvfs("/var/tmp").f_flag & os.ST_NOEXEC:
        pytest.skip("programs cannot be started from /var/tmp here")
    for prefix, found in ((["unshare", "-m"], "/var/tmp\n"), (["env"], None)):
        command = [*prefix, "sh", "-c", script if found else f"{sys.executable} -c '{ask}'"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == (found or done.stdout) and done.stdout.startswith("/")


@needs_root
def test_a_payload_is_mounted_where_only_the_agents_programs_see_it(host, tmp_path):
    folder = str(tmp_path / "files")
    mount = {"type": "tmpfs", "size": "2m", "options": "noatime"}
    one = {"folder": folder, "name": "a.bin", "size_bytes": 70_000, "fill": "random"}
    host.ask("make_files", sets=[dict(one, mount=mount)])
    spawn(host, tmp_path, argv=("sh", "-c", f"grep {folder} /proc/self/mounts; wc -c {folder}/*"))
    assert host.wait_exit(["app"], PATIENCE_S)
    text = (tmp_path / "out").read_text()
    assert "tmpfs" in text and "noatime" in text and "size=2048k" in text and "70000" in text
    assert folder not in Path("/proc/self/mounts").read_text()
    assert not list(Path(folder).iterdir())


def test_the_root_of_a_container_that_may_not_mount_has_its_files_in_memory(monkeypatch):
    """Docker's root lacks the right, and a recipe with a mount could not be measured there."""

    def refused(*_):
        ctypes.set_errno(errno.EPERM)
        return -1

    monkeypatch.setattr(files.os, "geteuid", lambda: 0)
    monkeypatch.setattr(files, "LIBC", SimpleNamespace(unshare=refused))
    mount = {"size": "2m", "options": ""}
    files.mount_all([{"folder": "/dev/shm/wirespeed-x/files", "mount": mount}])
    with pytest.raises(files.Refused, match="cannot mount"):  # files would be replaced there
        files.mount_all([{"folder": "/usr/share/x", "mount": mount}])
    assert not files.mounted


def test_payloads_are_the_same_bytes_in_every_run(host, tmp_path):
    one = {"name": "a.bin", "size_bytes": 3_000_000, "fill": "random", "mount": None}
    for name in ("first", "second"):
        host.ask("make_files", sets=[dict(one, folder=str(tmp_path / name))])
    first, second = (tmp_path / name / "a.bin" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes() and first.stat().st_size == 3_000_000
    taken = tmp_path / "file"
    taken.write_text("")
    with pytest.raises(HostError, match=r"cannot write the payload .*file/a\.bin"):
        host.ask("make_files", sets=[dict(one, folder=str(taken))])


def test_a_payload_without_room_is_refused_before_it_takes_the_memory(tmp_path, monkeypatch):
    """The agent wrote a terabyte until /dev/shm, the machine's memory, was full."""
    written = []
    monkeypatch.setattr(files, "write_payload", lambda *words: written.append(words))
    one = {"folder": str(tmp_path), "name": "a.bin", "size_bytes": 1 << 60, "fill": "zero"}
    with pytest.raises(Refused, match=r"a\.bin takes 1152921504606846976 bytes, free are \d+"):
        files.make_all([one])
    assert not written


@needs_root
def test_a_namespace_that_is_being_made_ends_with_a_killed_agent(tmp_path, monkeypatch):
    slow = tmp_path / "ip"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    host = Host(
        Transport("here", python=sys.executable), {"mark": "netns-killed", "cgroups": False}
    )
    host.greet()
    agent = host.info["pid"]
    host.send("spawn", name="app", namespace={"on": "nothing9", "addr": "10.99.0.9/24"})
    children = Path(f"/proc/{agent}/task/{agent}/children")
    assert wait_until(lambda: len(children.read_text().split()) == 2)
    holder, program = map(int, children.read_text().split())
    try:
        os.kill(agent, signal.SIGKILL)
        assert wait_until(lambda: not is_alive(holder))
    finally:
        os.kill(program, signal.SIGKILL)
        host.close()


@needs_root
def test_a_program_gets_a_namespace_of_its_own_on_the_interface_that_it_names(tmp_path):
    far = Transport("apart", ("unshare", "--net", "--"), sys.executable)
    host = Host(far, {"mark": f"{os.getpid()}-{tmp_path.name}", "cgroups": False})
    try:
        host.greet()
        for command in ("ip link add up0 type veth peer name up1", "ip link set up0 up"):
            assert host.ask("run", argv=command.split())["code"] == 0
        own = {"on": "up0", "addr": "10.99.0.7/24"}
        look = ("sh", "-c", "ip -o -4 address; ip -o -d link show up0")
        spawn(host, tmp_path, argv=look, namespace=own)
        assert host.wait_exit(["app"], PATIENCE_S)
        text = (tmp_path / "out").read_text()
        # By the same name, so that a stack that gets the link's interface finds it there too.
        assert "10.99.0.7/24" in text and "macvlan" in text
        with pytest.raises(HostError, match=r"ip link add .* nothing9"):
            spawn(host, tmp_path, namespace={"on": "nothing9", "addr": "10.99.0.8/24"}, name="b")
    finally:
        host.close()


def test_a_program_that_serves_instead_of_printing_its_version_is_ended(tmp_path, monkeypatch):
    """It went on next to the run, on the server's port."""
    monkeypatch.setattr(facts, "ANSWER_S", 5.0)  # three programs start in it
    pids = tmp_path / "pids"
    script = f"sleep 500 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait"
    assert facts.version(["sh", "-c", script], "/usr/bin:/bin") == ""
    assert wait_until(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))


def test_a_program_has_ended_though_a_process_that_it_left_keeps_its_pipes():
    """The request waited for that process, beyond its own time, too."""
    command = "echo words; echo more >&2; sleep 40 & echo $!; exit 3"
    answer = run_program({"argv": ["sh", "-c", command], "timeout_s": PATIENCE_S})
    words, pid = answer["out"].split()
    try:
        assert (answer["code"], words, answer["err"]) == (3, "words", "more\n")
        assert is_alive(int(pid)), "it was waited for"
    finally:
        children.send_signal(int(pid), signal.SIGKILL)


def test_a_program_that_does_not_end_in_time_ends_with_what_it_started(tmp_path):
    pids = tmp_path / "pids"
    command = f"sleep 100 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait"
    began = time.monotonic()
    with pytest.raises(Refused, match="sh did not end in time"):
        run_program({"argv": ["sh", "-c", command], "timeout_s": 3.0})
    assert time.monotonic() - began < 60, "it waited for what is left"
    assert wait_until(lambda: not any(is_alive(int(pid)) for pid in pids.read_text().split()))


def test_all_that_a_program_writes_is_read_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(helpers, "OUTPUT_MAX", 300_000)
    command = "head -c 250000 /dev/zero; head -c 350000 /dev/zero >&2"
    answer = run_program({"argv": ["sh", "-c", command], "timeout_s": PATIENCE_S})
    assert (answer["code"], len(answer["out"]), len(answer["err"])) == (0, 250_000, 300_000)
