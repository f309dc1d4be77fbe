"""Cells, tables and verdicts of whole made-up runs."""

from __future__ import annotations

import dataclasses
import json
import random

import pytest
from report.make_run import Kind, make_run, netty, nginx, quickstart, zuul

from wirespeed.analysis import comparisons, diagnosis, gate, sheets, summary, two_runs
from wirespeed.analysis.verdict import Terms, decide
from wirespeed.report import wording
from wirespeed.results import store
from wirespeed.results.model import Run
from wirespeed.stats import comparison


def load(kind, tmp_path, **changes):
    return summary.load(make_run(dataclasses.replace(kind, **changes), tmp_path))


def small(rate, **changes) -> Kind:
    """Two stacks over three counts of connections."""
    table = {"rows": "connections", "columns": "stack", "value": "rps", "gain": {"over": "kernel"}}
    axes = {"connections": [10, 100, 1000], "stack": ["kernel", "balanced"]}
    return dataclasses.replace(Kind("small", "Small", axes, [table], rate), **changes)


def words(found):
    return {gain.verdict.word for gain in found.gains}


def test_every_cell_of_the_plan_is_there_with_its_state(tmp_path):
    found = load(netty(), tmp_path)
    assert len(found.cells) == 6 * 11 * 3
    states = {cell.state for cell in found.cells}
    assert states == {"measured", "not-runnable", "does-not-fit", "thinned"}
    assert all(cell.reason for cell in found.unmeasured)
    assert len(found.sheets) == 6
    assert all(len(sheet.cells) == 33 for sheet in found.sheets)


def test_rows_and_columns_keep_the_recipes_order(tmp_path):
    sheet = load(netty(), tmp_path).sheets[0]
    assert [row[0] for row in sheet.rows] == [1, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40]
    assert sheet.columns == ("kernel", "balanced", "performance")
    assert sheet.title == "Loopback with 16 byte payload"


def test_invalid_trials_are_kept_and_count_nowhere(tmp_path):
    found = load(quickstart(), tmp_path)
    assert len(found.invalid) == 5
    assert len(found.valid) == 155
    cell = next(cell for cell in found.cells if cell.invalid)
    assert len(cell.values("rps")) == 5 - len(cell.invalid)


def test_a_clear_difference_is_a_gain_and_the_other_way_round_a_loss(tmp_path):
    faster = load(small(lambda a: 1000 * (1.5 if a["stack"] == "balanced" else 1)), tmp_path / "a")
    slower = load(small(lambda a: 1000 * (0.6 if a["stack"] == "balanced" else 1)), tmp_path / "b")
    assert words(faster) == {"gain"}
    assert words(slower) == {"loss"}


def test_the_same_stack_under_two_names_is_never_a_gain(tmp_path):
    for seed in range(20):
        kind = small(lambda a: 1000.0, noise=0.05)
        found = summary.load(make_run(kind, tmp_path / str(seed), seed))
        # 3 comparisons a run at a level of 96.8 %: the floor and q keep out most chance finds
        assert sum(gain.verdict.word in ("gain", "loss") for gain in found.gains) <= 1


def test_still_trials_show_no_difference(tmp_path):
    found = load(small(lambda a: 1000.0, noise=0.002), tmp_path)
    assert words(found) == {"no difference"}


def test_blocked_order_withholds_every_verdict(tmp_path):
    found = load(nginx(), tmp_path)
    assert words(found) == {"not comparable"}
    assert "blocks" in found.gains[0].verdict.reason
    assert all(family.mean is None for family in found.families)


def test_a_client_at_its_limit_makes_the_gain_a_lower_bound(tmp_path):
    found = load(quickstart(), tmp_path)
    held = [gain for gain in found.gains if gain.cell.bottleneck == "client"]
    assert held
    assert {gain.verdict.word for gain in held if gain.metric == "rps"} == {"gain"}
    assert {gain.verdict.bound for gain in held if gain.metric == "rps"} == {"≥"}


def test_a_baseline_held_by_the_client_makes_the_gain_an_upper_bound(tmp_path):
    held = small(
        lambda a: 1500.0 if a["stack"] == "balanced" else 1000.0,
        bottleneck=lambda a: "client" if a["stack"] == "kernel" else "server",
    )
    assert {gain.verdict.bound for gain in load(held, tmp_path).gains} == {"≤"}


