"""Runs ./test in an empty Debian 12 root with the toolchains only, while dpkg's lock is held at first.

    python3 tests/empty_root.py FOLDER

Needs root and debootstrap. Makes FOLDER/root (2 GiB and more; delete it afterwards), clones this
checkout's last commit into it, and prints what ./test prints. Rust comes from this machine's rustup, all
other toolchains from Debian.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
MIRROR = "http://deb.debian.org/debian"
#: What docs/install.md asks for, and what a clone and a download need.
TOOLCHAINS = ("ca-certificates", "curl", "gcc", "git", "libc6-dev", "make", "maven", "openjdk-17-jdk-headless",
              "procps", "python3", "python3-venv")
#: Certificates of authorities that this machine trusts beyond Debian's: of a proxy before the registries.
AUTHORITIES = "usr/local/share/ca-certificates"
LOCK = "/var/lib/dpkg/lock-frontend"
LOCKED_S = 60
#: Sees no process of this machine; its root is a mount, as in a container; all of it ends with the command.
ENTER = """\
mount --bind "$0" "$0" && cd "$0" &&
mount -t proc proc proc && mount -t sysfs sysfs sys && mount --rbind /dev dev &&
mount -t tmpfs tmpfs dev/shm && mount -t tmpfs tmpfs run &&
{ [ ! -d /sys/fs/cgroup ] || mount --rbind /sys/fs/cgroup sys/fs/cgroup; } &&
mkdir -p mnt/old && pivot_root . mnt/old && umount --lazy /mnt/old && exec "$@"
"""
#: Holds dpkg's lock (fcntl(2)) in one process while another starts the tests.
WITH_A_LOCK = f"""\
python3 -c 'import fcntl, time
lock = open("{LOCK}", "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("dpkg is locked for {LOCKED_S} s", flush=True)
time.sleep({LOCKED_S})' &
cd /srv/wirespeed && ./test
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    root = parser.parse_args().folder.absolute() / "root"
    if os.geteuid() or not shutil.which("debootstrap"):
        parser.error("needs root and debootstrap (run it as root; apt-get install debootstrap)")
    if root.exists():
        parser.error(f"{root} exists (delete it, or name another folder)")
    make(root)
    return inside(root, "sh", "-c", WITH_A_LOCK).returncode


def make(root):
    """Makes the root with toolchains and a clone."""
    root.mkdir(parents=True)
    run("debootstrap", "--variant=minbase", "bookworm", root, MIRROR)
    for name in ("hosts", "hostname", "resolv.conf"):
        shutil.copy(Path("/etc") / name, root / "etc" / name)
    inside(root, "apt-get", "install", "-q", "-y", "--no-install-recommends", *TOOLCHAINS, check=True)
    shutil.copytree(Path("/") / AUTHORITIES, root / AUTHORITIES, dirs_exist_ok=True)
    inside(root, "update-ca-certificates", check=True)
    copy_rust(root)
    run("git", "clone", "-q", CHECKOUT, root / "srv/wirespeed")


def copy_rust(root):
    """This machine's rustup and its default toolchain, without what its cargo has downloaded."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True)
    toolchain = Path(sysroot.stdout.strip()).resolve().relative_to(Path.home())
    for name in (".cargo/bin", toolchain):
        shutil.copytree(Path.home() / name, root / "root" / name, symlinks=True)
    shutil.copy(Path.home() / ".rustup/settings.toml", root / "root/.rustup/settings.toml")


def inside(root, *command, check=False):
    """Runs a command as root in there."""
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    environment = {"PATH": "/root/.cargo/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
                   "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
                   "PIP_CERT": "/etc/ssl/certs/ca-certificates.crt", "CI": os.environ.get("CI", "")}
    return subprocess.run([*enter, "sh", "-c", ENTER, root, *command], env=environment, check=check,
                          stdin=subprocess.DEVNULL)


def run(*command):
    subprocess.run(command, check=True)


if __name__ == "__main__":
    sys.exit(main())
