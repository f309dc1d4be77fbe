"""Facts of this machine as the command line asks for them, and what they mean for measuring."""

from __future__ import annotations

from typing import Any

from wirespeed.host.base import Host
from wirespeed.probe import machine
from wirespeed.process.start import SEARCH_PATH

CORES_FEW = 4


def of_machine(host: Host) -> dict[str, Any]:
    return machine.facts(host, SEARCH_PATH)


def remarks(found: dict[str, Any]) -> list[str]:
    """Each remark says what disturbs and what to do about it."""
    said = []
    if found["root"] == "no":
        said.append(
            "without root, idle states cannot be held off: cells with few connections suffer"
        )
    if found["cores"] < CORES_FEW:
        said.append(
            f"{found['cores']} cores: server and generator get one each and the lab shares them; "
            "sweeps over instances do not fit (--fit pairs or share)"
        )
    if found["virtualization"] != "none":
        said.append("a virtual machine: the host's other guests are seen only by the canary")
    if found["governor"] not in ("performance", "none visible"):
        said.append(
            f"governor {found['governor']}: `cpupower frequency-set -g performance` steadies it"
        )
    if found["cgroup"].startswith("none"):
        said.append("no cgroup v2: CPU per process is counted in 10 ms steps")
    return said
