"""Needs of the tests besides the product: Debian packages, the lab's test environment."""

import ctypes.util
import os
import shutil
import subprocess
import sys
import types

from suite.steps import PYTHON, ROOT

#: A program, or a library, and the Debian package that brings it.
PACKAGES = {
    # servers and load tools
    "nginx": "nginx", "haproxy": "haproxy", "redis-server": "redis-server",
    "pgbench": "postgresql", "wrk": "wrk", "h2load": "nghttp2-client", "ab": "apache2-utils",
    "redis-benchmark": "redis-tools", "curl": "curl", "node": "nodejs",
    # what judges or traces
    "tshark": "tshark", "strace": "strace", "perf": "linux-perf",
    "valgrind": "valgrind",
    "soffice": "libreoffice-calc-nogui",
    "openssl": "openssl", "systemd-analyze": "systemd",
    # hosts, links and queues
    "sshd": "openssh-server", "ssh": "openssh-client", "ssh-keygen": "openssh-client",
    "slurmctld": "slurm-wlm", "srun": "slurm-wlm", "ip": "iproute2", "tc": "iproute2",
    "ethtool": "ethtool", "sysctl": "procps", "ss": "iproute2", "nft": "nftables",
    # the login shells below which an agent starts
    "bash": "bash", "csh": "csh", "tcsh": "tcsh", "zsh": "zsh", "fish": "fish", "ksh": "ksh",
    # what compiles and links
    "cc": "gcc libc6-dev", "git": "git", "liburing.so.2": "liburing2",
}


def front_door():
    """`./wirespeed` as a module: it knows how to install packages."""
    module = types.ModuleType("front_door")
    module.__file__ = str(ROOT / "wirespeed")
    exec(compile((ROOT / "wirespeed").read_text(), module.__file__, "exec"), module.__dict__)
    return module


def search_path():
    return os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def is_there(name):
    if ".so." in name:
        return ctypes.util.find_library(name.removeprefix("lib").split(".so")[0]) == name
    return shutil.which(name, path=search_path()) is not None


def missing_packages(packages=None):
    """The Debian packages to install, each once."""
    wanted = [package for name, package in (packages or PACKAGES).items() if not is_there(name)]
    return list(dict.fromkeys(" ".join(wanted).split()))


def install():
    """Installs packages and makes the lab's environment, in parallel."""
    door, missing = front_door(), missing_packages()
    parts = [] if not missing else [
        door.Part("test-packages", "what the tests need", 20 + 5 * len(missing), package=" ".join(missing))]
    parts += [door.PYTHON] if not door.PYTHON.is_ready() else []
    try:
        # Where no package can be installed that is said at once.
        for group in filter(None, [parts] if door.may_install() else [[part] for part in parts]):
            door.Builder(group).build()
    except door.BuildFailed as error:
        print(f"test: {error}\n0 passed, 1 failed")
        raise SystemExit(1) from None
    except KeyboardInterrupt as sign:  # of the builder, which takes SIGTERM and SIGHUP as one
        print("test: stopped", file=sys.stderr)
        raise SystemExit(128 + sign.args[0]) from None


def add_to_environment():
    """Adds pytest and the like to the lab's environment, and compiles the lab."""
    stamp = ROOT / "build" / "stamps" / "python-dev"
    lock = ROOT / "lab" / "requirements-dev.lock"
    wanted = lock.read_text() + (ROOT / "build" / "stamps" / "python").read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                        "--retries", "8", "--require-hashes", "-r", lock], cwd=ROOT, check=True)
        stamp.write_text(wanted)
    # Where PYTHONDONTWRITEBYTECODE is set, each start of the lab would compile all of it again.
    subprocess.run([PYTHON, "-m", "compileall", "-q", "lab/src"], cwd=ROOT, check=True)


def prepare():
    install()
    add_to_environment()
    os.environ["PATH"] = search_path()
    # Maven runs for seconds: what the second compiler and parallel collections take is not gained back.
    os.environ.setdefault("MAVEN_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
