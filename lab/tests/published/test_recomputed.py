"""docs/published.md has exactly the results of the published numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from wirespeed.published import recomputed

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "recipes" / "published"


@pytest.fixture(scope="module")
def netty():
    return recomputed.Cookbook(FOLDER / "netty_onload_cookbook.csv")


@pytest.fixture(scope="module")
def nginx():
    return recomputed.Cookbook(FOLDER / "nginx_onload_cookbook.csv")


def test_the_page_is_what_the_files_give():
    page = (ROOT / "docs" / "published.md").read_text(encoding="utf-8")
    assert page == recomputed.page(FOLDER), (
        "run: python -m wirespeed.published.recomputed recipes/published > docs/published.md"
    )


def test_every_printed_gain_follows_from_the_printed_figures(netty, nginx):
    assert recomputed.arithmetic(netty, nginx)["gains"] == 276
    assert netty.worst_difference() <= 0.5
    raw = [row for row in nginx.printed() if row.table in ("T2", "T3", "T4", "T5", "T6", "T11")]
    assert max(abs(nginx.gain(row) - row.value) for row in raw) <= 0.006


def test_throughput_and_rate_fit_only_wrks_unit(nginx):
    found = recomputed.unit(nginx)
    low, high = found["wrk"]["T7/T6"]
    assert 100_250 < low < 100_258 < high < 100_285
    assert found["decimal"]["T7/T6"][1] < 100_000
    assert found["binary"]["T7/T6"][0] > 102_000


def test_a_full_frame_of_1538_bytes_carries_1460():
    assert recomputed.wire_gbps(1e9 / 8 / 1538, 1460) == pytest.approx(1.0)


def test_the_losses_are_counted(nginx):
    found = recomputed.losses(nginx)
    assert (found["all"], found["negative"], found["by_ten"]) == (216, 78, 26)
    assert found["worst"].value == -68.08


def test_netty_obeys_littles_law_and_tomcat_does_not():
    steps = recomputed.ramp(FOLDER / "zuul_ramp.csv")
    ratios = {(s["server"], s["connections"]): s["ratio"] for s in steps}
    assert len(ratios) == 16
    assert all(abs(r - 1) < 0.004 for (server, _), r in ratios.items() if server == "netty")
    assert ratios["tomcat", 1100] == pytest.approx(89.65, abs=0.01)
    assert ratios["tomcat", 1300] == pytest.approx(24.12, abs=0.01)


def test_the_average_of_one_payload_is_not_the_average(netty):
    found = recomputed.average(netty)
    assert found["printed"] == pytest.approx(69.7)
    assert found["all"] == pytest.approx(55.2, abs=0.05)
    assert 40 not in found["counts"]
