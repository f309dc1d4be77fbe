"""What this machine can and cannot do for a measurement, and the command that fixes each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from wirespeed.process.start import SEARCH_PATH
from wirespeed.results.model import FORMAT

CORES_LEAST = 2  # one for the server, one for the generator
SHM_LEAST_MIB = 256  # payloads, and what bypass shares between processes
DISK_LEAST_MIB = 500
NOFILE_LEAST = 65_536

State = Literal["can", "cannot", "limited"]


@dataclass(frozen=True)
class Ability:
    """One thing that users want to do, whether it works here, and what fixes it."""

    state: State
    what: str
    found: str
    remedy: str = ""


def of_machine(root: Path) -> list[Ability]:
    """Asked of the machine itself; nothing is changed and nothing is installed."""
    return [*_machine(), *_rights(), *_programs(root), *_generators(), *_network()]


def _either(is_so: bool, what: str, found: str, remedy: str, state: State = "cannot") -> Ability:
    return Ability("can", what, found) if is_so else Ability(state, what, found, remedy)


def _machine() -> Iterator[Ability]:
    cores = len(os.sched_getaffinity(0))
    yield _either(
        cores >= CORES_LEAST, "a core each for server and generator", f"{cores} usable",
        "another machine, or --fit share: figures are then of both together",
    )  # fmt: skip
    version = ".".join(map(str, sys.version_info[:3]))
    yield Ability("can", "run the lab", f"Python {version}, run directories of format {FORMAT}")
    shm = _free_mib("/dev/shm")
    yield _either(
        shm >= SHM_LEAST_MIB, "payloads and shared memory in /dev/shm", f"{shm} MiB free",
        "mount -o remount,size=1g /dev/shm", "limited",
    )  # fmt: skip
    disk = _free_mib(".")
    yield _either(
        disk >= DISK_LEAST_MIB, "keep runs in this folder's file system", f"{disk} MiB free",
        "free some space, or --runs DIR elsewhere", "limited",
    )  # fmt: skip


def _free_mib(folder: str) -> int:
    try:
        return shutil.disk_usage(folder).free // 2**20
    except OSError:
        return 0


def _rights() -> Iterator[Ability]:
    is_root = os.geteuid() == 0
    name = f"user {os.geteuid()}"
    yield _either(
        is_root, "tune the machine, use namespaces, give programs priority",
        "root" if is_root else name, "sudo ./wirespeed …", "limited",
    )  # fmt: skip
    latency = os.access("/dev/cpu_dma_latency", os.W_OK)
    has_idle = Path("/dev/cpu_dma_latency").exists()
    yield _either(
        latency, "hold idle states off while measuring",
        "/dev/cpu_dma_latency is writable" if latency else
        ("/dev/cpu_dma_latency is not writable" if has_idle else "no /dev/cpu_dma_latency"),
        "run as root; without it cells with few connections are not comparable", "limited",
    )  # fmt: skip
    soft, hard = _nofile()
    yield _either(
        hard >= NOFILE_LEAST, "many connections", f"{hard:,} open files at most",
        f"ulimit -Hn {NOFILE_LEAST} as root, or /etc/security/limits.conf", "limited",
    )  # fmt: skip
    del soft


def _nofile() -> tuple[int, int]:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)


def _programs(root: Path) -> Iterator[Ability]:
    release = root / "target" / "release"
    is_installed = (root / "INSTALLED").exists()
    parts = (
        ("load", "send requests", release / "wirespeed-load", "cargo"),
        ("bypass", "user-level sockets", release / "libbypass_preload.so", "cargo"),
        ("http-server", "the Netty server", _jar(root, "http-server"), "mvn"),
        ("gateway-netty", "the gateway", _jar(root, "gateway-netty"), "mvn"),
    )
    for name, what, product, tool in parts:
        if product.exists():
            yield Ability("can", what, f"{name} is built")
        elif is_installed:
            yield Ability("cannot", what, f"{name} is not in this package", "use a checkout")
        elif _which(tool):
            yield Ability("limited", what, f"{name} is not built yet", f"./wirespeed build {name}")
        else:
            yield Ability("cannot", what, f"{name} is not built, no {tool}", INSTALL[tool])
    java = _which("java")
    yield _either(
        bool(java), "run JVM servers", _first_line(["java", "-version"]) if java else "no java",
        INSTALL["java"],
    )  # fmt: skip


def _jar(root: Path, module: str) -> Path:
    return root / "servers" / module / "target" / f"{module}.jar"


INSTALL = {
    "cargo": "curl https://sh.rustup.rs | sh",
    "mvn": "apt-get install maven",
    "java": "apt-get install openjdk-17-jdk-headless",
    "nginx": "./wirespeed build nginx",
    "wrk": "./wirespeed build wrk",
    "wrk2": "build https://github.com/giltene/wrk2 and put it on the path as wrk2",
    "h2load": "./wirespeed build h2load",
    "ab": "./wirespeed build ab",
    "oha": "cargo install oha",
    "k6": "go install go.k6.io/k6@latest",
    "vegeta": "go install github.com/tsenart/vegeta/v12@latest",
    "chromium": "apt-get install chromium",
}


def _generators() -> Iterator[Ability]:
    for name in ("nginx", "wrk", "h2load", "ab", "wrk2", "oha", "k6", "vegeta"):
        path = _which(name)
        what = "measure NGINX" if name == "nginx" else f'recipes with tool = "{name}"'
        yield _either(bool(path), what, path or "not installed", INSTALL[name], "limited")
    path = _which("chromium") or _which("google-chrome")
    yield _either(bool(path), "print a report to PDF", path or "no Chromium",
                  INSTALL["chromium"], "limited")  # fmt: skip


def _network() -> Iterator[Ability]:
    ip = _which("ip")
    yield _either(bool(ip), "sites of kind netns", ip or "no ip command",
                  "apt-get install iproute2", "limited")  # fmt: skip
    onload = _which("onload")
    is_real = bool(onload) and Path(str(onload)).resolve().name != "bypass"
    yield _either(
        is_real, "measure Onload itself", str(onload) if is_real else "not installed",
        "install Onload and its driver; without it `provider = \"auto\"` means bypass", "limited",
    )  # fmt: skip
    control = _read("/proc/sys/net/ipv4/tcp_congestion_control")
    yield Ability("can", "know the kernel's TCP", f"congestion control {control or 'unknown'}")
    backlog = int(_read("/proc/sys/net/core/somaxconn") or 0)
    yield _either(
        backlog >= 4096, "many connections at once", f"net.core.somaxconn is {backlog}",
        "sysctl -w net.core.somaxconn=4096", "limited",
    )  # fmt: skip


def _which(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:{SEARCH_PATH}")


def _first_line(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return "no answer"
    return ((done.stdout + done.stderr).strip().splitlines() or ["no answer"])[0]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
