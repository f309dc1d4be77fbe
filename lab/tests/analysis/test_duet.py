"""The estimator of a duet, against series whose answer is known."""

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from wirespeed.analysis import comparisons, duet
from wirespeed.analysis.cells import Cell
from wirespeed.analysis.duet import Slice
from wirespeed.analysis.summary import summarize
from wirespeed.results.model import Duet, DuetRatio, PlannedTrial, Process, Run, RunPlan, Trial
from wirespeed.stats import comparison

SLICE_S = 0.025


def machine(chance, steps):
    """The speed of a shared machine: it wanders within 100 ms, and has rare bursts."""
    drift, burst, speeds = 0.0, 0, []
    for _ in range(steps):
        drift = 0.7 * drift + chance.gauss(0, 0.05)
        burst = burst - 1 if burst else (chance.randrange(1, 4) if chance.random() < 0.02 else 0)
        speeds.append(math.exp(drift) * (0.4 if burst else 1.0))
    return speeds


def slices(chance, ratio, groups=80, speeds=None):
    """Slices of two servers whose requests cost 10 us and 10 us times `ratio`."""
    speeds = speeds or machine(chance, 4 * groups)
    rows = []
    for group in range(groups):
        first = chance.randrange(2)
        for side in (first, 1 - first, 1 - first, first):
            cost_s = 10e-6 * (ratio if side else 1.0) / speeds[len(rows)]
            responses = round(SLICE_S / cost_s)
            counted = round((SLICE_S - 0.005) / cost_s)
            rows.append(
                Slice(group, side, SLICE_S, responses, responses * cost_s, SLICE_S - 0.005,
                      counted, True, 0.0002)
            )  # fmt: skip
    return rows


def told(chance, ratio, **more):
    return duet.of_slices(slices(chance, ratio, **more), 2.0, True)


def test_a_planted_ratio_is_found_in_both_metrics():
    for planted in (1.0, 1.01, 1.1, 4.4):
        found = [told(random.Random(seed), planted).ratios for seed in range(20)]
        cpu = [ratios["server.work_us_per_request"].log for ratios in found]
        rps = [ratios["rps"].log for ratios in found]
        error = 0.01
        assert abs(sum(cpu) / 20 - math.log(planted)) < error, planted
        assert abs(sum(rps) / 20 + math.log(planted)) < error, planted


def test_over_fresh_pairs_the_interval_covers_as_often_as_it_says():
    """Each pair has an offset of its own, as fresh processes have: the interval over pairs knows,
    and the one within a pair does not."""
    chance = random.Random(3)
    runs, covered, within = 300, 0, 0
    for _ in range(runs):
        ratios = []
        for _ in range(6):
            own = told(chance, math.exp(chance.gauss(0, 0.02)), groups=40)
            ratio = own.ratios["server.work_us_per_request"]
            ratios.append(ratio.log)
        (found,) = comparison.compare([ratios])
        covered += found.low <= 0 <= found.high
        within += abs(ratio.log) <= 2.8 * (ratio.error or 0)
    assert 0.91 <= covered / runs <= 0.98
    assert within / runs < 0.8


def test_bursts_are_trimmed():
    chance = random.Random(5)
    whole, burst = machine(chance, 320), set(range(100, 130))
    speeds = [0.1 if number in burst and number % 3 else 1.0 for number in range(len(whole))]
    rows = slices(chance, 1.0, speeds=speeds)
    ratio = duet.of_slices(rows, 2.0, True).ratios["rps"].log
    groups = [rows[n : n + 4] for n in range(0, len(rows), 4)]
    plain = [math.log(duet._rate(group, 1) / duet._rate(group, 0)) for group in groups]
    assert abs(ratio) < 0.002 < abs(sum(plain) / len(plain))


