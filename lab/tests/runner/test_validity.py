"""Verdicts on a trial: what makes it invalid, what is only noted, and who was the bottleneck."""
# ruff: noqa: E501 - a table reads best with one row a line

from dataclasses import replace

import pytest

from wirespeed.driver.base import Figures, Latency, Window
from wirespeed.probe.window import Part, Usage
from wirespeed.results.model import Calibration
from wirespeed.runner.bottleneck import Evidence
from wirespeed.runner.validity import judge, paused

PARTS = [Part("app-0", "server", (0,)), Part("gen-0", "load", (1,))]
FIGURES = Figures(
    rps=1000.0,
    bytes_per_second=1e5,
    window=Window(0, 10**9),
    completed=1000,
    errors=0,
    non_2xx=0,
    timeouts=0,
    connections=10,
    closed_loop=True,
    little_residual=0.0,
    busiest_thread=0.5,
)


def usage(server=0.99, load=0.5, foreign=0.0, steal=0.0):
    values = {"cpu.0": server, "cpu.1": load, "steal": steal}
    return Usage(values, {"app-0": server, "gen-0": load}, {}, {0: foreign, 1: 0.0}, 0.001, 1.0)


PARTS_WITH_ORIGIN = [*PARTS, Part("stub-0", "origin", (2,))]


def with_origin(usage, cpu):
    values = {**usage.values, "cpu.2": cpu}
    return replace(usage, values=values, process_cpu_s={**usage.process_cpu_s, "stub-0": cpu})


def evidence(**changes):
    base = Evidence({"gen-0": FIGURES}, usage(), PARTS, None, None, 1.0, False)
    return replace(base, **changes)


def test_a_quiet_trial_with_a_full_server_is_valid_and_about_the_server():
    verdict = judge(evidence())
    assert verdict.is_valid and not verdict.notes
    assert verdict.bottleneck == "server"


