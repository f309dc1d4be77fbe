"""Files for CI systems: a comment, JUnit XML, and JSON that dashboards follow over commits.

comment.md           a reviewer's summary, for a pull request
junit.xml            a test case for each comparison and each rule: failed on a loss, on a broken
                     rule and on what else fails the check; skipped where undecided; an error for
                     a run that did not end
github-bigger.json   github-action-benchmark, customBiggerIsBetter: rates
github-smaller.json  the same, customSmallerIsBetter: latencies, CPU per request
bencher.json         Bencher Metric Format: a measure with its bounds for each cell
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

from wirespeed.analysis import gate
from wirespeed.analysis.cells import prefix
from wirespeed.analysis.gate import Criteria
from wirespeed.analysis.summary import Cell, Gain, Summary
from wirespeed.analysis.verdict import percent
from wirespeed.errors import StorageError
from wirespeed.report import story, wording

ROWS_MAX = 30  # of a comment; a reviewer reads the losses, which come first
MARKS = {
    "loss": ":small_red_triangle_down:",
    "gain": ":rocket:",
    "no difference": ":white_check_mark:",
}
ORDER = ("loss", "gain", "no difference", "not decided", "not comparable")
MARKER = "<!-- wirespeed -->"  # by which a bot finds its earlier comment


NO_CHECK = Criteria()


def write(summary: Summary, folder: Path, check: Criteria = NO_CHECK) -> None:
    """Writes all of them; raises StorageError."""
    bigger, smaller = github_benchmark(summary)
    texts = {
        "comment.md": comment(summary, check),
        "junit.xml": junit(summary, check),
        "github-bigger.json": json.dumps(bigger, indent=1) + "\n",
        "github-smaller.json": json.dumps(smaller, indent=1) + "\n",
        "bencher.json": json.dumps(bencher(summary), indent=1) + "\n",
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write {folder}: {error.strerror}") from error


def comment(summary: Summary, check: Criteria = NO_CHECK) -> str:
    """Markdown that a reviewer understands without this tool's manual."""
    run = summary.run
    revisions = [f"{name} `{run.labels[name]}`" for name in ("base", "head") if name in run.labels]
    lines = [MARKER, f"### {_headline(summary)}", ""]
    if revisions:
        lines += [f"Compared: {' with '.join(revisions)}.", ""]
    gains = sorted(summary.gains, key=lambda gain: ORDER.index(gain.verdict.word))
    if gains:
        lines += ["| | what | where | change | 95 % interval | verdict |",
                  "| --- | --- | --- | ---: | :---: | --- |"]  # fmt: skip
        lines += [_row(summary, gain) for gain in gains[:ROWS_MAX]]
        if len(gains) > ROWS_MAX:
            lines.append(f"| | … {len(gains) - ROWS_MAX} more in report.html | | | | |")
        lines.append("")
    lines += [f"- {one}" for one in filter(None, [story.duets(summary), *story.warnings(summary)])]
    failed = [f"{cell.failures} trials: {prefix(cell.axes)}{cell.failure}"
              for cell in summary.cells if cell.failures]  # fmt: skip
    lost = [f"Not measured: {prefix(cell.axes)}{cell.reason}"
            for cell in summary.cells if not (cell.trials or cell.failures)]  # fmt: skip
    uncompared = [prefix(cell.axes) + text for cell, text in gate.uncompared(summary, check)]
    unjudged = [f"{prefix(gain.cell.axes)}{gain.metric}: {text}"
                for gain, text in gate.unjudged(summary)]  # fmt: skip
    unjudged += [f"{one.contender}: {one.metric}: {text}"
                 for one, text in gate.unjudged_families(summary)]  # fmt: skip
    rules = [f"Broken rule: {line}" for line in gate.broken_rules(summary, check)]
    lines += _listed(failed, "settings with failures")
    lines += _listed(lost, "were not measured")
    lines += _listed(uncompared, "were not compared")
    lines += _listed(unjudged, "worse without a verdict")
    lines += _listed(rules, "broken rules")
    lines += [
        "",
        f"<sub>{story.validity(summary)} Ratios of interleaved rounds with fresh servers; a gain "
        f"or loss needs p ≤ 2 %, q ≤ 5 % and at least {percent(run.plan.threshold)}. "
        '"Not decided" means that this run '
        f"cannot decide it, not that nothing changed. Run `{run.run_id}`.</sub>",
        "",
    ]
    return "\n".join(lines)


def _listed(items: list[str], what: str) -> list[str]:
    """GitHub refuses a comment of more than 65,536 characters."""
    lines = [f"- {_escaped(item)}" for item in items[:ROWS_MAX]]
    return lines + [f"- … {len(items) - ROWS_MAX} more {what}"] * (len(items) > ROWS_MAX)


def _headline(summary: Summary) -> str:
    words = [gain.verdict.word for gain in summary.gains]
    counted = [f"{words.count(word)} {story.VERDICT_COUNTS[word][words.count(word) != 1]}"
               for word in ORDER if word in words]  # fmt: skip
    lost = len(gate.unjudged(summary)) + len(gate.unjudged_families(summary))
    has_figures = any(gain.found for gain in summary.gains)
    verdicts = ", ".join(counted) if has_figures else "nothing was compared"
    return f"Performance: {verdicts}" + f"; {lost} worse without a verdict" * bool(lost)


