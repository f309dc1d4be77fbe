"""Exit codes of checks: each situation that can meet a CI job, and how it ends.

The runs are made, then changed on the disk as a real one would be: a stack that cannot be started,
a run that was stopped, a figure that fell to 0.
"""

import json
import math
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from report.make_run import LATENCY, RPS, Kind, make_run
from rich.console import Console

from wirespeed.analysis import gate, two_runs
from wirespeed.analysis.summary import load
from wirespeed.cli import compare, knee, reproduce, trend
from wirespeed.cli import run as command
from wirespeed.errors import InputError, ResultsError
from wirespeed.runner import execute

PASSES, FAILS = 0, 3
PAUSES = {"name": "pauses", "from": "load", "better": "lower"}
TABLE = {"rows": "payload", "columns": "stack", "value": "rps", "gain": {"over": "kernel"}}


def kind(factor=1.0, of_fast=1.3, tables=(TABLE,)):
    def rate(axes):
        return 50_000 * factor * (of_fast if axes["stack"] == "fast" else 1.0)

    return Kind(
        "check", "A check", {"payload": [16, 128, 1024], "stack": ["kernel", "fast"]},
        [dict(one) for one in tables], rate, metrics=[RPS, LATENCY, *[PAUSES][: len(tables) - 1]],
        noise=0.005,
        baseline={"stack": "kernel"} if tables else {},
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Run directories by what they are, made once and copied by each test."""
    folder = tmp_path_factory.mktemp("made")
    return {
        "gain": make_run(kind(), folder / "gain", 1),
        "loss": make_run(kind(of_fast=0.7), folder / "loss", 2),
        "same": make_run(kind(of_fast=1.0), folder / "same", 3),
        "again": make_run(kind(), folder / "again", 4),
        "slower": make_run(kind(factor=0.8), folder / "slower", 5),
        "faster": make_run(kind(factor=1.3), folder / "faster", 7),
        "costs": make_run(kind(tables=(TABLE, {**TABLE, "value": "pauses"})), folder / "costs", 8),
        "percentile": make_run(
            kind(tables=({**TABLE, "value": "latency.p99"},)), folder / "percentile", 9
        ),
        "nothing compared": make_run(kind(tables=[]), folder / "none", 6),
    }


def edit(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def trials_of(run_dir, **axes):
    for path in sorted(run_dir.glob("trials/*/trial.json")):
        if json.loads(path.read_text())["axes"].items() >= axes.items():
            yield path


# Changes of a run directory, by name.
def state(word):
    return lambda run_dir: edit(run_dir / "run.json", lambda run: run.update(state=word))


def without(**axes):
    """Cells whose trials never ran: the run ended before, or its time was up."""

    def change(run_dir):
        for path in list(trials_of(run_dir, **axes)):
            shutil.rmtree(path.parent)

    return change


def unplanned(word, reason, **axes):
    """Cells that the plan shows as not measured."""

    def change(run_dir):
        without(**axes)(run_dir)
        lines = [json.loads(line) for line in (run_dir / "plan.jsonl").read_text().splitlines()]
        for line in lines:
            if line["axes"].items() >= axes.items():
                line |= {"state": word, "reason": reason, "round": 0}
        (run_dir / "plan.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))

    return change


def invalid(count, reason, disturbed=0.0, **axes):
    def change(run_dir):
        for path in list(trials_of(run_dir, **axes))[:count]:
            edit(path, lambda t: t.update(valid=False, reasons=[reason], disturbed=disturbed))

    return change


def figure(metric, value, **axes):
    def change(run_dir):
        for path in trials_of(run_dir, **axes):
            edit(path, lambda trial: trial["metrics"].update({metric: value}))

    return change


def first(count, metric, value, **axes):
    """The same in so many trials."""

    def change(run_dir):
        for path in list(trials_of(run_dir, **axes))[:count]:
            edit(path, lambda trial: trial["metrics"].update({metric: value}))

    return change


def rounds(most, **axes):
    """Cells that have the first rounds only."""

    def change(run_dir):
        for path in list(trials_of(run_dir, **axes)):
            if json.loads(path.read_text())["round"] > most:
                shutil.rmtree(path.parent)

    return change


def bare(**axes):
    """Invalid trials without a figure: their programs failed."""

    def change(run_dir):
        for path in trials_of(run_dir, **axes):
            edit(path, lambda trial: trial["valid"] or trial.update(metrics={}))

    return change


def fact(name, value):
    return lambda run_dir: edit(
        run_dir / "run.json", lambda run: run["facts"].update({name: value})
    )


def unreadable(run_dir):
    (run_dir / "run.json").write_text("{")


def taken(count, share, **axes):
    """Other programs took so much from so many of the trials."""

    def change(run_dir):
        for path in list(trials_of(run_dir, **axes))[:count]:
            edit(path, lambda trial: trial.update(disturbed=share))

    return change


def planned(**values):
    return lambda run_dir: edit(run_dir / "run.json", lambda run: run["plan"].update(values))


def idle_free(run_dir):
    """A run without root."""
    edit(run_dir / "run.json", lambda run: run.update(idle_held=False))


def thinned(sentence):
    return lambda run_dir: edit(run_dir / "run.json", lambda run: run.update(thinned=[sentence]))


def limited(word, **axes):
    def change(run_dir):
        for path in trials_of(run_dir, **axes):
            edit(path, lambda trial: trial.update(bottleneck=word))

    return change


def gone(**axes):
    """Cells that the recipe no longer has."""

    def change(run_dir):
        without(**axes)(run_dir)
        lines = [json.loads(line) for line in (run_dir / "plan.jsonl").read_text().splitlines()]
        kept = [one for one in lines if not one["axes"].items() >= axes.items()]
        (run_dir / "plan.jsonl").write_text("".join(json.dumps(one) + "\n" for one in kept))

    return change


def turns_failed(**axes):
    """A trial whose programs failed while they took turns."""

    def change(run_dir):
        path = next(trials_of(run_dir, **axes))
        edit(path, lambda trial: trial.update(
            duet={"over": "x", "problem": "app-0 died", "is_failure": True}
        ))  # fmt: skip

    return change


def ratios(*logs, **axes):
    """The log ratio of the two rates, in each round another one."""

    def change(run_dir):
        rates = {}
        for path in trials_of(run_dir, stack="kernel"):
            trial = json.loads(path.read_text())
            rates[trial["axes"]["payload"], trial["round"]] = trial["metrics"]["rps"]
        for path in trials_of(run_dir, stack="fast", **axes):
            trial = json.loads(path.read_text())
            log = logs[trial["round"] % len(logs)]
            rate = rates[trial["axes"]["payload"], trial["round"]] * math.exp(log)
            edit(path, lambda trial, rate=rate: trial["metrics"].update(rps=rate))

    return change


def duets(log, spread=0.001, **axes):
    """Each round has a duet of rates, too, that says so much."""

    def change(run_dir):
        of = {}
        for path in trials_of(run_dir, stack="kernel"):
            trial = json.loads(path.read_text())
            of[trial["axes"]["payload"]] = trial["cell"]
        for number, path in enumerate(trials_of(run_dir, stack="fast", **axes)):
            ratio = {"log": log + spread * (number % 3), "error": None, "blocks": 1}
            edit(path, lambda trial, ratio=ratio: trial.update(
                duet={"over": of[trial["axes"]["payload"]], "ratios": {"rps": ratio}}
            ))  # fmt: skip

    return change


@dataclass
class Case:
    """A situation of `run` and `report`."""

    name: str
    run: str
    fail_on: str
    exit: int
    changes: list = field(default_factory=list)
    require: list = field(default_factory=list)
    allow_missing: bool = False


ONE = {"payload": 16, "stack": "fast"}
THREE_PERCENT_LESS = ratios(-0.03, -0.031, -0.03, -0.031, -0.0305)
SELDOM = ratios(-0.037, -0.063, -0.037, -0.063, -0.05, payload=16)  # by chance: p = 0.1 %
RUNS = [
    Case("a gain", "gain", "loss", PASSES),
    Case("a gain, undecided too", "gain", "loss,undecided", PASSES),
    Case("a loss", "loss", "loss", FAILS),
    Case("a loss, asked for undecided", "loss", "undecided", PASSES),
    Case("the same", "same", "loss", PASSES),
    Case("no check", "loss", "", PASSES),
    Case("interrupted", "gain", "loss", FAILS, [state("interrupted")]),
    Case("failed", "gain", "loss", FAILS, [state("failed")]),
    Case("still running", "gain", "loss", FAILS, [state("running")]),
    Case("interrupted, with a rule", "gain", "", FAILS, [state("interrupted")], ["rps > 1"]),
    Case("a cell without trials", "gain", "loss", FAILS, [without(**ONE)]),
    Case("a stack without trials", "gain", "loss", FAILS, [without(stack="fast")]),
    Case("the baseline without trials", "gain", "loss", FAILS, [without(stack="kernel")]),
    Case("a stack that is not runnable", "gain", "loss", FAILS,
         [unplanned("not-runnable", "bypass is not built", stack="fast")]),
    Case("a cell that is not runnable", "gain", "loss", FAILS,
         [unplanned("not-runnable", "bypass is not built", **ONE)]),
    Case("the same, allowed", "gain", "loss", PASSES,
         [unplanned("not-runnable", "bypass is not built", **ONE)], allow_missing=True),
    Case("a whole stack, allowed: nothing is compared", "gain", "loss", FAILS,
         [unplanned("not-runnable", "bypass is not built", stack="fast")], allow_missing=True),
    Case("a cell that does not fit", "gain", "loss", FAILS,
         [unplanned("does-not-fit", "too few cores", **ONE)]),
    Case("a cell that a budget left out", "gain", "loss", FAILS,
         [unplanned("thinned", "the budget", **ONE)]),
    Case("nothing is compared", "nothing compared", "loss", FAILS),
    Case("nothing is compared, a rule", "nothing compared", "", PASSES, require=["rps > 1"]),
    Case("one trial failed", "gain", "loss", FAILS, [invalid(1, "9 errors", **ONE)]),
    Case("all trials failed", "gain", "loss", FAILS, [invalid(9, "9 errors", **ONE)]),
    Case("one trial was noisy", "gain", "loss", PASSES,
         [invalid(1, "other programs used 90 % of core 0", 0.9, **ONE)]),
    Case("all trials were noisy", "gain", "loss", FAILS,
         [invalid(9, "other programs used 90 % of core 0", 0.9, **ONE)]),
    Case("the generator was the limit", "gain", "undecided", FAILS, [limited("client")]),
    Case("two rounds only", "gain", "undecided", FAILS, [invalid(3, "x", 0.9, **ONE)]),
    Case("a rule that holds", "gain", "", PASSES, require=["rps > 1k"]),
    Case("a rule that does not", "gain", "", FAILS, require=["rps > 1M"]),
    Case("a rule of other cells", "gain", "", PASSES, [without(**ONE)], ["stack=kernel: rps > 1k"]),
    Case("a rule about a lost cell", "gain", "", FAILS, [without(**ONE)], ["stack=fast: rps > 1k"]),
    Case("a rule about no cell", "gain", "", FAILS, require=["stack=none: rps > 1"]),
    Case("a rule about no metric", "gain", "", FAILS, require=["rsp > 1"]),
    Case("a rate of 0 keeps no rule", "gain", "", FAILS, [figure("rps", 0.0, **ONE)], ["rps > 1"]),
    Case("a rate of 0", "gain", "loss", FAILS, [figure("rps", 0.0, **ONE)]),
    Case("a rate of 0 in two rounds", "gain", "loss", FAILS, [first(2, "rps", 0.0, **ONE)]),
    Case("a baseline of 0", "gain", "loss", PASSES,
         [figure("rps", 0.0, payload=16, stack="kernel")]),
    Case("a baseline of 0, undecided", "gain", "undecided", FAILS,
         [figure("rps", 0.0, payload=16, stack="kernel")]),
    Case("a cost that the baseline never has", "costs", "loss", FAILS,
         [figure("pauses", 0.0, stack="kernel"), figure("pauses", 2.0, stack="fast")]),
    Case("a cost that the baseline has in most rounds", "costs", "loss", PASSES,
         [figure("pauses", 2.0), first(1, "pauses", 0.0, stack="kernel")]),
    Case("a cost that no side has", "costs", "loss", PASSES, [figure("pauses", 0.0)]),
    Case("a rate of 0 on both sides", "gain", "loss", FAILS, [figure("rps", 0.0, payload=16)]),
    Case("errors are allowed by no rule", "gain", "", FAILS,
         [invalid(1, "812 answers were not 2xx", **ONE), first(1, "non_2xx", 812.0, **ONE)],
         ["non_2xx <= 0"]),
    Case("a refused trial of a run that went on", "gain", "loss", PASSES,
         [fact("program app", "1.2"), invalid(1, "other programs used 90 %", 0.9, **ONE)]),
    Case("mixed builds, forced", "gain", "loss", PASSES, [thinned("Builds are mixed: …")]),
    Case("mixed machines, forced", "gain", "loss", PASSES, [thinned("Machines or settings …")]),
    Case("no percentile of a contender that answered too few requests", "percentile", "loss", FAILS,
         [figure("latency.p99", None, **ONE)]),
    Case("no percentile on either side", "percentile", "loss", PASSES,
         [figure("latency.p99", None, payload=16)]),
    Case("no percentile at all: nothing is compared", "percentile", "loss", FAILS,
         [figure("latency.p99", None), figure("server.work_us_per_request", None)]),
    Case("no round with a valid trial on both sides", "gain", "loss", FAILS,
         [invalid(9, "other programs used 90 %", 0.9, stack="fast"),
          rounds(3, stack="kernel")]),
    Case("a duet with a loss", "same", "loss", FAILS, [duets(-0.1)]),
    Case("a duet without the pauses of its contender", "loss", "loss", FAILS, [duets(0.0)]),
    Case("a duet that agrees with its trials", "same", "loss", PASSES, [duets(0.0)]),
    Case("a duet of a contender that gains alone", "gain", "loss", PASSES, [duets(0.0)]),
    Case("a duet without the pauses of a contender that sleeps", "loss", "loss", FAILS,
         [duets(0.0), limited("concurrency", stack="fast")]),
    Case("a contender alone that its generator limits", "loss", "loss", PASSES,
         [duets(0.0), limited("client", stack="fast"), limited("client", stack="kernel")]),
    Case("3 % less alone", "same", "loss", FAILS, [THREE_PERCENT_LESS, duets(0.0)]),
    Case("3 % less alone, server and generator full", "same", "loss", PASSES,
         [THREE_PERCENT_LESS, duets(0.0), limited("both")]),
    Case("a seldom loss of a run's one duet", "same", "loss", FAILS,
         [SELDOM, duets(0.0, payload=16)]),
    Case("a seldom loss of one of three duets", "same", "loss", PASSES, [SELDOM, duets(0.0)]),
    Case("a trial that failed while it took turns", "gain", "loss", FAILS,
         [turns_failed(**ONE)]),
    Case("a slower contender that waits, without root", "loss", "loss", FAILS,
         [idle_free, limited("concurrency", stack="fast")]),
    Case("both wait, without root", "loss", "loss", FAILS, [idle_free, limited("concurrency")]),
    Case("a contender that waits and is as fast, without root", "same", "loss", PASSES,
         [idle_free, limited("concurrency", stack="fast")]),
    Case("a faster contender that waits, without root", "gain", "loss", PASSES,
         [idle_free, limited("concurrency", stack="fast")]),
    Case("duets of a contender that waits, without root", "loss", "loss", FAILS,
         [idle_free, duets(0.0), limited("concurrency", stack="fast")]),
    Case("a contender whose responses fill the generator", "loss", "loss", FAILS,
         [limited("client", stack="fast")]),
    Case("a contender whose responses fill the link", "loss", "loss", FAILS,
         [limited("link", stack="fast")]),
    Case("the generator was the limit of both", "loss", "loss", PASSES, [limited("client")]),
    Case("a loss whose limit is unknown", "loss", "loss", FAILS, [limited("unknown")]),
    Case("the same, and its limit is unknown", "same", "loss", PASSES, [limited("unknown")]),
    Case("two rounds in all, so none can be a loss", "gain", "loss", FAILS, [rounds(2)]),
    Case("two rounds in all, and a rule", "gain", "", PASSES, [rounds(2)], ["rps > 1"]),
    Case("three rounds", "gain", "loss", PASSES, [rounds(3)]),
    Case("helpers elsewhere take time from their own server alone", "loss", "loss", FAILS,
         [taken(99, 0.4, stack="fast")]),
    Case("other programs happened to take more from the contender", "loss", "loss", PASSES,
         [taken(3, 0.7, payload=size, stack="fast") for size in (16, 128, 1024)]),
    Case("other programs took as much from both", "same", "loss", PASSES, [taken(99, 0.4)]),
    Case("measured in blocks", "loss", "loss", FAILS, [planned(order="blocked")]),
]  # fmt: skip


@pytest.mark.parametrize("case", RUNS, ids=lambda case: case.name)
def test_a_run_passes_or_fails(case, made, tmp_path, capsys):
    run_dir = shutil.copytree(made[case.run], tmp_path / made[case.run].name)
    for change in case.changes:
        change(run_dir)
    check = command.check_of(case.fail_on, case.require, case.allow_missing)
    code, lines = command.gate(run_dir, check), capsys.readouterr().err
    assert code == case.exit, lines
    assert bool(lines) == (case.exit == FAILS), "a failed check names its reasons"


# (name, second run, its changes, --fail-on, exit)
COMPARED = [
    ("the same build", "again", [], "worse", PASSES),
    ("slower", "slower", [], "worse", FAILS),
    ("a cell is missing", "again", [without(**ONE)], "worse", FAILS),
    ("a cell is not in the plan", "again", [gone(**ONE)], "worse", FAILS),
    ("a stack is missing", "again", [without(stack="fast")], "worse", FAILS),
    ("a cell is missing, undecided", "again", [without(**ONE)], "undecided", FAILS),
    ("a cell fails now", "again", [invalid(9, "9 errors", **ONE)], "worse", FAILS),
    ("interrupted", "again", [state("interrupted")], "worse", FAILS),
    ("a rate fell to 0", "again", [figure("rps", 0.0, **ONE)], "worse", FAILS),
    ("the generator was the limit", "again", [limited("client")], "undecided", FAILS),
    ("no check", "slower", [], "", PASSES),
    ("faster", "faster", [], "worse", PASSES),
    ("faster, undecided too", "faster", [], "worse,undecided", PASSES),
    ("another host", "again", [fact("cpu_model", "Another")], "worse", PASSES),
    ("another environment", "again", [fact("environment X", "sha256 1")], "worse", PASSES),
    ("another host, and slower", "slower", [fact("cpu_model", "Another")], "worse", FAILS),
    ("one trial was refused", "again",
     [invalid(1, "other programs used 90 % of core 0", 0.9, **ONE)], "worse", PASSES),
    ("a rate of 0 in two rounds", "again", [first(2, "rps", 0.0, **ONE)], "worse", FAILS),
    ("slower, because it waits, without root", "slower", [idle_free, limited("concurrency")],
     "worse", FAILS),
    ("it waits and is as fast, without root", "again", [idle_free, limited("concurrency")],
     "worse", PASSES),
    ("slower, at the limit of the generator", "slower", [limited("client")], "worse", FAILS),
    ("as fast, at the limit of the generator", "again", [limited("client")], "worse", PASSES),
    ("two trials a cell, so none can be worse", "again", [rounds(2)], "worse", FAILS),
]  # fmt: skip


def test_a_loss_that_is_not_comparable_says_why(made, tmp_path, capsys):
    run_dir = shutil.copytree(made["loss"], tmp_path / "run")
    for change in (idle_free, limited("concurrency", **ONE)):
        change(run_dir)
    command.gate(run_dir, command.check_of("loss", []))
    assert capsys.readouterr().err.splitlines()[-1] == (
        "wirespeed: payload 16, stack fast: rps: -30% against kernel, although it is not "
        "comparable: idle states were not held off and fast was not busy"
    )


@pytest.mark.parametrize(
    ("second", "changes", "fail_on", "code"), [one[1:] for one in COMPARED],
    ids=[one[0] for one in COMPARED],
)  # fmt: skip
def test_two_runs_pass_or_fail(made, tmp_path, capsys, second, changes, fail_on, code):
    run_dir = shutil.copytree(made[second], tmp_path / made[second].name)
    for change in changes:
        change(run_dir)
    pair = (str(made["gain"]), str(run_dir))
    assert compare.compare(pair, tmp_path, [], True, fail_on) == code, capsys.readouterr().err


# Of the first of two runs: (name, its changes, those of the second, exit)
EARLIER = [
    ("interrupted", [state("interrupted")], [], FAILS),
    ("it lacked a cell", [without(**ONE)], [], PASSES),
    ("its rate was 0", [figure("rps", 0.0, **ONE)], [], PASSES),
    ("both rates are 0", [figure("rps", 0.0, **ONE)], [figure("rps", 0.0, **ONE)], PASSES),
    ("its trials failed", [invalid(9, "9 errors", **ONE)], [], PASSES),
    ("more of its trials failed", [invalid(2, "9 errors", **ONE)],
     [invalid(1, "9 errors", **ONE)], PASSES),
    ("as many of its trials failed", [invalid(2, "9 errors", **ONE)],
     [invalid(2, "9 errors", **ONE)], PASSES),
    ("fewer of its trials failed", [invalid(1, "9 errors", **ONE)],
     [invalid(4, "9 errors", **ONE)], FAILS),
    ("one trial failed, among fewer", [invalid(1, "9 errors", **ONE)],
     [rounds(4, **ONE), invalid(1, "9 errors", **ONE)], PASSES),
    ("trials of both failed", [invalid(9, "9 errors", **ONE)], [invalid(9, "9 errors", **ONE)],
     PASSES),
]  # fmt: skip


@pytest.mark.parametrize(
    ("before", "after", "code"), [one[1:] for one in EARLIER], ids=[one[0] for one in EARLIER]
)
def test_cells_that_the_first_of_two_runs_lacks(made, tmp_path, capsys, before, after, code):
    sides = []
    for name, changes in (("gain", before), ("again", after)):
        run_dir = shutil.copytree(made[name], tmp_path / name / made[name].name)
        for change in changes:
            change(run_dir)
        sides.append(str(run_dir))
    assert compare.compare(tuple(sides), tmp_path, [], True, "worse") == code, capsys.readouterr()


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda a, b: compare.compare((a, b), Path(), [], False, "wrose"), "unknown value 'wrose'"),
        (lambda a, b: compare.compare((a, b), Path(), ["rsp"], False, ""), "neither run has 'rsp'"),
        (lambda a, b: command.check_of("lost", []), "unknown value 'lost'"),
        (lambda a, b: command.check_of("", ["rps >"]), "not a rule"),
        (lambda a, b: command.check_of("", ["rps > nan"]), "'nan' is not a finite number"),
        (lambda a, b: command.check_of("", ["errors <= 1e999"]), "'1e999' is not a finite number"),
        (lambda a, b: command.check_of("", [f"p99 < {'9' * 400}s"]), "is too large"),
        (lambda a, b: command.check_of("", ["stack=a,b: rps > 1"]), "'b' is not AXIS=VALUE"),
        (lambda a, b: command.check_of("", [], True), "needs --fail-on or --require"),
        (lambda a, b: gate.refuse_too_few(command.check_of("loss", []), 2),
         "--repeat 2: too few for --fail-on"),
        (lambda a, b: compare.compare((a, a), Path(), [], False, "worse"), "are the same run"),
        (lambda a, b: trend.trend(trend.Choice([a], "", "", []), Path(), "", "worse", True),
         "at least two runs"),
        (lambda a, b: trend.trend(trend.Choice([a, a], "", "", []), Path(), "", "worse", True),
         "at least two runs, and there are 1"),
        (lambda a, b: trend.trend(trend.Choice([a, b], "", "", []), Path(), "", "loss", True),
         "unknown value 'loss'"),
        (lambda a, b: trend.trend(trend.Choice([a, b], "", "stack=x", []), Path(), "", "", True),
         "no measured cell"),
    ],
)  # fmt: skip
def test_a_check_that_means_nothing_is_bad_input(made, call, line):
    with pytest.raises(InputError, match=line) as refused:
        call(str(made["gain"]), str(made["again"]))
    assert refused.value.exit_code == 2


# (name, what is measured, its changes, how the measurement ended, exit)
REPRODUCED = [
    ("the same figures", "gain", [], 0, PASSES),
    ("slower", "slower", [], 0, FAILS),
    ("faster", "faster", [], 0, FAILS),
    ("a cell is missing", "gain", [without(**ONE)], 0, FAILS),
    ("a stack is missing", "gain", [without(stack="fast")], 0, FAILS),
    ("a rate fell to 0", "gain", [figure("rps", 0.0, **ONE)], 0, FAILS),
    ("the generator was the limit", "gain", [limited("client")], 0, FAILS),
    ("a trial failed", "gain", [invalid(1, "9 errors", **ONE)], 1, 1),
    ("stopped by Ctrl-C", "gain", [state("interrupted")], 130, 130),
    ("stopped by TERM", "gain", [state("interrupted")], 143, 143),
    ("another host", "gain", [fact("cpu_model", "Another")], 0, PASSES),
    (
        "a slower cell whose limit is unknown",
        "gain",
        [figure("rps", 30_000.0, **ONE), limited("unknown", **ONE)],
        0,
        FAILS,
    ),
    ("a cell whose limit is unknown", "gain", [limited("unknown", **ONE)], 0, PASSES),
]


@pytest.mark.parametrize(
    ("again", "changes", "ended", "code"), [one[1:] for one in REPRODUCED],
    ids=[one[0] for one in REPRODUCED],
)  # fmt: skip
def test_a_run_is_reproduced_or_not(
    made, tmp_path, monkeypatch, capsys, again, changes, ended, code
):
    run_dir = shutil.copytree(made[again], tmp_path / "second")
    for change in changes:
        change(run_dir)
    origin = SimpleNamespace(root=tmp_path)
    monkeypatch.setattr(reproduce, "_origin", lambda *_: origin)
    monkeypatch.setattr(reproduce.trust, "is_own", lambda *_: True)
    monkeypatch.setattr(reproduce.trust, "confirm", lambda *_: None)
    monkeypatch.setattr(command, "measure", lambda *_: command.Ended(ended, run_dir))
    extras = reproduce.Extras("", [], [], "", False)
    assert reproduce.reproduce(str(made["gain"]), tmp_path, extras) == code
    if ended in (0, 1):
        assert "eproduced" in capsys.readouterr().out.splitlines()[-1] or code == FAILS


def test_nothing_is_reproduced_of_a_run_without_figures(made, tmp_path):
    run_dir = shutil.copytree(made["gain"], tmp_path / "empty")
    invalid(99, "9 errors")(run_dir)
    with pytest.raises(ResultsError, match="nothing to reproduce"):
        reproduce.reproduce(str(run_dir), tmp_path, reproduce.Extras("", [], [], "", False))


# How a run itself ends: also for the part that was measured before it was resumed.
ENDED = [
    ("all is well", [], False),
    ("a trial gave no figures", [invalid(1, "gen failed", **ONE), bare(**ONE)], True),
    ("a cell has no valid trial", [invalid(9, "other programs used 90 %", 0.9, **ONE)], True),
    ("a trial was refused", [invalid(1, "other programs used 90 %", 0.9, **ONE)], False),
    ("a cell was left out", [without(**ONE)], False),
]


@pytest.mark.parametrize(
    ("changes", "has_failed"), [one[1:] for one in ENDED], ids=[one[0] for one in ENDED]
)
def test_a_run_ends_with_1_where_a_measurement_failed(made, tmp_path, changes, has_failed):
    run_dir = shutil.copytree(made["gain"], tmp_path / "run")
    for change in changes:
        change(run_dir)
    assert command.has_failed(run_dir) == has_failed


def test_a_copy_of_a_run_is_the_same_run(made, tmp_path):
    """A pipeline that had lost its baseline compared the run with a copy of itself, and passed."""
    copy = shutil.copytree(made["gain"], tmp_path / "main")
    with pytest.raises(InputError, match="are the same run"):
        compare.compare((str(made["gain"]), str(copy)), tmp_path, [], False, "worse")


def test_errors_where_there_were_none_are_worse(made, tmp_path, capsys):
    first = shutil.copytree(made["gain"], tmp_path / "a" / made["gain"].name)
    second = shutil.copytree(made["again"], tmp_path / "b" / made["again"].name)
    figure("timeouts", 0.0)(first)
    figure("timeouts", 812.0, **ONE)(second)
    pair = (str(first), str(second))
    assert compare.compare(pair, tmp_path, ["timeouts"], True, "worse") == FAILS
    assert "rose from 0" in capsys.readouterr().err


def test_a_lost_cell_is_named(made, tmp_path):
    second = shutil.copytree(made["again"], tmp_path / made["again"].name)
    without(**ONE)(second)
    found = two_runs.compare(load(made["gain"]), load(second), ["rps"])
    assert found.missing == [ONE] and found.verdict == "not decided"
    assert reproduce._sentence(found).startswith("Not decided")


def test_other_figures_over_all_cells_are_named_too():
    pooled = two_runs.Difference(
        {}, "rps", None, None, -0.1, -0.12, -0.08, "not comparable", seems="worse"
    )
    found = two_runs.RunDifferences({}, [], (0, 0), [pooled])
    assert "1 not comparable and 1 of them with other figures" in reproduce._sentence(found)


def history(made, folder, names):
    """Runs in time order; each is a copy of a made one."""
    return [a_day_later(made, folder, *one) for one in enumerate(names)][-1]


def a_day_later(made, folder, number, name):
    run_dir = shutil.copytree(made[name], folder / f"{number:02}-check-{name}")
    started = f"2026-11-{number + 1:02}T00:00:00Z"
    edit(run_dir / "run.json", lambda run: run.update(run_id=f"run{number}", started=started))
    return run_dir


CHOICE = trend.Choice([], "check", "", [])
BEFORE = ["gain", "again"] * 4
FOLLOWED = [
    ("no change", BEFORE, [], PASSES),
    ("the last run is the first that shows the step", [*BEFORE, *["slower"] * 4], [], FAILS),
    ("a step that an earlier run showed", [*BEFORE, *["slower"] * 9], [], PASSES),
    ("the last run was stopped", BEFORE, [state("interrupted")], FAILS),
    ("the last run lost a cell", BEFORE, [without(**ONE)], FAILS),
    ("the last run lost a stack", BEFORE, [gone(stack="fast")], FAILS),
    ("all trials of a cell failed", BEFORE, [invalid(9, "9 errors", **ONE)], FAILS),
    ("one trial of a cell failed", BEFORE, [invalid(1, "9 errors", **ONE)], FAILS),
    (
        "one trial of a cell was noisy",
        BEFORE,
        [invalid(1, "other programs used 90 % of core 0", 0.9, **ONE)],
        PASSES,
    ),
    ("the rate fell to 0", BEFORE, [figure("rps", 0.0, **ONE)], FAILS),
    ("two runs, the last lost a cell", ["gain", "again"], [without(**ONE)], FAILS),
    ("the last run was killed", BEFORE, [state("running")], FAILS),
    ("the last run cannot be read", BEFORE, [unreadable], FAILS),
]


@pytest.mark.parametrize(
    ("names", "changes", "code"), [one[1:] for one in FOLLOWED], ids=[one[0] for one in FOLLOWED]
)
def test_a_history_passes_or_fails(made, tmp_path, capsys, names, changes, code):
    last = history(made, tmp_path, names)
    for change in changes:
        change(last)
    found = trend.trend(CHOICE, tmp_path, "rps", "worse", True)
    assert found == code, capsys.readouterr().err


@pytest.mark.parametrize(("count", "code"), [(1, PASSES), (2, FAILS)])
def test_one_failed_trial_among_fewer_is_not_more_than_one(made, tmp_path, capsys, count, code):
    """One of four after one of five failed the check."""
    last = history(made, tmp_path, BEFORE)
    invalid(1, "9 errors", **ONE)(tmp_path / "06-check-gain")
    rounds(4, **ONE)(last)
    invalid(count, "9 errors", **ONE)(last)
    found = trend.trend(CHOICE, tmp_path, "rps", "worse", True)
    assert found == code, capsys.readouterr().err


def test_a_run_that_cannot_be_read_fails_its_own_history_only(made, tmp_path, capsys):
    """It was left out in silence: the check passed on the run before it."""
    unreadable(history(made, tmp_path, BEFORE))
    assert trend.trend(CHOICE, tmp_path, "rps", "worse", True) == FAILS
    assert "07-check-again/run.json: cannot be read" in capsys.readouterr().err
    (tmp_path / "07-check-again").rename(tmp_path / "07-check-more-again")
    assert trend.trend(CHOICE, tmp_path, "rps", "worse", True) == PASSES
    (tmp_path / "07-check-more-again").rename(tmp_path / "00-check-again")
    assert trend.trend(CHOICE, tmp_path, "rps", "worse", True) == PASSES


def test_a_copy_of_a_run_is_none_of_its_history(made, tmp_path, capsys):
    """The copy of a slower run was the last one, and changed nothing: the check passed."""
    last = history(made, tmp_path, [*BEFORE, *["slower"] * 4])
    copy = shutil.copytree(last, tmp_path / f"{last.name}-before-upgrade")
    assert trend.trend(CHOICE, tmp_path, "rps", "worse", True) == FAILS
    assert f"left out: {copy.name} is a copy of {last.name}\n" in capsys.readouterr().err
    named = trend.Choice([str(last), str(copy)], "", "", [])
    with pytest.raises(ResultsError, match="there are 1"):
        trend.trend(named, tmp_path, "rps", "worse", True)


def test_an_old_damaged_run_is_left_out_and_named(made, tmp_path, capsys):
    """One broken trial ended every trend of its recipe."""
    history(made, tmp_path, [*BEFORE, "gain"])
    old, new = tmp_path / "03-check-again", tmp_path / "08-check-gain"
    next(old.glob("trials/*/trial.json")).write_text("{")
    assert trend.trend(CHOICE, tmp_path, "rps", "worse", True) == PASSES
    printed = capsys.readouterr()
    points = json.loads(printed.out)[0]["points"]
    assert [point["run"] for point in points] == [f"run{n}" for n in range(9) if n != 3]
    assert printed.err.startswith(f"wirespeed: left out: {old}/trials/")
    next(new.glob("trials/*/trial.json")).write_text("{")
    assert trend.trend(CHOICE, tmp_path, "rps", "worse", True) == FAILS
    assert f"wirespeed: {new.name} cannot be read" in capsys.readouterr().err
    other = trend.Choice([], "check", "", ["branch=main"])
    with pytest.raises(ResultsError, match="there are 0"):
        trend.trend(other, tmp_path, "rps", "worse", True)
    assert capsys.readouterr().err == "", "the damaged ones are of another branch"


def test_a_run_that_is_still_measured_is_none_of_its_history(made, tmp_path, monkeypatch):
    last = history(made, tmp_path, BEFORE)
    state("running")(last)
    with execute.hold(last):
        assert trend.trend(CHOICE, tmp_path, "rps", "worse", True) == PASSES
    assert trend.trend(CHOICE, tmp_path, "rps", "worse", True) == FAILS
    monkeypatch.setattr(execute, "machine_id", lambda: "another")  # which cannot see the lock
    assert trend.trend(CHOICE, tmp_path, "rps", "worse", True) == PASSES


def test_brackets_of_a_program_are_part_of_the_reason(capsys):
    """The [emerg] of NGINX's errors was taken for a style and left out; `[/x]` was a traceback."""
    why = "nginx-0 died (exit code 1): nginx: [emerg] bind() to [/x] failed"
    why += ": 127.0.0.1:1234: refused"  # of which :1234: is the name of an emoji
    command._say(Console(stderr=True, width=200), f"3 trials stayed invalid: {why}")
    knee._show([knee.Knee({"stack": "a"}, 9.0, None, 5, {}, why, [])], [], lambda _: "")
    printed = capsys.readouterr()
    assert why in printed.err
    assert all(part in printed.out for part in ("[emerg]", "[/x]", ":1234:"))


def test_there_are_many_situations():
    tables = (RUNS, COMPARED, EARLIER, REPRODUCED, ENDED, FOLLOWED)
    assert len(RUNS) >= 40 and sum(map(len, tables)) >= 90


def test_a_regression_fails_the_run_that_shows_it_and_not_every_run_after_it(made, tmp_path):
    """One accepted regression made the check fail forever."""
    codes = []
    history(made, tmp_path, BEFORE)
    for number in range(8, 14):
        a_day_later(made, tmp_path, number, "slower")
        codes.append(trend.trend(CHOICE, tmp_path, "rps", "worse", True))
    assert codes.count(FAILS) == 1 and codes[-1] == PASSES
