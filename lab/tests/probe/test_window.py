"""Resource results cover the window only."""

import pytest

from wirespeed.probe import window
from wirespeed.probe.parse import snapshot
from wirespeed.probe.window import Part

S = 1_000_000_000
PARTS = [Part("app-0", "server", (0,)), Part("gen-0", "load", (1,))]


def raw(t_s, idle0, idle1, app_us, gen_us, switches=0, lo_bytes=0, steal0=0, segments=0):
    return {
        "t_ns": int(t_s * S),
        "text": {
            "/proc/stat": f"cpu  0 0 0 0 0 0 0 0\ncpu0 0 0 0 {idle0} 0 0 0 {steal0} 0 0\n"
            f"cpu1 0 0 0 {idle1} 0 0 0 0 0 0\nctxt {switches}\nprocs_running 3\n",
            "/proc/loadavg": "1.50 1.00 0.50 2/100 1234",
            "/proc/net/dev": "Inter-|\n face |\n"
            f"    lo: {lo_bytes} 1 0 0 0 0 0 0 {lo_bytes} 1 0 0 0 0 0 0\n"
            "  eth0: 100 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0\n",
            "/proc/meminfo": "MemTotal: 2048 kB\nMemAvailable: 1024 kB\n",
            "/proc/pressure/cpu": "some avg10=0 avg60=0 avg300=0 total=5000\n",
            "/proc/net/snmp": f"Tcp: A InSegs B\nTcp: 1 {segments} 2\n",
        },
        "process": {"app-0": [app_us, 10 * 2**20], "gen-0": [gen_us, 2**20]},
    }


def test_a_busy_server_and_a_half_idle_generator():
    # One second: core 0 idle for 0 ticks, core 1 for 50 of 100.
    samples = [raw(0, 0, 0, 0, 0), raw(1, 0, 50, 1_000_000, 500_000, switches=700, lo_bytes=10**6)]
    usage = window.of_window(samples, 0, S, PARTS)
    assert usage.values["server.cpu"] == pytest.approx(1.0)
    assert usage.values["load.cpu"] == pytest.approx(0.5)
    assert usage.values["cpu.0"] == pytest.approx(1.0)
    assert usage.values["cpu.1"] == pytest.approx(0.5)
    assert usage.values["context_switches"] == pytest.approx(700)
    assert usage.values["network_mbps"] == pytest.approx(8.0)
    assert usage.values["server.rss_mib"] == 10
    assert usage.values["memory_mib"] == 1
    assert usage.foreign == {0: 0.0, 1: 0.0}


def test_work_outside_the_window_does_not_count():
    samples = [
        raw(0, 0, 0, 0, 0),
        raw(1, 100, 100, 0, 0),  # a second of idling before the window
        raw(2, 100, 200, 1_000_000, 0),
        raw(3, 200, 300, 1_000_000, 0),
    ]
    assert window.of_window(samples, S, S, PARTS).values["server.cpu"] == pytest.approx(1.0)
    whole = window.of_window(samples, 0, 3 * S, PARTS)
    assert whole.values["server.cpu"] == pytest.approx(1 / 3)


