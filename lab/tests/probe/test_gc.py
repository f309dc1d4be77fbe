"""Collections are counted in the window, from a log with a wall clock or with the uptime."""

from wirespeed.probe import gc

S = 1_000_000_000
UPTIME = """[0.004s][info][gc] Using Serial
[1.500s][info][gc] GC(0) Pause Young (Allocation Failure) 17M->2M(61M) 4.000ms
[2.500s][info][gc] GC(1) Pause Young (Allocation Failure) 19M->2M(61M) 6.000ms
[9.000s][info][gc] GC(2) Pause Full (System.gc()) 19M->2M(61M) 90.000ms
[2.600s][info][gc] GC(3) Concurrent Mark 12.000ms
"""
CLOCK = """[2026-11-21T12:00:01.500+0000][1.5s] GC(0) Pause Young (Normal) 1M->1M(2M) 2.500ms
[2026-11-21T12:00:05.000+0000][5.0s] GC(1) Pause Young (Normal) 1M->1M(2M) 2.500ms
"""


def test_pauses_by_uptime(tmp_path):
    log = tmp_path / "gc.log"
    log.write_text(UPTIME)
    found = gc.of_window(gc.Log(log, 100.0), 101 * S, 3 * S)
    assert (found.count, found.pause_ms) == (2, 10.0)
    assert found.throughput(1.0) == 99.0


def test_pauses_by_clock(tmp_path):
    log = tmp_path / "gc.log"
    log.write_text(CLOCK)
    noon = 1795262400
    assert gc.of_window(gc.Log(log, 0.0), noon * S, 3 * S).count == 1


def test_a_missing_log_has_no_result(tmp_path):
    assert gc.of_window(gc.Log(tmp_path / "none", 0.0), 0, S) is None


def test_each_pause_has_its_instant(tmp_path):
    log = tmp_path / "gc.log"
    log.write_text(CLOCK)
    noon = 1795262400
    assert gc.pauses(gc.Log(log, 0.0)) == [(int((noon + 1.5) * S), 2.5), ((noon + 5) * S, 2.5)]
    assert gc.pauses(gc.Log(tmp_path / "none", 0.0)) is None


def test_a_wall_clock_of_another_host_is_read_on_the_labs(tmp_path):
    """A window is on the lab's clock: pauses of a host an hour ahead all lay outside."""
    log = tmp_path / "gc.log"
    log.write_text(CLOCK)
    noon = 1795262400
    found = gc.of_window(gc.Log(log, 0.0, offset_s=3600.0), (noon - 3600) * S, 3 * S)
    assert found.count == 1
    log.write_text(UPTIME)  # counted from the start, which the lab saw on its own clock
    assert gc.of_window(gc.Log(log, 100.0, offset_s=3600.0), 101 * S, 3 * S).count == 2