def _row(summary: Summary, gain: Gain) -> str:
    mark = MARKS.get(gain.verdict.word, ":grey_question:")
    what = f"{wording.measure(gain.metric).label}, {gain.contender} against {gain.over}"
    where = story.varying_place(summary, gain) or "–"
    reason = "" if gain.verdict.word in ("gain", "loss", "no difference") else gain.verdict.reason
    word = wording.verdict_word(gain) + (f": {reason}" if reason else "")
    cells = (mark, what, where, wording.figure(gain), wording.interval(gain.found) or "–", word)
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def junit(summary: Summary, check: Criteria = NO_CHECK) -> str:
    """One test case for each comparison, each rule and each cell that has no figure. Whatever fails
    the check fails a case, too."""
    suite = ElementTree.Element("testsuite", name=summary.run.recipe)
    counts = {"tests": 0, "failures": 0, "skipped": 0, "errors": 0}

    def case(kind: str, name: str, child: str, message: str) -> None:
        made = ElementTree.SubElement(suite, "testcase", classname=kind, name=_printable(name))
        counts["tests"] += 1
        if child:
            ElementTree.SubElement(made, child, message=_printable(message))
            counts[{"failure": "failures", "error": "errors"}.get(child, child)] += 1

    lost = {id(gain): text for gain, text in gate.unjudged(summary)}
    undecided = "failure" if "undecided" in check.fail_on else "skipped"
    for gain in summary.gains:
        name = f"{prefix(gain.cell.axes)}{gain.metric} against {gain.over}"
        verdict = lost.get(id(gain)) or f"{wording.verdict(gain)} ({gain.verdict.reason})"
        child = {"loss": "failure", **dict.fromkeys(gate.UNDECIDED, undecided)}
        child |= {gain.verdict.word: "failure"} if id(gain) in lost else {}
        case("comparison", name, child.get(gain.verdict.word, ""), verdict)
    for family in summary.families:
        if family.verdict.word == "loss" and not family.count("loss"):
            name = f"{family.contender} against {family.over}: {family.metric} over all cells"
            case("comparison", name, "failure", f"{wording.figure(family)} loss")
    for family, text in gate.unjudged_families(summary):
        name = f"{family.contender} against {family.over}: {family.metric} over all cells"
        case("comparison", name, "failure", text)
    if summary.run.state != "done":
        case("run", summary.run.run_id, "error", f"the run did not end: {summary.run.state}")
    elif reason := gate.undecidable(summary):
        case("run", summary.run.run_id, "failure" if check.fail_on else "skipped", reason)
    for cell, text in gate.uncompared(summary, check):
        case("comparison", wording.place(cell) or summary.run.recipe, "failure", text)
    for rule in check.rules:
        lines = gate.broken_rules(summary, Criteria(rules=(rule,)))
        for line in lines:
            case("rule", line.partition(f"{rule.text}: ")[0] + rule.text, "failure", line)
        if not lines:
            case("rule", rule.text, "", "")
    for cell in summary.cells:
        name = wording.place(cell) or summary.run.recipe
        if cell.failures:
            case("cell", name, "error", f"{cell.failures}: {cell.failure}")
        elif not cell.trials:
            is_missing = check.is_asked and gate.is_missing(cell, check)
            outcome = "failure" if is_missing else "skipped"
            case("cell", name, outcome, cell.reason or cell.state)
    for name, number in counts.items():
        suite.set(name, str(number))
    ElementTree.indent(suite)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suite, "unicode") + "\n"
    )


def _printable(text: str) -> str:
    """XML has no control characters, which a program's last line may hold."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _figures(summary: Summary) -> Iterable[tuple[Cell, str, float, float, float]]:
    """(cell, metric, median, lowest, highest) of everything that the recipe measures."""
    names = [gain.metric for gain in summary.gains]
    for metric in summary.run.metrics:
        name = str(metric["name"])
        is_histogram = name == "latency" or metric.get("combine") == "histogram"
        names += [f"{name}.p50", f"{name}.p99"] if is_histogram else [name]
    for cell in summary.measured:
        for name in dict.fromkeys(names):
            values = cell.values(name)
            middle = cell.median(name)
            if values and middle is not None:
                yield cell, name, middle, min(values), max(values)


def github_benchmark(summary: Summary) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """(bigger is better, smaller is better), each name once."""
    by_direction: dict[str, dict[str, dict[str, object]]] = {"higher": {}, "lower": {}}
    for cell, metric, middle, low, high in _figures(summary):
        measure = wording.measure(metric, summary.unit(metric))
        name = f"{prefix(cell.axes)}{measure.label}"
        entries = by_direction[summary.better(metric)]
        if name in entries:  # CPU per request with and without polls
            name = f"{name} ({metric})"
        entries[name] = {
            "name": name, "unit": measure.stored_unit or measure.label, "value": middle,
            "range": f"{low:g} … {high:g}", "extra": f"run {summary.run.run_id}",
        }  # fmt: skip
    return list(by_direction["higher"].values()), list(by_direction["lower"].values())


def bencher(summary: Summary) -> dict[str, dict[str, dict[str, float]]]:
    places: dict[str, dict[str, dict[str, float]]] = {}
    for cell, metric, middle, low, high in _figures(summary):
        slug = re.sub(r"[^a-z0-9]+", "-", metric.lower()).strip("-")
        figures = {"value": middle, "lower_value": low, "upper_value": high}
        places.setdefault(wording.place(cell) or summary.run.recipe, {})[slug] = figures
    return places
