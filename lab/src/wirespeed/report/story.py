"""The sentences of a report, all of them generated: results, doubts, what was left out.

Losses stand next to gains, means go over all compared cells, and nothing is picked by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from wirespeed.analysis.comparisons import CPU_EXCL_POLLING, DUET
from wirespeed.analysis.summary import (
    LITTLE_RESIDUAL_MAX,
    SCALING_SUSPECT,
    Family,
    Gain,
    Summary,
    scaling,
)
from wirespeed.analysis.verdict import WORDS
from wirespeed.report import headroom, recipe_copy, wording
from wirespeed.stats.comparison import CONFIDENCE, PAIRS_MIN, median
from wirespeed.units import duration_for_people

PROVIDERS = {  # of a recipe's stacks
    "none": "the kernel's sockets", "bypass": "sockets of bypass", "onload": "sockets of Onload",
    "auto": "sockets of Onload where it is installed, else of bypass",
}  # fmt: skip
NOTES_MAX = 12  # kinds of remarks shown; all are in trials/*/trial.json
VERDICT_COUNTS = {
    "gain": ("gain", "gains"),
    "loss": ("loss", "losses"),
    "no difference": ("no difference", "no difference"),
    "not decided": ("not decided", "not decided"),
    "not comparable": ("not comparable", "not comparable"),
}


def headlines(summary: Summary) -> list[str]:
    """One line for each contender: `bypass against kernel: 6 of 10 faster, ×2.9 to ×10; highest
    284,218 requests/s against 56,778 at …; …`.

    A rate that cannot be decided does not hide what a request costs: server CPU per request is in
    the line of its contender, as capacity per core.
    """
    families: dict[tuple[str, str], list[Family]] = {}
    for family in summary.families:
        families.setdefault((family.contender, family.over), []).append(family)
    return [_headline(summary, *names, group) for names, group in families.items()]


def _headline(summary: Summary, contender: str, over: str, group: list[Family]) -> str:
    main = next((one for one in group if one.metric == summary.primary), group[0])
    parts = [_counted(main), _highest(summary, main)]
    cost = next((one for one in group if one.metric == CPU_EXCL_POLLING and one.found), None)
    if cost is not None and cost.found:
        parts.append(_capacity(cost) if cost is main else _cost(cost))
    return f"{contender} against {over}: {'; '.join(part for part in parts if part)}."


def _counted(family: Family) -> str:
    """`6 of 10 faster, ×2.90 to ×10.0; not decided in 4 of 10`, by the verdicts of the cells."""
    total, parts = len(family.gains), []
    is_rate = family.better == "higher"
    words = {"gain": "faster" if is_rate else "lower", "loss": "slower" if is_rate else "higher"}
    for word, shown in words.items():
        chosen = [gain for gain in family.gains if gain.verdict.word == word]
        sizes = sorted(gain.found.gain for gain in chosen if gain.found)
        if sizes:
            times = wording.in_times(sizes)
            ends = [wording.signed(size, times) for size in (sizes[0], sizes[-1])]
            reach = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
            parts.append(f"{len(chosen)} of {total} {shown}, {reach}")
    for word in ("no difference", "not decided"):
        if family.count(word):
            parts.append(f"{word} in {family.count(word)} of {total}")
    reasons = Counter(
        gain.verdict.reason for gain in family.gains if gain.verdict.word == "not comparable"
    )
    parts += [f"not comparable in {number} of {total} ({reason})"
              for reason, number in reasons.most_common(1)]  # fmt: skip
    if len(reasons) > 1:
        parts.append(f"in {sum(reasons.values()) - max(reasons.values())} for other reasons")
    metric = wording.measure(family.metric).label
    return f"{metric}: {'; '.join(parts)}"


def _highest(summary: Summary, family: Family) -> str:
    """The contender's best figure and the baseline's in the same place, to be quoted as they are:
    `highest 284,218 requests/s against 56,778 at connections 100`."""
    both = [
        (cell, base, gain)
        for gain in family.judged
        if (cell := gain.cell.median(gain.metric)) is not None
        and (base := gain.base.median(gain.metric)) is not None
    ]
    if not both:
        return ""
    is_rate = family.better == "higher"
    cell, base, gain = (max if is_rate else min)(both, key=lambda one: one[0])
    shown = wording.measure(family.metric, summary.unit(family.metric))
    ours, theirs = (
        wording.mark(side) + wording.number(value * shown.scale)
        for side, value in ((gain.cell, cell), (gain.base, base))
    )
    unit = shown.unit or (shown.label if shown.label.endswith("/s") else "")
    at = varying_place(summary, gain)
    return (
        f"{'highest' if is_rate else 'lowest'} {ours}{unit and ' ' + unit} against {theirs}"
        + (f" at {at}" if at else "")
        + (" (each without the other running)" if gain.method == DUET else "")
    )


def _cost(family: Family) -> str:
    """Capacity per core is the inverse of CPU per request, at whatever rate both ran."""
    assert family.found is not None
    saved = wording.signed(family.found.gain)
    cost_text = f"server CPU per request {saved} ({wording.verdict_word(family)})"
    return ", ".join(part for part in (cost_text, _capacity(family)) if part)


def _capacity(family: Family) -> str:
    """Empty where the difference may be none."""
    assert family.found is not None
    if family.verdict.word not in ("gain", "loss"):
        return ""
    return f"that is ×{1 / (1 + family.found.gain):.2f} requests per core"


def terms(summary: Summary) -> list[tuple[str, str]]:
    """Terms of the first screen and what they mean, for a reader who sees a report for the first
    time."""
    explained = [("cell", "one combination of axis values")]
    if summary.noisy:
        explained.append((wording.NOISY, "measured with interference, which verdicts allow for"))
    if summary.floors.get(summary.primary) is not None:
        floor = "how far the baseline's odd rounds are from its even ones"
        explained.append(("noise floor", floor))
    names = [name for one in summary.families for name in (one.contender, one.over)]
    stacks = {name: _stack(summary.run.stacks.get(name)) for name in names}
    return explained + [(name, meaning) for name, meaning in stacks.items() if meaning]


def _stack(stack: Mapping[str, Any] | None) -> str:
    """How a stack of the recipe opens its sockets; empty for another kind of contender."""
    if stack is None:
        return ""
    under = PROVIDERS.get(stack.get("provider", "none"), "")
    profile = str(stack.get("profile", ""))
    is_named = under and profile and "{" not in profile
    return f"{under}, profile {profile}" if is_named else under


def front(summary: Summary) -> list[str]:
    """The first paragraph of a report: each comparison, the noise, what was measured."""
    sentences = [comparison(summary, family) for family in summary.families]
    if not sentences:
        sentences = [_no_comparison(summary)]
    more = [duets(summary), _floor_sentence(summary), validity(summary), _conduct(summary)]
    return sentences + [sentence for sentence in more if sentence]


def comparison(summary: Summary, family: Family) -> str:
    """Pooled verdict, best, worst and the count of each verdict of one comparison."""
    name = f"{family.contender} against {family.over}"
    metric = wording.measure(family.metric).label
    if summary.run.plan.duet:
        metric += f" ({wording.methods(family.gains)})"
    judged = family.judged
    if not judged:
        reasons = Counter(gain.verdict.reason for gain in family.gains)
        return f"{name}, {metric}: not comparable; {reasons.most_common(1)[0][0]}."
    times = wording.in_times(gain.found.gain for gain in judged if gain.found)
    best = max(judged, key=merit)
    worst = min(judged, key=merit)
    if worst is best:
        return f"{name}, {metric}: {_where(summary, best, times)}. {_counts(family)}."
    parts = [_pooled(family, times), f"best {_where(summary, best, times)}"]
    parts.append(f"worst {_where(summary, worst, times)}")
    return f"{name}, {metric}: {'; '.join(part for part in parts if part)}. {_counts(family)}."


def _pooled(family: Family, times: bool) -> str:
    """The geometric mean over the cells, with its own verdict."""
    if family.found is None:
        return ""
    interval = wording.interval(family.found, times)
    spread = f" ({interval})" if interval else ""
    apart = f" ({wording.count(family.bounded, 'bound')} left out)" if family.bounded else ""
    return (
        f"geometric mean {wording.figure(family, times)}{spread} over {len(family.pooled)} cells"
        f"{apart}: {wording.verdict_word(family)}{wording.more_rounds(family)}"
    )


def duets(summary: Summary) -> str:
    """Where some duets have no figure: how many count, and why the others do not."""
    found = [
        trial.duet
        for cell in summary.cells
        for trial in (*cell.trials, *cell.invalid)
        if trial.duet is not None
    ]
    groups: dict[str, list[str]] = {}
    for one in found:
        if one.problem:
            groups.setdefault(_without_figures(one.problem), []).append(one.problem)
    if not groups:
        return ""
    ordered = sorted(groups.values(), key=len, reverse=True)
    without = sum(map(len, ordered))
    reasons = "; ".join(f"{len(problems)}: {problems[0]}" for problems in ordered)
    return f"{len(found) - without} of {wording.count(len(found), 'duet')} count; {reasons}."


def _without_figures(text: str) -> str:
    """The same remark with other figures is one kind of remark."""
    return re.sub(r" \([^)]*\)|[\d.,]+", "#", text)


def merit(gain: Gain) -> float:
    found = gain.found.gain if gain.found else 0.0
    return found if gain.better == "higher" else -found


def _where(summary: Summary, gain: Gain, times: bool) -> str:
    """A gain with its verdict, interval and cell."""
    at = varying_place(summary, gain)
    interval = wording.interval(gain.found, times)
    text = wording.verdict(gain, times) + (f" ({interval})" if interval else "")
    return f"{text} at {at}" if at else text


def varying_place(summary: Summary, gain: Gain) -> str:
    """A gain's cell by the axes that vary in this run, without the one compared along."""
    fixed = [axis for axis, values in summary.run.axes.items() if len(values) < 2]
    return wording.place(gain.cell, without=[gain.axis, *fixed])


