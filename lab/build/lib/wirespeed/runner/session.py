"""A run from what was typed to its end: read, plan, build, lock, measure; and its resumption."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import wirespeed
from wirespeed.errors import InputError, ResultsError
from wirespeed.host import local
from wirespeed.host.base import Host
from wirespeed.probe import machine
from wirespeed.process.start import SEARCH_PATH
from wirespeed.recipe import read, sweep
from wirespeed.recipe import site as sites
from wirespeed.recipe.model import Recipe, Site
from wirespeed.recipe.resolve import Place, Resolver
from wirespeed.results import store
from wirespeed.results.model import PlannedTrial, Run, RunPlan, Trial
from wirespeed.runner import cells, execute, fit, order, place, tune
from wirespeed.runner import plan as plans
from wirespeed.runner.budget import Times
from wirespeed.runner.build import build
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.files import scratch_folder
from wirespeed.runner.plan import Schedule, Wishes
from wirespeed.runner.watcher import Watcher

NOISE_ACCEPTED = "Trials that other programs disturbed were kept and noted (--accept-noise)."

NICE = -20  # all contenders alike; a thread at nice 0 then gets 1 % of a core they fill


@dataclass(frozen=True)
class Source:
    """What is measured and where."""

    root: Path
    recipe_file: Path
    recipe: Recipe
    site_name: str
    site: Site


def source(recipe_name: str, site_name: str) -> Source:
    root = place.root()
    recipe_file = read.find(recipe_name, [Path.cwd() / "recipes", root / "recipes"])
    folders = [recipe_file.parent, Path.cwd(), root]
    return Source(
        root, recipe_file, read.read(recipe_file), site_name, sites.find(site_name, folders)
    )


def planned(origin: Source, wishes: Wishes) -> Schedule:
    """The plan as it stands now, with nothing built and nothing started."""
    if wishes.fit == "strict" and origin.site.fit != "strict":
        wishes = replace(wishes, fit=origin.site.fit)
    where = place.local(origin.recipe, origin.recipe_file, origin.site, origin.root)
    return plans.make(origin.recipe, where, wishes)


def start(origin: Source, wishes: Wishes, runs: Path, watcher: Watcher) -> tuple[Path, list[Trial]]:
    """Plans, builds and runs; returns the run directory and the trials that stayed invalid."""
    first = planned(origin, wishes)
    build(origin.root, cells.needs(first.recipe, first.place, first.cells))
    schedule = planned(origin, replace(wishes, seed=first.seed))
    built = cells.without_unbuilt(schedule.recipe, schedule.place, schedule.cells)
    if built != schedule.cells:
        schedule = plans.arrange(
            schedule.recipe, schedule.place, built, replace(wishes, seed=first.seed)
        )
    _refuse_nothing(schedule)
    with machine_of(f"{schedule.recipe.name} (process {os.getpid()})") as host:
        nice = prefer(host, origin.site)
        facts = machine.facts(host, SEARCH_PATH, schedule.place.java)
        tuned = tune.apply(host, schedule) if wishes.tune else None
        run_dir = store.create(runs, schedule.recipe.name)
        host.ask("clean_up_at_end", folders=[str(scratch_folder(run_dir.name))])
        run = _describe(origin, schedule, run_dir, facts)
        run = replace(run, nice=nice, tuned=tuned)
        shutil.copy(origin.recipe_file, run_dir / "recipe.toml")
        store.write_json(run_dir / "site.json", origin.site.model_dump())
        store.write_plan(run_dir, schedule.lines())
        store.write_run(run_dir, run)
        where = str(origin.recipe_file.resolve())
        store.append_event(run_dir, "created", recipe=where, pid=os.getpid())
        with _tuned(run_dir, host, watcher, tuned):
            return run_dir, execute.execute(run_dir, schedule, host, watcher, run)


def resume(
    run_dir: Path, watcher: Watcher, force: bool, accept_noise: bool = False
) -> tuple[Path, list[Trial]]:
    """Goes on with a run: finished trials stay, the rest of the plan is measured."""
    run = store.read_run(run_dir)
    if execute.is_held(run_dir):
        raise ResultsError(f"{run_dir.name} is still running; wait for it or stop it")
    origin = _source_of(run_dir, run)
    schedule = replace(_schedule_of(run_dir, run, origin), accept_noise=accept_noise)
    build(origin.root, cells.needs(schedule.recipe, schedule.place, schedule.cells))
    with machine_of(run.run_id) as host:
        host.ask("clean_up_at_end", folders=[str(scratch_folder(run_dir.name))])
        _same_machine(run, host, force)
        if prefer(host, origin.site) != run.nice and not force:
            raise ResultsError(
                f"the run began with its programs at nice {run.nice}, which this user or site does "
                "not give them now; --force goes on all the same"
            )
        tuned = None if run.tuned is None else tune.apply(host, schedule)
        store.append_event(run_dir, "resumed", pid=os.getpid(), forced=force)
        store.point_latest(run_dir)
        run = replace(run, state="running", ended=None, tuned=tuned)
        store.write_run(run_dir, run)
        with _tuned(run_dir, host, watcher, tuned):
            return run_dir, execute.execute(run_dir, schedule, host, watcher, run)


@contextmanager
def _tuned(
    run_dir: Path, host: Host, watcher: Watcher, sentences: list[str] | None
) -> Iterator[None]:
    """Tells what was changed on the machine, and undoes it however the run ends."""
    if sentences is None:
        yield
        return
    store.append_event(run_dir, "tuned", done=sentences)
    for sentence in sentences:
        watcher.told(f"for this run: {sentence}")
    try:
        yield
    finally:
        undone = tune.undo(host)
        execute.tell(run_dir, "restored", "; ".join(undone))


@contextmanager
def machine_of(owner: str) -> Iterator[Host]:
    """This machine's agent, holding the lock; it ends with everything it started."""
    mark = f"{os.getpid()}-{os.urandom(2).hex()}"
    host = local.start(mark, cgroups="WIRESPEED_NO_CGROUPS" not in os.environ)
    try:
        local.lock(host, owner)
        yield host
    finally:
        host.close()


