"""Golden values, exact counts and properties of the comparison of two sets of trials."""

from __future__ import annotations

import math
from itertools import pairwise, permutations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wirespeed.results import statistics as s

# Computed once with scipy 1.17.1: stats.mannwhitneyu(xs, ys, method="exact").pvalue
SCIPY_P = [
    ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0], 0.007936507936507936),
    ([1.0, 3.0, 5.0, 7.0, 9.0], [2.0, 4.0, 6.0, 8.0, 10.0], 0.6904761904761905),
    ([1.1, 2.2, 5.5, 9.9], [3.3, 4.4, 6.6, 7.7, 8.8], 0.5555555555555556),
    ([10.0, 11.0, 12.0, 13.0], [1.0, 2.0, 3.0, 4.0], 0.02857142857142857),
    ([1.0, 2.0, 3.0, 8.0, 9.0, 10.0], [4.0, 5.0, 6.0, 7.0, 11.0, 12.0, 13.0], 0.23426573426573427),
]

# A busy machine must not fail a test: no time limits.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

trials = st.lists(st.floats(1.0, 1e6), min_size=4, max_size=8)


def test_counts_agree_with_every_order_written_out():
    for n, m in [(1, 1), (2, 3), (3, 3), (4, 2)]:
        seen = [0] * (n * m + 1)
        for order in set(permutations("x" * n + "y" * m)):
            u = sum(a == "x" and b == "y" for i, a in enumerate(order) for b in order[:i])
            seen[u] += 1
        assert s.mann_whitney_counts(n, m) == tuple(seen)


@pytest.mark.parametrize(("n", "m"), [(4, 4), (5, 5), (4, 7), (10, 6), (20, 20)])
def test_counts_sum_to_all_orders_and_are_symmetric(n, m):
    counts = s.mann_whitney_counts(n, m)
    assert sum(counts) == math.comb(n + m, n)
    assert counts == counts[::-1] == s.mann_whitney_counts(m, n)


def test_five_against_five_uses_the_third_and_the_twenty_third_ratio():
    xs, ys = [102.0, 110.0, 131.0, 140.0, 155.0], [91.0, 97.0, 100.0, 103.0, 119.0]
    found = s.compare(xs, ys)
    ratios = sorted(x / y for x in xs for y in ys)
    assert found.low == pytest.approx(ratios[2] - 1)
    assert found.high == pytest.approx(ratios[22] - 1)
    assert found.gain == pytest.approx(ratios[12] - 1)
    assert found.coverage == pytest.approx(0.968253968, abs=1e-9)


def test_four_against_four_covers_with_the_whole_range():
    found = s.compare([10.0, 11.0, 12.0, 13.0], [1.0, 2.0, 3.0, 4.0])
    assert found.coverage == pytest.approx(1 - 2 / 70)
    assert found.low == pytest.approx(10 / 4 - 1)
    assert found.high == pytest.approx(13 / 1 - 1)