def _counts(family: Family) -> str:
    parts = [
        f"{family.count(word)} {VERDICT_COUNTS[word][family.count(word) != 1]}"
        for word in WORDS
        if family.count(word)
    ]
    return "Verdicts: " + ", ".join(parts)


def _no_comparison(summary: Summary) -> str:
    if not summary.measured:
        return "No trial is valid." if summary.invalid else "Nothing has been measured yet."
    if any(sheet.over is not None for sheet in summary.sheets):
        return "No comparison has a measured cell on both sides, so nothing is compared."
    if summary.run.plan.baseline:
        return "No table of the recipe asks for a gain, so nothing is compared."
    return "The recipe names no baseline, so nothing is compared."


def _floor_sentence(summary: Summary) -> str:
    floor = summary.floors.get(summary.primary)
    if floor is None:
        return ""
    return (
        f"Noise floor: {floor * 100:.1f} % (baseline, odd against even rounds, not paired). Gains "
        "are ratios within a round, from which drift falls out, so smaller ones can be decided."
    )


def validity(summary: Summary) -> str:
    """How many trials there are and how many of them count."""
    valid, invalid = len(summary.valid), len(summary.invalid)
    total = wording.count(len(summary.cells), "cell")
    cells = f"Measured: {len(summary.measured)} of {total}"
    trials = f"{wording.count(valid, 'valid trial')}"
    tail = f", {invalid} invalid" if invalid else ", none invalid"
    return f"{cells}, {trials}{tail}."


