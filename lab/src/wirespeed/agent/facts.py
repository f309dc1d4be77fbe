"""Part of the agent: facts of a host and its programs: what a reader needs to judge a figure.

Read from programs that print JSON where they exist, else from /proc and /sys. Standard library of
Python 3.9 only: see main.py.
"""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from wirespeed.agent import quota
from wirespeed.agent.children import Cgroups, clean_environment, read_text
from wirespeed.agent.files import hash_of

ANSWER_S = 20.0  # a JVM that prints its version on a loaded host
KEPT_SYSCTLS = (
    "net.core.somaxconn",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.netdev_max_backlog",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_congestion_control",
    "vm.nr_hugepages",
    "vm.swappiness",
    "fs.file-max",
    "fs.nr_open",
    "kernel.numa_balancing",
)
SERVICES = ("irqbalance", "cpupower", "cpuspeed", "cpufreqd", "powerd", "tuned", "firewalld",
            "iptables", "nftables")  # fmt: skip
VERSIONS = {
    "nginx": ["nginx", "-v"],
    "rustc": ["rustc", "--version"],
    "wrk": ["wrk", "-v"],
}


def of_host(message: dict[str, Any], cgroups: Cgroups | None) -> dict[str, Any]:
    """Flat facts; with `is_audit` also network interfaces, sysctls, limits and services."""
    path = message["search_path"]
    cpu = cpu_facts()
    facts = {
        **own_identity(cpu),
        "threads_per_core": cpu["threads_per_core"],
        "numa_nodes": cpu["numa_nodes"],
        "system": system(),
        "memory_mib": memory_mib(),
        "congestion_control": one_line("/proc/sys/net/ipv4/tcp_congestion_control"),
        "governor": one_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
        or "none visible",
        "idle_driver": one_line("/sys/devices/system/cpu/cpuidle/current_driver"),
        "clocksource": one_line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        "transparent_hugepages": chosen("/sys/kernel/mm/transparent_hugepage/enabled"),
        "somaxconn": one_line("/proc/sys/net/core/somaxconn"),
        "cgroup": "one for each process" if cgroups and cgroups.root else "none (process groups)",
        "root": "yes" if os.geteuid() == 0 else "no",
        "python": sys.version.split()[0],
    }
    if machine_id():
        facts["machine"] = machine_id()
    for name, argv in dict(VERSIONS, java=[message.get("java", "java"), "-version"]).items():
        text = version(argv, path)
        if text:
            facts[name] = text
    if message.get("is_audit"):
        facts["audit"] = audited()
    return facts


def machine_id() -> str:
    """A digest, as machine-id(5) asks programs not to show the number itself; empty without one."""
    return hash_of("/etc/machine-id")[:12] if one_line("/etc/machine-id") else ""


def own_identity(cpu: dict[str, Any] | None = None) -> dict[str, Any]:
    """By which this machine is known again (runner/known.py)."""
    return {
        "cpu_model": (cpu or cpu_facts())["model"],
        "cores": len(os.sched_getaffinity(0)),
        "kernel": os.uname().release,
        "virtualization": virtualization(),
    }


def of_programs(message: dict[str, Any]) -> dict[str, str]:
    """{name: "version (path, sha256 …)"} of `programs`: {name: [command for it, files]}."""
    path = message["search_path"]
    facts = {}
    for name, (argv, names) in message["programs"].items():
        where = [
            shutil.which(one, path=path) or (one if os.path.isfile(one) else None) for one in names
        ]
        files = [_hashed(one) for one in where]
        parts = [version(argv, path) if argv else "", "; ".join(filter(None, files))]
        facts[name] = " ".join(filter(None, [parts[0], parts[1] and f"({parts[1]})"]))
    return {name: text for name, text in facts.items() if text}


def _hashed(path: str | None) -> str:
    """Path and content of a program: two builds with the same version differ in it."""
    if not path:
        return ""
    return f"{path}, sha256 {hash_of(path)[:12]}"


