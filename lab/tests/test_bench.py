"""The benchmarks' own arithmetic: bounds of a share, and what sessions add up to."""

import importlib
import random
import sys
from pathlib import Path
from statistics import NormalDist

import pytest

from wirespeed.analysis.verdict import Terms, decide
from wirespeed.stats.comparison import Comparison
from wirespeed.stats.spending import Spending

BENCH = Path(__file__).parents[1] / "bench"


def script(name):
    sys.path.insert(0, str(BENCH))
    try:
        yield importlib.import_module(name)
    finally:
        sys.path.remove(str(BENCH))


@pytest.fixture(scope="module")
def duets():
    yield from script("duets")


@pytest.fixture(scope="module")
def verdicts():
    yield from script("verdicts")


@pytest.fixture(scope="module")
def power():
    yield from script("power")


def row(session, t, logs, percent=0.0, **changes):
    pairs = [{"ratios": {"server.work_us_per_request": log, "rps": -log}} for log in logs]
    machine = {"cpu_model": "X", "cores": 2, "kernel": "6.1"}
    plain = {"size": "compare", "pairs_of": 6, "seconds": 8.0, "rival": None, "machine": machine}
    return {"session": session, "t": t, "percent": percent, "pairs": pairs, **plain, **changes}


@pytest.mark.parametrize(
    ("hits", "tries", "low", "high"),
    [
        (0, 10, 0.0, 0.3085),
        (10, 10, 0.6915, 1.0),
        (3, 120, 0.0052, 0.0713),
        (5, 50, 0.0333, 0.2181),
    ],
)
def test_bounds_are_clopper_and_pearsons(duets, hits, tries, low, high):
    assert duets.bounds.interval(hits, tries) == pytest.approx((low, high), abs=1e-4)


def test_bounds_hold_as_often_as_they_promise(duets):
    dice, held = random.Random(4), 0
    for _ in range(300):
        hits = sum(dice.random() < 0.07 for _ in range(40))
        low, high = duets.bounds.interval(hits, 40)
        held += low <= 0.07 <= high
    assert held >= 0.93 * 300


@pytest.mark.parametrize(
    ("hits", "tries", "low", "high"),
    [(0, 0, 0.0, 1.0), (0, 10, 0.0, 0.2775), (8, 10, 0.4902, 0.9433), (10, 10, 0.7225, 1.0)],
)
def test_wilsons_interval_is_that_of_the_tables(duets, hits, tries, low, high):
    assert duets.bounds.wilson(hits, tries) == pytest.approx((low, high), abs=1e-4)


def test_the_comparisons_that_a_bound_still_needs(duets):
    assert duets.bounds.interval(0, 0) == (0.0, 1.0)
    more = duets.bounds.more_for_at_most(0, 20, 0.02)
    assert more == 183 - 20
    assert duets.bounds.interval(0, 20 + more)[1] <= 0.02 < duets.bounds.interval(0, 19 + more)[1]
    assert duets.bounds.more_for_at_most(0, 400, 0.02) == 0
    assert duets.bounds.more_for_at_most(50, 100, 0.0001) is None


def test_sessions_add_up_and_their_parts_are_shown(duets, tmp_path):
    same = [0.001, -0.001, 0.002, -0.002, 0.001, -0.001]
    off = [0.05 + log for log in same]
    rows = [row("a", 1, same), row("a", 2, off), row("b", 3, same)]
    text = "\n".join(duets.report(rows))
    assert "3 comparisons in 2 sessions" in text
    line = next(line for line in text.splitlines() if line.startswith("| 0 % | rps"))
    assert "| 3 | 1 false | 33.3% | 0.8% … 90.6% |" in line and line.endswith("| 1/2, 0/1 |")
    assert "is not shown yet" in text


def test_a_comparison_without_figures_counts_as_one_that_found_nothing(duets):
    rows = [row("a", 1, [0.05] * 6, percent=5.0), row("a", 2, [], percent=5.0)]
    line = next(line for line in duets.report(rows) if line.startswith("| 5 % | rps"))
    assert "| 2 | 1 found | 50.0% |" in line


