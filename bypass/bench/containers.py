#!/usr/bin/env python3
"""A server and a client in two containers: do they share memory, and what do they gain?

    bypass/bench/containers.py                  needs root and crun (apt install crun); seconds
    bypass/bench/containers.py --runtime FILE   another crun
    bypass/bench/containers.py --measure        needs root, ip, nginx, wrk, redis-server and redis-benchmark; minutes

With --measure each has a network namespace of its own, at a bridge, and both a shared directory (EF_SHARE_DIR).
Kernel and bypass alternate, idle states are held off, and rounds are grouped by the distance of the two cores
(figures.py); --release FOLDER measures another build. Without, an OCI runtime runs both, in one network namespace and then in one each with a
shared directory. Each container has what `crun spec` gives: mount, process, IPC and host name namespaces of its own, few
capabilities, a read-only root file system (this host's). Prints for each case how many segments the kernel's TCP has
sent once the connection stood; ends with 1 when one was sent.
"""

import argparse
import contextlib
import itertools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from figures import Distance, hold_idle_states, kernel_unpaced

BUILT = Path(__file__).resolve().parents[2] / "target" / "release"
EXCHANGES = 100
SERVER = """
import socket, sys
listener = socket.create_server((sys.argv[1], 8080))
while True:
    connection, _ = listener.accept()
    while got := connection.recv(100):
        connection.sendall(got)
"""
#: The first connections to a server that has just started may be the kernel's.
CLIENT = f"""
import socket, sys, time
def sent():
    names, values = (line.split() for line in open("/proc/net/snmp") if line.startswith("Tcp:"))
    return int(values[names.index("OutSegs")])
for _ in range(200):
    try:
        with socket.create_connection((sys.argv[1], 8080)) as connection:
            before = sent()
            for turn in range({EXCHANGES}):
                connection.sendall(b"%d" % turn)
                assert connection.recv(100) == b"%d" % turn
            count = sent() - before
        if count == 0:
            break
    except ConnectionRefusedError:
        pass
    time.sleep(0.05)
print(count)
"""
#: Users of a container with a user namespace are these of the host.
MAPPED = [{"containerID": 0, "hostID": 100_000, "size": 65_536}]


#: Where a container has the shared directory, and the server's address for another network namespace.
SHARE = "/srv"
SERVER_ADDRESS = "10.97.0.2"


class OtherNetwork:
    """A second network namespace, which a link joins with this process's."""

    def __init__(self):
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        self.path = f"/proc/{self.holder.pid}/ns/net"
        while os.readlink(self.path) == os.readlink("/proc/self/ns/net"):
            time.sleep(0.01)
        inside = f"nsenter --net={self.path} ip"
        line = (f"ip link add eth0 type veth peer name eth0 netns {self.holder.pid};"
                f"ip address add {SERVER_ADDRESS}/24 dev eth0; ip link set eth0 up;"
                f"{inside} link set lo up; {inside} address add 10.97.0.1/24 dev eth0; {inside} link set eth0 up")
        subprocess.run(["sh", "-ec", line], check=True)

    def close(self):
        self.holder.kill()
        self.holder.wait()


def bundle(folder, specification, words, who, root, network):
    """The folder of a container that runs a script, in the network namespace of that path if there is one."""
    user, is_mapped = who
    folder.mkdir()
    said = json.loads(specification)
    said["root"] = {"path": str(root), "readonly": True}
    said["process"] |= {"terminal": False, "user": {"uid": user, "gid": user},
                        "args": ["/mnt/bypass", "run", "--", "/usr/bin/python3", "-c", *words]}
    kinds = ["pid", "mount", "ipc", "uts", *(["user"] if is_mapped else [])]
    said["linux"] = {"namespaces": [{"type": kind} for kind in kinds]}
    if network:
        said["linux"]["namespaces"].append({"type": "network", "path": network})
        said["process"]["env"].append(f"EF_SHARE_DIR={SHARE}")
        said["mounts"].append({"destination": SHARE, "type": "bind", "source": str(folder.parent / "share"),
                               "options": ["bind", "rw"]})
    if is_mapped:
        said["linux"] |= {"uidMappings": MAPPED, "gidMappings": MAPPED}
    # A container of another user may not mount these, and the programs need none of them.
    said["mounts"] = [mount for mount in said["mounts"] if mount["type"] not in ("cgroup", "sysfs", "mqueue")]
    said["mounts"].append({"destination": "/mnt", "type": "bind", "source": str(BUILT), "options": ["bind", "ro"]})
    (folder / "config.json").write_text(json.dumps(said))
    return folder