def _conduct(summary: Summary) -> str:
    """How the run handled noise from outside and its limited time, in one sentence."""
    parts = []
    again = sum(len(trial.discarded) for trial in (*summary.valid, *summary.invalid))
    if again:
        parts.append(f"{wording.count(again, 'window')} with interference measured again")
    if summary.noisy:
        most = max(trial.disturbed for trial in summary.noisy)
        middle = median([trial.disturbed for trial in summary.noisy])
        parts.append(
            f"{wording.count(len(summary.noisy), 'trial')} with interference from other "
            f"processes, CPU steal or a slow host, marked {wording.NOISY} "
            f"(estimated loss: median {middle:.0%}, max {most:.0%})"
        )
    left = summary.trials_left_out
    if left:
        budget_s = summary.run.budget_s
        kept = f"the budget of {duration_for_people(budget_s)}" if budget_s else "the planned time"
        trials = wording.count(left, "trial")
        parts.append(f"{trials} of the last rounds left out to keep {kept}")
    return f"Noise and time: {'; '.join(parts)}." if parts else ""


def warnings(summary: Summary) -> list[str]:
    """What a reader must know before believing a figure; empty when all is well."""
    run, sentences = summary.run, []
    if run.state != "done":
        sentences.append(f"This run is not complete: its state is “{run.state}”.")
    if run.fit == "pairs":
        sentences.append("One server and one generator share each core (fit = pairs).")
    elif summary.shares_cores:
        asked = " (fit = share)" if run.fit == "share" else ""
        sentences.append(
            f"Instances share cores{asked}: absolute values are lower than with own cores."
        )
    if not run.idle_held:
        sentences.append(
            "Idle states were not held off. With few connections a core, a stack that sleeps pays "
            "for every wake-up, so such cells are not compared."
        )
    if "--accept-noise" in run.argv:
        sentences.append(
            "Noise was accepted (--accept-noise): trials next to other programs count. "
            "The run shows that everything works, not how fast it is."
        )
    if run.plan.order == "blocked":
        sentences.append(
            "The order was blocked: all trials of one stack, then all of the next. Drift of the "
            "machine looks like a gain, so no verdicts are given."
        )
    is_said = "--accept-noise" in run.argv  # the run's own line about it adds nothing
    thinned = [line for line in run.thinned if not (is_said and "(--accept-noise)" in line)]
    return sentences + thinned