def test_free_idle_states_withhold_cells_with_few_connections(tmp_path):
    kind = small(lambda a: 1500.0 if a["stack"] == "balanced" else 1000.0)
    axes = {"connections": [1, 100], "stack": ["kernel", "balanced"]}
    found = load(kind, tmp_path, axes=axes, idle_held=False)
    by_connections = {gain.cell.axes["connections"]: gain.verdict.word for gain in found.gains}
    assert by_connections == {1: "not comparable", 100: "gain"}
    assert not gate.broken(found, gate.Criteria(("loss",)))
    slower = load(small(lambda a: 600.0 if a["stack"] == "balanced" else 1000.0),
                  tmp_path / "slower", axes=axes, idle_held=False)  # fmt: skip
    few = next(x for x in gate.broken(slower, gate.Criteria(("loss",))) if "connections 1," in x)
    assert "few connections a core" in few


def test_three_rounds_decide_what_is_obvious(tmp_path):
    found = load(zuul(), tmp_path)
    assert {gain.over for gain in found.gains} == {"tomcat"}
    obvious = [gain for gain in found.gains if gain.contender == "netty" and gain.metric == "rps"]
    assert obvious and {gain.verdict.word for gain in obvious} == {"gain"}
    two = load(zuul(), tmp_path / "two", repeat=2)
    assert words(two) == {"not decided"}


def test_scaling_is_measured_against_the_smallest_count(tmp_path):
    found = load(netty(), tmp_path)
    efficiency = summary.scaling(found.sheets[0], "kernel", "rps")
    assert efficiency[(1,)] == pytest.approx(1)
    assert efficiency[(4,)] == pytest.approx(2**0.9 / 4, rel=0.05)
    assert summary.scaling(load(quickstart(), tmp_path).sheets[0], "kernel", "rps") == {}


def test_workers_without_a_number_have_no_scaling(tmp_path):
    """A recipe with NGINX's own `worker_processes auto` next to numbers had no report."""
    table = {"rows": "workers", "columns": "stack", "value": "rps"}
    axes = {"workers": ["auto", 0, 1, 2], "stack": ["kernel"]}
    kind = Kind("small", "Small", axes, [table], lambda a: 900.0 if a["workers"] == 2 else 600.0)
    efficiency = summary.scaling(load(kind, tmp_path, noise=0.0).sheets[0], "kernel", "rps")
    assert efficiency == {(1,): pytest.approx(1), (2,): pytest.approx(0.75)}


def test_an_axis_that_a_table_forgot_splits_it(tmp_path):
    kind = small(lambda a: 1000.0 + a["payload"])
    axes = {"payload": [1, 2], **kind.axes}
    found = load(kind, tmp_path, axes=axes)
    assert [sheet.fixed for sheet in found.sheets] == [{"payload": 1}, {"payload": 2}]


def test_a_run_that_was_cut_short_shows_what_is_missing(tmp_path):
    run = make_run(small(lambda a: 1000.0), tmp_path)
    _, *others = sorted((run / "trials").iterdir())
    for folder in others:
        (folder / "trial.json").unlink()
    found = summary.load(run)
    assert len(found.measured) == 1
    assert {cell.state for cell in found.unmeasured} == {"not measured yet"}
    (told,) = (one for one in diagnosis.of_run(found) if one.what == "not measured yet")
    assert told.remedy.endswith(f"run --resume {found.run.run_id}"), "a command to copy"


def test_a_run_without_trials_or_tables_is_still_summarized(tmp_path):
    run = make_run(small(lambda a: 1000.0, tables=[], repeat=0), tmp_path)
    found = summary.load(run)
    assert (found.sheets, found.gains, found.floors) == ((), (), {"rps": None, "latency": None})
    assert found.families == ()


@pytest.mark.parametrize("limit", ["client", "link", "unknown", "concurrency"])
def test_only_a_server_at_its_limit_has_an_unqualified_gain(limit, tmp_path):
    """A contender with another bottleneck has at least this gain."""

    def judged(name, rate, held):
        kind = small(rate, bottleneck=lambda a: limit if a["stack"] in held else "server")
        found = load(kind, tmp_path / name)
        return {(gain.verdict.word, gain.verdict.bound) for gain in found.gains}

    def faster(a):
        return 1500.0 if a["stack"] == "balanced" else 1000.0

    def slower(a):
        return 600.0 if a["stack"] == "balanced" else 1000.0

    assert judged("a", faster, ["balanced"]) == {("gain", "≥")}
    assert judged("d", slower, ["kernel"]) == {("loss", "≤")}
    if limit == "concurrency":
        return
    assert judged("b", slower, ["balanced"]) == {("not comparable", "≥")}
    assert judged("c", faster, ["kernel"]) == {("not comparable", "≤")}
    assert judged("e", faster, ["kernel", "balanced"]) == {("not comparable", "")}


