"""Sites: `here` without a file, others from sites.toml, and a clear no for what is not built."""

import pytest

from wirespeed.errors import InputError, RecipeError
from wirespeed.recipe import site
from wirespeed.recipe.model import Recipe
from wirespeed.runner.fit import role_cores

SITES = """
[site.bench]
kind = "local"
server = { cores = [2, 3] }
load = { cores = [4] }
[site.rack]
kind = "ssh"
server = { host = "root@a" }
"""
RECIPE = Recipe.model_validate(
    {
        "wirespeed": 1,
        "name": "r",
        "process": [{"name": "a", "role": "server", "argv": ["a"]}],
    }
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sites.toml").write_text(SITES)
    return tmp_path


def test_here_needs_no_file(tmp_path):
    assert site.find("here", [tmp_path]).kind == "local"


def test_a_sites_own_cores_are_the_roles(folder):
    roles = role_cores(RECIPE, site.find("bench", [folder]), list(range(8)))
    assert (roles["server"], roles["load"]) == ([2, 3], [4])


def test_an_unknown_site_lists_the_known_ones(folder):
    with pytest.raises(InputError, match=r"no site 'bensh' .*sites: here, bench, rack"):
        site.find("bensh", [folder])


def test_a_kind_that_is_not_built_is_refused(folder):
    with pytest.raises(RecipeError, match=r'site\.rack\.kind: "ssh" is not built yet'):
        site.find("rack", [folder])


def test_a_wrong_key_names_the_file(tmp_path):
    (tmp_path / "sites.toml").write_text('[site.x]\nkind = "local"\ncores = [1]\n')
    with pytest.raises(RecipeError, match=r"sites\.toml: site\.x\.cores: unknown key"):
        site.find("x", [tmp_path])