def test_other_machines_sizes_and_rivals_do_not_add_up(duets):
    rows = [row("a", 1, [0.0] * 6), row("b", 2, [0.0] * 6, rival=0)]
    rows.append(row("c", 3, [0.0] * 5, size="init"))
    assert sum(line.startswith("## ") for line in duets.report(rows)) == 3


def test_the_share_that_is_found_is_said_with_its_number(duets):
    """Of either metric, as a run's gate sees it, and a comparison without a figure counts."""
    rows = [row("a", 1, [0.05] * 6, percent=5.0), row("b", 2, [], percent=5.0)]
    assert duets.shares(rows) == [
        "planted 5 %: found in 1 of 2 comparisons (50%; 95 % by Wilson: 9% … 91%), in 2 sessions"
    ]


def test_a_session_goes_on_with_what_was_tried_least(duets):
    rows = [row("a", 1, [0.0] * 6, percent=1.0), row("a", 2, [0.0] * 6, percent=2.0)]
    plain = {name: rows[0][name] for name in ("size", "pairs_of", "seconds", "rival", "machine")}
    assert duets.least_tried([1.0, 2.0, 3.0], plain, rows) == 3.0
    assert duets.least_tried([1.0, 2.0], plain, rows) == 1.0
    assert duets.least_tried([1.0, 2.0], {**plain, "rival": 0}, [*rows, *rows[:1]]) == 1.0
    assert duets.least_tried([1.0, 2.0], plain, [*rows, row("b", 3, [], percent=1.0)]) == 2.0


def test_a_line_that_was_cut_off_costs_no_other(duets, tmp_path):
    file = tmp_path / "rows"
    file.write_text(duets.json.dumps(row("a", 1, [0.0] * 6)) + '\n{"session": "a", "t"')
    assert len(duets.rows_of([file, tmp_path / "none"])) == 1


def test_a_file_that_was_added_to_another_counts_once(duets, tmp_path):
    files = [tmp_path / "one", tmp_path / "two"]
    line = duets.json.dumps(row("a", 1, [0.0] * 6)) + "\n"
    files[0].write_text(line)
    files[1].write_text(line + duets.json.dumps(row("a", 2, [0.0] * 6)) + "\n")
    assert len(duets.rows_of(files)) == 2


def test_sizes_are_the_shipped_ones(duets):
    found = duets.sizes()
    assert found["compare"] == (6, 8.0) and found["init"] == (5, 4.0)
    assert found["quickstart"] == (3, 1.0)
    assert found["3m"] == (20, 8.0)


@pytest.mark.parametrize("looks", [0, 1, 2, 3, 4])
def test_the_boundaries_of_the_table_are_those_of_the_verdicts(verdicts, looks):
    for size in verdicts.SIZES:
        rounds = verdicts.planned(size)
        at = [rounds * number for number in range(1, max(1, looks) + 1)]
        most = 4 * rounds if looks else 0
        spending = Spending(len(at), looks > 0, tuple(at) if looks else (), most)
        for bar, rivals in zip(verdicts.bars(size, at, most), (1, size), strict=True):
            for p, word in ((0.999 * bar, "gain"), (1.001 * bar, "not decided")):
                found = Comparison(0.5, 0.4, 0.6, p, at[-1], 0.01, 20.0)
                terms = Terms(q=min(1.0, p * rivals), spending=spending)
                assert decide(found, terms).word == word


METRICS = {"rps": "higher"}
SPREAD = 0.05  # between pairs; with 20 of them a cost of 4 % is found in about three of four


def pairs_of(dice, cost, count):
    return [{"rps": dice.gauss(-cost, SPREAD)} for _ in range(count)]


def find(power):
    return lambda drawn: power.is_found(drawn, 4.0, METRICS)


