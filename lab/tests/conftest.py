"""Shared fixtures: a fake checkout with fake programs, and the lab's command run against it."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from ports import free_port
from processes import marked
from warm import Starter, program

# On a busy machine an example may take long; the test must not fail for that.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

FAKES = Path(__file__).parent / "fakes"
PATIENCE_S = 180.0  # a loaded two-core machine
COLUMNS = "200"

RECIPE = """
wirespeed = 2
name = "{name}"
axes = {{ connections = {connections} }}
plan = {{ repeat = {repeat}, warmup = "{warmup}", duration = "{duration}", restart = "{restart}" }}

[[process]]
name = "app"
role = "server"
inherit = {fakes}
port = {{ base = {port} }}
argv = ["{python}", "{server}", "--port", "{{{{ port }}}}"{server_options}]
ready.http = "http://{{{{ server.addr }}}}:{{{{ port }}}}/"
ready.length = {length}
ready.within = "{within}"
[[process]]
name = "gen"
role = "load"
tool = "load"
inherit = {fakes}
argv = ["-c", "{{{{ connections }}}}", "-d", "{{{{ duration }}}}",
  "http://{{{{ server.addr }}}}:{{{{ app.port }}}}/"]
[[metric]]
name = "rps"
from = "gen"
[[table]]
rows = "connections"
value = "rps"
"""


@dataclass
class Checkout:
    """A checkout of fakes: its recipes run against a real server and generator in Python."""

    root: Path
    runs: Path
    environment: dict

    def recipe(self, name="story", server_options=(), **changes):
        values = {
            "name": name,
            "connections": [1, 2, 3],
            "repeat": 1,
            "warmup": "0s",
            "duration": "200ms",
            "restart": "trial",
            "port": free_port(),
            "length": 16,
            "within": "60s",
            "python": sys.executable,
            "server": FAKES / "server.py",
            "fakes": [f"WIRESPEED_FAKE_{name}" for name in ("EXIT", "RPS", "WAY")],
            "server_options": "".join(f', "{word}"' for word in server_options),
        } | changes
        path = self.root / "recipes" / f"{name}.toml"
        path.write_text(RECIPE.format(**values))
        return path

    def start(self, *arguments, first=""):
        """The lab: a copy of one that is loaded, or a fresh one where that would differ.

        It runs `first` before its command, such as to wait for less long than it does for users."""
        words = list(map(str, arguments))
        # Stories run on busy machines; that noise repeats a trial is tested without a machine.
        words += ["--accept-noise"] if arguments[0] == "run" else []
        environment = {**self.environment, "WIRESPEED_RUNS": str(self.runs)}
        if starter().fits(environment):
            return starter().start(words, environment, self.root, first)
        return subprocess.Popen(
            [*program(first), *words], env=environment, cwd=self.root, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def call(self, *arguments, **how):
        process = self.start(*arguments, **how)
        out, err = process.communicate(timeout=PATIENCE_S)
        return process.returncode, out, err

    @property
    def latest(self):
        return (self.runs / "latest").resolve()

    def run_json(self):
        return json.loads((self.latest / "run.json").read_text())

    def trials(self):
        return [json.loads(p.read_text()) for p in sorted(self.latest.glob("trials/*/trial.json"))]

    def wait_for_trials(self, count, process):
        """Waits until so many trials are on the disk while the lab still runs."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if len(list(self.runs.glob("latest/trials/*/trial.json"))) >= count:
                return
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        raise AssertionError("no trial was finished in time")

    def hold(self):
        """Has the generators of all trials but the first wait: a run cannot end meanwhile."""
        self._held().touch()

    def go_on(self):
        self._held().unlink()

    def _held(self):
        return self.root / "target" / "release" / "wirespeed-load.held"

    def left_behind(self, pid):
        """Leftovers of the lab with this process id: processes, cgroups, scratch folders."""
        found = list(marked(f"{pid}-").values())
        # Not by Path.glob: it fails when a cgroup goes away while it looks.
        for folder, names, _ in os.walk("/sys/fs/cgroup"):
            found += [f"{folder}/{name}" for name in names if name.startswith(f"wirespeed-{pid}-")]
        if self.runs.joinpath("latest").exists():
            found += Path("/dev/shm").glob(f"wirespeed-{self.latest.name}")
        return found

    def nothing_left(self, pid):
        """Gives the agent the time that it may take after a kill -9 of its lab."""
        deadline = time.monotonic() + PATIENCE_S
        while self.left_behind(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        return not self.left_behind(pid)


@cache
def starter():
    return Starter({**os.environ, "COLUMNS": COLUMNS})


def pytest_unconfigure():
    if starter.cache_info().currsize:
        starter().close()


@pytest.fixture
def checkout(tmp_path):
    return checkout_in(tmp_path)


@pytest.fixture(scope="session")
def new_checkout():
    """For a module that measures once and asks often."""
    return checkout_in


def checkout_in(tmp_path):
    root = tmp_path / "checkout"
    (root / "recipes").mkdir(parents=True)
    program = root / "target" / "release" / "wirespeed-load"
    program.parent.mkdir(parents=True)
    gated = f"GATED = {str(FAKES / 'gated.py')!r}\n"
    program.write_text(f"#!{sys.executable}\n{gated}" + (FAKES / "load.py").read_text())
    program.chmod(0o755)
    environment = {
        **os.environ,
        "WIRESPEED_ROOT": str(root),
        # Tests measure nothing, so they need not wait for a run that does.
        "WIRESPEED_LOCK": str(tmp_path / "lock"),
        "WIRESPEED_STATE": str(tmp_path / "state"),
        "COLUMNS": COLUMNS,
    }
    return Checkout(root, tmp_path / "runs", environment)


@pytest.fixture
def interrupt():
    return lambda process: process.send_signal(signal.SIGINT)
