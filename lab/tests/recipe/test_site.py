"""Sites: `here` and `netns` without a file, others from sites.toml, and what a file may not say."""

import pytest

from wirespeed.errors import InputError, RecipeError
from wirespeed.recipe import site
from wirespeed.recipe.model import Site
from wirespeed.site import kinds
from wirespeed.site.base import Ask

SITES = """
[site.bench]
kind = "local"
server = { cores = [1] }
load = { cores = [0] }
[site.rack]
kind = "ssh"
server = { host = "root@a" }
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sites.toml").write_text(SITES)
    return tmp_path


def topology(one, **more):
    return kinds.topology(Ask("s", one, has_origin=False, **more))


def test_shipped_sites_need_no_file(tmp_path):
    assert site.find("here", [tmp_path]).kind == "local"
    assert site.find("netns", [tmp_path]).kind == "netns"


def test_a_sites_own_cores_are_the_roles(folder):
    roles = topology(site.find("bench", [folder])).roles
    assert [seat.core for seat in roles["server"]] == [1]
    assert [seat.core for seat in roles["load"]] == [0]


def test_a_core_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"server\.cores: there is no core 4096"):
        topology(Site.model_validate({"server": {"cores": [4096]}}))


def test_an_unknown_site_lists_the_known_ones(folder):
    with pytest.raises(InputError, match=r"no site 'bensh' .*sites: here, netns, bench, rack"):
        site.find("bensh", [folder])


def test_a_wrong_key_names_the_file(tmp_path):
    (tmp_path / "sites.toml").write_text('[site.x]\nkind = "local"\ncores = [1]\n')
    with pytest.raises(RecipeError, match=r"sites\.toml: site\.x\.cores: unknown key"):
        site.find("x", [tmp_path])


def test_a_rate_without_a_unit_names_its_key(tmp_path):
    text = '[site.x]\nkind = "netns"\nlink."25G" = { rate = "25" }\n'
    (tmp_path / "sites.toml").write_text(text)
    with pytest.raises(RecipeError, match=r"25G.*rate.*ends in one of kbit, mbit, gbit"):
        site.find("x", [tmp_path])


def test_a_role_without_a_host_is_asked_for(folder):
    with pytest.raises(InputError, match=r"the site needs load = \{ host"):
        topology(site.find("rack", [folder]))


def test_namespaces_share_the_machines_cores_and_have_a_network_for_each_link():
    found = topology(site.SHIPPED["netns"])
    assert found.machine("server") == found.machine("load")
    assert found.address_of("server", "25G") != found.address_of("server", "100G")
    assert found.links["25G"].rate_bps == 2.5e9


@pytest.mark.parametrize(
    ("site", "preferred"),
    [
        ({}, True),
        ({"priority": "normal"}, False),
        # Beside a program at nice -20 the kernel's packet threads get 1 % of a core it fills.
        ({"link": {"25G": {}}}, False),
        ({"kind": "netns"}, False),
        ({"link": {"25G": {}}, "priority": "high"}, True),
    ],
)
def test_measured_programs_come_first_only_where_there_is_no_link(site, preferred):
    assert Site.model_validate(site).is_high_priority is preferred