def test_the_estimate_from_recorded_pairs_is_the_share_that_is_found(power):
    """With the noise known: fresh comparisons find as many as are estimated, on average over
    sessions of 65 pairs, and the interval of a session holds the truth."""
    dice, cost, sessions = random.Random(7), 0.04, 10
    truth = sum(find(power)(pairs_of(dice, cost, 20)) for _ in range(300)) / 300
    assert 0.6 < truth < 0.95
    found = [
        power.estimate([pairs_of(dice, cost, 65)], 20, find(power), power.Draws(60, 30, 20), seed)
        for seed in range(sessions)
    ]
    assert sum(middle for middle, _, _ in found) / sessions == pytest.approx(truth, abs=0.15)
    assert sum(low <= truth <= high for _, low, high in found) >= 0.8 * sessions
    assert all(low < high for _, low, high in found)


def test_more_recorded_pairs_make_a_narrower_interval_and_more_draws_do_not(power):
    noise = NormalDist(-0.03, SPREAD)
    few, many = (
        [{"rps": noise.inv_cdf((number + 0.5) / count)} for number in range(count)]
        for count in (25, 400)
    )

    def width(recorded, drawn):
        _, low, high = power.estimate([recorded], 20, find(power), power.Draws(drawn, 40, 40))
        return high - low

    assert width(few, 200) > 1.3 * width(many, 50)
    assert width(few, 200) > 0.8 * width(few, 50)


def test_sessions_that_differ_are_drawn_as_a_whole(power):
    """Pairs of one session share a state of the machine; drawn one by one they hid it."""
    dice = random.Random(5)
    sessions = [pairs_of(dice, 0.06 * (number % 2), 20) for number in range(8)]
    whole = [[pair for session in sessions for pair in session]]
    apart = power.estimate(sessions, 20, find(power), power.Draws(50, 40, 25))
    together = power.estimate(whole, 20, find(power), power.Draws(50, 40, 25))
    assert apart[0] == pytest.approx(together[0], abs=0.2)
    assert apart[2] - apart[1] > together[2] - together[1]


def test_a_comparison_is_drawn_from_one_session_as_a_real_one_is_made(power):
    """Sessions that err by 6 % one way or the other: mixed, their pairs hid it."""
    dice = random.Random(6)
    sessions = [pairs_of(dice, 0.06 * (-1) ** number, 20) for number in range(8)]

    def wrong(recorded):
        return power.estimate(
            recorded, 20, lambda drawn: power.is_found(drawn, 0.0, METRICS),
            power.Draws(100, 20, 20), is_same=True,
        )[0]  # fmt: skip

    assert wrong(sessions) > 0.8
    assert wrong(sessions[:7]) < 0.3, "of so few sessions the pairs are one lot"
    assert wrong([*sessions[:7], sessions[7][:19]]) < 0.3, "and of one without enough pairs"
    assert wrong([*sessions, sessions[0][:2]]) > 0.8, "a short one is left out"


def test_a_server_with_itself_is_not_found_different_by_the_mean_of_its_recorded_pairs(power):
    """The mean of 40 pairs was 1.5 standard errors off, and drawn again in each comparison."""
    noise = NormalDist(1.5 * SPREAD / 40**0.5, SPREAD)
    recorded = [{"rps": noise.inv_cdf((number + 0.5) / 40)} for number in range(40)]
    shares = [
        power.estimate(
            [recorded], 20, lambda drawn: power.is_found(drawn, 0.0, METRICS),
            power.Draws(400, 20, 20), is_same=is_same,
        )[0]
        for is_same in (True, False)
    ]  # fmt: skip
    assert shares[0] <= 0.05 < shares[1], "2 % are allowed"


def test_pairs_next_to_each_other_are_those_of_any_share(power):
    """Shares take turns, so two of one share are as many pairs apart as there are shares."""
    dice, drift, session = random.Random(3), 0.0, []
    for number in range(400):
        drift = 0.8 * drift + dice.gauss(0, 0.01)
        percent = float(number % 6)
        session.append((percent, {"rps": drift - percent / 100}))
    (line,) = power.successive([session], "rps")
    assert float(line.split()[-1]) == pytest.approx(0.8, abs=0.1)
    assert power.successive([[(0.0, {})], []], "rps") == []
    failed = [(0.0, {"rps": 0.1}), (0.0, {}), (0.0, {"rps": 0.2})]
    assert power.successive([failed], "rps") == [], "none are next to each other"


