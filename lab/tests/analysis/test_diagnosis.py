"""`wirespeed doctor RUN`: the suggested remedy helps."""

from dataclasses import replace

import pytest
from report.make_run import KINDS, make_run

from wirespeed.analysis import diagnosis
from wirespeed.analysis.summary import load
from wirespeed.analysis.verdict import Terms, Verdict, decide
from wirespeed.results import store
from wirespeed.stats.comparison import Comparison


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


def test_a_gain_that_interference_leaves_open_needs_a_quiet_machine(tmp_path):
    """The reason had been reworded, and doctor looked for the former word."""
    summary = load(make_run(KINDS["quickstart"](), tmp_path))
    found = Comparison(-0.15, -0.18, -0.12, p=1e-9, rounds=20, error=0.01, df=19)
    verdict = decide(found, Terms(interference=0.2))
    assert verdict.word == "not decided" and verdict.more_rounds is None
    gain = replace(summary.gains[0], verdict=verdict)
    assert "--wait-for-quiet" in diagnosis._decider(gain, summary)


def test_a_gain_that_the_rounds_left_do_not_decide_needs_a_new_run(tmp_path):
    summary = load(make_run(KINDS["quickstart"](), tmp_path))
    run = replace(summary.run, analysed_at=[5], rounds_max=9)
    gain = replace(summary.gains[0], verdict=Verdict("not decided", "the interval contains 0"))
    told = diagnosis._decider(gain, replace(summary, run=run))
    assert told == "a new run: the 9 rounds that this one may have do not decide it"


def test_a_comparison_of_revisions_is_made_again_and_not_resumed(tmp_path):
    """Its work trees are removed at its end: `run --resume` found no server."""
    summary = load(make_run(KINDS["quickstart"](), tmp_path))
    argv = ["./wirespeed", "compare", "--rev", "main", "--rev=HEAD", "--run", "./it {port}"]
    run = replace(summary.run, argv=argv, state="interrupted")
    summary = replace(summary, run=run)
    verdict = Verdict("not decided", "the interval contains 0", more_rounds=4)
    told = diagnosis._decider(replace(summary.gains[0], verdict=verdict), summary)
    rounds = run.plan.repeat + 4
    assert told == f"about 4 more rounds: the same command with --repeat {rounds}"
    remedies = [one.remedy for one in diagnosis._state(summary)]
    assert any("the same command again" in remedy for remedy in remedies)
    assert not any("--resume" in remedy for remedy in remedies)


@pytest.mark.parametrize("command", ["run", "compare"])
def test_options_that_make_a_machine_quieter_are_named_where_the_command_has_them(
    tmp_path, command
):
    """compare has neither --wait-for-quiet nor --tune, which doctor suggested for its runs."""
    summary = load(make_run(KINDS["quickstart"](), tmp_path))
    run = replace(summary.run, argv=["./wirespeed", command, "--run", "./it"])
    summary = replace(summary, run=run)
    verdict = Verdict("not decided", "interference may be all of it")
    texts = [
        diagnosis._decider(replace(summary.gains[0], verdict=verdict), summary),
        diagnosis._of_invalid(summary.cells[0], run),
    ]
    assert all("quiet" in text for text in texts)
    assert [("--tune" in text) for text in texts] == [command == "run"] * 2


def test_a_blocked_run_needs_another_order(tmp_path):
    """doctor suggested what would help the bottleneck of an interleaved run."""
    summary = load(make_run(KINDS["quickstart"](), tmp_path))
    plan = replace(summary.run.plan, order="blocked")
    summary = replace(summary, run=replace(summary.run, plan=plan))
    verdict = Verdict("not comparable", "measured in blocks: drift looks like a gain")
    gain = replace(summary.gains[0], verdict=verdict)
    assert diagnosis._decider(gain, summary) == 'plan.order = "interleaved"'
