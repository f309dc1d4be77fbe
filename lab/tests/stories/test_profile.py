"""`--profile` with perf itself, and without it."""

import json
import subprocess
import sys

STAND_IN = """
from wirespeed.runner import profile
profile.WINDOW_S, profile.PROGRAM = 1.0, {program!r}
from wirespeed.cli.app import main
main()
"""


def run(checkout, program="perf"):
    words = ["run", checkout.recipe(connections=[1, 2]), "--accept-noise", "--profile"]
    process = subprocess.Popen(
        [sys.executable, "-c", STAND_IN.format(program=program), *map(str, words)],
        env={**checkout.environment, "WIRESPEED_RUNS": str(checkout.runs)},
        cwd=checkout.root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = process.communicate(timeout=180)
    return process, out, err


def test_a_run_with_a_profile_shows_functions_and_leaves_nothing_behind(checkout):
    process, _, err = run(checkout)
    assert process.returncode == 0, err
    (told,) = [json.loads(path.read_text()) for path in checkout.latest.glob("profiles/*.json")]
    assert told["samples"] > 0, told["problem"]
    folded = (checkout.latest / "profiles" / f"{told['cell']}.folded").read_text()
    assert "_[k]" in folded and folded.startswith("python")
    page = (checkout.latest / "derived" / "report.html").read_text()
    assert 'id="profile"' in page and '<svg class="flame"' in page
    assert sorted(path.suffix for path in checkout.latest.glob("profiles/*")) == [
        ".folded",
        ".json",
    ]
    assert len(checkout.trials()) == 2, "a profile does not count as a trial"
    assert checkout.nothing_left(process.pid)


def test_without_perf_the_run_does_not_begin(checkout):
    process, _, err = run(checkout, "perf-that-is-not-there")
    assert process.returncode == 2
    assert "--profile: perf-that-is-not-there does not run on here" in err
    assert not checkout.runs.exists() or not list(checkout.runs.iterdir())