def test_groups_that_did_not_drain_are_left_out_and_many_of_them_are_a_problem():
    rows = slices(random.Random(1), 1.0, speeds=[1.0] * 320)
    stuck = [
        Slice(**{**vars(row), "is_drained": row.group % 10 != 5, "responses": row.responses}
              if row.side else vars(row))
        for row in rows
    ]  # fmt: skip
    found = duet.of_slices(stuck, 2.0, True)
    assert found.left_out == 8 and found.ratios["rps"].log == pytest.approx(0.0)
    stuck = [Slice(**{**vars(row), "is_drained": row.group % 2 == 0}) for row in rows]
    found = duet.of_slices(stuck, 2.0, True)
    assert not found.ratios and "did not drain" in found.problem


def test_cpu_of_a_server_that_polls_gives_no_figure():
    found = duet.of_slices(slices(random.Random(1), 1.0), 2.0, has_cpu=False)
    assert list(found.ratios) == ["rps"]


@pytest.mark.parametrize("groups", [0, 1, 4])
def test_a_few_groups_say_nothing(groups):
    found = duet.of_slices(slices(random.Random(1), 1.0, groups=groups), 2.0, True)
    assert not found.ratios and found.problem


def test_blocks_are_seconds_long_and_of_enough_groups():
    long = told(random.Random(1), 1.0, groups=80).ratios["rps"]
    assert long.blocks == 3 and long.error is not None
    short = told(random.Random(1), 1.0, groups=15).ratios["rps"]
    assert short.blocks == 1 and short.error is None


def cell(key, variant, trials):
    return Cell(key, {"variant": variant}, "measured", "", tuple(trials))


def trial(key, variant, number, rps, one=None):
    lost = 0.4 if key == "a" else 0.0
    return Trial(key, key, number, number, axes={"variant": variant}, bottleneck="server",
                 metrics={"rps": rps}, duet=one, disturbed=lost)  # fmt: skip


def pair_of(rounds, duets):
    """A cell against its baseline: plain trials say +50 %, the duets +10 %."""
    ratio = {"rps": DuetRatio(math.log(1.1), 0.001, 4)}
    base = [trial("a", "A", number, 100.0 + number) for number in range(rounds)]
    over = [
        trial("b", "B", number, 150.0 - number, Duet("a", ratio) if number < duets else None)
        for number in range(rounds)
    ]
    return comparisons.Pair(cell("b", "B", over), cell("a", "A", base), "variant", "rps")


def test_a_comparison_is_of_duets_or_of_trials_and_says_which():
    whole = pair_of(4, 4)
    assert whole.method == "duet"
    assert list(whole.ratios().values()) == [pytest.approx(math.log(1.1))] * 4
    few = pair_of(4, 2)
    assert few.method == "separate trials"
    assert min(few.ratios().values()) > 0.3
    other = comparisons.Pair(whole.cell, cell("c", "C", whole.base.trials), "variant", "rps")
    assert other.method == "separate trials", "the duet was with another baseline"


@pytest.mark.parametrize("later", [0, 3])
def test_duets_of_an_earlier_lab_count_under_the_recipes_name_of_the_rate(later):
    """Of a run to which rounds were added since, the verdict was of the added ones alone."""
    ratio = DuetRatio(math.log(1.1), 0.001, 4)
    trials = [
        trial("a", "A", number, 100.0 + number) for number in range(3 + later)
    ] + [
        trial("b", "B", number, 150.0 - number,
              Duet("a", {"rps": ratio, "gets": ratio} if number >= 3 else {"rps": ratio}))
        for number in range(3 + later)
    ]  # fmt: skip
    load = Process("gen", 0, "load")
    trials = [
        replace(one, key=f"{one.key}-{one.round}", metrics={"gets": one.metrics["rps"]},
                processes=[load])
        for one in trials
    ]  # fmt: skip
    plan = [PlannedTrial(one.position, one.round, one.cell, one.key, one.axes) for one in trials]
    run = Run("run", "recipe", metrics=[{"name": "gets", "from": "gen"}], idle_held=True,
              plan=RunPlan(repeat=3 + later, baseline={"variant": "A"}))  # fmt: skip
    (gain,) = summarize(Path(), run, plan, trials).gains
    assert (gain.metric, gain.method, gain.verdict.word) == ("gets", "duet", "gain")
    assert (gain.found.rounds, gain.duets) == (3 + later, 3 + later)
    two = [replace(one, processes=[load, replace(load, name="other")]) for one in trials]
    (gain,) = summarize(Path(), run, plan, two[: 3 + later] + two[3 + later :][:3]).gains
    assert gain.method == "separate trials", "a duet's rate is of both generators"


