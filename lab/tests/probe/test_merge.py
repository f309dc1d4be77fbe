"""Samples of several hosts become one series, on one clock, with every core once."""

import pytest

from wirespeed.probe import window
from wirespeed.probe.merge import HostSamples, core_name, merged
from wirespeed.probe.window import Part

S = 1_000_000_000


def raw(t_s, idle, process, segments=0):
    """One core, idle for so many ticks of 10 ms."""
    return {
        "t_ns": int(t_s * S),
        "text": {
            "/proc/stat": f"cpu0 0 0 0 {idle} 0 0 0 0 0 0\nctxt 0\nprocs_running 1\n",
            "/proc/net/dev": f"  25G: {segments} 1 0 0 0 0 0 0 {10 * segments} 1 0 0 0 0 0 0\n",
            "/proc/net/snmp": f"Tcp: InSegs\nTcp: {segments}\n",
        },
        "process": process,
    }


def series(label, idle, cpu_us, clock_s=0.0, segments=0):
    lab = {"lab": [0, 0]}
    return [
        raw(clock_s, 0, {label: [0, 0], **lab}),
        raw(clock_s + 1, idle, {label: [cpu_us, 0], "lab": [1000, 0]}, segments),
    ]


def usage(load_machine, clock_s=0.0):
    sources = [
        HostSamples("load", load_machine, clock_s, series("gen-0", 50, 500_000, clock_s, 70)),
        HostSamples("server", "m1", 0.0, series("app-0", 0, 1_000_000, 0.0, 30)),
    ]
    load_core = core_name(0, load_machine, "m1")
    parts = [Part("app-0", "server", (0,)), Part("gen-0", "load", (load_core,))]
    shots = merged(sources, "server")
    return window.of_window(shots, 0, S, parts), shots


def test_another_machines_cores_carry_its_name():
    found, shots = usage("m2")
    assert found.values["cpu.0"] == pytest.approx(1.0)
    assert found.values["cpu.m2.0"] == pytest.approx(0.5)
    assert found.values["server.cpu"] == pytest.approx(1.0)
    assert found.values["load.cpu"] == pytest.approx(0.5)
    assert found.foreign == {0: pytest.approx(0.0), "m2.0": pytest.approx(0.0)}
    assert shots[-1].process_cpu_s["lab"] == pytest.approx(0.001)


def test_each_kernel_accounts_interrupts_in_its_own_way():
    """The kernel of the lab was asked, and that of a far server charged them otherwise."""
    ours, theirs = series("app-0", 0, 1_000_000), series("gen-0", 50, 500_000)
    for sample in theirs:
        sample["interrupts_apart"] = True
    sources = [HostSamples("server", "m1", 0.0, ours), HostSamples("load", "m2", 0.0, theirs)]
    assert [set(shot.apart) for shot in merged(sources, "server")] == [{"m2.0"}] * 2
    assert [set(shot.apart) for shot in merged(sources, "load")] == [{0}] * 2


def test_hosts_of_one_kernel_share_its_cores_and_add_their_agents():
    found, shots = usage("m1")
    assert [name for name in found.values if name.startswith("cpu.")] == ["cpu.0"]
    assert shots[-1].process_cpu_s["lab"] == pytest.approx(0.002)
    assert found.values["tcp_segments"] == pytest.approx(100)


def test_a_clock_that_is_an_hour_ahead_is_put_right():
    found, _ = usage("m2", clock_s=3600.0)
    assert found.values["load.cpu"] == pytest.approx(0.5)


def test_a_links_rate_is_that_of_the_servers_own_interface():
    _, shots = usage("m2")
    assert max(window.interface_bps(shots, 0, S, "25G")) == pytest.approx(300 * 8)
    assert window.interface_bps(shots, 0, S, "none") == (0.0, 0.0)
