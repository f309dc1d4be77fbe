"""`wirespeed reproduce RUN`: the same recipe again, compared with the original."""

from __future__ import annotations

import contextlib
import sys
import tomllib
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from wirespeed.analysis import two_runs
from wirespeed.analysis.summary import Summary, load
from wirespeed.cli import compare, output, trust
from wirespeed.cli import run as runs_of
from wirespeed.errors import InputError, ResultsError
from wirespeed.recipe import compose, read
from wirespeed.recipe import site as sites
from wirespeed.report import source, wording
from wirespeed.results import store
from wirespeed.results.model import Run
from wirespeed.runner import place, session
from wirespeed.runner.plan import PlanOptions

FROM_REPORTS = "from-reports"  # next to the runs: the contents of pages


@dataclass(frozen=True)
class Extras:
    """Allowed differences from the original, and notes of the new run."""

    site: str
    metrics: list[str]
    labels: list[str]
    note: str
    accept_noise: bool
    is_trusted: bool = False  # a run of somebody else may start what it names


def reproduce(name: str, runs: Path, extras: Extras, as_json: bool = False) -> int:
    """0 when it is reproduced, 3 when it differs or is not decided, 1 when not measured."""
    run_dir = store.find_run(runs, _folder(name, runs))
    first = load(run_dir)
    metrics = extras.metrics or [first.primary]
    if not first.measured:
        raise ResultsError(f"{run_dir.name} has no valid trial; there is nothing to reproduce")
    two_runs.compare(first, first, metrics)  # an unknown metric, before anything is measured
    is_own = trust.is_own(run_dir, runs)
    origin = _origin(run_dir, first.run, extras.site)
    if not is_own and not extras.site:
        origin = trust.without_remote_site(origin)
    _mention_build(first.run, session.commit_of(origin.root))
    labels = (("reproduces", first.run.run_id), *map(runs_of.label, extras.labels))
    options = PlanOptions(
        only=_only(first), repeat=first.run.plan.repeat, fit=first.run.fit, seed=first.run.seed,
        accept_noise=extras.accept_noise, tune=first.run.tuned is not None, labels=labels,
        note=extras.note,
    )  # fmt: skip
    trust.confirm(origin, options, is_own or extras.is_trusted)
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        ended = runs_of.measure(origin, options, runs)
    if ended.code not in (0, runs_of.EXIT_FAILED) or ended.run_dir is None:
        return ended.code
    second = load(ended.run_dir)
    differences = two_runs.compare(first, second, metrics)
    code = _show(first, second, differences, as_json)
    return ended.code or code


def _folder(name: str, runs: Path) -> str:
    """A report.html lies in its run's derived/; one that was sent carries its run itself."""
    path = Path(name)
    if path.suffix != ".html":
        return name
    if not path.exists():
        raise InputError(f"{name}: not found")
    run_dir = path.resolve().parent.parent
    if path.resolve().parent.name == "derived" and (run_dir / "run.json").exists():
        return str(run_dir)
    return str(source.unpack(path, runs / FROM_REPORTS))


def _origin(run_dir: Path, run: Run, site: str) -> session.Source:
    """The recipe as it was, with the times that it was measured with after its budget."""
    original = session.source_of(run_dir, run)
    if (run_dir / "templates.json").exists():
        original = _carried(original, run_dir)
    plan = session.with_times(original.recipe.plan, run.plan)
    origin = replace(original, recipe=original.recipe.model_copy(update={"plan": plan}))
    if not site:
        return origin
    folders = [original.recipe_file.parent, Path.cwd(), place.root()]
    return replace(origin, site_name=site, site=sites.find(site, folders))


def _carried(original: session.Source, run_dir: Path) -> session.Source:
    """Of a page: its own templates, and files next to the recipe from there or from here."""
    kept = store.read_json(run_dir / "templates.json")
    data = tomllib.loads(original.text)
    for process in data.get("process", []):
        names = process.get("template", {})
        process["template"] = {name: kept.get(path, path) for name, path in names.items()}
    text = compose.toml(data) if kept else original.text
    store.write_text(run_dir / "recipe-carried.toml", text)
    recipe, text = read.read_copy(run_dir / "recipe-carried.toml")
    is_here = original.recipe_file.parent.is_dir()
    file = original.recipe_file if is_here else Path.cwd() / f"{recipe.name}.toml"
    return replace(original, recipe=recipe, text=text, recipe_file=file)


def _mention_build(run: Run, commit: str) -> None:
    if commit != run.commit:
        before, now = output.printable(run.commit) or "unknown", commit or "unknown"
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


def _show(
    first: Summary, second: Summary, differences: two_runs.RunDifferences, as_json: bool
) -> int:
    code = 0 if differences.verdict == "reproduced" else runs_of.EXIT_GATE
    if as_json:
        ids = {"original": first.run.run_id, "again": second.run.run_id}
        verdict = {"reproduced": not code, "verdict": differences.verdict}
        output.write({**ids, **verdict, **asdict(differences)})
        return code
    print()
    compare.show(first, differences)
    print(_sentence(differences))
    return code


def _sentence(differences: two_runs.RunDifferences) -> str:
    words = differences.words
    counts = {word: words.count(word) for word in (*two_runs.DIFFERING, *compare.UNDECIDED)}
    if differences.verdict == "not reproduced":
        differing = sum(counts[word] for word in two_runs.DIFFERING)
        return f"Not reproduced: {differing} of {wording.count(len(words), 'figure')} differ."
    parts = [f"{counts[word]} {word}" for word in compare.UNDECIDED if counts[word]]
    seem = sum(bool(one.seems) for one in (*differences.differences, *differences.pooled))
    parts += [f"{seem} of them with other figures"] * bool(seem)
    lost = differences.only[0]
    parts += [f"{wording.count(lost, 'cell')} not measured again"] * bool(lost)
    tail = f" ({wording.listed(parts)})" if parts else ""
    if differences.verdict == "reproduced":
        return f"Reproduced: no figure of {len(words)} differs{tail}."
    return (
        f"Not decided: no figure of {len(words)} differs{tail}, but too little is known for more; "
        "more rounds or a quieter machine may show it."
    )
