"""Two servers at one rate: what a request costs is compared, as the rate says nothing."""

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from ports import free_port

from wirespeed.recipe import draft, read

ROOT = Path(__file__).parents[3]
PROGRAM = ROOT / "target" / "release" / "wirespeed-load"
PLANTED = Path(__file__).parents[1] / "fakes" / "planted.py"


@pytest.mark.parametrize("rate", [None, 5000])
def test_the_recipe_of_a_comparison_has_the_rate_and_its_cost_first(tmp_path, rate):
    made = draft.ComparisonDraft(
        [["./a", "{port}"], ["./b", "{port}"]], 8000, "/", [50], "1s", rate=rate,
        method="trials" if rate else "duet",
    )  # fmt: skip
    path = tmp_path / "compare.toml"
    path.write_text(draft.comparison(made))
    recipe = read.read(path)
    assert recipe.process[1].argv[:2] == (["-R", "5000"] if rate else ["-t", draft._THREADS])
    first = tomllib.loads(path.read_text())["table"][0]
    assert first["value"] == (draft.CPU_EXCL_POLLING if rate else "rps")
    assert first["gain"]["over"] == "A"


def test_commands_at_one_rate_are_judged_by_what_a_request_costs(checkout):
    assert PROGRAM.exists(), "./wirespeed build load makes it"
    target = checkout.root / "target" / "release" / "wirespeed-load"
    target.unlink()
    shutil.copy(PROGRAM, target)
    port = free_port()
    start = f"{sys.executable} {PLANTED} --port {{port}} --work"
    code, out, err = checkout.call(
        "compare", "--run", f"{start} 20", "--run", f"{start} 200", "--port", port,
        "--connections", "4", "--duration", "500ms", "--repeat", "3", "--rate", "200",
        "--accept-noise",
    )  # fmt: skip
    assert code == 0, err
    for trial in checkout.trials():
        (load,) = [one for one in trial["processes"] if one["role"] == "load"]
        assert load["argv"][load["argv"].index("-R") + 1] == "200"
        assert trial["duet"] is None and trial["metrics"]["little_residual"] is None
    document = json.loads((checkout.latest / "derived" / "verdict.json").read_text())
    compared = {one["metric"]: one for one in document["comparisons"]}
    assert compared.keys() == {draft.CPU_EXCL_POLLING, "latency.p99"}
    assert compared[draft.CPU_EXCL_POLLING]["gain"] > 0.2, "ten times the work for a request"
    first = out[out.index("B against A") :].splitlines()[0]
    # Decided or not: the machine may be busy.
    counted = r"B against A: server CPU per request: (1 of 1 (lower|higher)|no.* in 1 of 1)"
    assert re.match(counted, first), first
    assert "service times" not in (checkout.latest / "derived" / "report.html").read_text()


@pytest.mark.parametrize("rate", ["0", "fast", "1.5"])
def test_a_rate_that_is_none_is_one_line(checkout, rate):
    words = ["compare", "--run", "./a {port}", "--run", "./b {port}", "--rate", rate]
    code, _, err = checkout.call(*words)
    assert code == 2 and len(err.splitlines()) == 1 and rate in err
