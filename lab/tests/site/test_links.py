"""Links: their capacity is measured, compared with the declared one, and reported if saturated."""

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
link."1G" = { rate = "10mbit", mtu = 1500, speed = "1G" }
"""


def opened(tmp_path, site):
    ask = Ask("test", Site.model_validate({"kind": "netns", **site}), False, f"{os.getpid()}-links")
    return kinds.open_site(ask)


@needs_root
def test_a_capped_link_is_found_as_it_is_declared(tmp_path, monkeypatch):
    monkeypatch.setattr(links, "SECONDS", 3.0)  # of which a machine may stand still for one or two
    site = opened(tmp_path, {"link": {"thin": {"rate": "50mbit", "mtu": 9000}}})
    try:
        for _ in range(10):  # a busy machine measures less
            found = links.measured(site.fleet, site.topology, ["thin"])["thin"]
            assert found.mtu == 9000 and found.interface == "thin"
            rates = found.to_load_bps, found.to_server_bps
            assert max(rates) < 60e6
            if min(rates) > 15e6:
                return
        raise AssertionError(rates)
    finally:
        site.fleet.close()


@needs_root
def test_no_host_of_a_namespace_site_paces(tmp_path):
    """A host's BBR made the kernel's stack five times slower over veth."""
    site = opened(tmp_path, {"load": {"count": 2}})
    read = ["cat", "/proc/sys/net/ipv4/tcp_congestion_control"]
    try:
        said = [host.ask("run", argv=read, env={"PATH": "/bin"}) for host in site.fleet.seats]
    finally:
        site.fleet.close()
    assert {one["out"].strip() for one in said} <= {"cubic", "reno"}


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
    """The rate of generator and origin alone: those cells had no way to the origin."""
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


def test_differences_from_the_declaration_are_reported():
    found = Capacity(TENTH, "eth0", 2.4e9, 2.45e9, 1500)
    assert found.differences() == []
    assert found.share(0, 2.4e9) == 1 and found.share(2.45e9, 0) == 1
    (slow,) = replace(found, to_load_bps=1e9).differences()
    assert slow == "link 25G is declared with 2.5 Gb/s, one stream reached 1 Gb/s"
    assert replace(found, to_load_bps=1e9).share(0, 2.5e9) == 1
    (wide,) = replace(found, to_load_bps=9e9).differences()
    assert "carries 9 Gb/s" in wide
    (mtu,) = replace(found, mtu=9000).differences()
    assert mtu == "link 25G is declared with MTU 1500, its MTU is 9000"


def test_a_link_is_full_at_its_declared_rate():
    """One stream had "reached" 8 % more than a shaped link carries, because its sender was held up
    between clock and counter; the full link's trials were then "unknown"."""
    found = Capacity(TENTH, "eth0", 2.7e9, 3.4e9, 1500)
    assert found.share(0, 2.45e9) == pytest.approx(0.98)
    assert found.share(2.45e9, 0) == pytest.approx(0.98)
    assert found.share(0, 2.2e9) < 0.9
    wide = replace(found, to_load_bps=9e9)
    assert wide.share(0, 4.5e9) == 0.5, "the declared rate is not its limit"


def test_a_link_that_only_cores_limit_is_never_full():
    assert Capacity(replace(TENTH, is_limit=False), "v", 9e9, 9e9, 1500).share(9e9, 9e9) == 0


def test_each_direction_is_checked_against_its_own_rate():
    """A line with a slow way up: answers at half of its way down were "the link was the limit"."""
    line = Capacity(replace(TENTH, rate_bps=None), "eth0", 1e9, 1e8, 1500)
    assert line.share(1e7, 5e8) == 0.5
    assert line.share(1e8, 5e8) == 1


def test_a_link_that_carries_more_than_it_was_measured_with_is_not_known_to_be_full():
    """One stream of one core is slower than a card: the throughput of many connections was mistaken
    for a saturated link."""
    card = Capacity(replace(TENTH, rate_bps=None), "eth0", 4e9, 4e9, 1500)
    assert card.share(0, 3.9e9) == pytest.approx(0.975)
    assert card.share(0, 9e9) == 0


def is_full(trial):
    return trial["bottleneck"] == "link" and trial["metrics"].get("link.share", 0) >= 0.95


@needs_root
def test_a_run_over_a_full_link_names_it_and_says_that_it_is_scaled(checkout):
    (checkout.root / "sites.toml").write_text(SITES)
    checkout.environment["WIRESPEED_FAKE_PAUSE_S"] = "0"
    # Few at a time leave the link idle between two answers, on a busy machine for most of it.
    checkout.environment["WIRESPEED_FAKE_AT_ONCE"] = "16"
    recipe = checkout.recipe(
        connections=[1], warmup="300ms", duration="1s", length=65536,
        server_options=["--payload", "65536"],
    )  # fmt: skip
    text = recipe.read_text().replace("axes = {", 'axes = { link = ["1G", "100G"],')
    recipe.write_text(text)
    code, _, err = checkout.call("run", recipe, "--site", "thin")
    assert code == 0, err
    # A connection whose last segment is lost waits before it sends again, and the machine may stand
    # still for a moment: not every window is full.
    for _ in range(8):
        if any(map(is_full, checkout.trials())):
            break
        code, _, err = checkout.call("run", "--resume", "latest", "--add-rounds", "1")
        assert code == 0, err
    else:
        raise AssertionError([(one["bottleneck"], one["metrics"]) for one in checkout.trials()])
    run = checkout.run_json()
    assert run["facts"]["link 1G"].startswith("declared 0.01 Gb/s, MTU 1500; measured 0.0")
    assert "Link 1G is scaled: 0.01 Gb/s stand for 1 Gb/s (1:100)." in run["thinned"]
    assert "scaled" in (checkout.latest / "derived" / "report.html").read_text()
    plan = (checkout.latest / "plan.jsonl").read_text()
    assert "this site has no link 100G (links: 1G)" in plan


def test_links_whose_names_begin_alike_have_interfaces_of_their_own():
    """They were one interface: "File exists", and no run."""
    links = ["datacenter-1", "datacenter-2", "lo", "origin", "25G", "2-5G"]
    site = Site.model_validate({"kind": "netns", "link": {name: {} for name in links}})
    found = kinds.topology(Ask("test", site, False)).links
    interfaces = [link.server for link in found.values()]
    assert len({*interfaces, "lo", "origin", "direct"}) == len(links) + 3, interfaces
    assert all(len(name) <= 15 for name in interfaces)
    assert found["25G"].server == "25G"
