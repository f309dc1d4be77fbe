"""The first recipe of docs/recipes.md works as it stands there."""

import os
import re
import sys
from pathlib import Path

from ports import free_port

RECIPES = Path(__file__).resolve().parents[3] / "docs" / "recipes.md"
SERVER = Path(__file__).resolve().parents[1] / "fakes" / "server.py"


def first_recipe():
    return re.search(r"```toml\n(.*?)```", RECIPES.read_text(), re.S).group(1)


def test_the_first_recipe_runs_with_a_server_next_to_it(checkout, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    text = first_recipe()
    assert "base = 8000" in text
    # A port of this test's own: other programs may listen on the documented one.
    (folder / "my-server.toml").write_text(text.replace("base = 8000", f"base = {free_port()}"))
    program = folder / "my-server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {SERVER} "$@"\n')
    program.chmod(0o755)
    arguments = ("--repeat", "1", "--set", "plan.duration=1s", "--only", "connections=50")
    code, _, err = checkout.call("run", folder / "my-server.toml", *arguments)
    assert code == 0, err
    assert len(checkout.trials()) == 1
    os.remove(program)
    code, _, err = checkout.call("run", folder / "my-server.toml", *arguments)
    assert code == 1
    assert f"program {program} not found" in err
