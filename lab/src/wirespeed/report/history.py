"""Pages over many runs, for `wirespeed serve`: their list, and a metric over a recipe's runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wirespeed.analysis.cells import place
from wirespeed.analysis.trend import MetricHistory
from wirespeed.analysis.verdict import WORDS
from wirespeed.report import page, wording


@dataclass(frozen=True)
class RunRow:
    """A line of the list."""

    name: str
    recipe: str
    state: str
    started: str
    commit: str
    about: str  # labels and note
    trials: int
    verdicts: str


def rows(documents: Iterable[tuple[Path, Mapping[str, Any]]]) -> list[RunRow]:
    """Of the folders and documents of the index, the last run first. A row has the folder's name,
    under which the run is found: its user may have given it another one."""
    listed = []
    for folder, document in documents:
        run = document["run"]
        labels = [f"{key}={value}" for key, value in json.loads(run["labels"]).items()]
        counted = Counter(one["verdict"] for one in document["comparisons"])
        listed.append(RunRow(
            folder.name, run["recipe"], run["state"], run["started"], run["commit"],
            " ".join([*labels, run["note"]]).strip(), run["valid_trials"],
            ", ".join(f"{counted[word]} {word}" for word in WORDS if counted[word]) or wording.NONE,
        ))  # fmt: skip
    return listed[::-1]


def of_runs(found: Sequence[RunRow], unread: Mapping[str, str]) -> str:
    """`unread`: runs that cannot be read, and why."""
    recipes = list(dict.fromkeys(row.recipe for row in found))
    return page.rendered("runs.html.j2", rows=found, recipes=recipes, unread=unread)


def of_trend(recipe: str, measure: wording.Measure, histories: Sequence[MetricHistory]) -> str:
    table = [
        (
            place(one.axes), len(one.points), wording.course(point.value for point in one.points),
            wording.number(one.points[0].value * measure.scale),
            wording.number(one.points[-1].value * measure.scale),
            "; ".join(map(wording.change, one.changes)) or wording.NONE,
        )
        for one in histories
    ]  # fmt: skip
    return page.rendered("trend.html.j2", recipe=recipe, head=measure.head, rows=table)