def audited() -> dict[str, Any]:
    """Further facts that `wirespeed audit` judges."""
    return {
        "turbo": turbo(),
        "idle_states": idle_states(),
        "smt": one_line("/sys/devices/system/cpu/smt/control"),
        "isolated": one_line("/sys/devices/system/cpu/isolated"),
        "governors": sorted(
            {
                one_line(p)
                for p in glob.glob("/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
            }
        ),
        "steal_share": steal_share(),
        "cpu_quota": (quota.tightest() or [None])[0],
        "sysctl": {name: one_line(sysctl_file(name)) for name in KEPT_SYSCTLS},
        "nofile_hard": nofile_hard(),
        "services": running_services(),
        "firmware": firmware(),
        "interfaces": interfaces(),
        "load": one_line("/proc/loadavg").split()[:1],
        "entropy_of_interrupts": interrupt_cores(),
        "shm_free_mib": free_mib("/dev/shm"),
    }


def cpu_facts() -> dict[str, Any]:
    data = json_of(["lscpu", "-J"])
    rows: dict[str, Any] = {}

    def walk(entries: Iterable[dict[str, Any]]) -> None:  # newer versions nest them
        for entry in entries:
            rows[entry["field"].rstrip(":")] = entry.get("data")
            walk(entry.get("children", ()))

    walk((data or {}).get("lscpu", ()))
    match = re.search(r"^model name\s*:\s*(.+)$", read_text("/proc/cpuinfo"), re.M)
    return {
        "model": rows.get("Model name") or (match.group(1) if match else os.uname().machine),
        "threads_per_core": int(rows.get("Thread(s) per core") or siblings()),
        "numa_nodes": int(rows.get("NUMA node(s)") or 1),
    }


def siblings() -> int:
    total = 0
    text = one_line("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
    for piece in filter(None, text.split(",")):
        low, _, high = piece.partition("-")
        total += int(high or low) - int(low) + 1
    return total or 1


def system() -> str:
    match = re.search(r'^PRETTY_NAME="?([^"\n]+)', read_text("/etc/os-release"), re.M)
    return match.group(1) if match else os.uname().sysname


def memory_mib() -> int:
    match = re.search(r"MemTotal:\s*(\d+)", read_text("/proc/meminfo"))
    return int(match.group(1)) // 1024 if match else 0


def virtualization() -> str:
    """systemd's word for it; without systemd what the CPU and the firmware say."""
    code, text = output(["systemd-detect-virt", "--vm"])
    if text.strip() and code in (0, 1):
        return text.strip()
    if "hypervisor" not in read_text("/proc/cpuinfo"):
        return "none"
    product = one_line("/sys/class/dmi/id/sys_vendor") or one_line("/sys/hypervisor/type")
    clocks = one_line("/sys/devices/system/clocksource/clocksource0/available_clocksource")
    return product or ("kvm" if "kvm" in clocks else "virtual machine")


def turbo() -> str:
    if os.path.exists("/sys/devices/system/cpu/intel_pstate/no_turbo"):
        return "off" if one_line("/sys/devices/system/cpu/intel_pstate/no_turbo") == "1" else "on"
    boost = one_line("/sys/devices/system/cpu/cpufreq/boost")
    return {"0": "off", "1": "on"}.get(boost, "not visible")


def idle_states() -> list[str]:
    return [
        one_line(path) for path in sorted(glob.glob("/sys/devices/system/cpu/cpu0/cpuidle/*/name"))
    ]


def steal_share() -> float:
    """A guest's share of its own time that the hypervisor gave to others, since it started."""
    fields = [int(word) for word in read_text("/proc/stat").split("\n")[0].split()[1:9]]
    return round(fields[7] / max(1, sum(fields)), 4) if len(fields) == 8 else 0.0


def nofile_hard() -> int:
    import resource

    return resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def running_services() -> list[str] | None:
    """The services that the published methods stop and that run here."""
    if not shutil.which("systemctl"):
        return None
    names = [name + ".service" for name in SERVICES]
    _, text = output(["systemctl", "is-active", *names])
    states = text.split()
    return [SERVICES[at] for at, state in enumerate(states) if state == "active"]


def firmware() -> str:
    names = ("sys_vendor", "product_name", "bios_version", "bios_date")
    words = [one_line("/sys/class/dmi/id/" + name) for name in names]
    return " ".join(word for word in words if word) or "not visible"


def interrupt_cores() -> list[tuple[int, int]]:
    """How many interrupts may reach each core: [[core, count], …]."""
    count: dict[int, int] = {}
    for path in glob.glob("/proc/irq/*/smp_affinity_list"):
        for piece in filter(None, one_line(path).split(",")):
            low, _, high = piece.partition("-")
            for core in range(int(low), int(high or low) + 1):
                count[core] = count.get(core, 0) + 1
    return sorted(count.items())


def free_mib(path: str) -> int:
    try:
        state = os.statvfs(path)
    except OSError:
        return 0
    return state.f_bavail * state.f_frsize >> 20


def interfaces() -> list[dict[str, Any]]:
    """Each interface that is up: name, MTU, speed, driver, coalescing, rings, offloads, queues."""
    cards: list[dict[str, Any]] = []
    for link in json_of(["ip", "-j", "link"]) or []:
        if link.get("operstate") not in ("UP", "UNKNOWN") or link["ifname"] == "lo":
            continue
        name = link["ifname"]
        cards.append(
            {
                "name": name,
                "mtu": link.get("mtu"),
                "qdisc": link.get("qdisc"),
                "speed_mbps": speed_of(name),
                "driver": driver_of(name),
                "coalesce": ethtool("--show-coalesce", name),
                "rings": rings(name),
                "queues": len(glob.glob(f"/sys/class/net/{name}/queues/rx-*")) or None,
                "offloads": ethtool("--show-features", name),
            }
        )
    return cards


def speed_of(name: str) -> int | None:
    text = one_line(f"/sys/class/net/{name}/speed")
    return int(text) if text.lstrip("-").isdigit() and int(text) > 0 else None


def driver_of(name: str) -> str:
    link = f"/sys/class/net/{name}/device/driver"
    return os.path.basename(os.path.realpath(link)) if os.path.exists(link) else "virtual"


def rings(name: str) -> dict[str, Any]:
    """{"rx": 512, "rx-max": 4096, "tx": …}; ethtool prints JSON for some drivers only."""
    data = json_of(["ethtool", "--json", "--show-ring", name])
    if data:
        return dict(data[0])
    code, text = output(["ethtool", "--show-ring", name])
    most, head, now = text.partition("Current hardware settings:")
    if code != 0 or not head:
        return {}
    sizes = {}
    for part, suffix in ((most, "-max"), (now, "")):
        for way, size in re.findall(r"^(RX|TX):\s+(\d+)$", part, re.M):
            sizes[way.lower() + suffix] = int(size)
    return sizes


def ethtool(option: str, name: str) -> dict[str, Any]:
    """Flat {setting: value}; ethtool prints JSON for some questions only, by version."""
    data = json_of(["ethtool", "--json", option, name])
    if data:
        rows = data[0]
        return {
            key: value["active"] if isinstance(value, dict) else value
            for key, value in rows.items()
            if key != "ifname"
        }
    code, text = output(["ethtool", option, name])
    if code != 0:
        return {}
    rows = re.findall(r"^\s*([\w][\w -]*):\s+([\w./-]+)", text, re.M)
    return {key: value for key, value in rows}


# -- small readings ---------------------------------------------------------------------------


def one_line(path: str) -> str:
    return read_text(path).strip()


def sysctl_file(name: str) -> str:
    return "/proc/sys/" + name.replace(".", "/")


def chosen(path: str) -> str:
    match = re.search(r"\[(\w+)\]", read_text(path))
    return match.group(1) if match else ""


def output(argv: Sequence[str], path: str | None = None) -> tuple[int, str]:
    """(exit code, output); (127, "") where the program is missing."""
    search = path or os.environ.get("PATH", "/usr/bin:/bin") + ":/usr/sbin:/sbin"
    program = shutil.which(argv[0], path=search)
    if not program:
        return 127, ""
    try:
        process = subprocess.Popen(
            [program, *argv[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=clean_environment({"PATH": search, "LC_ALL": "C"}),
        )
    except OSError:
        return 127, ""
    try:
        text, _ = process.communicate(timeout=ANSWER_S)
    except subprocess.TimeoutExpired:  # a server that takes no notice of --version, and serves
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except OSError:  # another user's, as under sudo
            return 127, ""
        process.wait()
        return 127, ""
    return process.returncode, text.decode(errors="replace")


def json_of(argv: Sequence[str]) -> Any:
    code, text = output(argv)
    try:
        return json.loads(text) if code == 0 else None
    except ValueError:
        return None


def version(argv: Sequence[str], search_path: str) -> str:
    """The first line with a number in it that the program says about itself."""
    _, text = output(argv, search_path)
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if re.search(r"\d", line)), "")


def has_onload() -> bool:
    """Whether the command `onload` is Onload's own, not bypass under that name."""
    program = shutil.which("onload", path=os.environ.get("PATH", "") + ":/usr/local/bin:/usr/bin")
    return program is not None and os.path.basename(os.path.realpath(program)) != "bypass"


def core_ids(what: str) -> dict[str, int]:
    """core → the first core that it shares its physical core with, or its NUMA node."""
    ids = {}
    for core in os.sched_getaffinity(0):
        folder = f"/sys/devices/system/cpu/cpu{core}"
        if what == "node":
            names = [name for name in listed(folder) if re.match(r"node\d+$", name)]
            ids[str(core)] = int(names[0][4:]) if names else 0
        else:
            text = read_text(folder + "/" + what).strip()
            ids[str(core)] = int(re.split("[,-]", text)[0]) if text else core
    return ids


def listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
