"""The first recipe of docs/recipes.md works as it stands there."""

import os
import re
import socket
import sys
from pathlib import Path

import pytest

RECIPES = Path(__file__).resolve().parents[3] / "docs" / "recipes.md"
SERVER = Path(__file__).resolve().parents[1] / "fakes" / "server.py"


def first_recipe():
    return re.search(r"```toml\n(.*?)```", RECIPES.read_text(), re.S).group(1)


def test_the_first_recipe_runs_with_a_server_next_to_it(checkout, tmp_path):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if probe.connect_ex(("127.0.0.1", 8000)) == 0:
            pytest.skip("somebody else listens on port 8000")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "my-server.toml").write_text(first_recipe())
    program = folder / "my-server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {SERVER} "$@"\n')
    program.chmod(0o755)
    arguments = ("--repeat", "1", "--budget", "14s", "--only", "connections=50")
    code, _, err = checkout.call("run", folder / "my-server.toml", *arguments)
    assert code == 0, err
    assert len(checkout.trials()) == 1
    os.remove(program)
    code, _, err = checkout.call("run", folder / "my-server.toml", *arguments)
    assert code == 1
    assert f"program {program} not found" in err
