"""What a run did not decide, why, and what would change that: for `wirespeed doctor RUN`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from wirespeed.analysis.cells import Cell, place
from wirespeed.analysis.comparisons import Gain
from wirespeed.analysis.summary import Summary
from wirespeed.errors import COMMAND
from wirespeed.results.model import BY_ONLY, BY_RECIPE, Run

#: The limit of a cell → what makes it the server.
REMEDIES = {
    "client": "give the generator more cores (site: load = { cores = [...] }), or more generators "
    "(count = 2), or measure a heavier request",
    "both": "give the generator more cores, or a server with fewer: one side must have room",
    "link": "use a faster link, or smaller answers: --only a smaller payload",
    "concurrency": "more connections: a value of the axis that sets -c; where they change nothing, "
    "the server waits for locks, a disk or another program",
    "unknown": "see the trials' notes; --accept-noise does not help, more generators may",
}


@dataclass(frozen=True)
class Diagnosis:
    """One thing about some cells of a run: what is so, why, and what to do."""

    what: str
    why: str
    remedy: str
    cells: list[str]


def of_run(summary: Summary) -> list[Diagnosis]:
    return [*_state(summary), *_cells(summary), *_gains(summary)]


def _state(summary: Summary) -> list[Diagnosis]:
    run = summary.run
    reasons = []
    if run.state in ("interrupted", "running", "failed"):
        remedy = _way_on(run)
        reasons.append(Diagnosis(f"the run is {run.state}", "its plan is not done", remedy, []))
    if run.plan.order == "blocked":
        why = "in blocks, drift of the machine looks like a gain"
        reasons.append(Diagnosis("no verdicts", why, 'plan.order = "interleaved"', []))
    if not run.idle_held:
        why = "idle states were not held off: few connections look slow on the kernel's stack"
        reasons.append(Diagnosis("few connections are not comparable", why, "run it as root", []))
    return reasons


def _way_on(run: Run) -> str:
    if _is_of_revisions(run):
        return "the same command again, from the beginning: its work trees are removed"
    return f"{COMMAND} run --resume {run.run_id}"


def _is_of_revisions(run: Run) -> bool:
    """Whether `compare --rev` made it, whose servers are gone: such a run does not go on."""
    return any(word.partition("=")[0] == "--rev" for word in run.argv)


def _cells(summary: Summary) -> list[Diagnosis]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for cell in summary.cells:
        if cell.state != "measured":
            key = (cell.state, cell.reason, _way(cell, summary))
            groups.setdefault(key, []).append(place(cell.axes))
    return [Diagnosis(state, why, way, cells) for (state, why, way), cells in groups.items()]


def _way(cell: Cell, summary: Summary) -> str:
    ways = {
        "does-not-fit": "more cores, or --fit share",
        "thinned": _of_thinned(cell.reason),
        "not-runnable": f"`{COMMAND} doctor` says what this machine lacks",
        "not measured yet": _way_on(summary.run),
    }
    if cell.state == "no valid trial":
        return _of_invalid(cell, summary.run)
    return ways.get(cell.state, "")


def _of_thinned(reason: str) -> str:
    if reason == BY_ONLY:
        return "a run without --only, or with one that names them"
    if reason == BY_RECIPE:
        return "nothing is missing: plan.skip of the recipe names them"
    return "a longer --budget, or an --only that leaves out others"


def _of_invalid(cell: Cell, run: Run) -> str:
    if not cell.failed:
        return f"{_listed('a quieter machine', run)}, or --accept-noise"
    if "errors" in cell.reason or "2xx" in cell.reason:
        return (
            "look at the server's output in the trial's folder; a listen backlog shorter than "
            "the connections resets some of them"
        )
    return (
        f"`{COMMAND} plan RECIPE --commands` shows what is started; the trial's folder has outputs"
    )


def _listed(way: str, run: Run) -> str:
    """With the options that make a machine quieter; compare, knee and reproduce lack them."""
    return f"{way}: --wait-for-quiet 10m, --tune" if run.argv[1:2] == ["run"] else way


def _gains(summary: Summary) -> list[Diagnosis]:
    groups: dict[tuple[str, str, str], list[str]] = {}
    for gain in summary.gains:
        word = gain.verdict.word
        if word in ("not decided", "not comparable"):
            key = (f"{gain.metric}: {word}", gain.verdict.reason, _decider(gain, summary))
            groups.setdefault(key, []).append(f"{place(gain.cell.axes)} against {gain.over}")
    return [Diagnosis(what, why, way, cells) for (what, why, way), cells in groups.items()]


def _decider(gain: Gain, summary: Summary) -> str:
    """Which option or key would turn this into a verdict."""
    run = summary.run.run_id
    if gain.verdict.word == "not decided":
        more = gain.verdict.more_rounds
        most = summary.run.rounds_max
        if "interference" in gain.verdict.reason:
            return _listed("the same on a quiet machine", summary.run)
        if most and (not more or summary.run.plan.repeat + more > most):
            return f"a new run: the {most} rounds that this one may have do not decide it"
        if more and _is_of_revisions(summary.run):
            rounds = summary.run.plan.repeat + more
            return f"about {more} more rounds: the same command with --repeat {rounds}"
        if more:
            return f"about {more} more rounds: {COMMAND} run --resume {run} --add-rounds {more}"
        return "a difference this small takes more rounds than are worth it; a quieter machine"
    if summary.run.plan.order == "blocked":
        return 'plan.order = "interleaved"'
    for side in (gain.cell, gain.base):
        if side.failures:
            return _of_invalid(side, summary.run)
    if "figure of 0" in gain.verdict.reason:
        return "look at the trials without a response; a ratio needs figures above 0"
    if "idle states" in gain.verdict.reason:
        return "run it as root, so that idle states are held off"
    held = Counter(s.bottleneck for s in (gain.cell, gain.base) if s.bottleneck != "server")
    return REMEDIES[held.most_common(1)[0][0]] if held else ""
