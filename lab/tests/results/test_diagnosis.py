"""`wirespeed doctor RUN`: the suggested remedy helps."""

from dataclasses import replace

import pytest
from report.make_run import KINDS, make_run

from wirespeed.results import diagnosis, store
from wirespeed.results.summary import load


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("left out by --only", "a run without --only"),
        ("left out by the recipe", "plan.skip of the recipe"),
        ("left out to keep the budget of 2 min", "a longer --budget"),
    ],
)
def test_an_omitted_cell_has_the_remedy_of_its_reason(tmp_path, reason, remedy):
    """doctor suggested a longer budget for all of them."""
    run_dir = make_run(KINDS["quickstart"](), tmp_path)
    lines = store.read_plan(run_dir)
    gone = lines[0].cell
    store.write_plan(
        run_dir,
        [
            replace(line, state="thinned", reason=reason) if line.cell == gone else line
            for line in lines
        ],
    )
    for path in (run_dir / "trials").glob("*/trial.json"):
        if f'"cell": "{gone}"' in path.read_text():
            path.unlink()
    (told,) = (one for one in diagnosis.of_run(load(run_dir)) if one.why == reason)
    assert remedy in told.remedy and len(told.cells) == 1