def one_pair(limits, rates, tmp_path, **marks):
    """The verdict on requests/s of a contender whose trials have these marks."""
    places = {"balanced": 0, "kernel": 1}
    kind = small(lambda a: rates[places[a["stack"]]],
                 bottleneck=lambda a: limits[places[a["stack"]]])  # fmt: skip
    run = make_run(dataclasses.replace(kind, axes={"connections": [100], **STACKS}), tmp_path)

    def mark(trial):
        if trial["axes"]["stack"] == "balanced":
            trial["metrics"] |= marks.get("metrics", {})
            trial["notes"] = marks.get("notes", [])

    edit_trials(run, mark)
    found = summary.load(run)
    return {gain.metric: gain.verdict for gain in found.gains}, found


STACKS = {"stack": ["kernel", "balanced"]}


@pytest.mark.parametrize("limit", ["client", "link", "unknown"])
def test_what_is_known_at_its_connections_makes_a_bound_of_the_other_side(limit, tmp_path):
    """A baseline that waited has its rate at so many connections, and a contender that its
    generator held back has at least its own: that was "not comparable"."""

    def said(name, limits, rates):
        verdicts, found = one_pair(limits, rates, tmp_path / name)
        family = next(one for one in found.families if one.metric == "rps")
        rates = verdicts["rps"], family.verdict
        assert len({(one.word, one.bound, one.scope) for one in rates}) == 1
        return rates[0].word, rates[0].bound, rates[0].scope

    waits = "concurrency"
    assert said("a", (limit, waits), (1500.0, 1000.0)) == ("gain", "≥", "latency-bound")
    assert said("b", (waits, limit), (600.0, 1000.0)) == ("loss", "≤", "latency-bound")
    assert said("c", (limit, waits), (600.0, 1000.0))[0] == "not comparable"
    assert said("d", (waits, limit), (1500.0, 1000.0))[0] == "not comparable"


@pytest.mark.parametrize("limit", ["client", "unknown"])
def test_a_pooled_bound_keeps_the_scope_of_cells_that_show_nothing_alone(limit, tmp_path):
    """With too few pairs to be sure in any cell the pooled figure was a gain of the server's limit,
    or of a part of the cells, where all of them are known at their number of connections only."""
    factors = [0.97, 1.03, 1.05, 1.07, 1.12]
    kind = small(
        lambda axes: 1000.0, axes={"connections": [100, 200, 400, 800], **STACKS},
        bottleneck=lambda axes: limit if axes["stack"] == "balanced" else "concurrency",
    )  # fmt: skip
    run = make_run(kind, tmp_path)

    def spread(trial):
        cell = kind.axes["connections"].index(trial["axes"]["connections"])
        factor = factors[(trial["round"] + cell) % 5]
        trial["metrics"]["rps"] = 1000 * (factor if trial["axes"]["stack"] == "balanced" else 1)

    edit_trials(run, spread)
    found = summary.load(run)
    cells = [gain.verdict for gain in found.gains if gain.metric == "rps"]
    assert {(one.word, one.bound, one.scope) for one in cells} == {
        ("not comparable", "≥", "latency-bound")
    }
    (pooled,) = [family.verdict for family in found.families if family.metric == "rps"]
    assert (pooled.word, pooled.bound, pooled.scope) == ("gain", "≥", "latency-bound")


PARTLY_ALONE = {"notes": ["the generators ran together for 70% of their windows only"]}
LITTLE_OFF = {"metrics": {"little_residual": -0.6}}


@pytest.mark.parametrize(
    ("base", "marks", "word"),
    [
        ("server", {}, "gain"),
        ("server", LITTLE_OFF, "gain"),  # a rate of the server, whichever connections it served
        ("concurrency", LITTLE_OFF, "not comparable"),  # but not of this number of connections
        ("server", PARTLY_ALONE, "not comparable"),
        ("concurrency", PARTLY_ALONE, "not comparable"),
    ],
)
def test_an_unknown_limit_bounds_only_what_was_seen(base, marks, word, tmp_path):
    """Generators that ran one after the other had up to twice the rate of the server together, and
    that was a gain of at least so much."""
    verdicts, _ = one_pair(("unknown", base), (1500.0, 1000.0), tmp_path, **marks)
    assert verdicts["rps"].word == word


