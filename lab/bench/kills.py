"""Random kill -9 of the lab, its agents and its server in runs with --tune: is all as it was?

    python lab/bench/kills.py [KILLS [SITE]]        SITE: here (default) or netns

A small real recipe runs again and again; at a random moment one of the three, or lab and one agent
together, is killed. Then the next command must find and leave everything as before: the sysctl that
the recipe sets, the service that it stops (a stand-in for systemctl keeps it), the cores of a
program that stands for all others, the machine's interfaces and qdiscs, processes, cgroups, network
namespaces, mounts and scratch folders; no finished trial may be lost, and --resume must end with
every cell.
Needs root. Prints what is wrong at once and a JSON object at the end.
"""

import contextlib
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from wirespeed.agent.children import CLONE_NEWNET, LIBC

sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]

FAKES = Path(__file__).parents[1] / "tests" / "fakes"
SO_NETNS_COOKIE = 71  # asm-generic/socket.h, Linux 5.14
SETTING = "/proc/sys/net/unix/max_dgram_qlen"
CELLS = 3
RECIPE = """
wirespeed = 2
name = "kills"
axes = {{ connections = [1, 2, 3] }}
plan = {{ repeat = 1, warmup = "0s", duration = "200ms" }}
[[process]]
name = "app"
role = "server"
port = {{ base = {port} }}
argv = ["{python}", "{server}", "--port", "{{{{ port }}}}", "--fork"]
ready = {{ http = "http://{{{{ server.addr }}}}:{{{{ port }}}}/", length = 16 }}
[[process]]
name = "gen"
role = "load"
tool = "load"
argv = ["-c", "{{{{ connections }}}}", "-d", "{{{{ duration }}}}",
  "http://{{{{ server.addr }}}}:{{{{ app.port }}}}/"]
[tune]
sysctl = {{ "net.unix.max_dgram_qlen" = {value} }}
services.stop = ["kills"]
[[metric]]
name = "rps"
from = "gen"
"""
SYSTEMCTL = """#!/bin/sh
cd {folder}
case $1 in
is-active) shift; for name; do [ -e "$name" ] && echo active || echo inactive; done ;;
start) touch "$2" ;;
stop) rm -f "$2" ;;
esac
"""


class Machine:
    """A checkout of fakes, and what of this machine a run may change."""

    def __init__(self, folder, site):
        self.folder, self.site = folder, site
        root = folder / "checkout"
        (root / "recipes").mkdir(parents=True)
        program = root / "target" / "release" / "wirespeed-load"
        program.parent.mkdir(parents=True)
        program.write_text(f"#!{sys.executable}\n" + (FAKES / "load.py").read_text())
        program.chmod(0o755)
        self.was = Path(SETTING).read_text().strip()
        text = RECIPE.format(
            port=random.randrange(20_000, 31_000), python=sys.executable,
            server=FAKES / "server.py", value=int(self.was) + 3,
        )  # fmt: skip
        self.recipe = root / "recipes" / "kills.toml"
        self.recipe.write_text(text)
        self.other = subprocess.Popen(["sleep", "3600"])
        self.cores = os.sched_getaffinity(self.other.pid)
        self.links, self.qdiscs = told("ip", "-o", "link"), told("tc", "qdisc")
        self.service = folder / "services" / "kills"
        self._stand_in(folder / "bin" / "systemctl")
        self.state = folder / "tuned.json"
        self.complaints = folder / "stderr"  # of the command that was called last
        self.environment = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "WIRESPEED_ROOT": str(root),
            "WIRESPEED_LOCK": str(folder / "lock"),
            "WIRESPEED_TUNED": str(self.state),
            "WIRESPEED_TUNE_UNDER": str(self.other.pid),
        }

    def _stand_in(self, program):
        self.service.parent.mkdir()
        self.service.touch()
        program.parent.mkdir()
        program.write_text(SYSTEMCTL.format(folder=self.service.parent))
        program.chmod(0o755)

    def lab(self, *words):
        command = [sys.executable, "-m", "wirespeed", *map(str, words)]
        command += ["--runs", str(self.folder / "runs")]
        with open(self.complaints, "w") as complaints:
            return subprocess.Popen(
                command, env=self.environment, cwd=self.folder, stdout=subprocess.DEVNULL,
                stderr=complaints,
            )  # fmt: skip

    def trials(self):
        return {path.parent.name for path in self.folder.glob("runs/latest/trials/*/trial.json")}

    def differences(self, lab_pid, networks=()):
        """What is not as before; `networks` are the namespaces that the run's agents had."""
        found = []
        if held(networks):
            found.append("namespaces")
        if (told("ip", "-o", "link"), told("tc", "qdisc")) != (self.links, self.qdiscs):
            found.append("interfaces or qdiscs")
        if Path(SETTING).read_text().strip() != self.was:
            found.append("sysctl")
        if not self.service.exists():
            found.append("service")
        if os.sched_getaffinity(self.other.pid) != self.cores:
            found.append("cores")
        if marked(f"{lab_pid}-"):
            found.append("processes")
        # Not by Path.glob: it fails when a cgroup of somebody else goes away while it looks.
        groups = [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names]
        if any(name.startswith(f"wirespeed-{lab_pid}-") for name in groups):
            found.append("cgroups")
        name = os.path.basename(os.path.realpath(self.folder / "runs" / "latest"))
        if list(Path("/dev/shm").glob(f"wirespeed-{name}*")):
            found.append("scratch")
        if f"wirespeed-{name}" in Path("/proc/self/mounts").read_text():
            found.append("mounts")
        return found


