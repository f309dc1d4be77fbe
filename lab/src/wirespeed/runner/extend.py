"""More rounds for a run that is finished: `--add-rounds N`, and `--until-decided`.

Rounds are appended to the plan and measured like a resumed run. A run whose verdicts were read
before it went on has had one chance more to find something by accident, so each interim analysis
may spend its share of that chance only (`analyses`, `analysed_at` and `rounds_max` of run.json;
stats/spending.py). Earlier verdicts are kept (`decided`): the later share may be too small to
decide them again. A run that went on until it was decided has nothing left to spend after its
last round, and gets no more.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from wirespeed.analysis.comparisons import decided
from wirespeed.analysis.summary import Summary, load
from wirespeed.errors import InputError, StorageError
from wirespeed.recipe import read, sweep
from wirespeed.results import store
from wirespeed.results.model import PlannedTrial, Run
from wirespeed.runner import order
from wirespeed.runner import plan as plans
from wirespeed.runner.cells import PlannedCell

ANALYSES_MAX = 4  # then what is not decided stays so; of runs without rounds_max
ROUNDS_TIMES = 4  # a run without --for comes to so many times its planned rounds at most
ROUNDS_AT_ONCE_MIN = 2  # an analysis is worth more than a round
ROUNDS_AT_ONCE_MAX = 10


def is_used_up(run: Run) -> bool:
    """Whether it went on until it was decided, for as many rounds as it was begun with."""
    return 0 < run.rounds_max <= run.plan.repeat


def used_up(run: Run) -> str:
    return (
        f"its {run.rounds_max} rounds are used up, which was fixed when it began, so more would "
        "decide nothing (begin a new run)"
    )


def check(run: Run, rounds: int) -> None:
    """Raises InputError for rounds that no analysis of the run could use."""
    left = run.rounds_max - run.plan.repeat
    if is_used_up(run):
        raise InputError(f"--add-rounds: {run.run_id}: {used_up(run)}")
    if run.rounds_max and rounds > left:
        raise InputError(
            f"--add-rounds {rounds}: {run.run_id} was begun for {run.rounds_max} rounds at most, "
            f"{left} of them are left"
        )


def add_rounds(run_dir: Path, rounds: int) -> Run:
    """Appends rounds of every planned cell to the plan; the run is open again afterwards."""
    run, lines = store.read_run(run_dir), store.read_plan(run_dir)
    check(run, rounds)
    recipe = plans.with_values(read.read_copy(run_dir / "recipe.toml")[0], run.axes)
    planned = [line for line in lines if line.state == "planned"]
    cells = {
        line.cell: PlannedCell(sweep.SweepPoint(line.cell, line.axes), over=line.over)
        for line in planned
    }
    if not cells:
        raise InputError(f"{run_dir.name} has no cell to measure more often")
    last = max(line.round for line in planned)
    position = max(line.position for line in planned)
    life = max(line.life for line in planned)  # the plan's number of a server's session
    added: list[PlannedTrial] = []
    for number in range(last + 1, last + rounds + 1):
        for one in order.sessions(recipe, list(cells.values()), 1, run.seed + number):
            life += 1
            for planned_cell in one.cells:
                cell, position = planned_cell.cell, position + 1
                key = sweep.trial_key(cell.id, number)
                added.append(
                    PlannedTrial(
                        position, number, cell.id, key, cell.axes, life=life, over=planned_cell.over
                    )
                )
    others = [line for line in lines if line.state != "planned"]
    plan = replace(run.plan, repeat=last + rounds)
    at = [*run.analysed_at, last + rounds] if run.analysed_at else []
    longer = replace(
        run, plan=plan, state="interrupted", analyses=run.analyses + 1, analysed_at=at,
        budget_s=None, decided=_decided(run_dir, run),
    )
    # Before the plan: rounds of a lab that is killed in between are not measured uncounted.
    store.write_run(run_dir, longer)
    try:
        store.write_plan(run_dir, [*planned, *added, *others])
    except StorageError:
        store.write_run(run_dir, run)
        raise
    store.append_event(run_dir, "extended", rounds=rounds)
    return longer


def _decided(run_dir: Path, run: Run) -> list[dict[str, Any]]:
    """The verdicts of its last analysis; of a run that was stopped before that, the one before."""
    if run.state != "done":
        return run.decided
    summary = load(run_dir)
    return decided(run, summary.gains, summary.families)


def rounds_max(repeat: int, seconds: float, for_s: float) -> int:
    """How many rounds a run that goes on until it is decided may come to: known before it begins
    and from its time alone, or its analyses could not share one chance of an error."""
    if not for_s:
        return ROUNDS_TIMES * repeat
    return max(repeat, int(repeat * for_s / max(seconds, 1e-9)))


def begun(run: Run, seconds: float = 0.0, for_s: float = 0.0) -> Run:
    """A run that will go on until it is decided, before its first verdicts can be read."""
    if run.analyses > 1 or run.analysed_at:
        return run
    most = rounds_max(run.plan.repeat, seconds, for_s)
    return replace(run, is_sequential=True, analysed_at=[run.plan.repeat], rounds_max=most)


def rounds_to_decide(summary: Summary) -> int:
    """How many more rounds would decide what is open and within reach; 0 when nothing is."""
    run = summary.run
    left = run.rounds_max - run.plan.repeat if run.rounds_max else ROUNDS_AT_ONCE_MAX
    if left <= 0 or (not run.rounds_max and run.analyses >= ANALYSES_MAX):
        return 0
    missing = [
        gain.verdict.more_rounds
        for gain in summary.gains
        if gain.metric == summary.primary and gain.verdict.word == "not decided"
    ]
    within = sorted(rounds for rounds in missing if rounds and rounds <= left)
    return min(left, max(ROUNDS_AT_ONCE_MIN, within[-1])) if within else 0