def test_a_latency_that_was_not_that_of_the_requests_bounds_nothing(tmp_path):
    """Queued outside the measured interval a contender had a lower latency: "≤ −99 % gain"."""
    table = {"rows": "connections", "columns": "stack", "value": "latency.p99",
             "gain": {"over": "kernel"}}  # fmt: skip
    kind = small(
        lambda a: 1500.0 if a["stack"] == "balanced" else 1000.0,
        tables=[table],
        bottleneck=lambda a: "unknown" if a["stack"] == "balanced" else "server",
    )

    def said(residual):
        run = make_run(kind, tmp_path / str(residual))

        def lower(trial):
            if trial["axes"]["stack"] == "balanced":
                trial["metrics"]["latency.p99"] /= 100
            trial["metrics"]["little_residual"] = residual

        edit_trials(run, lower)
        gains = summary.load(run).gains
        return {gain.verdict.word for gain in gains if gain.metric == "latency.p99"}

    assert said(0.0) == {"gain"}
    assert said(-0.9) == {"not comparable"}


@pytest.mark.parametrize(("of_waiting", "word"), [("balanced", "loss"), ("kernel", "gain")])
def test_a_server_that_waits_is_slower_than_one_that_works(of_waiting, word, tmp_path):
    """A contender that waited for a lock half of the time, with its core half idle, was "not
    comparable", and --fail-on loss passed."""
    kind = small(
        lambda a: 600.0 if a["stack"] == of_waiting else 1000.0,
        bottleneck=lambda a: "concurrency" if a["stack"] == of_waiting else "server",
    )
    found = load(kind, tmp_path)
    verdicts = {gain.verdict for gain in found.gains if gain.metric == "rps"}
    assert {(one.word, one.bound, one.scope) for one in verdicts} == {(word, "", "latency-bound")}
    assert all("too few connections" in one.reason for one in verdicts)
    assert bool(gate.broken(found, gate.Criteria(("loss",)))) == (word == "loss")


def test_a_server_that_waits_in_the_second_run_is_worse(tmp_path):
    def made(name, rate, limit):
        return load(small(lambda a: rate, bottleneck=lambda a: limit), tmp_path / name)

    first, waits = made("a", 1000.0, "server"), made("b", 600.0, "concurrency")
    found = two_runs.compare(first, waits, ["rps"])
    assert {one.word for one in found.differences} == {"worse"}
    assert {one.word for one in two_runs.compare(waits, first, ["rps"]).differences} == {"better"}


@pytest.mark.parametrize("held", [["kernel"], ["balanced"], ["kernel", "balanced"]])
@pytest.mark.parametrize(
    ("rate", "word"), [(3500.0, "gain"), (600.0, "loss"), (1040.0, "not decided")]
)
def test_a_server_that_was_saturated_is_known_although_the_generator_was_too(
    held, rate, word, tmp_path
):
    """Busy for 95 % of its time a server carries at most 1/0.95 of what was seen, so a gain of x3.5
    is certain; it was "not comparable"."""
    kind = small(
        lambda a: rate if a["stack"] == "balanced" else 1000.0,
        bottleneck=lambda a: "both" if a["stack"] in held else "server",
    )
    found = load(kind, tmp_path, noise=0.003)
    rates = [gain for gain in found.gains if gain.metric == "rps"]
    if rate == 1040.0 and held == ["balanced"]:
        word = "gain"  # it may be more, but no less
    assert {(one.verdict.word, one.verdict.bound) for one in rates} == {(word, "")}
    plain = load(small(kind.rate), tmp_path / "plain", noise=0.003)
    for one, other in zip(rates, plain.gains, strict=True):
        lower = 0.95 if "kernel" in held else 1.0
        higher = 0.95 if "balanced" in held else 1.0
        assert 1 + one.found.low == pytest.approx((1 + other.found.low) * lower)
        assert 1 + one.found.high == pytest.approx((1 + other.found.high) / higher)
    (family,) = [one for one in found.families if one.metric == "rps"]
    assert family.verdict.word == word and "saturated" in family.verdict.reason


def test_bounds_do_not_take_the_pooled_verdict_from_the_other_cells(tmp_path):
    """Bounds of both kinds made the pooled verdict of five certain gains "not comparable"."""

    def limit(a):
        at = {1: ("client", "server"), 2: ("server", "client")}
        return at.get(a["connections"], ("server", "server"))[a["stack"] == "balanced"]

    kind = small(lambda a: 1500.0 if a["stack"] == "balanced" else 1000.0, bottleneck=limit)
    axes = {"connections": [1, 2, 3, 4, 5], "stack": ["kernel", "balanced"]}
    (family,) = [one for one in load(kind, tmp_path, axes=axes).families if one.metric == "rps"]
    assert (family.verdict.word, family.verdict.bound) == ("gain", "")
    assert [gain.cell.axes["connections"] for gain in family.pooled] == [3, 4, 5]
    assert family.bounded == 2