def marked(mark):
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            environment = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
            if f"WIRESPEED_RUN={mark}".encode() in environment:
                found.append(int(entry.name))
    return found


def told(*argv):
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout


def agents_of(lab):
    """The lab's children: one agent for each host of the site."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{lab.pid}/task/{lab.pid}/children").read_text()
        return [int(pid) for pid in text.split()]
    return []


def cookie(path):
    """A network namespace's number, which no other one ever gets; None when it is gone.

    The numbers of inodes in /proc/PID/ns are given again at once, to whoever makes one meanwhile.
    """
    found = []

    def enter():
        with contextlib.suppress(OSError), open(path) as handle:
            if LIBC.setns(handle.fileno(), CLONE_NEWNET) == 0:
                with socket.socket() as probe:
                    raw = probe.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8)
                found.append(struct.unpack("Q", raw)[0])

    thread = threading.Thread(target=enter)  # the namespace of a thread is its own
    thread.start()
    thread.join()
    return found[0] if found else None


def held(cookies):
    """Whether a mount or a process keeps one of these networks."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    paths = {words[3]: words[4] for words in mounts if words[3].startswith("net:")}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                paths.setdefault(os.readlink(entry / "ns/net"), str(entry / "ns/net"))
    return bool(cookies) and any(cookie(path) in cookies for path in paths.values())


def kill(lab, whom):
    """True when there was somebody to kill."""
    agents = agents_of(lab)
    agent = [random.choice(agents)] if agents else []
    victims = {
        "lab": [lab.pid],
        "agent": agent,
        "server": marked(f"{lab.pid}-")[:1],
        "both": [*agent, lab.pid] if agent else [],
    }[whom]
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(victims)


def one(machine, whom):
    """One run, killed at a random moment, tidied up and gone on with; what went wrong."""
    lab = machine.lab("run", machine.recipe, "--site", machine.site, "--tune", "--accept-noise")
    deadline = time.monotonic() + 60
    while not machine.state.exists() and lab.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(random.random() * 2.0)
    networks = {cookie(f"/proc/{pid}/ns/net") for pid in agents_of(lab)}
    networks -= {cookie("/proc/self/ns/net"), None}
    has_killed = lab.poll() is None and kill(lab, whom)
    lab.wait(timeout=120)
    before = machine.trials()
    if lab.returncode:
        machine.lab("recover").wait(timeout=60)
    deadline = time.monotonic() + 5
    while machine.differences(lab.pid, networks) and time.monotonic() < deadline:
        time.sleep(0.02)
    wrong = machine.differences(lab.pid, networks)
    if not before <= machine.trials():
        wrong.append("lost trials")
    if lab.returncode:
        again = machine.lab("run", "--resume", "latest", "--accept-noise")
        again.wait(timeout=120)
        wrong += machine.differences(again.pid)
        if again.returncode not in (0, 2) or len(machine.trials()) != CELLS:
            said = machine.complaints.read_text().splitlines()[-3:]
            wrong.append(f"resume: exit {again.returncode}, {len(machine.trials())} trials, {said}")
    return has_killed, wrong


def main(count, site):
    random.seed(os.getpid())
    done, wrong = Counter(), []
    with tempfile.TemporaryDirectory() as name:
        machine = Machine(Path(name), site)
        try:
            while sum(done.values()) < count:
                whom = random.choice(["lab", "agent", "server", "both"])
                has_killed, problems = one(machine, whom)
                done[whom] += has_killed
                if problems:
                    wrong.append([whom, problems])
                    print(f"kill {sum(done.values())}, {whom}: {problems}", flush=True)
        finally:
            machine.other.kill()
            machine.other.wait()
    return {"site": site, "kills": dict(done), "wrong": wrong}


if __name__ == "__main__":
    words = sys.argv[1:]
    print(json.dumps(main(int(words[0]) if words else 100, words[1] if words[1:] else "here")))
