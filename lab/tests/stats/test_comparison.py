"""Golden values and properties of comparisons, verdicts and the number of rounds."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wirespeed.analysis.verdict import Terms, decide, interval_at
from wirespeed.stats import comparison as c
from wirespeed.stats import rounds, spending, student
from wirespeed.stats.spending import Spending

ratios = st.lists(st.floats(-1.0, 1.0), min_size=3, max_size=8)


# Computed once with scipy 1.17.1: stats.t.sf(t, df) * 2 and stats.t.isf(alpha / 2, df).
@pytest.mark.parametrize(
    ("t", "df", "p"),
    [(2.0, 4, 0.1161165), (3.5, 4, 0.0248987), (12.7062, 1, 0.05), (1.0, 30, 0.3253086),
     (0.0, 5, 1.0), (9.9248432, 2, 0.01), (2.5, 7.5, 0.0387), (1.959964, 1e7, 0.05)],
)  # fmt: skip
def test_students_t_agrees_with_the_tables(t, df, p):
    assert student.two_sided_p(t, df) == pytest.approx(p, abs=3e-4)
    assert student.two_sided_p(-t, df) == student.two_sided_p(t, df)


@pytest.mark.parametrize(
    ("df", "alpha", "t"), [(4, 0.05, 2.776445), (2, 0.01, 9.924843), (14, 0.02, 2.624494)]
)
def test_critical_values_agree_with_the_tables(df, alpha, t):
    assert student.critical(df, alpha) == pytest.approx(t, abs=1e-5)


def test_digamma_and_trigamma_at_one_are_eulers_and_basels():
    assert student.digamma(1) == pytest.approx(-0.5772156649015329)
    assert student.trigamma(1) == pytest.approx(math.pi**2 / 6)
    assert student.trigamma(student.trigamma_inverse(0.37)) == pytest.approx(0.37)


def test_a_single_comparison_is_the_paired_t_test():
    # scipy 1.17.1: ttest_1samp([.10, .12, .08, .11, .09], 0): t = 14.142, p = 1.451e-4
    (found,) = c.compare([[0.10, 0.12, 0.08, 0.11, 0.09]])
    assert found.p == pytest.approx(1.451e-4, rel=1e-3)
    assert found.gain == pytest.approx(math.expm1(0.10))
    reach = 2.776445 * math.sqrt(0.00025 / 5)
    assert found.low == pytest.approx(math.expm1(0.10 - reach))
    assert found.high == pytest.approx(math.expm1(0.10 + reach))


def test_rounds_that_lack_a_side_are_left_out():
    assert c.log_ratios({1: 2.0, 2: 2.0, 4: 2.0}, {1: 1.0, 3: 1.0, 4: 4.0}) == pytest.approx(
        {1: math.log(2), 4: -math.log(2)}
    )
    assert c.log_ratios({1: 0.0}, {1: 1.0}) == {}


def test_drift_of_the_machine_falls_out_of_the_pairs():
    # The machine loses a tenth of its speed every round; the contender is 5 % faster.
    base = {number: 1000 * 0.9**number for number in range(6)}
    over = {number: value * 1.05 for number, value in base.items()}
    (found,) = c.compare([list(c.log_ratios(over, base).values())])
    assert decide(found, Terms(q=found.p)).word == "gain"


def test_four_against_four_separated_trials_are_a_gain():
    """Ten comparisons of which one is more than four times as fast, in four rounds."""
    rng = random.Random(3)
    quiet = [[rng.gauss(0, 0.08) for _ in range(4)] for _ in range(4)]
    found = c.compare([*quiet, [1.10, 1.92, 1.45, 1.36]])
    qs = c.benjamini_hochberg([one.p for one in found])
    assert decide(found[-1], Terms(q=qs[-1])).word == "gain"
    # and with three rounds
    found = c.compare([*(row[:3] for row in quiet), [1.30, 1.62, 1.45]])
    qs = c.benjamini_hochberg([one.p for one in found])
    assert decide(found[-1], Terms(q=qs[-1])).word == "gain"


@pytest.mark.parametrize("comparisons", [1, 2, 7, 12, 20, 60, 85, 288])
def test_a_lone_loss_of_a_half_is_found_in_a_table_of_any_size(comparisons):
    rng = random.Random(comparisons)
    number = rounds.planned(comparisons)
    pairs = [[rng.gauss(0, 0.028) for _ in range(number)] for _ in range(comparisons)]
    pairs[0] = [one + math.log(0.5) for one in pairs[0]]
    found = c.compare(pairs)
    qs = c.benjamini_hochberg([one.p for one in found])
    assert decide(found[0], Terms(q=qs[0])).word == "loss"


def test_a_comparisons_own_spread_is_never_made_smaller():
    still = [[0.001, -0.001, 0.0, 0.001, -0.001] for _ in range(9)]
    noisy = [0.3, -0.1, 0.2, -0.15, 0.25]
    found = c.compare([*still, noisy])[-1]
    alone = c.compare([noisy])[0]
    assert found.error == pytest.approx(alone.error)


def test_equal_values_in_every_round_show_no_difference():
    (found,) = c.compare([[0.0] * 5])
    assert decide(found, Terms()).word == "no difference"


@given(st.lists(ratios, min_size=1, max_size=6))
def test_interval_holds_the_gain(pairs):
    for found in c.compare(pairs):
        assert found.low <= found.gain <= found.high
        assert 0 <= found.p <= 1


@given(st.lists(ratios, min_size=1, max_size=6))
def test_turning_the_sides_round_inverts_the_gain(pairs):
    turned = c.compare([[-one for one in row] for row in pairs])
    for a, b in zip(c.compare(pairs), turned, strict=True):
        assert (1 + a.gain) * (1 + b.gain) == pytest.approx(1)
        assert (1 + a.low) * (1 + b.high) == pytest.approx(1)
        assert a.p == pytest.approx(b.p)


def test_one_round_has_no_interval_and_no_verdict():
    (found,) = c.compare([[0.5]])
    assert found.low is None
    assert decide(found, Terms()).word == "not decided"
    two = c.compare([[0.5, 0.5001]])[0]
    verdict = decide(two, Terms(q=0.0))
    assert (verdict.word, verdict.more_rounds) == ("not decided", 1)
    assert c.compare([[]]) == [None]


def pooled_over(cells):
    """Of cells that have every round up to their last."""
    return c.over_cells([dict(enumerate(row)) for row in cells])


def test_cells_that_err_together_keep_their_common_error():
    """Ten cells of one server lifetime: their mean over a round has the same error as each."""
    common = [0.05, -0.04, 0.06, -0.05, 0.03]
    pooled = pooled_over([common for _ in range(10)])
    alone = c.compare([common])[0]
    assert pooled.error == pytest.approx(alone.error)
    rng = random.Random(5)
    apart = pooled_over([[rng.gauss(0.02, 0.05) for _ in range(5)] for _ in range(40)])
    assert apart.error < alone.error / 2


def test_a_cell_that_lost_rounds_does_not_take_them_from_the_others():
    whole = [[0.1, 0.11, 0.09, 0.1, 0.1], [0.2, 0.21, 0.2, 0.19, 0.2]]
    assert pooled_over([*whole, [0.9]]) == pooled_over(whole)
    assert pooled_over(whole).rounds == 5
    assert pooled_over([[0.1, 0.2]]).rounds == 2
    assert pooled_over([[]]) is None


def simulated(rng, lost):
    """Six cells with 5 % of error in common and 1 % of their own, each without one round of six."""
    common = [rng.gauss(0, 0.05) for _ in range(6)]
    return [
        {number: common[number] + rng.gauss(0, 0.01) for number in range(6) if number != lost(cell)}
        for cell in range(6)
    ]


@pytest.mark.parametrize("lost", [lambda cell: 5 * (cell % 2), lambda cell: cell % 3])
def test_cells_that_lost_different_rounds_err_together_in_those_they_have(lost):
    rng, runs = random.Random(3), 1500
    pooled = [c.over_cells(simulated(rng, lost)) for _ in range(runs)]
    held = sum(one.low <= 0 <= one.high for one in pooled) / runs
    called = sum(decide(one, Terms(q=one.p)).word in ("gain", "loss") for one in pooled) / runs
    assert held > 0.94 and called < 0.03


def test_single_lost_trials_take_no_rounds_from_the_pooled_figure():
    """Only rounds that all cells had were used: two of six, if four had a missing trial."""
    cells = [
        {number: 0.1 + number / 100 for number in range(6) if number != cell % 4}
        for cell in range(8)
    ]
    pooled = c.over_cells(cells)
    assert (pooled.rounds, pooled.df) == (5, pytest.approx(5, abs=0.2))
    assert c.over_cells([{0: 0.1}, {1: 0.2}]).low is None


@pytest.mark.parametrize("common", [0.0, 0.05])
@pytest.mark.parametrize("loss", [0.1, 0.4])
def test_pooled_intervals_hold_when_trials_are_lost_at_random(common, loss):
    """Twelve cells; their own error is 5 %, plus an error that a round has in common."""
    rng, found = random.Random(8), []
    for _ in range(800):
        rounds = [rng.gauss(0, common) for _ in range(5)]
        found.append(c.over_cells([
            {n: one + rng.gauss(0, 0.05) for n, one in enumerate(rounds) if rng.random() >= loss}
            for _ in range(12)
        ]))  # fmt: skip
    held = sum(one.low <= 0 <= one.high for one in found) / len(found)
    false = sum(decide(one, Terms(q=one.p)).word in ("gain", "loss") for one in found) / len(found)
    assert held > 0.93 and false < 0.035


def test_a_slowdown_that_no_cell_can_decide_is_seen_over_all_of_them():
    rng = random.Random(11)
    pairs = [[rng.gauss(-0.08, 0.12) for _ in range(6)] for _ in range(18)]
    found = c.compare(pairs)
    qs = c.benjamini_hochberg([one.p for one in found])
    words = [decide(one, Terms(q=q)).word for one, q in zip(found, qs, strict=True)]
    assert words.count("not decided") > 12
    pooled = pooled_over(pairs)
    assert decide(pooled, Terms(q=pooled.p)).word == "loss"


def test_benjamini_hochberg_golden():
    qs = c.benjamini_hochberg([0.01, 0.04, 0.03, 0.005])
    assert qs == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert c.benjamini_hochberg([]) == []


@given(st.lists(st.floats(0.0001, 1.0), min_size=1, max_size=20))
def test_q_is_at_least_p_and_keeps_the_order(ps):
    qs = c.benjamini_hochberg(ps)
    assert all(p - 1e-12 <= q <= 1 for p, q in zip(ps, qs, strict=True))
    pairs = sorted(zip(ps, qs, strict=True))
    assert all(a[1] <= b[1] + 1e-12 for a, b in pairwise(pairs))


def test_geometric_mean_of_a_doubling_and_a_halving_is_one():
    assert c.geometric_mean([2.0, 0.5]) == pytest.approx(1.0)


def test_rank_correlation_golden():
    assert c.rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert c.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert c.rank_correlation([1, 2, 2, 4], [1, 3, 2, 4]) == pytest.approx(0.9486833)
    assert c.rank_correlation([1, 2], [1, 2]) is None
    assert c.rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_floor_is_zero_for_still_rounds_and_exact_for_uneven_halves():
    assert c.noise_floor([dict.fromkeys(range(6), 10.0)]) == 0
    assert c.noise_floor([{1: 1.0, 2: 2.0}]) is None
    # With five rounds the halves are means of 3 and 2; over many cells the floor is the spread
    # of the difference of two whole cells, sigma * sqrt(2/5).
    rng = random.Random(1)
    cells = [{n: math.exp(rng.gauss(0, 0.1)) for n in range(5)} for _ in range(4000)]
    assert math.log1p(c.noise_floor(cells)) == pytest.approx(0.1 * math.sqrt(2 / 5), rel=0.04)


def found(gain, low, high, n=5):
    return c.Comparison(gain, low, high, 0.008, n, 0.02, n - 1)


@pytest.mark.parametrize(
    ("comparison", "terms", "word"),
    [
        (found(0.30, 0.25, 0.35), {}, "gain"),
        (found(-0.30, -0.35, -0.25), {}, "loss"),
        (found(-0.30, -0.35, -0.25), {"better": "lower"}, "gain"),
        (found(0.30, 0.25, 0.35), {"better": "lower"}, "loss"),
        (found(0.001, -0.01, 0.015), {}, "no difference"),
        (found(0.10, -0.05, 0.25), {}, "not decided"),
        (found(0.30, 0.25, 0.35), {"q": 0.2}, "not decided"),
        (found(0.015, 0.005, 0.03), {}, "not decided"),
        # The baseline lost a fifth more: of 30 % are left 4 %, of 15 % nothing.
        (found(0.30, 0.27, 0.35), {"interference": -0.2}, "gain"),
        (found(0.30, 0.20, 0.35), {"interference": -0.2}, "not decided"),
        (found(0.15, 0.12, 0.18), {"interference": -0.2}, "not decided"),
        (found(9.0, 8.0, 10.0), {"interference": -1.0}, "not decided"),
        # The contender lost a fifth more: its gain is at least what it shows, its loss is not.
        (found(0.15, 0.12, 0.18), {"interference": 0.2}, "gain"),
        (found(-0.30, -0.35, -0.25), {"interference": 0.2}, "loss"),
        (found(-0.30, -0.35, -0.25), {"interference": 1.0}, "not decided"),
        (found(-0.15, -0.18, -0.12), {"interference": 0.2}, "not decided"),
        (found(-0.15, -0.18, -0.12), {"interference": -0.2}, "loss"),
        (found(0.001, -0.01, 0.015), {"interference": 0.05}, "not decided"),
        (found(0.30, 0.25, 0.35), {"withheld": "drift"}, "not comparable"),
        # A limited cell already shows more: that much is sure. Less proves nothing.
        (found(0.30, 0.25, 0.35), {"withheld": "client", "bound": "≥"}, "gain"),
        (found(-0.30, -0.35, -0.25), {"withheld": "client", "bound": "≥"}, "not comparable"),
        (found(-0.30, -0.35, -0.25), {"withheld": "client", "bound": "≤"}, "loss"),
        (found(0.30, 0.25, 0.35), {"withheld": "client", "bound": "≤"}, "not comparable"),
        (None, {}, "not decided"),
    ],
)
def test_verdicts(comparison, terms, word):
    verdict = decide(comparison, Terms(**terms))
    assert verdict.word == word
    assert verdict.bound == terms.get("bound", "")


@pytest.mark.parametrize(
    ("row", "q"),
    [
        ([0.02, 0.16, 0.10, 0.18, 0.04], 0.0),
        ([0.05, 0.12, 0.10, 0.14, 0.09], 0.5),  # its p is small, among many others not enough
        ([0.008, -0.03, 0.02, -0.024, 0.024], 1.0),
    ],
)
def test_as_many_rounds_as_are_promised_decide_at_the_next_look(row, q):
    (one,) = c.compare([row])
    q = max(q, one.p)
    more = decide(one, Terms(q=q)).more_rounds
    assert more

    def next_look(rounds):
        error = one.error * math.sqrt(5 / (5 + rounds))
        df, t = one.df + rounds, math.log1p(one.gain) / error
        reach = student.critical(df, 0.05) * error
        ends = (math.expm1(math.log1p(one.gain) + side * reach) for side in (-1, 1))
        p = student.two_sided_p(t, df)
        later = c.Comparison(one.gain, *ends, p, 5 + rounds, error, df)
        return decide(later, Terms(q=p * q / one.p, spending=Spending(2))).word

    assert next_look(more) != "not decided" and next_look(more - 1) == "not decided"


def test_no_number_of_rounds_is_promised_against_interference():
    (one,) = c.compare([[0.05, 0.052, 0.048, 0.051, 0.049]])
    verdict = decide(one, Terms(q=one.p, interference=-0.08))
    assert "interference" in verdict.reason and verdict.more_rounds is None
    (wild,) = c.compare([[0.6, -0.5, 0.4, -0.45, 0.1]])
    assert decide(wild, Terms(q=wild.p)).more_rounds is None


@pytest.mark.parametrize(("most", "says"), [(16, None), (20, None), (40, 15)])
def test_no_more_rounds_are_promised_than_the_run_may_have(most, says):
    """Rounds that `--add-rounds` refuses were advised at the end of a run until decided."""
    one = of_error(0.03, 0.014, 15, 16)
    spending = Spending(2, True, (8, 16), most)
    verdict = decide(one, Terms(q=one.p, spending=spending))
    assert (verdict.word, verdict.more_rounds) == ("not decided", says)


def of_error(gain, error, df, rounds):
    reach = student.critical(df, 0.05) * error
    ends = (math.expm1(math.log1p(gain) + side * reach) for side in (-1, 1))
    p = student.two_sided_p(math.log1p(gain) / error, df)
    return c.Comparison(gain, *ends, p, rounds, error, df)


def test_as_many_rounds_are_promised_where_some_had_no_figure():
    """They counted as rounds that the next analysis would not have, which then had no share."""
    one = of_error(0.03, 0.014, 11, 12)
    more = decide(one, Terms(q=one.p, spending=Spending(2, True, (8, 16), 40))).more_rounds
    assert more

    def next_look(rounds):
        error = one.error * math.sqrt(12 / (12 + rounds))
        later = of_error(0.03, error, one.df + rounds, 12 + rounds)
        spending = Spending(3, True, (8, 16, 16 + rounds), 40)
        return decide(later, Terms(q=later.p, spending=spending)).word

    assert next_look(more) == "gain" and next_look(more - 1) == "not decided"


def test_missing_rounds_are_promised_only_where_the_run_may_have_them():
    (one,) = c.compare([[0.05]])
    assert decide(one, Terms(spending=Spending(1, True, (1,), 2))).more_rounds is None
    assert decide(one, Terms(spending=Spending(1, True, (1,), 4))).more_rounds == 2


def test_each_analysis_spends_its_share_of_the_chance_of_an_error():
    clear = found(0.30, 0.25, 0.35)  # p 0.008
    assert decide(clear, Terms(q=0.01)).word == "gain"
    assert decide(clear, Terms(q=0.01, spending=Spending(1, True))).word == "gain"
    assert decide(clear, Terms(q=0.01, spending=Spending(2))).word == "not decided"
    assert sum(Spending(n, True).share for n in range(1, 5)) <= 1
    even = found(0.0, -0.017, 0.017)
    assert decide(even, Terms(q=1.0)).word == "no difference"
    assert decide(even, Terms(q=1.0, spending=Spending(3))).word == "not decided"


def test_interim_analyses_spend_little_at_first_and_all_of_it_together():
    """O'Brien and Fleming's function at 2 %: 2 - 2 Φ(2.3263 / √t), by erfc."""
    assert spending.spent(0.5) * c.P_MAX == pytest.approx(0.00100204, rel=1e-5)
    assert spending.spent(0.75) * c.P_MAX == pytest.approx(0.00722622, rel=1e-5)
    at = (5, 8, 13, 20)
    shares = [Spending(n, True, at[:n], 20).share for n in range(1, 5)]
    assert sum(shares) == pytest.approx(1) and shares[-1] > 0.6
    assert Spending(4, True, (*at, 25), 20).share == 0, "beyond the plan nothing is left"


@pytest.mark.parametrize(
    ("at", "rounds_max"), [((3,), 2000), ((3,), 50), ((3,), 20), ((12, 15), 12), ((12, 15, 18), 12)]
)
def test_an_analysis_that_may_spend_next_to_nothing_decides_nothing(at, rounds_max):
    """The first of a run that may go on for hours, and rounds added after the last."""
    spent = Spending(len(at), True, at, rounds_max)
    for row in ([0.4, 0.41, 0.42], [0.0, 0.001, -0.001], [0.5, 0.53, 0.54]):
        (one,) = c.compare([row])
        verdict = decide(one, Terms(q=one.p, spending=spent))
        low, high = interval_at(one, spent.share)
        assert verdict.word == "not decided" and verdict.reason
        assert -1 < low < one.low <= one.high < high < 1e7


def test_an_interval_that_was_loosened_counts_at_the_level_of_the_interim_analysis():
    """Its p is of the figures alone: with what saturation leaves open, the interval decides."""
    loose = c.Comparison(0.30, 0.01, 0.66, 1e-6, 5, 0.02, 4)
    assert decide(loose, Terms(q=1e-6)).word == "gain"
    verdict = decide(loose, Terms(q=1e-6, spending=Spending(2)))
    assert interval_at(loose, Spending(2).share)[0] < 0
    assert (verdict.word, verdict.reason) == ("not decided", "the interval contains 0")


@pytest.mark.parametrize("rounds_max", [0, 14, 40])
def test_a_run_that_goes_on_until_it_is_decided_errs_no_more_often_than_one_analysis(rounds_max):
    dice, runs, called = random.Random(9), 1000, 0
    for _ in range(runs):
        row = [dice.gauss(0, 0.04) for _ in range(5)]
        at = []
        for look in range(1, 5):
            at.append(len(row))
            (one,) = c.compare([row])
            spent = Spending(look, True, tuple(at), rounds_max)
            if decide(one, Terms(q=one.p, spending=spent)).word in ("gain", "loss"):
                called += 1
                break
            row += [dice.gauss(0, 0.04) for _ in range(3)]
    assert called / runs <= c.P_MAX


@given(ratios)
def test_a_single_comparison_errs_in_no_more_than_its_share(row):
    """p above 2 % gives no verdict, however small q."""
    (one,) = c.compare([row])
    if one.p > c.P_MAX:
        assert decide(one, Terms(q=0.0)).word in ("not decided", "no difference")


def test_rounds_follow_from_the_number_of_comparisons_and_the_noise():
    assert rounds.planned(0) == rounds.ROUNDS_PLAIN
    assert rounds.planned(288) > rounds.planned(12)
    assert rounds.planned(12, 0.04) > rounds.planned(12, 0.015)
    # A machine this noisy cannot show 3 % in any number of rounds that somebody would wait for.
    assert rounds.needed(0.03, 0.5, 1, 12, 0.3) is None


def test_rounds_follow_from_what_former_runs_on_this_machine_showed():
    """They were planned for trials that differ by 1.5 %, on a guest where they differ by 15 %."""
    quiet = rounds.planned(12)
    assert rounds.planned_here(12, None) == rounds.planned_here(12, 0.001) == quiet
    assert quiet < rounds.planned_here(12, 0.02) <= rounds.GROWTH_MAX * quiet
    assert rounds.planned_here(12, 0.15) == rounds.GROWTH_MAX * quiet, "and no more"
