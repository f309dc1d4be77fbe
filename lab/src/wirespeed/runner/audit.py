"""Audits a host: its facts, which of them add noise, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

STEAL_NOTE = 0.005
SHM_LEAST_MIB = 256
NOFILE_LEAST = 65536
CORES_FEW = 4
QUOTA = "CPU quota"
# Of the published methods: a bound below it was raised there before measuring.
BOUNDS = {
    "net.core.somaxconn": 4096,
    "net.core.netdev_max_backlog": 5000,
    "net.ipv4.tcp_max_syn_backlog": 4096,
    "net.core.rmem_max": 8388608,
    "net.core.wmem_max": 8388608,
    "fs.nr_open": 1048576,
}

PACING = ("bbr",)  # over veth: 12,000 responses of 10 KiB a second, 62,000 with CUBIC or Reno
OFFLOADS = ("rx-checksumming", "tx-checksumming", "tcp-segmentation-offload",
            "generic-receive-offload")  # fmt: skip
CLOCKS_QUICK = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page")

Level = Literal["good", "note", "bad"]


@dataclass(frozen=True)
class Judgement:
    """One finding. `remedy` is empty where nothing is to be done or can be."""

    level: Level
    what: str
    found: str
    why: str = ""
    remedy: str = ""


def judged(facts: dict[str, Any]) -> list[Judgement]:
    """`facts` as the agent reads them for an audit."""
    audit = facts["audit"]
    return [
        *_cpu(facts, audit),
        *_virtual(facts, audit),
        *_kernel(facts, audit),
        *_services(audit),
        *_cards(audit),
    ]


def _one(is_good: bool, what: str, found: object, why: str, remedy: str = "") -> Judgement:
    if is_good:
        return Judgement("good", what, str(found))
    return Judgement("bad" if remedy else "note", what, str(found), why, remedy)


def _cpu(facts: dict[str, Any], audit: dict[str, Any]) -> Iterator[Judgement]:
    yield Judgement("good", "processor", f"{facts['cpu_model']}, {facts['cores']} cores")
    yield _one(
        facts["cores"] >= CORES_FEW,
        "cores",
        facts["cores"],
        "server and generator get one each and the lab shares them; sweeps over instances do not "
        "fit (--fit pairs or share)",
    )
    governors = audit["governors"]
    yield _one(
        not governors or governors == ["performance"],
        "governor",
        ", ".join(governors) or "none visible",
        "clock rates follow the load, and windows differ",
        "cpupower frequency-set -g performance",
    )
    yield _one(
        audit["turbo"] != "on", "turbo", audit["turbo"],
        "the clock depends on temperature and on how many cores are busy; the published methods "
        "left it on",
    )  # fmt: skip
    yield _one(
        facts["root"] == "yes" or not audit["idle_states"],
        "idle states",
        ", ".join(audit["idle_states"]) or "none visible",
        "a core that wakes up late delays cells with few connections; root may hold them off",
        "run as root",
    )
    yield _one(
        facts["threads_per_core"] == 1,
        "hyper-threads",
        f"{facts['threads_per_core']} a core",
        "two processes on one physical core slow each other down; give a site cores of one thread",
    )
    yield _one(
        facts["numa_nodes"] == 1,
        "NUMA nodes",
        facts["numa_nodes"],
        "memory and cards of the other node are farther away; name cores of the card's node",
    )


def _virtual(facts: dict[str, Any], audit: dict[str, Any]) -> Iterator[Judgement]:
    yield _one(
        facts["virtualization"] == "none",
        "virtualisation",
        facts["virtualization"],
        "the host's other guests show only as CPU steal and in the calibration loop",
    )
    yield _one(
        audit["steal_share"] <= STEAL_NOTE,
        "steal since start",
        f"{audit['steal_share']:.1%}",
        "the hypervisor gave that share of the time to other guests",
    )
    quota = audit["cpu_quota"]
    yield _one(
        quota is None,
        QUOTA,
        "none" if quota is None else f"{quota:g} cores",
        "programs that have used it up wait on idle cores, and a server at its limit is not seen",
        "give this container or service cores of its own instead (--cpuset-cpus, AllowedCPUs=)",
    )
    yield Judgement("good", "firmware", audit["firmware"])
    yield _one(
        facts["clocksource"] in CLOCKS_QUICK,
        "clock",
        facts["clocksource"],
        "each look at the time is a slow one, which generators do often",
        "boot with clocksource=tsc where the hardware allows it",
    )  # fmt: skip


def _kernel(facts: dict[str, Any], audit: dict[str, Any]) -> Iterator[Judgement]:
    for name, least in BOUNDS.items():
        value = audit["sysctl"].get(name, "")
        if value.isdigit():
            yield _one(
                int(value) >= least, name, value,
                f"below {least}, which the published methods set",
                f"sysctl -w {name}={least}, or run --tune with a recipe that asks for it",
            )  # fmt: skip
    yield _one(
        facts["congestion_control"] not in PACING,
        "congestion control",
        facts["congestion_control"],
        "it paces each connection by a timer, which costs the kernel's stack most of its long "
        "responses on a link without queues",
        "sysctl -w net.ipv4.tcp_congestion_control=cubic, or run --tune with a recipe that asks "
        "for it",
    )  # fmt: skip
    yield Judgement("good", "huge pages", audit["sysctl"].get("vm.nr_hugepages", ""))
    yield _one(
        audit["nofile_hard"] >= NOFILE_LEAST,
        "open files",
        audit["nofile_hard"],
        "connections of a cell may not fit",
        f"ulimit -Hn {NOFILE_LEAST}",
    )
    yield _one(
        audit["shm_free_mib"] >= SHM_LEAST_MIB,
        "/dev/shm",
        f"{audit['shm_free_mib']} MiB free",
        "payloads and bypass's rings live there",
        "free some, or mount it larger",
    )
    yield _one(
        not facts["cgroup"].startswith("none"),
        "cgroup v2",
        facts["cgroup"],
        "without it the CPU of a process is counted in steps of 10 ms",
    )


def _services(audit: dict[str, Any]) -> Iterator[Judgement]:
    running = audit["services"]
    if running is None:
        yield Judgement("good", "services", "no systemd here")
        return
    yield _one(
        not running,
        "services",
        ", ".join(running) or "none of the services that the methods stop",
        "they move interrupts, change clock rates or filter packets",
        f"systemctl stop {' '.join(running)}, or run --tune with a recipe that asks for it",
    )


def _cards(audit: dict[str, Any]) -> Iterator[Judgement]:
    for card in audit["interfaces"]:
        speed = f"{card['speed_mbps'] / 1000:g} Gb/s" if card["speed_mbps"] else "no speed"
        queues = f", {card['queues']} queues" if card["queues"] else ""
        text = f"{card['driver']}, {speed}, MTU {card['mtu']}, {card['qdisc']}{queues}"
        yield Judgement("good", f"interface {card['name']}", text)
        adaptive = card["coalesce"].get("adaptive-rx", card["coalesce"].get("Adaptive RX"))
        if adaptive is not None:
            yield _one(
                adaptive in (False, "off"),
                f"coalescing of {card['name']}",
                f"adaptive-rx {'on' if adaptive in (True, 'on') else 'off'}, "
                f"rx-usecs {card['coalesce'].get('rx-usecs', '?')}",
                "interrupts wait for more packets, by a rule that changes with the load",
                f"ethtool -C {card['name']} adaptive-rx off rx-usecs 0",
            )
        yield from _rings(card)
        yield from _offloads(card)


def _rings(card: dict[str, Any]) -> Iterator[Judgement]:
    rings = card.get("rings", {})
    for way in ("rx", "tx"):
        size, most = rings.get(way), rings.get(f"{way}-max")
        if isinstance(size, int) and isinstance(most, int) and most > 0:
            yield _one(
                size >= most,
                f"{way} ring of {card['name']}",
                f"{size} of {most} descriptors",
                f"a burst that does not fit is lost or waits; ethtool -G {card['name']} "
                f"{way} {most} makes it larger",
            )


def _offloads(card: dict[str, Any]) -> Iterator[Judgement]:
    features = card.get("offloads", {})
    off = [name for name in OFFLOADS if features.get(name) in (False, "off")]
    if any(name in features for name in OFFLOADS):
        yield _one(
            not off,
            f"offloads of {card['name']}",
            f"{', '.join(off)} off" if off else "checksums, TSO and GRO on",
            "the kernel's stack then sums, cuts or joins packets itself, which a user-level stack "
            "does not do",
        )