def prefer(host: Host, site: Site) -> int:
    """The nice value of every measured program: other programs and kernel threads come after."""
    return host.prefer(NICE) if site.priority == "high" else 0


def _refuse_nothing(schedule: Schedule) -> None:
    if schedule.trials:
        return
    reasons = dict.fromkeys(cell.reason for cell in schedule.cells if cell.reason)
    raise InputError(f"{schedule.recipe.name}: nothing can be measured: {'; '.join(reasons)}")


def _describe(origin: Source, schedule: Schedule, run_dir: Path, facts: dict[str, object]) -> Run:
    recipe, times = schedule.recipe, schedule.times
    return Run(
        run_id=run_dir.name,
        recipe=recipe.name,
        title=recipe.title,
        method=recipe.method,
        recipe_hash=hashlib.blake2b(origin.recipe_file.read_bytes(), digest_size=8).hexdigest(),
        site=origin.site_name,
        started=execute.now(),
        wirespeed_version=wirespeed.__version__,
        commit=_commit(origin.root),
        seed=schedule.seed,
        argv=sys.argv,
        plan=RunPlan(
            schedule.repeat,
            recipe.plan.order,
            dict(recipe.plan.baseline),
            times.warmup_s,
            times.duration_s,
            times.cooldown_s,
            dict(recipe.plan.ceiling),
        ),
        thinned=schedule.thinned + ([NOISE_ACCEPTED] if schedule.accept_noise else []),
        fit=schedule.fit,
        budget_s=schedule.budget_s,
        facts=facts,
        axes=recipe.axis_values(),
        tables=[_plain(table) for table in recipe.table],
        metrics=[_plain(metric) for metric in recipe.metric],
        stacks={name: _plain(stack) for name, stack in recipe.stacks.items()},
    )


def _plain(model: object) -> dict[str, object]:
    """A model as the recipe wrote it: its own names, nothing that was not said."""
    dumped = model.model_dump(by_alias=True, exclude_unset=True, mode="json")  # type: ignore[attr-defined]
    return json.loads(json.dumps(dumped))  # type: ignore[no-any-return]


def _commit(root: Path) -> str:
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def _source_of(run_dir: Path, run: Run) -> Source:
    """The recipe as it was; its folder is still where templates and assets are looked up."""
    created = next((e for e in store.read_events(run_dir) if e["event"] == "created"), {})
    recipe_file = Path(created.get("recipe", run_dir / "recipe.toml"))
    recipe = read.read(run_dir / "recipe.toml")
    site = Site.model_validate(store.read_json(run_dir / "site.json"))
    return Source(place.root(), recipe_file, recipe, run.site, site)


def _schedule_of(run_dir: Path, run: Run, origin: Source) -> Schedule:
    lines = store.read_plan(run_dir)
    recipe = plans.with_values(origin.recipe, run.axes)
    where = place.local(recipe, origin.recipe_file, origin.site, origin.root)
    plan, done_s = recipe.plan, run.plan
    times = Times(
        plan.settle, done_s.warmup_s, done_s.duration_s, done_s.cooldown_s,
        plan.warmup_least, plan.step_warmup, plan.duration_least,
    )  # fmt: skip
    where = replace(where, duration_s=times.duration_s, warmup_s=times.warmup_s)
    known = {line.cell: _cell_of(line, recipe, where, run.fit) for line in lines}
    lives: dict[int, order.Life] = {}
    for line in lines:
        if line.state == "planned":
            life = lives.setdefault(line.life, order.Life(line.round, []))
            life.cells.append(known[line.cell])
    done = len(store.read_trials(run_dir))
    total = sum(line.state == "planned" for line in lines)
    guess = plans.Guess(recipe, where, run.plan.repeat).seconds(list(known.values()), times)
    return Schedule(
        recipe, where, list(known.values()), list(lives.values()), times, run.plan.repeat,
        run.thinned, run.seed, run.fit, guess * (total - done) / max(1, total),
        budget_s=run.budget_s and run.budget_s * (total - done) / max(1, total),
    )  # fmt: skip


def _cell_of(line: PlannedTrial, recipe: Recipe, where: Place, mode: str) -> PlannedCell:
    one = sweep.Cell(line.cell, line.axes)
    if line.state != "planned":
        return PlannedCell(one, line.state, line.reason)
    fitted = fit.fit(Resolver(recipe, one, where), where.role_cores, mode)
    if fitted.problem:
        raise ResultsError(f"the run cannot go on here: {fitted.problem}")
    return PlannedCell(one, cores=fitted.cores, shared_cores=fitted.shared)


def _same_machine(run: Run, host: Host, force: bool) -> None:
    """Figures of two machines do not belong into one run."""
    found = machine.facts(host, SEARCH_PATH)
    for name in machine.IDENTITY:
        if run.facts.get(name) != found.get(name) and not force:
            raise ResultsError(
                f"this machine differs from the one that began the run: {name} was "
                f"{run.facts.get(name)}, is {found.get(name)}; --force goes on all the same"
            )