def test_a_noise_floor_takes_no_verdict_from_pairs(tmp_path):
    """Drift that pairing removes came back with the unpaired floor of the baseline."""
    run = make_run(small(lambda a: 1200.0 if a["stack"] == "balanced" else 1000.0), tmp_path)

    def drift(trial):
        trial["metrics"]["rps"] *= 1.6 ** (trial["round"] % 2)

    edit_trials(run, drift)
    found = summary.load(run)
    assert found.floors["rps"] > 0.3 and words(found) == {"gain"}


def test_comparisons_of_which_nothing_may_be_claimed_do_not_count_among_the_others(tmp_path):
    """Twenty withheld gains of x5 turned a null with p 0.02 into one of 21 discoveries: q 0.02."""
    held = [number for number in range(20)]
    axes = {"connections": [*held, 100, 101], "stack": ["kernel", "balanced"]}

    def limit(a):
        return "unknown" if a["connections"] in held else "server"

    kind = small(
        lambda a: 5000.0 if a["stack"] == "balanced" and a["connections"] in held else 1000.0,
        bottleneck=limit,
    )
    found = load(kind, tmp_path, axes=axes)
    open_ = [gain for gain in found.gains if gain.cell.axes["connections"] >= 100]
    first, second = sorted(open_, key=lambda gain: gain.found.p)
    assert first.q == pytest.approx(min(2 * first.found.p, second.found.p))
    assert {gain.q for gain in found.gains if gain not in open_} == {1.0}


def test_pooled_verdicts_count_together():
    """Eight families of nulls had a pooled gain or loss in one of seven runs."""
    dice, called, runs = random.Random(4), 0, 300
    for _ in range(runs):
        pooled = [
            comparison.over_cells([{n: dice.gauss(0, 0.02) for n in range(5)} for _ in range(4)])
            for _ in range(8)
        ]
        terms = [Terms() for _ in pooled]
        each = zip(pooled, terms, comparisons.qs(pooled, terms), strict=True)
        called += any(decide(a, dataclasses.replace(b, q=q)).word in ("gain", "loss")
                      for a, b, q in each)  # fmt: skip
    assert called / runs <= 0.07, "5 % of 300 is 15; 21 has a chance of 6 %"


def test_rounds_with_a_figure_of_0_are_not_passed_over(tmp_path):
    """Two rounds of 0 vanished, and the rest had "gain -20.7 %, the interval excludes 0"."""
    run = make_run(small(lambda a: 800.0 if a["stack"] == "balanced" else 1000.0), tmp_path)

    def fall(trial):
        if trial["axes"]["stack"] == "balanced" and trial["round"] < 3:
            trial["metrics"]["rps"] = 0.0

    edit_trials(run, fall)
    found = summary.load(run)
    assert words(found) == {"not comparable"}
    assert "2 of its rounds have a figure of 0" in found.gains[0].verdict.reason


def test_the_interval_that_is_shown_is_that_of_the_interim_analysis(tmp_path):
    run = make_run(small(lambda a: 1200.0 if a["stack"] == "balanced" else 1000.0), tmp_path)
    plain = summary.load(run).gains[0].found
    data = json.loads((run / "run.json").read_text())
    data |= {"analysed_at": [5], "rounds_max": 20, "is_sequential": True}
    (run / "run.json").write_text(json.dumps(data))
    early = summary.load(run).gains[0].found
    assert early.low < plain.low < plain.high < early.high and early.gain == plain.gain


