"""What a report.html carries so that its run can be measured again from the page alone.

Recipe, site, plan, templates, and every trial's figures, as compressed JSON in a script element
that no browser runs. `unpack` lays a run directory out of it: all that reads runs reads that one
too. It has no samples and no output of programs.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
import tomllib
import zlib
from pathlib import Path
from typing import Any

from wirespeed.analysis.summary import Summary
from wirespeed.errors import InputError, ResultsError
from wirespeed.results import store
from wirespeed.results.model import PlannedTrial, Run, Trial

FORMAT = 1
TEMPLATE_BYTES_MAX = 65_536
UNPACKED_BYTES_MAX = 64 << 20  # a page comes from somebody else: it must not fill the memory
DIGITS = 7  # of a figure: more than any clock of a trial has
_NAME = re.compile(r"\w[\w.-]*")  # it becomes a folder's
_ELEMENT = re.compile(r'<script type="application/json" id="source">"([A-Za-z0-9+/=]+)"</script>')


def packed(summary: Summary, all_metrics: bool) -> str:
    """The text of the element; without `all_metrics` with the recipe's own only."""
    run_dir = summary.run_dir
    names = None if all_metrics else {str(metric["name"]) for metric in summary.run.metrics}
    where = _recipe_file(run_dir)
    recipe = _text(run_dir / "recipe.toml")
    document = {
        "format": FORMAT,
        "run": summary.run.to_json(),
        "recipe": recipe,
        "recipe_file": str(where),
        "templates": _templates(recipe, where.parent),
        "site": json.loads(_text(run_dir / "site.json") or "{}"),
        "plan": [line.to_json() for line in store.read_plan(run_dir)],
        "trials": [_trial(trial, names) for trial in (*summary.valid, *summary.invalid)],
    }
    plain = json.dumps(document, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(plain, 9)).decode()


def _recipe_file(run_dir: Path) -> Path:
    created = next((e for e in store.read_events(run_dir) if e["event"] == "created"), {})
    return Path(created.get("recipe", run_dir / "recipe.toml"))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _templates(recipe: str, folder: Path) -> dict[str, str]:
    """Each template by the path that the recipe names it with."""
    try:
        processes = tomllib.loads(recipe).get("process", [])
    except tomllib.TOMLDecodeError:
        return {}
    names = {name for process in processes for name in process.get("template", {}).values()}
    paths = {name: folder / name for name in sorted(names)}
    return {
        name: _text(path)
        for name, path in paths.items()
        if path.is_file() and path.stat().st_size <= TEMPLATE_BYTES_MAX
    }


#: Of a trial: what its line of the plan says already.
_IN_PLAN = ("cell", "round", "axes")
_PLAIN = Trial("", "", 0, 0).to_json()


def _trial(trial: Trial, names: set[str] | None) -> dict[str, Any]:
    """The differences from a fresh record, without the plan's: half the page would be that."""
    metrics = {
        name: None if value is None else float(f"{value:.{DIGITS}g}")
        for name, value in trial.metrics.items()
        if names is None or name.partition(".")[0] in names
    }
    processes = [dataclasses.replace(process, argv=[]) for process in trial.processes]
    kept = processes if names is None else []
    data = dataclasses.replace(trial, metrics=metrics, processes=kept).to_json()
    return {
        name: value
        for name, value in data.items()
        if name not in _IN_PLAN and (value != _PLAIN[name] or name in ("key", "position"))
    }


def _with_plan(data: dict[str, Any], plan: dict[str, PlannedTrial]) -> Trial:
    line = plan[data["key"]]
    return Trial.from_json({"cell": line.cell, "round": line.round, "axes": line.axes, **data})


def unpack(page: Path, folder: Path) -> Path:
    """The run directory of a page, below `folder`; the same again when it is there already."""
    document = _document(page)
    try:
        run = Run.from_json(document["run"])
        plan = [PlannedTrial.from_json(line) for line in document["plan"]]
        by_key = {line.key: line for line in plan}
        trials = [_with_plan(one, by_key) for one in document["trials"]]
        names = [run.run_id, *(trial.key for trial in trials)]
        if not all(_NAME.fullmatch(name) for name in names):
            raise ValueError("a name that is none")
        run_dir = folder / run.run_id
        if run_dir.exists() and not _is_laid_out(run_dir, run):
            # What is there may have got rounds of its own, or another process lays it out.
            text = json.dumps(document, sort_keys=True)
            run_dir = folder / hashlib.sha256(text.encode()).hexdigest()[:12] / run.run_id
        if not (run_dir / "run.json").exists():
            _lay_out(run_dir, document, plan, trials)
            store.write_run(run_dir, run)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{page}: its copy of the run is incomplete: {error}") from None
    return run_dir


def _is_laid_out(run_dir: Path, run: Run) -> bool:
    """Whether it is there as this page has it: a run that got more rounds has another page."""
    try:
        return store.read_run(run_dir) == run
    except ResultsError:
        return False


def _document(page: Path) -> dict[str, Any]:
    try:
        element = _ELEMENT.search(page.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise InputError(f"{page}: cannot be read: {error.strerror}") from None
    if not element:
        raise InputError(
            f"{page}: not a report with a copy of its run: from an earlier build, or the run is "
            "too large for a page (use the run's directory)"
        )
    try:
        inflate = zlib.decompressobj()
        plain = inflate.decompress(base64.b64decode(element[1], validate=True), UNPACKED_BYTES_MAX)
        document = json.loads(plain)
    except (ValueError, zlib.error):
        raise InputError(f"{page}: its copy of the run is damaged") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{page}: written by a newer version (use that one)")
    return document


def _lay_out(
    run_dir: Path, document: dict[str, Any], plan: list[PlannedTrial], trials: list[Trial]
) -> None:
    (run_dir / "trials").mkdir(parents=True, exist_ok=True)
    (run_dir / "derived").mkdir(exist_ok=True)
    kept = {}
    for number, (name, text) in enumerate(document["templates"].items()):
        kept[name] = str(run_dir.resolve() / f"template-{number}")
        store.write_text(Path(kept[name]), text)
    store.write_text(run_dir / "recipe.toml", document["recipe"])
    store.write_json(run_dir / "templates.json", kept)
    store.write_json(run_dir / "site.json", document["site"])
    store.write_plan(run_dir, plan)
    for trial in trials:
        directory = store.trial_dir(run_dir, trial.position, trial.key)
        directory.mkdir(exist_ok=True)
        store.write_trial(directory, trial)
    store.append_event(run_dir, "created", recipe=document["recipe_file"], pid=0)