def segments(runtime, who, is_across, folder):
    """How many segments the kernel sent in an exchange of two containers. In a process with network and mount
    namespaces of its own, which end with it, and with them what is mounted here."""
    # crun does not know a host that has both versions of control groups.
    subprocess.run(["umount", "-l", "-R", "/sys/fs/cgroup"], check=False, stderr=subprocess.DEVNULL)
    subprocess.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    root = folder / "root"
    subprocess.run(["mount", "--bind", "-o", "ro", "/", root], check=True)
    command = [runtime, "--root", folder / "run", "--cgroup-manager=disabled"]
    subprocess.run([*command, "spec"], cwd=folder, check=True)
    specification = (folder / "config.json").read_text()
    address, networks, other, running = "127.0.0.1", [None, None], None, {}
    if is_across:
        other = OtherNetwork()
        address, networks = SERVER_ADDRESS, [f"/proc/{os.getpid()}/ns/net", other.path]
    user, is_mapped = who
    (folder / "share").mkdir(mode=0o770)
    shutil.chown(folder / "share", user + MAPPED[0]["hostID"] * is_mapped)
    try:
        for script, name, network in zip((SERVER, CLIENT), ("server", "client"), networks):
            made = bundle(folder / name, specification, [script, address], who, root, network)
            running[name] = subprocess.Popen([*command, "run", name], cwd=made, stdout=subprocess.PIPE, text=True)
        said, _ = running["client"].communicate(timeout=60)
    finally:
        for name, container in running.items():
            if container.poll() is None:
                subprocess.run([*command, "delete", "--force", name], check=False, stderr=subprocess.DEVNULL)
                container.wait()
        if other:
            other.close()
    return int(said)


def measure(runtime, who, is_across):
    """The same, in such a process. Its folder is removed from outside, where nothing is mounted in it."""
    with tempfile.TemporaryDirectory(prefix="containers-") as folder:
        os.chmod(folder, 0o755)
        (Path(folder) / "root").mkdir()
        again = ["unshare", "--net", "--mount", "--propagation", "private", sys.executable, __file__]
        case = ["--runtime", runtime, "--case", *(str(int(word)) for word in (*who, is_across)), folder]
        done = subprocess.run([*again, *case], check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout.split()[-1])