@pytest.mark.parametrize("word", ["loss", "gain"])
def test_a_verdict_stays_when_a_later_analysis_may_spend_less(word, tmp_path):
    """A loss with a chance of 1 %, judged at a quarter after rounds were added, opened the gate."""
    better = 0.97 if word == "loss" else 1.03
    kind = small(lambda a: 1000.0 * (better if a["stack"] == "balanced" else 1.0), noise=0.016)
    run = make_run(kind, tmp_path)
    first = summary.load(run)
    key = {comparisons.key_of(gain): gain.verdict.word for gain in first.gains}
    data = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(data | {"analyses": 2}))
    lost = [gain for gain in summary.load(run).gains if gain.verdict.word != word]
    lost = [gain for gain in lost if key[comparisons.key_of(gain)] == word]
    assert lost, "the later analysis decides less"
    stands = comparisons.decided(first.run, first.gains, first.families)
    (run / "run.json").write_text(json.dumps(data | {"analyses": 2, "decided": stands}))
    after = {comparisons.key_of(gain): gain for gain in summary.load(run).gains}
    for gain in lost:
        verdict = after[comparisons.key_of(gain)].verdict
        assert (verdict.word, verdict.decided_at) == (word, 5)
        assert verdict.reason.startswith("decided after 5 rounds; with all of them")
        assert wording.verdict_word(after[comparisons.key_of(gain)]) == f"{word} after 5 rounds"
    check = gate.Criteria(("loss",))
    assert bool(gate.broken(summary.load(run), check)) == (word == "loss")


def test_a_loss_stays_where_added_rounds_make_it_not_comparable(tmp_path):
    """With the load generator at its limit in most trials, the gate opened, and a third analysis
    did not know of the loss."""

    def made(name, limit):
        return make_run(
            small(
                lambda a: 1000.0 * (0.97 if a["stack"] == "balanced" else 1.0),
                noise=0.016,
                bottleneck=lambda a: limit if a["stack"] == "balanced" else "server",
            ),
            tmp_path / name,
        )

    def judged(run, **more):
        data = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps(data | {"analyses": 2} | more))
        return summary.load(run)

    first = summary.load(made("server", "server"))
    cells = comparisons.decided(first.run, first.gains, [])
    stands = [one for one in cells if one["word"] == "loss"]
    less = {comparisons.key_of(gain): gain.verdict.word for gain in judged(first.run_dir).gains}
    weak = {tuple(one["of"]) for one in stands if less[tuple(one["of"])] == "not decided"}
    assert weak, "the later analysis decides less"
    after = judged(made("client", "client"), decided=stands)
    assert {g.verdict.word for g in after.gains if comparisons.key_of(g) in weak} == {
        "not comparable"
    }
    assert weak <= {comparisons.key_of(gain) for gain, _ in gate.unjudged(after)}
    kept = comparisons.decided(after.run, after.gains, after.families)
    assert [one for one in kept if tuple(one["of"]) in weak] == [
        one for one in stands if tuple(one["of"]) in weak
    ]


def test_a_verdict_goes_when_all_rounds_say_something_else(tmp_path):
    kind = small(lambda a: 1010.0 if a["stack"] == "balanced" else 1000.0, noise=0.03)
    run = make_run(kind, tmp_path)
    (gain, *_) = [g for g in summary.load(run).gains if g.verdict.word == "not decided"]
    word = "loss" if gain.found.gain > 0 else "gain"
    stands = [{"of": comparisons.key_of(gain), "word": word, "bound": "", "rounds": 3}]
    data = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(data | {"decided": stands}))
    again = {comparisons.key_of(g): g.verdict.word for g in summary.load(run).gains}
    assert again[comparisons.key_of(gain)] == "not decided"


def test_too_few_connections_on_both_sides_compare_latency(tmp_path):
    kind = small(
        lambda a: 1500.0 if a["stack"] == "balanced" else 1000.0,
        bottleneck=lambda a: "concurrency",
    )
    found = load(kind, tmp_path)
    assert {gain.verdict.scope for gain in found.gains} == {"latency-bound"}
    assert words(found) == {"gain"}


@pytest.mark.parametrize("held", ["client", "concurrency", "server"])
def test_a_pooled_verdict_says_what_its_cells_say_of_their_limit(held, tmp_path):
    """One latency-bound cell among others, bounds or not, qualifies the pooled result."""

    def limit(a):
        if a["connections"] == 10:
            return "concurrency"
        return "server" if a["stack"] == "kernel" or a["connections"] == 100 else held

    kind = small(
        lambda a: 1500.0 if a["stack"] == "balanced" else 1000.0,
        bottleneck=lambda a: "concurrency" if held == "concurrency" else limit(a),
    )
    (family,) = [one for one in load(kind, tmp_path).families if one.metric == "rps"]
    scope = "latency-bound" if held == "concurrency" else "partly latency-bound"
    assert (family.verdict.word, family.verdict.bound) == ("gain", ""), "bounds are pooled apart"
    assert family.verdict.scope == scope