def doubts(summary: Summary) -> list[str]:
    """Checks that any table should pass, and where this run does not."""
    return [
        *headroom.sentences(summary),
        *_client_bound(summary),
        *_little(summary),
        *_superlinear(summary),
        *_errors(summary),
        *_notes(summary),
    ]


def _client_bound(summary: Summary) -> list[str]:
    sentences = []
    for what in ("client", "both", "link"):
        cells = [cell for cell in summary.measured if cell.bottleneck == what]
        if cells:
            limit = wording.BOTTLENECKS[what]
            verb = "were" if what == "both" else "was"
            where = _some([wording.place(cell) for cell in cells])
            cells_text = wording.count(len(cells), "cell")
            end = "" if what == "both" else ", not the server"
            sentences.append(f"In {cells_text} {limit} {verb} the limit{end}: {where}.")
    idle = [cell for cell in summary.measured if cell.bottleneck == "concurrency"]
    if idle:
        where = _some([wording.place(cell) for cell in idle])
        why = "the server was not busy (too few connections, or it waits)"
        sentences.append(f"In {wording.count(len(idle), 'cell')} {why}: {where}.")
    return sentences


def _little(summary: Summary) -> list[str]:
    off = [
        cell
        for cell in summary.measured
        if abs(cell.median("little_residual") or 0.0) > LITTLE_RESIDUAL_MAX
    ]
    if not off:
        return []
    where = _some([f"{wording.place(c)} ({c.median('little_residual'):+.0%})" for c in off])
    return [
        f"In {wording.count(len(off), 'cell')} connections / rate and the mean latency differ by "
        f"more than {LITTLE_RESIDUAL_MAX:.0%} (Little's law): something queued outside the "
        f"measured interval: {where}."
    ]


def _superlinear(summary: Summary) -> list[str]:
    sentences = []
    for sheet in summary.sheets:
        for column in sheet.columns:
            worst = max(scaling(sheet, column, sheet.metrics[0]).values(), default=0.0)
            if worst > SCALING_SUSPECT:
                sentences.append(
                    f"{sheet.title}, {column}: scales {worst:.2f} times better than linear, so "
                    "its first point was too slow; gains over it are too high."
                )
    return sentences


def _errors(summary: Summary) -> list[str]:
    sentences = []
    for metric, what in (
        ("errors", "errors"),
        ("non_2xx", "answers other than 2xx"),
        ("timeouts", "timeouts"),
    ):
        trials = [trial for trial in summary.valid if (trial.metrics.get(metric) or 0) > 0]
        if trials:
            total = sum(trial.metrics[metric] or 0 for trial in trials)
            sentences.append(f"{total:,.0f} {what} in {wording.count(len(trials), 'valid trial')}.")
    return sentences


