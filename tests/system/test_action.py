"""The GitHub action's own script: which revisions it hands to `compare --rev`."""

import os
import subprocess
import textwrap
from pathlib import Path

import pytest

ACTION = Path(__file__).parents[2] / "packaging" / "action" / "action.yml"
INPUTS = ("RUN", "BUILD", "BASE", "HEAD", "PORT", "PATH", "CONNECTIONS", "FAIL_ON")


def script():
    """The lines below the first `run: |`."""
    text = ACTION.read_text().split("run: |\n", 1)[1]
    lines = []
    for line in text.splitlines(keepends=True):
        if line.strip() and not line.startswith(" " * 8):
            break
        lines.append(line)
    return textwrap.dedent("".join(lines))


@pytest.mark.parametrize(
    ("base", "head", "revisions"),
    [
        ("0123abcd", "HEAD", ["0123abcd", "HEAD"]),
        ("", "HEAD", ["HEAD^", "HEAD"]),  # a push, a schedule: no pull request that has a base
        ("", "feature", ["feature^", "feature"]),
    ],
)
def test_the_action_compares_two_revisions_in_every_event(tmp_path, base, head, revisions):
    """Outside of pull requests the base was empty, and `--rev` refused it."""
    folder = tmp_path / "kit" / "packaging" / "action"
    folder.mkdir(parents=True)
    program = tmp_path / "kit" / "wirespeed"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    inputs = {f"INPUT_{name}": "" for name in INPUTS} | {"INPUT_BASE": base, "INPUT_HEAD": head}
    done = subprocess.run(
        ["bash", "-e", "-c", script()], capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, **inputs, "GITHUB_ACTION_PATH": str(folder), "RUNNER_TEMP": "/tmp"},
    )  # fmt: skip
    words = done.stdout.splitlines()
    assert [words[i + 1] for i, word in enumerate(words) if word == "--rev"] == revisions