def test_three_against_three_has_no_interval():
    found = s.compare([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert found.low is None
    assert found.coverage is None
    assert s.decide(found).word == "not decided"


@pytest.mark.parametrize(("xs", "ys", "p"), SCIPY_P)
def test_p_agrees_with_scipy(xs, ys, p):
    assert s.compare(xs, ys).p == pytest.approx(p)


def test_p_agrees_with_an_installed_scipy():
    stats = pytest.importorskip("scipy.stats")
    xs = [12.5, 18.1, 9.7, 22.4, 16.6, 30.2]
    ys = [11.1, 8.4, 13.9, 7.2, 19.3]
    oracle = stats.mannwhitneyu(xs, ys, method="exact").pvalue
    assert s.compare(xs, ys).p == pytest.approx(oracle)


@given(trials, trials)
def test_interval_holds_the_gain_and_keeps_its_coverage(xs, ys):
    found = s.compare(xs, ys)
    assert found.low <= found.gain <= found.high
    assert found.coverage >= s.CONFIDENCE
    assert 0 < found.p <= 1


@given(trials, trials)
def test_turning_the_sides_round_inverts_the_gain(xs, ys):
    a, b = s.compare(xs, ys), s.compare(ys, xs)
    assert (1 + a.gain) * (1 + b.gain) == pytest.approx(1)
    assert (1 + a.low) * (1 + b.high) == pytest.approx(1)
    assert a.p == pytest.approx(b.p)


@given(trials, trials, st.floats(0.01, 100))
def test_the_unit_does_not_change_the_gain(xs, ys, unit):
    a, b = s.compare(xs, ys), s.compare([x * unit for x in xs], [y * unit for y in ys])
    assert a.gain == pytest.approx(b.gain, abs=1e-9)


def test_a_value_of_zero_is_not_compared():
    assert s.compare([0.0, 1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0]) is None
    assert s.compare([], [1.0]) is None


def test_benjamini_hochberg_golden():
    qs = s.benjamini_hochberg([0.01, 0.04, 0.03, 0.005])
    assert qs == pytest.approx([0.02, 0.04, 0.04, 0.02])
    assert s.benjamini_hochberg([]) == []


@given(st.lists(st.floats(0.0001, 1.0), min_size=1, max_size=20))
def test_q_is_at_least_p_and_keeps_the_order(ps):
    qs = s.benjamini_hochberg(ps)
    assert all(p - 1e-12 <= q <= 1 for p, q in zip(ps, qs, strict=True))
    pairs = sorted(zip(ps, qs, strict=True))
    assert all(a[1] <= b[1] + 1e-12 for a, b in pairwise(pairs))


def test_geometric_mean_of_a_doubling_and_a_halving_is_one():
    assert s.geometric_mean([2.0, 0.5]) == pytest.approx(1.0)


def test_rank_correlation_golden():
    assert s.rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert s.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert s.rank_correlation([1, 2, 2, 4], [1, 3, 2, 4]) == pytest.approx(0.9486833)
    assert s.rank_correlation([1, 2], [1, 2]) is None
    assert s.rank_correlation([1, 1, 1], [1, 2, 3]) is None


def test_floor_is_zero_for_still_rounds_and_grows_with_the_spread():
    assert s.odd_even_floor([[10.0] * 6]) == 0
    assert s.odd_even_floor([[100.0, 110.0] * 5]) == pytest.approx(1.1**0.5**0.5 - 1)
    assert s.odd_even_floor([[1.0, 2.0]]) is None


def found(gain, low, high, n=5):
    return s.Comparison(gain, low, high, 0.968, 0.008, n, n)


@pytest.mark.parametrize(
    ("comparison", "options", "word"),
    [
        (found(0.30, 0.25, 0.35), {}, "gain"),
        (found(-0.30, -0.35, -0.25), {}, "loss"),
        (found(-0.30, -0.35, -0.25), {"better": "lower"}, "gain"),
        (found(0.30, 0.25, 0.35), {"better": "lower"}, "loss"),
        (found(0.001, -0.01, 0.015), {}, "no difference"),
        (found(0.10, -0.05, 0.25), {}, "not decided"),
        (found(0.30, 0.25, 0.35), {"floor": 0.4}, "not decided"),
        (found(0.30, 0.25, 0.35), {"q": 0.2}, "not decided"),
        (found(0.015, 0.005, 0.03), {}, "not decided"),
        # A side may have lost a fifth of its speed: 30 % is left 4 %, of 15 % nothing.
        (found(0.30, 0.27, 0.35), {"disturbed": 0.2}, "gain"),
        (found(0.30, 0.20, 0.35), {"disturbed": 0.2}, "not decided"),
        (found(0.15, 0.12, 0.18), {"disturbed": 0.2}, "not decided"),
        (found(-0.30, -0.35, -0.25), {"disturbed": 0.2}, "loss"),
        (found(-0.15, -0.18, -0.12), {"disturbed": 0.2}, "not decided"),
        (found(0.001, -0.01, 0.015), {"disturbed": 0.05}, "not decided"),
        (found(0.30, 0.25, 0.35), {"withheld": "the client was full"}, "not comparable"),
        (None, {}, "not decided"),
    ],
)
def test_verdicts(comparison, options, word):
    assert s.decide(comparison, **options).word == word


def test_an_undecided_gain_says_how_many_rounds_would_decide_it():
    # half the width is 0.15 and the gain 0.10: the width must shrink by 1.5, so 2.25 times
    # the five rounds there are
    verdict = s.decide(found(0.10, -0.05, 0.25))
    assert 5 <= verdict.more_rounds <= 9
    assert s.decide(found(0.03, -0.5, 0.9)).more_rounds is None


def test_a_bound_is_kept_with_the_verdict():
    assert s.decide(found(0.3, 0.2, 0.4), withheld="client", bound="≥").bound == "≥"


@given(trials)
def test_a_set_against_itself_is_never_a_gain(xs):
    verdict = s.decide(s.compare(xs, xs))
    assert verdict.word in ("no difference", "not decided")