def test_an_edge_between_two_samples_is_a_straight_line():
    samples = [raw(0, 0, 0, 0, 0), raw(1, 0, 100, 1_000_000, 0), raw(2, 100, 200, 1_000_000, 0)]
    usage = window.of_window(samples, S // 2, S, PARTS)
    assert usage.values["server.cpu"] == pytest.approx(0.5)
    assert usage.values["cpu.0"] == pytest.approx(0.5)


def test_time_of_others_on_our_core_is_foreign():
    samples = [raw(0, 0, 0, 0, 0), raw(1, 0, 100, 700_000, 0)]
    usage = window.of_window(samples, 0, S, PARTS)
    assert usage.foreign[0] == pytest.approx(0.3)
    assert usage.foreign[1] == pytest.approx(0.0)


def test_processes_that_share_a_core_are_not_foreign_to_each_other():
    shared = [Part("app-0", "server", (0,)), Part("gen-0", "load", (0,))]
    samples = [raw(0, 0, 0, 0, 0), raw(1, 0, 100, 600_000, 400_000)]
    assert window.of_window(samples, 0, S, shared).foreign == {0: pytest.approx(0.0)}


def test_steal_is_the_worst_of_our_cores():
    samples = [raw(0, 0, 0, 0, 0), raw(1, 0, 100, 900_000, 0, steal0=10)]
    usage = window.of_window(samples, 0, S, PARTS)
    assert usage.values["steal"] == pytest.approx(0.1)
    assert usage.foreign[0] == pytest.approx(0.0)  # the host is not another program


def test_the_lab_is_recognized_and_not_counted_as_another_program():
    samples = [raw(0, 0, 0, 0, 0), raw(1, 0, 0, 1_000_000, 950_000)]
    samples[0]["process"]["lab"], samples[1]["process"]["lab"] = [0, 0], [50_000, 0]
    for core, left in ((1, 0.0), (0, 0.05)):
        parts = [*PARTS, Part("lab", "lab", (core,))]
        usage = window.of_window(samples, 0, S, parts)
        assert usage.values["lab.cpu"] == pytest.approx(0.05)
        assert usage.foreign[1] == pytest.approx(left)


def test_a_core_that_only_the_lab_uses_is_not_judged():
    samples = [raw(0, 0, 0, 0, 0), raw(1, 0, 0, 1_000_000, 0)]
    parts = [PARTS[0], Part("lab", "lab", (1,))]
    assert set(window.of_window(samples, 0, S, parts).foreign) == {0}


def test_segments_of_the_kernel_are_a_rate():
    samples = [raw(0, 0, 0, 0, 0), raw(2, 0, 0, 0, 0, segments=5000)]
    usage = window.of_window(samples, 0, 2 * S, PARTS)
    assert usage.values["tcp_segments"] == pytest.approx(2500)


def test_without_samples_nothing_is_said():
    assert window.of_window([], 0, S, PARTS) is None


def test_samples_that_do_not_surround_the_window_say_nothing():
    """Of a window that was over when sampling began the server had used no CPU time at all."""
    samples = [raw(t, 0, 0, t * 1_000_000, 0) for t in (5, 6)]
    assert window.of_window(samples, 0, 4 * S, PARTS) is None
    assert window.of_window(samples, 0, int(5.5 * S), PARTS) is None
    assert window.of_window(samples, 7 * S, S, PARTS) is None
    late = window.of_window(samples, int(4.9 * S), S, PARTS)
    assert late.values["server.cpu"] == pytest.approx(1.0)


def test_a_series_has_one_row_for_each_interval_inside_the_window():
    samples = [raw(t, 0, 0, t * 500_000, 0) for t in range(6)]
    rows = window.series(samples, S, 3 * S, PARTS)
    assert [t_ns // S for t_ns, _ in rows] == [2, 3, 4]
    assert all(values["server.cpu"] == pytest.approx(0.5) for _, values in rows)


def test_a_kernel_without_pressure_files_is_read_too():
    sample = raw(0, 0, 0, 0, 0)
    del sample["text"]["/proc/pressure/cpu"]
    assert snapshot(sample).pressure_us == snapshot(sample).disk_wait_us == 0.0


def with_interrupts(sample, ticks, eth_bytes=0):
    text = sample["text"]
    text["/proc/stat"] = text["/proc/stat"].replace("cpu0 0 0 0", "cpu0 0 0 0", 1)
    lines = text["/proc/stat"].splitlines()
    fields = lines[1].split()
    fields[7] = str(ticks)  # softirq
    lines[1] = " ".join(fields)
    text["/proc/stat"] = "\n".join(lines) + "\n"
    text["/proc/net/dev"] = text["/proc/net/dev"].replace("eth0: 100", f"eth0: {eth_bytes}")
    return sample


@pytest.mark.parametrize(
    ("apart", "eth_bytes", "ours", "foreign"),
    [
        # Charged to the process they interrupt: another process's 20 % is not hidden behind them.
        (False, 0, 800_000, 0.2),
        # Accounted apart, they are in no process: our own packets are not interference.
        (True, 0, 700_000, 0.0),
        # Over a link on a full core all of them fell into somebody's time.
        (False, 10**8, 800_000, 0.2),
    ],
)
def test_strangers_beside_interrupts(apart, eth_bytes, ours, foreign):
    last = with_interrupts(raw(1, 0, 100, ours, 0), 30, eth_bytes)
    last["interrupts_apart"] = apart
    usage = window.of_window([raw(0, 0, 0, 0, 0), last], 0, S, PARTS)
    assert usage.foreign[0] == pytest.approx(foreign)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("nr_periods 3\nthrottled_usec 1000000", "nr_periods 9\nthrottled_usec 1250000"),
        ("nr_throttled 3\nthrottled_time 1000000000", "nr_throttled 9\nthrottled_time 1250000000"),
    ],
)
def test_what_a_cpu_quota_held_back_is_counted_in_either_tree_of_cgroups(before, after):
    samples = [raw(0, 0, 0, 0, 0), raw(1, 0, 50, 1_000_000, 500_000)]
    for sample, text in zip(samples, (before, after), strict=True):
        sample["text"]["quota"] = text
    assert window.of_window(samples, 0, S, PARTS).values["held_back"] == pytest.approx(0.25)
    half = window.of_window(samples, S // 4, S // 2, PARTS)
    assert half.values["held_back"] == pytest.approx(0.25)


def test_the_fullest_thread_is_that_of_the_window():
    samples = [raw(t, 0, 0, t * 1_000_000, 0) for t in range(3)]
    samples[0]["threads"] = {"app-0": {"7": 5 * S, "8": 0}}
    samples[2]["threads"] = {"app-0": {"7": 5 * S + S // 2, "8": 2 * S, "9": S // 4}}
    usage = window.of_window(samples, 0, 2 * S, PARTS)
    assert usage.fullest_thread == {"app-0": pytest.approx(1.0)}
    assert usage.values["server.fullest_thread"] == pytest.approx(1.0)
    del samples[2]["threads"]
    assert window.of_window(samples, 0, 2 * S, PARTS).fullest_thread == {}


def test_switches_are_those_of_the_threads_that_live_at_the_end():
    samples = [raw(t, 0, 0, t * 1_000_000, 0) for t in range(3)]
    for sample, own in ((samples[0], {"7": 100, "8": 5}), (samples[2], {"7": 900, "9": 40})):
        sample["threads"] = {"app-0": dict.fromkeys(own, 0)}
        sample["switches"] = {"app-0": own}
    assert window.of_window(samples, 0, 2 * S, PARTS).switches == {"app-0": 420.0}


def test_events_of_the_processor_are_cut_at_the_windows_edges():
    samples = [raw(t, 0, 0, 0, 0) for t in range(3)]
    for sample, count in zip(samples, (100, 1100, 5100), strict=True):
        sample["counts"] = {"app-0": {"instructions": count}}
    assert window.counts(samples, S, S) == {"app-0": {"instructions": 4000}}
    half = window.counts(samples, S // 2, S)
    assert half == {"app-0": {"instructions": pytest.approx(500 + 2000)}}
    assert window.counts([raw(t, 0, 0, 0, 0) for t in range(3)], 0, S) == {}


def test_the_wait_for_a_disk_is_a_share_of_the_window():
    samples = [raw(t, 0, 0, 0, 0) for t in range(4)]
    for sample, us in zip(samples, (0, 500_000, 800_000, 5_000_000), strict=True):
        sample["text"]["/proc/pressure/io"] = f"some avg10=0 total={us}\nfull avg10=0 total=1\n"
    assert window.of_window(samples, S, S, PARTS).values["psi_io"] == pytest.approx(0.3)
