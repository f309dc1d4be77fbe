"""Evidence for many hosts: 24 sshd in namespaces: start-up time, start skew, what is left behind.

    python lab/bench/hosts.py ssh [HOSTS [ROUNDS]]     start-up, skew, kill -9, a cut cable
    python lab/bench/hosts.py start [HOSTS [ROUNDS]]   start-up and skew only
    python lab/bench/hosts.py slurm           8 generators from a real one-machine Slurm
    python lab/bench/hosts.py cost            what the lab itself uses in a measured window

Needs root and openssh-server; the second also slurm-wlm. Prints one JSON object.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / part) for part in ("src", "tests")]
from site_farm import Farm, Slurm, address  # noqa: E402

from wirespeed.agent.children import CLONE_NEWNET, LIBC  # noqa: E402
from wirespeed.fleet.fleet import Fleet  # noqa: E402
from wirespeed.recipe.model import Site  # noqa: E402
from wirespeed.site import kinds  # noqa: E402
from wirespeed.site.base import Ask  # noqa: E402

HOSTS = 24
ROUNDS = int(sys.argv[3]) if sys.argv[3:] else 5
LEAD_S = 1.0
GONE_S = 30.0
# Waits until its instant, as wirespeed-load does. It waits before it prints and ends: 24
# ends of a Python on two cores take 45 ms, and whoever wakes up meanwhile would seem late by that.
SHOW = (
    "import sys, time; time.sleep(max(0.0, float(sys.argv[1]) - time.time())); "
    "at = time.time(); time.sleep(0.5); print(repr(at))"
)


def at_desk(farm):
    """The rest of this process lives in the desk's namespace, as the lab of a real desk would."""
    with open(f"/proc/{farm.desk}/ns/net") as handle:
        assert LIBC.setns(handle.fileno(), CLONE_NEWNET) == 0


def ssh_site(folder, count):
    return Site.model_validate(
        {
            "kind": "ssh",
            "options": ["-F", f"{folder}/ssh_config"],
            "python": sys.executable,
            "server": {"host": "host0", "addr": address(11)},
            "load": {"hosts": [f"host{number}" for number in range(1, count)]},
        }
    )


def opened(site, name="bench"):
    return kinds.open_site(Ask(name, site, False, f"{os.getpid()}-bench", cgroups=False))


def skew_ms(fleet: Fleet, folder):
    """The same instant for a program on every host: the largest distance between their starts."""
    fleet.measure_clocks()
    hosts = fleet.seats
    for host in hosts:
        host.exits.pop("clock", None)
    at = time.time() + LEAD_S + 0.02 * len(hosts)
    questions = [
        (
            host,
            "spawn",
            {
                "name": "clock",
                "argv": [sys.executable, "-I", "-S", "-c", SHOW, repr(at + host.offset_s)],
                "env": {"PATH": os.environ["PATH"]},
                "stdout": f"{folder}/{host.name}.out",
                "stderr": f"{folder}/{host.name}.err",
                "cwd": str(folder),
                "folder": str(folder),
            },
        )
        for host in hosts
    ]
    fleet.together(questions)
    asked_s = at - time.time()
    late = []
    for host in hosts:
        assert host.wait_exit(["clock"], 30) == "clock"
        path = Path(folder) / f"{host.name}.out"
        late.append(float(path.read_text()) - host.offset_s - at)
        path.unlink()
        host.ask("forget", names=["clock"])
    return (max(late) - min(late)) * 1e3, asked_s


def marked(mark):
    found = 0
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        found += f"WIRESPEED_RUN={mark}".encode() in environment
    return found


CHILD = """
import os, sys, time
sys.path[:0] = {path!r}
import hosts
from pathlib import Path
site = hosts.opened(hosts.ssh_site({folder!r}, {count}))
for host in site.fleet.seats:
    host.ask("spawn", name="app", argv=["sh", "-c", "setsid sleep 500 & sleep 500"],
             stdout="/dev/null", stderr="/dev/null", cwd="/tmp", folder="/tmp")
print(os.getpid(), flush=True)
time.sleep(500)
"""