WEB = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log crit;
events {{ worker_connections 4096; accept_mutex off; }}
http {{
  access_log off; keepalive_requests 1000000000;
  server {{
    listen {address}:80;
    root {folder};
    location = /0 {{ return 200 ""; }}
  }}
}}
"""
CONTAINER = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts", "--ipc"]
#: So often a client runs at most until its connections are in memory.
TRIES = 3
#: The order of the rows: where the two cores were.
PLACES = ["near", "far", "moved"]
#: The profiles of server and client; None is the kernel.
STACKS = {"kernel": None, "balanced": ("nginx-balanced", "nginx-balanced"), "performance": ("nginx-performance", "wrk")}


class Pods:
    """Two network namespaces at a bridge in a third one, and the build that runs in them."""

    def __init__(self, release):
        self.release = release
        self.names = [f"pod{number}-{os.getpid()}" for number in range(3)]
        for name in self.names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        host, *pods = self.names
        self.run(host, "ip link add br0 type bridge; ip link set br0 up")
        for number, pod in enumerate(pods, 1):
            self.run(host, f"ip link add h{number} type veth peer name eth0 netns {pod};"
                           f"ip link set h{number} master br0 up")
            self.run(pod, f"ip link set lo up; ip address add 10.97.0.{number}/24 dev eth0; ip link set eth0 up")
        self.client, self.server = pods

    @staticmethod
    def run(pod, line):
        subprocess.run(["ip", "netns", "exec", pod, "sh", "-ec", line], check=True)

    def close(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], check=False)

    def command(self, pod, core, profile, folder, words):
        """Words that run a program in a container of a pod, over the kernel or with a profile."""
        launcher = [self.release / "bypass", "run", "-p", profile, "--share", folder, "--"] if profile else []
        inside = ["ip", "netns", "exec", pod, "taskset", "-c", str(core), *CONTAINER]
        return [str(word) for word in (*inside, *launcher, *words)]

    @contextlib.contextmanager
    def serve(self, profile, folder, port, words):
        server = subprocess.Popen(self.command(self.server, 0, profile, folder, words), stdout=subprocess.DEVNULL)
        try:
            # It accepts once, so that its first client need not wait for that.
            probe = f"import socket; socket.create_connection(({SERVER_ADDRESS!r}, {port}), 1)"
            for _ in range(300):
                asked = ["ip", "netns", "exec", self.client, sys.executable, "-c", probe]
                if subprocess.run(asked, check=False, stderr=subprocess.DEVNULL).returncode == 0:
                    break
                time.sleep(0.1)
            time.sleep(0.2)
            yield
        finally:
            # unshare ends its container with itself, and ignores SIGTERM.
            server.kill()
            server.wait()

    def sent(self):
        asked = ["ip", "netns", "exec", self.client, "cat", "/proc/net/snmp"]
        said = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout
        names, values = (line.split() for line in said.splitlines() if line.startswith("Tcp:"))
        return int(values[names.index("OutSegs")])

    def say(self, profile, folder, words, requests=None):
        """What a client prints. With a profile its kernel may send a segment for a few of its `requests`, read from its
        output, alone: it runs again where more were sent, since the server accepted late."""
        for _ in range(TRIES):
            before = self.sent()
            done = subprocess.run(self.command(self.client, 1, profile, folder, words), check=True,
                                  stdout=subprocess.PIPE, text=True)
            if not (profile and requests) or self.sent() - before < requests(done.stdout) / 10:
                return done.stdout
        sys.exit(f"containers.py: {words[0]}: the kernel had connections that were to be in memory, {TRIES} times")


def wrk_requests(output):
    return int(re.search(r"(\d+) requests in", output)[1])


def wrk_rate(output):
    if "Socket errors" in output or "Non-2xx" in output:
        sys.exit(f"containers.py: wrk failed:\n{output}")
    return float(re.search(r"Requests/sec:\s+([\d.]+)", output)[1])


def web_figures(pods, stack, folder, seconds):
    server, client = STACKS[stack] or (None, None)
    config = folder / "nginx.conf"
    config.write_text(WEB.format(folder=folder, address=SERVER_ADDRESS))
    with pods.serve(server, folder / "share", 80, ["nginx", "-c", config, "-e", folder / "error.log"]):
        cases = (("1 KiB, 1 connection", 1, "1024", []), ("nginx 0 B, 50 connections", 50, "0", []),
                 ("nginx 10 KiB, 50 connections", 50, "10240", []),
                 ("a connection for each request, 50 at once", 50, "0", ["-H", "Connection: close"]))
        for case, connections, path, more in cases:
            words = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", *more, f"http://{SERVER_ADDRESS}/{path}"]
            # A connection begins and ends in the kernel, too.
            requests = None if more else wrk_requests
            yield case, wrk_rate(pods.say(client, folder / "share", words, requests))


def redis_figures(pods, stack, folder, seconds):
    server, client = STACKS[stack] or (None, None)
    words = ["redis-server", "--bind", SERVER_ADDRESS, "--protected-mode", "no", "--save", "", "--dir", folder]
    with pods.serve(server, folder / "share", 6379, words):
        for connections in (1, 50):
            count = seconds * (20_000 if connections == 1 else 60_000)
            asked = ["redis-benchmark", "-h", SERVER_ADDRESS, "-t", "get", "-c", connections, "-n", count, "--csv"]
            line = pods.say(client, folder / "share", asked, lambda _, count=count: count).splitlines()[-1]
            yield f"redis get, {connections} connections", float(line.split(",")[1].strip('"'))


def round_of(pods, folder, seconds, distance):
    """Each stack once: case → stack → requests per second, and in the case where the two cores were meanwhile."""
    rates, places = defaultdict(dict), defaultdict(set)
    for stack in STACKS:
        for of_program in (web_figures, redis_figures):
            for case, rate in of_program(pods, stack, folder, seconds):
                rates[case][stack] = rate
                places[case].add(distance.now())
    return {f"{case}, {places[case].pop() if len(places[case]) == 1 else 'moved'}": found for case, found in rates.items()}


def compare(release, rounds, seconds):
    """Rounds of kernel and bypass in turn: requests per second, and the ratios within a round."""
    figures = defaultdict(list)
    with contextlib.ExitStack() as stack:
        control = stack.enter_context(kernel_unpaced())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="c-", dir="/tmp")))
        pods = stack.enter_context(contextlib.closing(Pods(release)))
        folder.chmod(0o755)
        (folder / "share").mkdir(mode=0o770)
        # nginx's worker makes sockets there, too.
        shutil.chown(folder / "share", "nobody")
        for size in (1024, 10240):
            (folder / str(size)).write_bytes(b"x" * size)
        print(f"idle states {hold_idle_states()}, {rounds} rounds of {seconds} s, kernel {os.uname().release}, {control}")
        distance = Distance(folder)
        for _ in range(rounds):
            for case, rates in round_of(pods, folder, seconds, distance).items():
                figures[case].append(rates)
    print("\n| case | rounds | " + " | ".join(STACKS) + " | balanced × | performance × |\n" + "|---" * 7 + "|")
    for case, found in sorted(figures.items(), key=lambda item: PLACES.index(item[0].rpartition(", ")[2])):
        rates = [statistics.median(one[stack] for one in found) for stack in STACKS]
        ratios = [[one[stack] / one["kernel"] for one in found] for stack in list(STACKS)[1:]]
        shown = [f"{statistics.median(of):.2f} ({min(of):.2f}–{max(of):.2f})" for of in ratios]
        print(f"| {case} | {len(found)} | " + " | ".join([*(f"{rate:,.0f}" for rate in rates), *shown]) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime", default="crun")
    parser.add_argument("--measure", action="store_true", help="two network namespaces, kernel against bypass")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=1)
    parser.add_argument("--release", type=Path, default=BUILT, help="folder of the build that --measure runs")
    parser.add_argument("--case", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        user, is_mapped, is_across = map(int, arguments.case[:3])
        print(segments(arguments.runtime, (user, is_mapped), is_across, Path(arguments.case[3])))
        return 0
    if os.geteuid():
        sys.exit("containers.py: not root: namespaces cannot be made (run it as root)")
    release = arguments.release.resolve()
    if not (release / "bypass").is_file():
        sys.exit("containers.py: bypass is not built (./wirespeed build bypass)")
    if arguments.measure:
        compare(release, arguments.rounds, arguments.seconds)
        return 0
    is_right = True
    for is_across, user, is_mapped in itertools.product((False, True), (0, 1000), (False, True)):
        sent = measure(arguments.runtime, (user, is_mapped), is_across)
        is_right &= sent == 0
        network = "two networks" if is_across else "one network"
        kind = "with a user namespace" if is_mapped else "without one"
        print(f"{network:12}, user {user:4}, {kind:21}: {sent} segments in {EXCHANGES} exchanges", flush=True)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
