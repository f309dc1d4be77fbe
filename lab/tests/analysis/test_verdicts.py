"""Laws of verdicts, whatever the figures are."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.analysis import two_runs
from wirespeed.analysis.comparisons import at_level, loosened
from wirespeed.analysis.summary import summarize
from wirespeed.analysis.verdict import Terms, decide
from wirespeed.results.model import PlannedTrial, Run, RunPlan, Trial
from wirespeed.stats import comparison
from wirespeed.stats.spending import Spending

#: Log ratios of the rounds of one comparison: a difference, and noise around it.
RATIOS = st.builds(
    lambda size, noise: [size + one for one in noise],
    st.floats(-1, 1), st.lists(st.floats(-0.03, 0.03), min_size=1, max_size=12),
)  # fmt: skip
SPENDINGS = st.sampled_from([
    Spending(), Spending(2), Spending(3, True), Spending(1, True, (5,), 20),
    Spending(4, True, (5, 10, 15, 20), 20),
])  # fmt: skip
TERMS = st.builds(
    Terms, q=st.floats(0, 0.05), better=st.sampled_from(["higher", "lower"]),
    interference=st.floats(-0.5, 0.5), spending=SPENDINGS,
    threshold=st.sampled_from([0.005, 0.02]),
)  # fmt: skip
SLACK = st.sampled_from([0.0, 0.05])
MIRRORED = {"gain": "loss", "loss": "gain", "better": "worse", "worse": "better"}


def found_of(ratios):
    (found,) = comparison.compare([ratios])
    return found


@given(RATIOS, TERMS, SLACK, SLACK)
def test_a_verdict_is_what_its_interval_shows(ratios, terms, lower, higher):
    """The page shows both, and they must agree."""
    found = loosened(found_of(ratios), (lower, higher))
    verdict, shown = decide(found, terms), at_level(found, terms)
    if verdict.word in ("gain", "loss"):
        is_more = (verdict.word == "gain") == (terms.better == "higher")
        assert (shown.low > 0) == (shown.gain > 0) == is_more
        assert shown.low > 0 or shown.high < 0
        assert abs(shown.gain) >= terms.threshold and found.rounds >= comparison.PAIRS_MIN
    if verdict.word == "no difference":
        assert -terms.threshold <= shown.low <= shown.high <= terms.threshold
    if shown.low is not None:
        assert shown.low <= shown.gain <= shown.high


@given(st.lists(st.floats(-12, 12), min_size=1, max_size=4), TERMS)
def test_rounds_that_differ_a_thousandfold_have_an_interval(ratios, terms):
    """A server that hung in one of two rounds ended a report in a traceback."""
    found = found_of(ratios)
    shown = at_level(found, terms)
    assert decide(found, terms).word == "not decided" or len(ratios) >= comparison.PAIRS_MIN
    if shown.low is not None:
        assert -1 <= shown.low <= shown.high < math.inf


@given(RATIOS, TERMS)
def test_the_other_direction_mirrors_a_verdict(ratios, terms):
    terms = replace(terms, interference=0.0)
    there, back = found_of(ratios), found_of([-one for one in ratios])
    if abs(abs(there.gain) - terms.threshold) > 0.002:  # 2 % more is 1.96 % less
        word = decide(there, terms).word
        if word != "no difference":
            assert decide(back, terms).word in (MIRRORED.get(word, word), "no difference")


@pytest.mark.parametrize(("threshold", "word"), [(0.02, "no difference"), (0.005, "loss")])
def test_a_recipe_says_how_small_a_difference_counts(threshold, word):
    """A server that is 1 % slower was never a loss, however long a run measured it."""
    plan, trials = [], []
    for number in range(1, 21):
        for stack, rate in (("kernel", 1000.0), ("fast", 990.0 + number % 2)):
            axes = {"stack": stack}
            key = f"{stack}{number}"
            trials.append(Trial(key, stack, number, len(trials) + 1, axes=axes,
                                bottleneck="server", metrics={"rps": rate}))  # fmt: skip
            plan.append(PlannedTrial(len(trials), number, stack, key, axes))
    run = Run("r", "r", axes={"stack": ["kernel", "fast"]}, idle_held=True,
              metrics=[{"name": "rps"}],
              plan=RunPlan(20, baseline={"stack": "kernel"}, threshold=threshold))  # fmt: skip
    summary = summarize(None, run, plan, trials)
    assert [gain.verdict.word for gain in summary.gains if gain.metric == "rps"] == [word]
    assert [one.verdict.word for one in summary.families if one.metric == "rps"] in ([], [word])


@given(RATIOS, st.floats(0.1, 0.9))
def test_what_is_slower_still_never_leaves_a_loss(ratios, factor):
    slower = [one + math.log(factor) for one in ratios]
    if decide(found_of(ratios), Terms()).word == "loss":
        assert decide(found_of(slower), Terms()).word == "loss"


def one_cell(values, limit="server"):
    """A run of one cell with a trial for each rate."""
    axes = {"stack": "kernel"}
    trials = [
        Trial(f"k{n}", "c", n, n, axes=axes, bottleneck=limit, metrics={"rps": float(value)})
        for n, value in enumerate(values, 1)
    ]
    plan = [PlannedTrial(one.position, one.round, "c", one.key, axes) for one in trials]
    run = Run("r", "r", axes={"stack": ["kernel"]}, idle_held=True, metrics=[{"name": "rps"}],
              plan=RunPlan(baseline=axes))  # fmt: skip
    return summarize(None, run, plan, trials)


RATES = st.lists(st.integers(0, 3) | st.integers(900, 1100), min_size=1, max_size=6)


@given(RATES, RATES)
def test_two_runs_the_other_way_round_say_the_same(first, second):
    pair = one_cell(first), one_cell(second)
    (there,) = two_runs.compare(*pair, ["rps"]).differences
    (back,) = two_runs.compare(*reversed(pair), ["rps"]).differences
    assert there.first == back.second == comparison.median(map(float, first))
    # Where one of them fell to 0 in some trials, only that is worse.
    is_one_sided = (0 in first) != (0 in second)
    if not is_one_sided and abs(abs(there.change or 1) - 0.02) > 0.005:
        assert back.word == MIRRORED.get(there.word, there.word)
    if 0 not in first and 0 in second:
        assert there.word == "worse"


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=9))
def test_the_median_of_an_even_number_is_the_mean_of_the_middle_two(values):
    ordered = sorted(values)
    half = len(ordered) // 2
    middle = ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    assert one_cell(values).cells[0].median("rps") == middle


@pytest.mark.parametrize("rounds_max", [6, 20, 36, 100])
@pytest.mark.parametrize("step", [1, 2, 5])
def test_interim_analyses_never_spend_more_than_there_is(rounds_max, step):
    at = tuple(range(3, rounds_max + 1, step))
    shares = [Spending(n, True, at[:n], rounds_max).share for n in range(1, len(at) + 1)]
    assert all(one >= 0 for one in shares) and sum(shares) <= 1 + 1e-9
    late = Spending(2, True, (rounds_max, rounds_max + 5), rounds_max)
    assert late.share == 0.0, "rounds beyond the last analysis decide nothing"
