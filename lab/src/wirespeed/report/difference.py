"""The differences of two runs: rows for a terminal, and a page that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wirespeed.analysis.cells import place
from wirespeed.analysis.summary import Summary
from wirespeed.analysis.two_runs import Difference, RunDifferences
from wirespeed.errors import StorageError
from wirespeed.report import page, plot, wording

HEADS = ("metric", "first", "second", "difference", "95 % interval", "")
NOT_INTERLEAVED = (
    "The runs were not interleaved: what the machine did in between is in every difference. For a "
    "verdict, put both sides into one recipe."
)
KINDS = {
    "better": "gain",
    "worse": "loss",
    "no difference": "even",
    "not decided": "open",
    "not comparable": "withheld",
}


@dataclass(frozen=True)
class Row:
    """One metric of one cell in both runs."""

    axes: list[str]
    texts: list[str]  # in the order of HEADS
    kind: str
    bar: str


def write(first: Summary, second: Summary, differences: RunDifferences, path: Path) -> None:
    """Writes the page; raises StorageError."""
    try:
        path.write_text(html(first, second, differences), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def html(first: Summary, second: Summary, differences: RunDifferences) -> str:
    reach = _reach(differences.differences)
    return page.rendered(
        "difference.html.j2",
        names=(first.run.run_id, second.run.run_id),
        title=first.run.title or first.run.recipe,
        facts={name: tuple(map(str, values)) for name, values in differences.facts.items()},
        pooled=[over_all(one) for one in differences.pooled],
        counted=counted(differences),
        missing=[place(axes) for axes in differences.missing],
        axes=list(first.run.axes),
        heads=HEADS,
        rows=[_row(first, one, reach) for one in differences.differences],
        note=NOT_INTERLEAVED,
    )


def counted(differences: RunDifferences) -> str:
    """`3 better, 1 not decided. 2 cells only in the first.`"""
    words = [one.word for one in differences.differences]
    missing = "".join(
        f" {wording.count(count, 'cell')} only in the {which}."
        for count, which in zip(differences.only, ("first", "second"), strict=True)
        if count
    )
    return f"{', '.join(f'{words.count(word)} {word}' for word in dict.fromkeys(words))}.{missing}"


def over_all(one: Difference) -> str:
    label = wording.measure(one.metric).label
    interval = f" ({_interval(one)})" if one.low is not None else ""
    figure = f"{wording.signed(one.change)}{interval}"
    if one.seems:
        return f"{label} over all cells: {figure}, but {one.reason}."
    return f"{label} over all cells that can be compared: {figure}, {one.word}."


def texts(first: Summary, one: Difference) -> list[str]:
    """The fields of a row, in the order of HEADS."""
    measure = wording.measure(one.metric, first.unit(one.metric))
    has_reason = one.word == "not comparable" or (one.word == "worse" and one.low is None)
    return [
        measure.head,
        *(
            wording.number(None if value is None else value * measure.scale)
            for value in (one.first, one.second)
        ),
        wording.signed(one.change),
        _interval(one),
        f"{one.word}: {one.reason}" if has_reason else one.word,
    ]


def _row(first: Summary, one: Difference, reach: tuple[float, float]) -> Row:
    kind = KINDS[one.word]
    has_bar = one.change is not None and one.word != "not comparable"
    bar = plot.gain_bar(one.low, one.change or 0.0, one.high, reach, kind) if has_bar else ""
    axes = [str(one.axes.get(axis, "")) for axis in first.run.axes]
    return Row(axes, texts(first, one), kind, bar)


def _reach(differences: Sequence[Difference]) -> tuple[float, float]:
    """The scale that all bars share."""
    ends = [0.0, *(end for one in differences for end in (one.change, one.low, one.high) if end)]
    return min(ends), max(ends)


def _interval(one: Difference) -> str:
    if one.low is None or one.high is None:
        return wording.NONE
    return f"{wording.signed(one.low)} … {wording.signed(one.high)}"