def test_a_duet_is_not_widened_by_noise_of_its_trials():
    run = Run("run", "recipe", metrics=[{"name": "rps"}], idle_held=True)
    (by_duet,) = comparisons.judge(run, [pair_of(4, 4)])
    assert (by_duet.verdict.word, by_duet.method) == ("gain", "duet")
    (by_trials,) = comparisons.judge(run, [pair_of(4, 0)])
    assert (by_trials.verdict.word, by_trials.method) == ("not decided", "separate trials")


def turns_of(limits, busy):
    """Four duets of sides whose trials alone have these limits, and that were so busy in turns:
    (contender, baseline)."""
    one = Duet("a", {"rps": DuetRatio(math.log(5), 0.001, 4)}, busy=busy[::-1])
    sides = [
        cell(key, key.upper(), [replace(trial(key, key.upper(), number, rate, own),
                                        bottleneck=limit) for number in range(4)])
        for key, rate, own, limit in (("b", 50.0, one, limits[0]), ("a", 10.0, None, limits[1]))
    ]  # fmt: skip
    return comparisons.Pair(*sides, "variant", "rps")


@pytest.mark.parametrize(
    ("limits", "busy", "word", "bound"),
    [
        # on a guest with steal no trial alone showed a limit, and five times as fast said nothing
        (("unknown", "unknown"), [None, 0.97], "gain", "≥"),
        (("client", "unknown"), [None, 0.97], "gain", "≥"),
        (("server", "unknown"), [None, 0.97], "gain", ""),
        (("unknown", "unknown"), [0.99, 0.97], "gain", ""),
        (("unknown", "unknown"), [None, 0.90], "not comparable", ""),
        (("unknown", "unknown"), [None, None], "not comparable", ""),
        (("unknown", "unknown"), [], "not comparable", ""),
        # what a trial alone showed is not overruled
        (("unknown", "client"), [None, 0.97], "not comparable", ""),
    ],
)
def test_turns_show_that_a_server_was_full_where_trials_alone_do_not(limits, busy, word, bound):
    run = Run("run", "recipe", metrics=[{"name": "rps"}], idle_held=True)
    (gain,) = comparisons.judge(run, [turns_of(limits, busy)])
    assert (gain.verdict.word, gain.verdict.bound) == (word, bound)
    if word == "gain" and busy[1] == 0.97:
        assert gain.found.low == pytest.approx(5 * 0.95 - 1, rel=0.001), "as if both had been full"


def test_trials_alone_keep_their_own_limits():
    pair = turns_of(("unknown", "unknown"), [0.99, 0.97])
    assert pair.limits == ("both", "both")
    assert replace(pair, is_alone=True).limits == ("unknown", "unknown")
    assert replace(pair, is_alone=True).method == "separate trials"


def test_the_servers_use_of_its_core_is_that_of_the_part_that_counts():
    """A slice of which a server had nothing to do for the last third was full in its middle."""
    rows = slices(random.Random(1), 1.0, speeds=[1.0] * 320)
    longer = [replace(row, seconds=1.5 * row.seconds) for row in rows]
    half = [replace(row, cpu_s=0.5 * row.cpu_s) if row.side else row for row in longer]
    assert duet.of_slices(longer, 2.0, True).cores_used == pytest.approx((1.0, 1.0))
    assert duet.of_slices(half, 2.0, False).cores_used == pytest.approx((1.0, 0.5))


def test_a_duet_survives_the_disk():
    one = trial("b", "B", 1, 1.0, Duet("a", {"rps": DuetRatio(0.1, None, 1)}, how="SIGSTOP",
                                       busy=[0.5, None]))  # fmt: skip
    assert Trial.from_json(one.to_json()) == one