def test_interim_analyses_are_those_of_a_run_until_it_is_decided(power):
    """A clear cost is found after the first pairs, and a server with itself called different by no
    more than a single analysis is allowed."""
    clear = [{"rps": -0.5 + 0.01 * (number % 3)} for number in range(6)] + [{"rps": 0.5}] * 14
    assert power.is_found_on_the_way(clear, 50.0, METRICS, "rps")
    assert not power.is_found(clear, 50.0, METRICS)
    dice, wrong = random.Random(9), 0
    for _ in range(400):
        wrong += power.is_found_on_the_way(pairs_of(dice, 0.0, 20), 0.0, METRICS, "rps")
    assert wrong / 400 <= 0.04, "2 % are allowed, and 17 of 400 have a chance of 0.3 %"


def test_pairs_count_as_pairs_and_comparisons_as_both(duets, power):
    """An estimate is never counted as repeats, and it takes the pairs of one comparison."""
    logs = [0.05, 0.06, 0.04]
    alone = [row("a", number, [logs[number % 3]], percent=5.0, size="pair", pairs_of=1)
             for number in range(14)]  # fmt: skip
    assert duets.report(alone) == []
    (line,) = [one for one in duets.estimated(alone, "3m") if one.startswith("planted")]
    assert line.endswith("14 recorded pairs in 1 session: too few, 6 more make one comparison")
    whole = row("b", 20, [0.05, 0.06, 0.04] * 2, percent=5.0)
    text = "\n".join(duets.estimated([*alone, whole], "3m", power.Draws(20, 20, 5)))
    assert "a comparison of 20 pairs of 8 s" in text and "20 recorded pairs in 2 sessions" in text
    assert "estimated to be found in one analysis by 100% of such comparisons" in text
    assert "bootstrap over pairs: 100% … 100%" in text
    assert duets.estimated([{**whole, "seconds": 4.0}], "3m") == [], "of another length"


def test_a_session_of_pairs_takes_the_shares_in_turns(duets):
    rows = [row("a", 1, [0.0], percent=0.0, size="pair", pairs_of=1)]
    names = ("size", "pairs_of", "seconds", "rival", "machine")
    plain = {name: rows[0][name] for name in names}
    assert duets.least_tried([0.0, 1.0, 2.0], plain, rows) == 1.0
    assert duets.least_tried([0.0, 1.0], plain, [*rows, row("b", 2, [0.0] * 6, 1.0)]) == 1.0


def test_an_estimate_is_part_of_the_time_of_its_session(duets):
    """It ran for two or three minutes more than `--for`."""
    assert duets.measuring_s(3600.0, 6) == 3600.0 - 6 * duets.ESTIMATE_S
    assert duets.measuring_s(60.0, 6) == 30.0, "half of a short one is for its pairs"


def test_the_pairs_of_a_session_go_on_for_a_share_of_its_time(duets, monkeypatch):
    offered = []

    def pair(_host, _works, _seconds, _seed, longer_s):
        offered.append(longer_s)
        return {"ratios": {}, "longer_s": min(longer_s, 4.0)}

    monkeypatch.setattr(duets, "pair", pair)
    time_budget = duets.TimeBudget(54.0, 54.0, 6)
    duets.compared(None, 0.0, 6, 8.0, time_budget)
    assert 0 < time_budget.longer_s <= duets.LONGER_SHARE * 54.0
    assert len(offered) == 6 and max(offered) < 4.0


@pytest.mark.parametrize("method", ["duet", "separate trials"])
def test_a_full_generator_or_link_makes_no_false_gain(verdicts, method):
    """Servers that are alike, with generators and links that are not, and limits that are not
    known: nothing is claimed beyond chance. Of servers that differ bounds are true, too."""
    same = verdicts.of_limits(400, method, 0.0)
    assert same["false"] <= 16, "2 % of 400 are 8; 17 have a chance of 0.4 %"
    assert same["false bound"] <= 8 and same["not comparable"] > 0
    differ = verdicts.of_limits(200, method, 4.0)
    assert differ["false"] <= 2 and differ["bound"] > 10