def gone_after(folder, count, end):
    """Seconds from `end(the lab)` until no program of its run is left."""
    path = [str(Path(__file__).parent), *sys.path[:2]]
    code = CHILD.format(path=path, folder=str(folder), count=count)
    lab = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    pid = int(lab.stdout.readline())
    before = 0
    while before != (before := marked(f"{pid}-")) or before < 2 * count:
        time.sleep(0.5)  # until every shell has started its own
    since = time.monotonic()
    wanted = end(lab, before)
    while marked(f"{pid}-") > wanted and time.monotonic() - since < GONE_S:
        time.sleep(0.01)
    seconds, left = time.monotonic() - since, marked(f"{pid}-") - wanted
    lab.kill()
    lab.wait()
    return round(seconds, 2), left


def over_ssh(count, is_start_only=False):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        farm = Farm(folder, count)
        try:
            farm.wait()
            at_desk(farm)
            starts, skews, preferred, spare = [], [], [], []
            for _ in range(ROUNDS):
                since = time.monotonic()
                site = opened(ssh_site(folder, count))
                starts.append(round(time.monotonic() - since, 2))
                for _ in range(3):
                    skew, left_s = skew_ms(site.fleet, folder)
                    skews.append(round(skew, 2))
                    spare.append(round(left_s, 2))
                # As on hosts of their own: what else runs on this machine comes after.
                site.fleet.prefer(-20)
                preferred += [round(skew_ms(site.fleet, folder)[0], 2) for _ in range(3)]
                site.fleet.close()

            figures = {
                "hosts": count,
                "start_s": starts,
                "skew_ms": skews,
                "skew_before_others_ms": preferred,
                "spare_s": min(spare),
            }
            if is_start_only:
                return figures

            def kill(lab, _):
                lab.kill()
                return 0

            killed = [gone_after(folder, count, kill) for _ in range(3)]

            def cut(_, before):
                farm.cut(count - 1)
                return before - before // count  # the others live on

            cut_off = gone_after(folder, count, cut)
        finally:
            farm.close()
    return {
        **figures,
        "gone_after_kill_9_s_and_left": killed,
        "gone_after_cut_cable_s_and_left": cut_off,
    }


def over_slurm():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        slurm = Slurm(folder / "slurm", 9)
        os.environ.update(slurm.environment)
        try:
            site = Site.model_validate(
                {
                    "kind": "slurm",
                    "python": sys.executable,
                    "server": {"addr": "127.0.0.1"},
                    "slurm": {"nodes": 9},
                }
            )
            since = time.monotonic()
            found = opened(site)
            start_s = time.monotonic() - since
            skews = [round(skew_ms(found.fleet, folder)[0], 2) for _ in range(10)]
            for host in found.fleet.seats:
                host.ask(
                    "spawn", name="app", argv=["sleep", "500"], stdout="/dev/null",
                    stderr="/dev/null", cwd="/tmp", folder="/tmp",
                )  # fmt: skip
            since = time.monotonic()
            subprocess.run(["scancel", *slurm.jobs()], check=True)
            while marked(f"{os.getpid()}-bench") and time.monotonic() - since < GONE_S:
                time.sleep(0.02)
            gone_s, left = time.monotonic() - since, marked(f"{os.getpid()}-bench")
            found.fleet.close()
        finally:
            slurm.close()
    return {
        "nodes": 9,
        "start_s": round(start_s, 2),
        "skew_ms": skews,
        "gone_after_scancel_s_and_left": [round(gone_s, 2), left],
    }


def own_cost(run_dir):
    """`lab.cpu` of every trial of a run: the share of a core that agents and lab used."""
    shares = []
    for path in Path(run_dir).glob("trials/*/trial.json"):
        metrics = json.loads(path.read_text())["metrics"]
        if "lab.cpu" in metrics:
            shares.append(metrics["lab.cpu"])
    return {
        "trials": len(shares),
        "median_share": round(statistics.median(shares), 5),
        "largest_share": round(max(shares), 5),
    }


if __name__ == "__main__":
    what, *rest = sys.argv[1:] or ["ssh"]
    if what in ("ssh", "start"):
        print(json.dumps(over_ssh(int(rest[0]) if rest else HOSTS, what == "start")))
    elif what == "slurm":
        print(json.dumps(over_slurm()))
    else:
        print(json.dumps(own_cost(rest[0])))
