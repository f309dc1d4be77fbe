"""A recipe is found by path or by name; a wrong name is answered with the right ones."""

from pathlib import Path

import pytest

from wirespeed.cli import options
from wirespeed.errors import InputError
from wirespeed.recipe import read


def test_a_recipe_that_two_folders_hold_is_named_once(tmp_path):
    (tmp_path / "netty.toml").touch()
    with pytest.raises(InputError, match=r"shipped recipes: netty\)$"):
        read.find("zzz", [tmp_path, tmp_path])


def test_a_near_name_is_suggested(tmp_path):
    (tmp_path / "netty.toml").touch()
    with pytest.raises(InputError, match="did you mean 'netty'"):
        read.find("nety", [tmp_path])


def test_a_relative_folder_for_runs_is_that_of_the_shell(monkeypatch, tmp_path):
    """NGINX looked for a configuration in `runs/…` below its own prefix."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WIRESPEED_RUNS", "elsewhere")
    assert options.runs_folder(Path("runs")) == tmp_path / "runs"
    assert options.runs_folder(None) == tmp_path / "elsewhere"


@pytest.mark.parametrize("data", ["", "data"])
def test_runs_of_an_installed_tree_lie_with_the_users_own_data(monkeypatch, tmp_path, data):
    """A lab from a wheel wrote them into the tree that the command `bypass` belongs to."""
    (tmp_path / "INSTALLED").touch()
    monkeypatch.delenv("WIRESPEED_RUNS", raising=False)
    monkeypatch.setenv("WIRESPEED_ROOT", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / data) if data else "")
    folder = tmp_path / (data or "home/.local/share")
    assert options.runs_folder(None) == folder / "wirespeed" / "runs"
