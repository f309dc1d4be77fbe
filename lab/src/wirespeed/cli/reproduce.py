"""`wirespeed reproduce RUN`: the same recipe again, beside the original."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from wirespeed.cli import compare
from wirespeed.cli import run as runs_of
from wirespeed.errors import InputError, ResultsError
from wirespeed.recipe import site as sites
from wirespeed.results import store
from wirespeed.results.model import Run
from wirespeed.results.summary import Summary, load
from wirespeed.runner import place, session
from wirespeed.runner.plan import Wishes


@dataclass(frozen=True)
class Extras:
    """What may differ from the original, and what is kept with the new run."""

    site: str
    metrics: list[str]
    labels: list[str]
    note: str
    accept_noise: bool


def reproduce(name: str, runs: Path, extras: Extras) -> int:
    """0 when no figure differs, 3 when one does, 1 when it could not be measured."""
    run_dir = store.find_run(runs, _folder(name))
    first = load(run_dir)
    if not first.measured:
        raise ResultsError(f"{run_dir.name} has no valid trial; there is nothing to reproduce")
    origin = _origin(run_dir, first.run, extras.site)
    _mention_build(first.run, session.commit_of(origin.root))
    labels = (("reproduces", first.run.run_id), *map(runs_of.label, extras.labels))
    wishes = Wishes(
        only=_only(first), repeat=first.run.plan.repeat, fit=first.run.fit, seed=first.run.seed,
        accept_noise=extras.accept_noise, labels=labels, note=extras.note,
    )  # fmt: skip
    code = runs_of.measure(origin, wishes, runs)
    if code not in (0, runs_of.EXIT_FAILED):
        return code
    print()
    second = (runs / "latest").resolve().name
    gate = compare.compare((str(run_dir), second), runs, extras.metrics, as_json=False)
    assert gate == 0, "nothing was asked to shut the gate"
    return code or _verdict(first, load(store.find_run(runs, second)), extras.metrics)


def _folder(name: str) -> str:
    """A report.html lies in its run's derived/."""
    path = Path(name)
    if path.suffix == ".html":
        if not path.exists():
            raise InputError(f"there is no {name}")
        return str(path.resolve().parent.parent)
    return name


def _origin(run_dir: Path, run: Run, site: str) -> session.Source:
    """The recipe as it was, with the times that it was measured with after its budget."""
    found = session.source_of(run_dir, run)
    times = {"warmup": run.plan.warmup_s, "duration": run.plan.duration_s}
    plan = found.recipe.plan.model_copy(update=times)
    origin = replace(found, recipe=found.recipe.model_copy(update={"plan": plan}))
    if not site:
        return origin
    folders = [found.recipe_file.parent, Path.cwd(), place.root()]
    return replace(origin, site_name=site, site=sites.find(site, folders))


def _mention_build(run: Run, commit: str) -> None:
    if commit != run.commit:
        before, now = run.commit or "unknown", commit or "unknown"
        print(
            f"wirespeed: the original was measured with the commit {before}, this is {now}; "
            "for the same build check that one out",
            file=sys.stderr,
        )


def _only(first: Summary) -> str:
    """The part that was measured, where that was not all of it."""
    if len(first.measured) == len(first.cells):
        return ""
    words = []
    for axis in first.run.axes:
        values = dict.fromkeys(cell.axes[axis] for cell in first.measured)
        texts = [str(v).lower() if isinstance(v, bool) else str(v) for v in values]
        words.append(f"{axis}=" + ",".join(texts))
    return ",".join(words)


def _verdict(first: Summary, second: Summary, metrics: list[str]) -> int:
    from wirespeed.results import apart

    found = apart.compare(first, second, metrics or [first.primary]).differences
    apart_of = [one for one in found if one.word in ("better", "worse")]
    undecided = sum(one.word == "not decided" for one in found)
    if apart_of:
        print(f"Not reproduced: {len(apart_of)} of {len(found)} figures differ.")
        return runs_of.EXIT_GATE
    tail = f"; {undecided} are not decided" if undecided else ""
    print(f"Reproduced: no figure of {len(found)} differs{tail}.")
    return 0