@pytest.mark.parametrize(
    ("changed", "bottleneck"),
    [
        ({"usage": usage(server=0.7, load=0.99)}, "client"),
        ({"usage": usage(server=0.99, load=0.99)}, "both"),
        # Both poll, so both cores are saturated anyway: work shows the limit, not time.
        ({"usage": usage(0.99, 0.99), "useful_server": 0.98, "polling_load": True}, "both"),
        ({"usage": usage(0.99, 0.99), "useful_server": 0.4, "polling_load": True}, "unknown"),
        # The rate without a server shows the limit where the core does not.
        ({"usage": usage(0.99, 0.99), "useful_server": 0.98, "polling_load": True, "headroom": 1.4}, "server"),
        ({"usage": usage(0.99, 0.99), "useful_server": 0.98, "polling_load": True, "headroom": 1.2}, "both"),
        ({"usage": usage(0.99, 0.99), "useful_server": 0.4, "polling_load": True, "headroom": 1.2}, "client"),
        ({"usage": usage(0.99, 0.99), "useful_server": 0.4, "polling_load": True, "headroom": 9.0}, "concurrency"),
        ({"usage": usage(0.99, 0.99), "useful_server": 0.98, "headroom": 9.0}, "both"),
        ({"usage": usage(0.99, 0.99), "useful_server": 0.4}, "client"),
        ({"usage": usage(0.99, 0.5), "useful_server": 0.4}, "concurrency"),
        # A request at a time for each thread: no program can be at a limit, however busy its core.
        ({"usage": usage(0.99, 0.99), "figures": {"gen-0": replace(FIGURES, connections=1, threads=1)}}, "concurrency"),
        # Two thirds of the connections were not served: a full core does not overrule that.
        ({"usage": usage(0.99, 0.5), "figures": {"gen-0": replace(FIGURES, little_residual=-0.6)}}, "unknown"),
        ({"usage": usage(server=0.5, load=0.5)}, "concurrency"),
        ({"usage": None}, "unknown"),
        # The core is full, and the server had all that others left of it.
        ({"usage": replace(usage(0.8, 0.5), values={"cpu.0": 1.0, "cpu.1": 0.5, "steal": 0.0}, foreign={0: 0.2})}, "server"),
        ({"usage": replace(usage(0.8, 0.5), values={"cpu.0": 1.0, "cpu.1": 0.5, "steal": 0.0}, foreign={0: 0.2}), "useful_server": 0.78}, "server"),
        ({"usage": replace(usage(0.5, 0.5), values={"cpu.0": 0.7, "cpu.1": 0.5, "steal": 0.0}, foreign={0: 0.2})}, "concurrency"),
        ({"usage": with_origin(usage(0.5, 0.5), 0.99), "parts": PARTS_WITH_ORIGIN}, "unknown"),
        ({"usage": with_origin(usage(0.99, 0.5), 0.99), "parts": PARTS_WITH_ORIGIN}, "server"),
        # The core is full, but someone else filled most of it.
        ({"usage": replace(usage(0.3, 0.5), values={"cpu.0": 1.0, "cpu.1": 0.5, "steal": 0.0}, foreign={0: 0.7})}, "unknown"),
        ({"shared_cores": True}, "unknown"),
        # Each of them ran partly alone: the sum of their rates is that of no full server.
        ({"common_share": 0.9}, "unknown"),
        ({"usage": usage(0.5, 0.5), "figures": {"gen-0": replace(FIGURES, little_residual=-0.4)}}, "unknown"),
        ({"usage": usage(0.5, 0.5), "figures": {"gen-0": replace(FIGURES, closed_loop=False)}}, "unknown"),
        ({"usage": usage(0.5, 0.5), "figures": {"gen-0": replace(FIGURES, busiest_thread=0.99)}}, "client"),
    ],
)  # fmt: skip
def test_the_limit_is_found(changed, bottleneck):
    assert judge(evidence(**changed)).bottleneck == bottleneck


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"figures": {"gen-0": replace(FIGURES, errors=2)}}, "2 errors in 1000 requests"),
        ({"figures": {"gen-0": replace(FIGURES, non_2xx=1)}}, "1 answers were not 2xx"),
        (
            {"figures": {"gen-0": replace(FIGURES, completed=0, bytes_per_second=0.0)}},
            "no request was completed",
        ),
        ({"usage": usage(foreign=0.6)}, "other processes used 60.0% of core 0"),
        ({"fell_back": "all 5 connections used the kernel"}, "used the kernel"),
        ({"common_share": 0.2}, "ran together for 20% of their windows only"),
    ],
)
def test_reasons_that_make_a_trial_invalid(changed, reason):
    verdict = judge(evidence(**changed))
    assert not verdict.is_valid
    assert reason in verdict.reasons[0]


@pytest.mark.parametrize(
    ("changed", "share", "word"),
    [
        ({"usage": usage(foreign=0.1)}, 0.1, "other processes used 10.0% of core 0"),
        ({"usage": usage(foreign=0.1), "others": [("kdamond.0", 0.06), ("init", 0.001)]}, 0.1, "core 0 (kdamond.0 6.0%)"),
        ({"usage": usage(steal=0.05)}, 0.05, "steal"),
        # Both ends of the trial count: one slow of two is half the loss.
        (
            {"calibration": Calibration(10.0, 14.0), "calibration_best_ms": 10.0},
            1 - 10 / 12,
            "40% more than",
        ),
        ({"usage": usage(foreign=0.1, steal=0.2)}, 1 - 0.9 * 0.8, "steal"),
    ],
)  # fmt: skip
def test_interference_is_reported_with_its_possible_cost(changed, share, word):
    verdict = judge(evidence(**changed))
    assert verdict.is_valid
    assert verdict.disturbed.share == pytest.approx(share)
    assert any(word in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("changed", "note"),
    [
        ({"figures": {"gen-0": replace(FIGURES, little_residual=0.07)}}, "Little's law is off by +7%"),
        ({"figures": {"gen-0": replace(FIGURES, due=1000, sent=900)}}, "only 90% of the intended"),
        ({"calibration": Calibration(10.0, 11.0), "calibration_best_ms": 10.0}, "10% more than"),
        ({"common_share": 0.5}, "ran together for 50%"),
        ({"figures": {"gen-0": replace(FIGURES, warnings=["lateness is high"])}}, "lateness is high"),
    ],
)  # fmt: skip
def test_notes_that_keep_a_trial_valid(changed, note):
    verdict = judge(evidence(**changed))
    assert verdict.is_valid
    assert any(note in one for one in verdict.notes)