def test_every_verdict_on_latency_bound_cells_carries_its_scope(tmp_path):
    found = load(small(lambda a: 1000.0, bottleneck=lambda a: "concurrency"), tmp_path, noise=0.05)
    still = load(
        small(lambda a: 1000.0, bottleneck=lambda a: "concurrency"), tmp_path / "b", noise=0.002
    )
    assert "not decided" in words(found) and words(still) == {"no difference"}
    everything = [*found.gains, *found.families, *still.gains, *still.families]
    assert {one.verdict.scope for one in everything} == {"latency-bound"}


def test_savings_of_a_cost_are_gains_though_the_recipe_does_not_say_so(tmp_path):
    table = {
        "rows": "connections",
        "columns": "stack",
        "value": "server.cpu_us_per_request",
        "gain": {"over": "kernel"},
    }
    kind = small(lambda a: 1500.0 if a["stack"] == "balanced" else 1000.0)
    found = load(kind, tmp_path, tables=[table])
    assert {gain.better for gain in found.gains} == {"lower"}
    assert words(found) == {"gain"}
    assert found.floors["server.cpu_us_per_request"] > 0
    latency = {**table, "value": "latency.p99"}
    bare = [{"name": "latency", "from": "load", "combine": "histogram"}]
    found = load(kind, tmp_path / "latency", tables=[latency], metrics=bare)
    assert {gain.better for gain in found.gains} == {"lower"}
    assert words(found) == {"gain"}


def test_the_floor_of_a_percentile_is_its_own(tmp_path):
    table = {"rows": "connections", "columns": "stack", "value": "latency.p99",
             "gain": {"over": "kernel"}}  # fmt: skip
    found = load(small(lambda a: 1000.0), tmp_path, tables=[table])
    assert found.floors["latency.p99"] == pytest.approx(found.floors["rps"], rel=0.01)


def edit_trials(run, change):
    for path in run.glob("trials/*/trial.json"):
        trial = json.loads(path.read_text())
        change(trial)
        path.write_text(json.dumps(trial))


def test_work_per_request_is_judged_with_every_rate(tmp_path):
    """A contender that costs a fifth more CPU, at rates that too few connections decide."""
    run = make_run(small(lambda a: 1000.0, bottleneck=lambda a: "concurrency"), tmp_path)

    def cost(trial):
        wobble = 1 + 0.001 * (trial["position"] % 7)
        more = 1.2 if trial["axes"]["stack"] == "balanced" else 1.0
        trial["metrics"]["server.work_us_per_request"] = 50 * more * wobble

    edit_trials(run, cost)
    found = summary.load(run)
    work = [gain for gain in found.gains if gain.metric == "server.work_us_per_request"]
    assert {gain.verdict.word for gain in work} == {"loss"}
    assert {family.metric for family in found.families} == {"rps", "server.work_us_per_request"}


def test_instructions_per_request_are_judged_where_they_were_counted(tmp_path):
    """3 % fewer, at rates that the load generator limited."""
    run = make_run(small(lambda a: 1000.0, bottleneck=lambda a: "client"), tmp_path)

    def count(trial):
        wobble = 1 + 0.0001 * (trial["position"] % 7)
        less = 0.97 if trial["axes"]["stack"] == "balanced" else 1.0
        trial["metrics"]["server.instructions_per_request"] = 50_000 * less * wobble

    edit_trials(run, count)
    found = summary.load(run)
    gains = [g for g in found.gains if g.metric == "server.instructions_per_request"]
    assert gains and {gain.verdict.word for gain in gains} == {"gain"}
    assert {gain.better for gain in gains} == {"lower"}


def test_a_server_that_failed_is_a_result_and_not_compared(tmp_path):
    run = make_run(small(lambda a: 1500.0 if a["stack"] == "balanced" else 1000.0), tmp_path)

    def fail(trial):
        if trial["axes"] == {"connections": 10, "stack": "balanced"} and trial["round"] < 3:
            trial |= {"valid": False, "reasons": ["app-0 died"], "metrics": {}}

    edit_trials(run, fail)
    found = summary.load(run)
    by_connections = {g.cell.axes["connections"]: g.verdict for g in found.gains}
    assert by_connections[10].word == "not comparable"
    assert "failed 2 of 5 trials" in by_connections[10].reason
    assert by_connections[100].word == "gain"


