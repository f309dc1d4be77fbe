"""An audit judges an agent's readings, and recommends remedies."""

import sys
from dataclasses import asdict

import pytest

from wirespeed.agent import facts as agent_facts
from wirespeed.fleet.channel import Transport
from wirespeed.fleet.host import Host
from wirespeed.probe import machine
from wirespeed.runner.audit import judged


@pytest.fixture(scope="module")
def facts():
    host = Host(Transport("here", python=sys.executable), {"mark": "audit", "cgroups": False})
    try:
        host.greet()
        return machine.facts(host, "/usr/sbin:/usr/bin:/sbin:/bin", is_audit=True)
    finally:
        host.close()


def finding(facts, what, **audit):
    changed = {**facts, "audit": {**facts["audit"], **audit}}
    return next(one for one in judged(changed) if one.what == what)


def test_this_machine_is_judged_whole(facts):
    found = judged(facts)
    assert {"processor", "cores", "virtualisation", "clock", "open files"} <= {
        one.what for one in found
    }
    assert all(one.why for one in found if one.level != "good")
    assert all(one.remedy for one in found if one.level == "bad")
    assert all(isinstance(value, str) for one in found for value in asdict(one).values())


@pytest.mark.parametrize(
    ("what", "audit", "level", "remedy"),
    [
        ("governor", {"governors": ["powersave"]}, "bad", "cpupower frequency-set -g performance"),
        ("governor", {"governors": ["performance"]}, "good", ""),
        ("steal since start", {"steal_share": 0.2}, "note", ""),
        ("open files", {"nofile_hard": 1024}, "bad", "ulimit -Hn 65536"),
        ("services", {"services": ["irqbalance"]}, "bad", "systemctl stop irqbalance"),
        ("turbo", {"turbo": "on"}, "note", ""),
        ("CPU quota", {"cpu_quota": 1.5}, "bad", "--cpuset-cpus"),
        ("CPU quota", {"cpu_quota": None}, "good", ""),
    ],
)
def test_each_source_of_noise_is_named_with_its_remedy(facts, what, audit, level, remedy):
    found = finding(facts, what, **audit)
    assert found.level == level
    assert remedy in found.remedy


def test_a_kernel_that_paces_is_to_be_fixed(facts):
    def found(control):
        judgements = judged({**facts, "congestion_control": control})
        return next(one for one in judgements if one.what == "congestion control")

    assert found("bbr").level == "bad" and "cubic" in found("bbr").remedy
    assert found("cubic").level == "good"


def test_adaptive_coalescing_of_a_card_is_to_be_fixed(facts):
    card = {"name": "eth9", "driver": "ice", "speed_mbps": 25000, "mtu": 9000, "qdisc": "mq",
            "queues": 8, "coalesce": {"adaptive-rx": True, "rx-usecs": 50}}  # fmt: skip
    found = finding(facts, "coalescing of eth9", interfaces=[card])
    assert found.level == "bad" and found.remedy == "ethtool -C eth9 adaptive-rx off rx-usecs 0"
    assert finding(facts, "interface eth9", interfaces=[card]).found.startswith("ice, 25 Gb/s")


def test_rings_are_read_where_ethtool_has_no_json_for_them(tmp_path, monkeypatch):
    program = tmp_path / "ethtool"
    lines = ["Pre-set maximums:", "RX: 4096", "RX Mini: n/a", "TX: 256",
             "Current hardware settings:", "RX: 512", "TX: 256", "TX Push: off"]  # fmt: skip
    program.write_text(
        '#!/bin/sh\n[ "$1" = --json ] && echo bad command line >&2 && exit 1\n'
        f"cat <<END\n{chr(10).join(lines)}\nEND\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    read = agent_facts.rings("eth9")
    assert read == {"rx": 512, "rx-max": 4096, "tx": 256, "tx-max": 256}


def test_small_rings_and_offloads_that_are_off_are_noted(facts):
    card = {"name": "eth9", "driver": "ice", "speed_mbps": 25000, "mtu": 9000, "qdisc": "mq",
            "queues": 8, "coalesce": {}, "rings": {"rx": 512, "rx-max": 4096, "tx": 4096,
            "tx-max": 4096}, "offloads": {"rx-checksumming": True,
            "tcp-segmentation-offload": False, "generic-receive-offload": "off"}}  # fmt: skip
    ring = finding(facts, "rx ring of eth9", interfaces=[card])
    assert (ring.level, ring.found) == ("note", "512 of 4096 descriptors")
    assert "ethtool -G eth9 rx 4096" in ring.why
    assert finding(facts, "tx ring of eth9", interfaces=[card]).level == "good"
    offloads = finding(facts, "offloads of eth9", interfaces=[card])
    assert offloads.level == "note"
    assert offloads.found == "tcp-segmentation-offload, generic-receive-offload off"
    card["offloads"] = dict.fromkeys(card["offloads"], "on")
    assert finding(facts, "offloads of eth9", interfaces=[card]).level == "good"


def test_a_card_that_reports_neither_rings_nor_offloads_is_not_judged_by_them(facts):
    card = {"name": "eth9", "driver": "virtual", "speed_mbps": None, "mtu": 1500,
            "qdisc": "noqueue", "queues": None, "coalesce": {}, "rings": {},
            "offloads": {}}  # fmt: skip
    changed = {**facts, "audit": {**facts["audit"], "interfaces": [card]}}
    about = [one.what for one in judged(changed) if "eth9" in one.what]
    assert about == ["interface eth9"]
