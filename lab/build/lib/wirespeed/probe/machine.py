"""Facts about the machine and its programs: what a reader needs to judge or repeat a figure."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from wirespeed.host.base import Host

_ANSWER_S = 10.0
# Where a run may be resumed only if these are as they were.
IDENTITY = ("cpu_model", "cores", "kernel", "memory_mib")


def facts(host: Host, search_path: str, java: str = "java") -> dict[str, Any]:
    versions = {
        "java": [java, "-version"],
        "nginx": ["nginx", "-v"],
        "rustc": ["rustc", "--version"],
        "wrk": ["wrk", "-v"],
    }
    with ThreadPoolExecutor() as pool:
        answers = pool.map(lambda argv: _version(argv, search_path), versions.values())
        found = {name: text for name, text in zip(versions, answers, strict=True) if text}
    info = host.info
    return {
        "cpu_model": _cpu_model(),
        "cores": len(info["cores"]),
        "threads_per_core": _threads_per_core(),
        "kernel": platform.release(),
        "system": _system(),
        "memory_mib": _memory_mib(),
        "virtualization": _virtualization(),
        "congestion_control": _read("/proc/sys/net/ipv4/tcp_congestion_control"),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        or "none visible",
        "idle_driver": _read("/sys/devices/system/cpu/cpuidle/current_driver"),
        "clocksource": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "transparent_hugepages": _chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
        "somaxconn": _read("/proc/sys/net/core/somaxconn"),
        "cgroup": "one for each process" if info["cgroup"] else "none (process groups)",
        "root": "yes" if info["root"] else "no",
        "python": info["python"],
        **found,
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _chosen(path: str) -> str:
    match = re.search(r"\[(\w+)\]", _read(path))
    return match[1] if match else ""


def _cpu_model() -> str:
    match = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.M)
    return match[1] if match else platform.machine()


def _memory_mib() -> int:
    match = re.search(r"MemTotal:\s*(\d+)", _read("/proc/meminfo"))
    return int(match[1]) // 1024 if match else 0


def _threads_per_core() -> int:
    siblings = _read("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
    total = 0
    for piece in filter(None, siblings.split(",")):
        low, _, high = piece.partition("-")
        total += int(high or low) - int(low) + 1
    return total or 1


def _system() -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', _read("/etc/os-release"), re.M)
    return match[1] if match else platform.system()


def _virtualization() -> str:
    if "hypervisor" not in _read("/proc/cpuinfo"):
        return "none"
    product = _read("/sys/class/dmi/id/sys_vendor") or _read("/sys/hypervisor/type")
    return product or ("KVM" if "kvm" in _clocks() else "virtual machine")


def _clocks() -> str:
    return _read("/sys/devices/system/clocksource/clocksource0/available_clocksource")


def _version(argv: list[str], search_path: str) -> str:
    """The first line with a number in it that the program says about itself."""
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=_ANSWER_S,
            check=False,
            env={**os.environ, "PATH": search_path},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines()]
    return next((line for line in lines if re.search(r"\d", line)), "")
