"""Links: what they carry is measured, compared with what is declared, and a full one is named."""

import os
import shutil
from dataclasses import replace

import pytest

from wirespeed.fleet import links
from wirespeed.fleet.links import Capacity
from wirespeed.recipe.model import Site
from wirespeed.site import kinds
from wirespeed.site.base import Ask
from wirespeed.topology import Link

needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root for namespaces"
)
TENTH = Link("25G", 2.5e9, 1500, "25G")
SITES = """
[site.thin]
kind = "netns"
link."1G" = { rate = "20mbit", mtu = 1500, speed = "1G" }
"""


def opened(tmp_path, site):
    ask = Ask("test", Site.model_validate({"kind": "netns", **site}), False, f"{os.getpid()}-links")
    return kinds.open_site(ask)


@needs_root
def test_a_capped_link_is_found_as_it_is_declared(tmp_path):
    site = opened(tmp_path, {"link": {"thin": {"rate": "50mbit", "mtu": 9000}}})
    try:
        found = links.measured(site.fleet, site.topology, ["thin"])["thin"]
    finally:
        site.fleet.close()
    assert found.mtu == 9000 and found.interface == "thin"
    assert min(found.to_load_bps, found.to_server_bps) > 35e6
    assert max(found.to_load_bps, found.to_server_bps) < 60e6


@needs_root
def test_several_load_hosts_reach_the_server_and_share_its_link(tmp_path):
    site = opened(tmp_path, {"load": {"count": 3}, "link": {"thin": {"rate": "100mbit"}}})
    try:
        address = site.topology.address_of("server", "thin")
        for name in site.topology.hosts("load"):
            rate, interface, _ = links.one_way(
                site.fleet, site.fleet[name], site.fleet["server"], address
            )
            assert interface == "thin" and rate < 120e6
    finally:
        site.fleet.close()


@needs_root
def test_every_load_host_reaches_the_origin_without_the_server(tmp_path):
    """What generator and origin can do alone: those cells had no way to the origin."""
    site = Site.model_validate(
        {"kind": "netns", "load": {"count": 2}, "link": {"thin": {"rate": "100mbit"}}}
    )
    opened = kinds.open_site(Ask("test", site, True, f"{os.getpid()}-origin"))
    try:
        fleet, address = opened.fleet, opened.topology.address_of("origin", "thin")
        for name in opened.topology.hosts("load"):
            rate, interface, _ = links.one_way(fleet, fleet[name], fleet["origin"], address)
            assert interface and 0 < rate < 120e6
        links.one_way(fleet, fleet["server"], fleet["origin"], address)
    finally:
        fleet.close()


def test_differences_from_the_declaration_are_told():
    found = Capacity(TENTH, "eth0", 2.4e9, 2.45e9, 1500)
    assert found.differences() == []
    assert found.full_bps() == 2.4e9
    (slow,) = replace(found, to_load_bps=1e9).differences()
    assert slow == "link 25G is declared with 2.5 Gb/s, one stream reached 1 Gb/s"
    assert replace(found, to_load_bps=1e9).full_bps() == 2.5e9
    (wide,) = replace(found, to_load_bps=9e9).differences()
    assert "carries 9 Gb/s" in wide
    (mtu,) = replace(found, mtu=9000).differences()
    assert mtu == "link 25G is declared with MTU 1500, its MTU is 9000"


def test_a_link_that_only_cores_limit_is_never_full():
    assert Capacity(replace(TENTH, is_limit=False), "v", 9e9, 9e9, 1500).full_bps() is None


@needs_root
def test_a_run_over_a_full_link_names_it_and_says_that_it_is_scaled(checkout):
    (checkout.root / "sites.toml").write_text(SITES)
    checkout.environment["WIRESPEED_FAKE_PAUSE_S"] = "0"
    recipe = checkout.recipe(
        connections=[1], duration="1s", length=131072, server_options=["--payload", "131072"]
    )
    text = recipe.read_text().replace("axes = {", 'axes = { link = ["1G", "100G"],')
    recipe.write_text(text)
    code, _, err = checkout.call("run", recipe, "--site", "thin")
    assert code == 0, err
    (trial,) = checkout.trials()
    assert trial["bottleneck"] == "link", trial
    assert trial["metrics"]["link.share"] >= 0.95
    run = checkout.run_json()
    assert run["facts"]["link 1G"].startswith("declared 0.02 Gb/s, MTU 1500; measured 0.0")
    assert "Link 1G is scaled: 0.02 Gb/s stand for 1 Gb/s (1:50)." in run["thinned"]
    assert "scaled" in (checkout.latest / "derived" / "report.html").read_text()
    plan = (checkout.latest / "plan.jsonl").read_text()
    assert "this site has no link 100G; its links: 1G" in plan
