#!/usr/bin/env python3
"""A server and a client in two containers of one network namespace, by an OCI runtime: do they share memory?

    bypass/bench/containers.py                  needs root and crun (apt install crun); seconds
    bypass/bench/containers.py --runtime FILE   another crun

Each container has what `crun spec` gives: mount, process, IPC and host name namespaces of its own, few capabilities, a
read-only root file system (this host's). Prints for each case how many segments the kernel's TCP has sent; ends with 1
when one was sent.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BUILT = Path(__file__).resolve().parents[2] / "target" / "release"
EXCHANGES = 100
SERVER = """
import socket
listener = socket.create_server(("127.0.0.1", 8080))
while True:
    connection, _ = listener.accept()
    while got := connection.recv(100):
        connection.sendall(got)
"""
#: The first connections to a server that has just started may be the kernel's.
CLIENT = f"""
import socket, time
def sent():
    names, values = (line.split() for line in open("/proc/net/snmp") if line.startswith("Tcp:"))
    return int(values[names.index("OutSegs")])
for _ in range(200):
    before = sent()
    try:
        with socket.create_connection(("127.0.0.1", 8080)) as connection:
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


def bundle(folder, specification, script, user, is_mapped, root):
    """The folder of a container that runs a script."""
    folder.mkdir()
    said = json.loads(specification)
    said["root"] = {"path": str(root), "readonly": True}
    said["process"] |= {"terminal": False, "user": {"uid": user, "gid": user},
                        "args": ["/mnt/bypass", "run", "--", "/usr/bin/python3", "-c", script]}
    kinds = ["pid", "mount", "ipc", "uts", *(["user"] if is_mapped else [])]
    said["linux"] = {"namespaces": [{"type": kind} for kind in kinds]}
    if is_mapped:
        said["linux"] |= {"uidMappings": MAPPED, "gidMappings": MAPPED}
    # A container of another user may not mount these, and the programs need none of them.
    said["mounts"] = [mount for mount in said["mounts"] if mount["type"] not in ("cgroup", "sysfs", "mqueue")]
    said["mounts"].append({"destination": "/mnt", "type": "bind", "source": str(BUILT), "options": ["bind", "ro"]})
    (folder / "config.json").write_text(json.dumps(said))
    return folder


def segments(runtime, user, is_mapped, folder):
    """How many segments the kernel sent in an exchange of two containers. In a process with network and mount namespaces
    of its own, which end with it, and with them what is mounted here."""
    # crun does not know a host that has both versions of control groups.
    subprocess.run(["umount", "-l", "-R", "/sys/fs/cgroup"], check=False, stderr=subprocess.DEVNULL)
    subprocess.run(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    root = folder / "root"
    subprocess.run(["mount", "--bind", "-o", "ro", "/", root], check=True)
    command = [runtime, "--root", folder / "run", "--cgroup-manager=disabled"]
    subprocess.run([*command, "spec"], cwd=folder, check=True)
    specification = (folder / "config.json").read_text()
    running = {}
    try:
        for script, name in ((SERVER, "server"), (CLIENT, "client")):
            made = bundle(folder / name, specification, script, user, is_mapped, root)
            running[name] = subprocess.Popen([*command, "run", name], cwd=made, stdout=subprocess.PIPE, text=True)
        said, _ = running["client"].communicate(timeout=60)
    finally:
        for name, container in running.items():
            if container.poll() is None:
                subprocess.run([*command, "delete", "--force", name], check=False, stderr=subprocess.DEVNULL)
                container.wait()
    return int(said)


def measure(runtime, user, is_mapped):
    """The same, in such a process. Its folder is removed from outside, where nothing is mounted in it."""
    with tempfile.TemporaryDirectory(prefix="containers-") as folder:
        os.chmod(folder, 0o755)
        (Path(folder) / "root").mkdir()
        again = ["unshare", "--net", "--mount", "--propagation", "private", sys.executable, __file__]
        case = ["--runtime", runtime, "--case", str(user), str(int(is_mapped)), folder]
        done = subprocess.run([*again, *case], check=True, stdout=subprocess.PIPE, text=True)
    return int(done.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtime", default="crun")
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        user, is_mapped, folder = arguments.case
        print(segments(arguments.runtime, int(user), is_mapped == "1", Path(folder)))
        return 0
    if os.geteuid():
        sys.exit("containers.py: not root: namespaces cannot be made (run it as root)")
    if not (BUILT / "bypass").is_file():
        sys.exit("containers.py: bypass is not built (./wirespeed build bypass)")
    is_right = True
    for user in (0, 1000):
        for is_mapped in (False, True):
            sent = measure(arguments.runtime, user, is_mapped)
            is_right &= sent == 0
            kind = "with a user namespace" if is_mapped else "without one"
            print(f"user {user:4}, {kind:21}: {sent} segments of the kernel in {EXCHANGES} exchanges", flush=True)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
