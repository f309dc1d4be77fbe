"""bypass over a link: the cells that it can carry, and why it cannot carry the others."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from wirespeed.driver import stack
from wirespeed.driver.base import Command
from wirespeed.recipe.model import Recipe, Site
from wirespeed.recipe.resolve import Place, Resolver
from wirespeed.recipe.site import SHIPPED
from wirespeed.runner.cells import planned_cells
from wirespeed.site import ssh
from wirespeed.site.base import Ask
from wirespeed.site.netns import Netns
from wirespeed.topology import Link

RECIPE = Recipe.model_validate(
    {
        "wirespeed": 2,
        "name": "apart",
        "axes": {"stack": ["kernel", "fast"]},
        "plan": {"duration": "1s"},
        "stacks": {"kernel": {}, "fast": {"provider": "bypass"}},
        "process": [
            {"name": "app", "role": "server", "argv": ["./app"], "pin": {}, "stack": "{{ stack }}"},
            {"name": "gen", "role": "load", "tool": "load", "argv": ["x"], "pin": {}},
        ],
    }
)


def place_on(tmp_path, link, **changes):
    release = tmp_path / "target" / "release"
    release.mkdir(parents=True)
    for name in ("bypass", "libbypass_preload.so"):
        (release / name).touch()
    site = Site.model_validate({"kind": "netns", "link": {"wire": link}})
    topology = replace(Netns().foreseen(Ask("test", site, False)), **changes)
    return Place(tmp_path, Path("r.toml"), topology, site)


def fast_cell(place):
    planned = planned_cells(RECIPE, place, "strict", {})
    return next(one for one in planned if one.cell.axes["stack"] == "fast")


@pytest.mark.parametrize("link", [{}, {"queues": 1}, {"queues": 4}])
def test_the_program_gets_the_interface_of_the_link(tmp_path, link):
    place = place_on(tmp_path, link)
    planned = fast_cell(place)
    assert planned.is_measured, planned.reason
    stacks = Resolver(RECIPE, planned.cell, place).stacks()
    under = next(one for one in stacks if one.provider == "bypass")
    assert "--interface=wire" in stack.wrap(tmp_path, under, Command(["app"])).argv


@pytest.mark.parametrize(
    ("link", "changes", "reason"),
    [
        ({"queues": 1, "rate": "1gbit"}, {}, "would not keep the rate of link wire"),
        ({}, {"links": {"wire": Link("wire")}}, "bypass needs the interfaces of link wire"),
    ],
)
def test_a_link_that_bypass_cannot_serve_is_shown_with_the_reason(tmp_path, link, changes, reason):
    planned = fast_cell(place_on(tmp_path, link, **changes))
    assert planned.state == "not-runnable"
    assert reason in planned.reason


SSH = {
    "kind": "ssh",
    "server": {"host": "one", "addr": "192.0.2.1"},
    "load": {"host": "two"},
    "link": {"25G": {"rate": "25gbit", "server": "p4p1", "load": "p4p1"}},
}


class Hosts:
    """Two hosts that ssh reaches: `boots` are the kernels that they report."""

    def __init__(self, *boots):
        info = {"cores": [0, 1], "onload": False, "threads": {}, "nodes": {}}
        self.found = [
            SimpleNamespace(name=name, info={**info, "boot_id": boot})
            for name, boot in zip(("one", "two"), boots, strict=True)
        ]

    def all(self):
        return self.found


@pytest.mark.parametrize("boots", [("a", "b"), ("a", "a")])
def test_a_declared_rate_of_ssh_hosts_is_the_link_s_own(tmp_path, boots):
    """Namespaces of one machine with a card each, or guests of one snapshot, were refused: the lab
    sets a rate on `netns` only, and elsewhere compares it."""
    site = Site.model_validate(SSH)
    topology = ssh.topology(site, ssh.hosts_of(site, False), Hosts(*boots))
    place = replace(place_on(tmp_path, {}), topology=topology, site=site)
    planned = fast_cell(place)
    assert planned.is_measured, planned.reason
    unnamed = Site.model_validate({**SSH, "link": {"25G": {"rate": "25gbit"}}})
    topology = ssh.topology(unnamed, ssh.hosts_of(unnamed, False), Hosts(*boots))
    refused = fast_cell(replace(place, topology=topology))
    assert "bypass needs the interfaces of link 25G" in refused.reason


def test_the_first_link_of_the_shipped_site_can_be_served(tmp_path):
    shipped = SHIPPED["netns"].link["veth"]
    planned = fast_cell(place_on(tmp_path, shipped.model_dump(exclude_defaults=True)))
    assert planned.is_measured, planned.reason