def test_a_slow_host_counts_only_where_it_slowed_one_side_more(tmp_path):
    run = make_run(small(lambda a: 1200.0 if a["stack"] == "balanced" else 1000.0), tmp_path)
    edit_trials(run, lambda trial: trial.update(disturbed=0.4, slowed=0.4))
    assert words(summary.load(run)) == {"gain"}

    def one_side(trial):
        is_base = trial["axes"]["stack"] == "kernel"
        trial.update(disturbed=0.4 if is_base else 0.0, slowed=0.4 if is_base else 0.0)

    edit_trials(run, one_side)
    assert words(summary.load(run)) == {"not decided"}

    def both_but_one_more(trial):
        share = 0.30 if trial["axes"]["stack"] == "kernel" else 0.25
        trial.update(disturbed=share, slowed=0.0)

    edit_trials(run, both_but_one_more)
    assert words(summary.load(run)) == {"gain"}, "only the difference of the two sides counts"


def test_a_slow_host_that_changes_sides_falls_out_of_the_pooled_figure(tmp_path):
    """The bound was the mean of the cells' own, however many of them there were."""
    run = make_run(small(lambda a: 1200.0 if a["stack"] == "balanced" else 1000.0), tmp_path)

    def turns(trial):
        slow = "kernel" if trial["axes"]["connections"] == 10 else "balanced"
        share = 0.4 if trial["axes"]["stack"] == slow else 0.0
        trial.update(disturbed=share, slowed=share)

    edit_trials(run, turns)
    found = summary.load(run)
    by_connections = {g.cell.axes["connections"]: g.verdict.word for g in found.gains}
    assert by_connections == {10: "not decided", 100: "gain", 1000: "gain"}, (
        "a gain of the slowed side stands"
    )
    assert {one.verdict.word for one in found.families if one.metric == "rps"} == {"gain"}


def test_trials_survive_a_round_trip_through_the_store(tmp_path):
    run = make_run(small(lambda a: 1000.0), tmp_path)
    trial = store.read_trials(run)[0]
    store.write_trial(store.trial_dir(run, trial.position, trial.key), trial)
    assert store.read_trials(run)[0] == trial


def test_idle_states_of_a_run_that_went_on_are_those_of_its_trials(tmp_path):
    """A run that was stopped after its last trial and resumed had no trial in its last part, so
    all its cells with few connections were not comparable; nor had one that was cut off."""
    kind = small(lambda a: 1500.0 if a["stack"] == "balanced" else 1000.0, idle_held=False)
    run_dir = make_run(kind, tmp_path)
    run, plan = store.read_run(run_dir), store.read_plan(run_dir)
    trials = [dataclasses.replace(one, idle_held=True) for one in store.read_trials(run_dir)]
    assert summary.summarize(run_dir, run, plan, trials).run.idle_held
    trials[3] = dataclasses.replace(trials[3], idle_held=False)
    assert not summary.summarize(run_dir, run, plan, trials).run.idle_held
    older = store.read_trials(run_dir)
    assert not summary.summarize(run_dir, run, plan, older).run.idle_held
    held = dataclasses.replace(run, idle_held=True)
    assert summary.summarize(run_dir, held, plan, older).run.idle_held


@pytest.mark.parametrize(
    ("number", "title", "shown"),
    [
        (1, "{payload} bytes over {link}, {gone}", "16 bytes over Loopback, any gone"),
        (1, "{payload", "{payload"),
        (2, "{{ payload }} bytes over {{ link }}", "16 bytes over Loopback"),
        (2, "{{ axes['my-axis'] }} {x}", "any my-axis {x}"),
    ],
)
def test_a_title_is_filled_in_by_the_language_of_its_recipe(number, title, shown):
    run = Run("run", "r", recipe_format=number, axes={"payload": [16], "my-axis": [1]})
    assert sheets._titled(run, title, {"payload": 16}) == shown


@pytest.mark.parametrize(
    ("number", "title", "shown"),
    [
        (1, "{payload:,} bytes", "1,000 bytes"),
        (1, "{payload:1000000000}", None),
        (1, "{payload:{payload}}", None),
        (1, "{payload[0]}", None),
        (2, "{{ '{:,}'.format(payload) }} bytes over {{ link }}", "1,000 bytes over Loopback"),
        (2, "{{ '{:1000000000}'.format(payload) }}", None),
        (2, "{% for a in range(9) %}{% for b in range(9) %}x{% endfor %}{% endfor %}", None),
        (2, "{{ payload.x }}", None),
    ],
)
def test_a_title_of_another_ones_run_is_shown_as_it_stands_where_it_could_be_long(
    number, title, shown
):
    run = Run("run", "recipe", recipe_format=number, axes={"payload": [1000]})
    assert sheets._titled(run, title, {"payload": 1000}) == (shown or title)