def test_noise_that_was_accepted_makes_no_trial_invalid():
    verdict = judge(evidence(usage=usage(foreign=0.9), accept_noise=True))
    assert verdict.is_valid
    assert verdict.notes == ["other processes used 90.0% of core 0"]


def test_one_tick_of_the_clock_is_not_noise():
    # A window of 100 ms: two ticks are 20 % of it, and say nothing.
    coarse = replace(usage(foreign=0.15), foreign_error=0.2)
    assert judge(evidence(usage=coarse)).disturbed.share == 0.0


def test_bytes_count_though_no_answer_was_whole():
    """50 connections × 100 MB take longer than the window: throughput is bytes in the window."""
    figures = replace(FIGURES, completed=0, bytes_per_second=1.5e9)
    assert judge(evidence(figures={"gen-0": figures})).is_valid


def test_forty_milliseconds_a_request_with_idle_cores_are_explained():
    slow = replace(FIGURES, latency={"service": Latency(mean_ns=44e6, max_ns=45e6, count=10)})
    (note,) = judge(evidence(figures={"gen-0": slow}, usage=usage(0.02, 0.03))).notes
    assert "check TCP_NODELAY" in note
    busy = judge(evidence(figures={"gen-0": slow}, usage=usage(0.99, 0.5))).notes
    assert busy == []


def several(loads, threads=None, cores_each=1):
    """A server of several instances, each busy by `loads` of all its cores, before one generator."""
    parts, values, cpu = [PARTS[1]], {"cpu.1": 0.5, "steal": 0.0}, {"gen-0": 0.5}
    for number, load in enumerate(loads):
        cores = tuple(range(10 + number * cores_each, 10 + (number + 1) * cores_each))
        parts.append(Part(f"app-{number}", "server", cores))
        values |= {f"cpu.{core}": load for core in cores}
        cpu[f"app-{number}"] = load * cores_each
    foreign = {core: 0.0 for part in parts for core in part.cores}
    fullest = {f"app-{number}": share for number, share in enumerate(threads or [])}
    return evidence(usage=Usage(values, cpu, {}, foreign, 0.001, 1.0, fullest), parts=parts)


@pytest.mark.parametrize(
    ("loads", "threads", "cores_each", "limit"),
    [
        ([0.25], [0.99], 4, "server"),  # one thread on four cores
        ([0.62], [0.99], 4, "server"),  # one hot worker of four
        ([0.62], [0.70], 4, "concurrency"),
        ([1.0, *[0.4] * 39], [], 1, "concurrency"),  # one full instance of forty
        ([*[1.0] * 39, 0.4], [], 1, "server"),
    ],
)
def test_the_limit_is_the_fullest_thread_and_most_of_the_instances(
    loads, threads, cores_each, limit
):
    assert judge(several(loads, threads, cores_each)).bottleneck == limit


@pytest.mark.parametrize(
    ("throughput", "notes"),
    [
        (None, []),
        (100.0, []),
        (96.0, []),
        (88.0, ["garbage collections stopped the server for 12%"]),
    ],
)
def test_a_server_that_is_stopped_for_its_collections_has_a_note(throughput, notes):
    assert paused(throughput) == notes


@pytest.mark.parametrize(
    ("server", "share", "is_noted"), [(0.5, 0.3, True), (0.5, 0.04, False), (0.99, 0.3, False)]
)
def test_a_disk_is_named_where_no_core_explains_the_rate(server, share, is_noted):
    seen = usage(server=server)
    seen = replace(seen, values={**seen.values, "psi_io": share})
    notes = judge(evidence(usage=seen)).notes
    said = "programs of this machine waited for a disk for 30% of the window"
    assert notes == ([said] if is_noted else [])