def _notes(summary: Summary) -> list[str]:
    """Remarks of trials; the same remark with other figures is counted once."""
    groups: dict[str, list[str]] = {}
    for trial in summary.valid:
        for note in trial.notes:
            groups.setdefault(_without_figures(note), []).append(note)
    ordered = sorted(groups.values(), key=len, reverse=True)
    sentences = [f"In {wording.count(len(n), 'valid trial')}: {n[0]}" for n in ordered[:NOTES_MAX]]
    return [text if text.endswith(".") else f"{text}." for text in sentences]


def unmeasured(summary: Summary) -> list[tuple[str, str, int, str]]:
    """The cells without a figure by state and reason: state, reason, how many, which."""
    groups: dict[tuple[str, str], list[str]] = {}
    for cell in summary.unmeasured:
        groups.setdefault((wording.state(cell), cell.reason), []).append(wording.place(cell))
    return [
        (state, reason, len(places), _some(places)) for (state, reason), places in groups.items()
    ]


def method(summary: Summary) -> str:
    """How the run was measured, in one paragraph."""
    plan = summary.run.plan
    order = {
        "interleaved": "rounds in which the cells follow each other in random order",
        "blocked": "blocks: one stack after the other",
    }.get(plan.order, plan.order)
    return (
        f"Every cell was planned {wording.count(plan.repeat, 'time')}, {_life(summary)}, "
        f"in {order}. "
        f"A trial warms up for {_time(plan.warmup_s)} and measures for {_time(plan.duration_s)}. "
        f"{_priority(summary)}A figure is the median of its valid trials. A gain is the geometric "
        f"mean of the ratios within each round, with its {CONFIDENCE:.0%} interval; a verdict "
        f"needs {PAIRS_MIN} rounds."
        + _service_times(summary)
        + _duets(summary)
        + (f" {_capital(summary.run.preflight)}." if summary.run.preflight else "")
    )


def _service_times(summary: Summary) -> str:
    """The meaning of latencies in a closed loop; only its trials have a Little residual."""
    closed = [t for t in summary.valid if t.metrics.get("little_residual") is not None]
    has_latency = any("latency.p50" in trial.metrics for trial in summary.valid)
    if not (closed and has_latency):
        return ""
    return (
        " Latencies are service times of a closed loop, from sending a request to its response: "
        "requests that a stall kept from being sent are not in them."
    )


def _duets(summary: Summary) -> str:
    """How the contenders took turns, where they did."""
    times = summary.run.plan.duet
    duets = [trial.duet for trial in summary.valid if trial.duet]
    if not times or not duets:
        return ""
    how = wording.listed(sorted({duet.how for duet in duets if duet.how}))
    plain = "" if all(duet.is_realtime for duet in duets) else ", without real-time priority"
    return (
        f" In a duet two fresh servers live next to each other for {_time(times['pair'])} "
        f"and take turns of {times['slice'] * 1e3:g} ms ({how}{plain}); the ratio of a round comes "
        f"from their turns: {wording.count(len(duets), 'pair')} in all. "
        "A duet has no latencies."
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _priority(summary: Summary) -> str:
    nice = summary.run.nice
    text = f"All measured programs had a higher priority than other processes (nice {nice}). "
    return text if nice else ""


def _time(seconds: float) -> str:
    return duration_for_people(seconds) if seconds >= 60 else f"{seconds:.3g} s"


def _life(summary: Summary) -> str:
    restart = recipe_copy.restart(summary.run_dir)
    if restart == "trial":
        return "each time with a fresh server"
    if restart == "ramp":
        return "each time in a fresh server that walks the whole ramp"
    axes = wording.listed(restart.split("+"))
    return f"each time in another server's life; one life ({axes}) walks the other axes"


def _some(places: Iterable[str], most: int = 4) -> str:
    places = list(places)
    shown = "; ".join(places[:most])
    return shown if len(places) <= most else f"{shown}; and {len(places) - most} more"
