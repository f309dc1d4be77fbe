"""A whole run: read, plan, build, lock, measure; and its resumption."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import wirespeed
from wirespeed import interrupts, units
from wirespeed.agent import leftovers
from wirespeed.agent.children import Refused, account_of
from wirespeed.agent.facts import own_identity
from wirespeed.errors import BusyError, InputError, LostHostError, RecipeError, ResultsError
from wirespeed.fleet import links
from wirespeed.fleet.fleet import Fleet
from wirespeed.fleet.host import Host
from wirespeed.interrupts import held_back
from wirespeed.probe import machine
from wirespeed.process.start import SEARCH_PATH
from wirespeed.recipe import read, sweep
from wirespeed.recipe import site as sites
from wirespeed.recipe.model import Plan, Recipe, Site
from wirespeed.recipe.resolve import Place, Resolver
from wirespeed.results import store
from wirespeed.results.model import PlannedTrial, Run, RunPlan, Trial
from wirespeed.runner import audit as audits
from wirespeed.runner import (
    cells,
    counters,
    duet,
    execute,
    extend,
    files,
    fit,
    known,
    order,
    place,
    preflight,
    printed,
    profile,
    programs,
    tune,
)  # fmt: skip
from wirespeed.runner import plan as plans
from wirespeed.runner.budget import Times
from wirespeed.runner.build import build
from wirespeed.runner.cells import PlannedCell
from wirespeed.runner.duets import DuetRunner
from wirespeed.runner.plan import PlanOptions, Schedule
from wirespeed.runner.watcher import Watcher
from wirespeed.site import kinds
from wirespeed.site.base import Ask, Opened
from wirespeed.topology import Topology

NOISE_ACCEPTED = "Trials with interference were kept and noted (--accept-noise)."

MIXED = "Builds are mixed: the run went on with another one (--force): {}."

MIXED_PLACES = "Machines or settings are mixed: the run went on all the same (--force): {}."

AGAIN_S = 2.0  # between two attempts to reach hosts whose agents were lost
AGAIN_FOR_S = 20.0  # without a trial that was finished; a restart of a host takes longer

CLOCK_AHEAD_S = 60.0  # runs that follow within a second are named a second later, without a word

NICE = -20  # all contenders alike; a thread at nice 0 then gets 1 % of a core they fill


@dataclass(frozen=True)
class Source:
    """What is measured and where."""

    root: Path
    recipe_file: Path
    recipe: Recipe
    site_name: str
    site: Site
    text: str = ""  # of the recipe, with what it extends and what was set


def source(recipe_name: str, site_name: str, sets: Sequence[str] = ()) -> Source:
    root = place.root()
    shipped = [Path.cwd() / "recipes", root / "recipes"]
    recipe_file = read.find(recipe_name, shipped)
    recipe, text = read.read_with(recipe_file, sets, shipped)
    folders = [recipe_file.parent, Path.cwd(), root]
    printed.check(recipe, recipe_file, root)
    return Source(root, recipe_file, recipe, site_name, sites.find(site_name, folders), text)


def ask_of(origin: Source, mark: str = "plan") -> Ask:
    has_origin = any(process.role == "origin" for process in origin.recipe.process)
    is_with_cgroups = "WIRESPEED_NO_CGROUPS" not in os.environ
    return Ask(origin.site_name, origin.site, has_origin, mark, is_with_cgroups)


def planned(origin: Source, options: PlanOptions, topology: Topology | None = None) -> Schedule:
    """The plan as it stands now, with nothing built and no program started."""
    _check_users(origin)
    if options.fit == "strict" and origin.site.fit != "strict":
        options = replace(options, fit=origin.site.fit)
    is_here = origin.site.kind in ("local", "netns")
    if is_here and not (options.repeat or origin.recipe.plan.repeat or options.spread):
        identity = own_identity()
        options = replace(options, spread=known.of_machine(identity).spread)
    topology = topology or kinds.topology(ask_of(origin))
    where = place.at(origin.recipe, origin.recipe_file, origin.site, origin.root, topology)
    return plans.make(origin.recipe, where, options)


def _check_users(origin: Source) -> None:
    """Before anything is built. Hosts elsewhere report theirs when a program is started there."""
    if origin.site.kind not in ("local", "netns"):
        return
    for process in origin.recipe.process:
        if process.user:
            try:
                account_of(process.user)
            except Refused as error:
                key = f"process.{process.name}.user"
                raise RecipeError(origin.recipe_file, key, str(error)) from None


def parts_of(schedule: Schedule) -> list[str]:
    """Parts of the front door that the plan's programs are."""
    return cells.needs(schedule.recipe, schedule.place, schedule.cells)


def start(
    origin: Source, options: PlanOptions, runs: Path, watcher: Watcher
) -> tuple[Path, list[Trial]]:
    """Plans, builds and runs; returns the run directory and the trials that stayed invalid."""
    more = More(accept_noise=options.accept_noise)
    begun: list[Path] = []
    try:
        return _started(origin, options, runs, watcher, begun)
    except LostHostError as error:
        if not begun:
            raise
        return _gone_on(begun[0], watcher, more, error)


def _started(
    origin: Source, options: PlanOptions, runs: Path, watcher: Watcher, begun: list[Path]
) -> tuple[Path, list[Trial]]:
    """The same while every agent lives; `begun` gets the run directory once it can be resumed."""
    with opened(origin) as site:
        schedule = _built(origin, options, site.topology)
        fleet = site.fleet
        fleet.lock(f"{schedule.recipe.name} (process {os.getpid()})")
        fleet.tidy()
        if options.profile:
            profile.check(fleet, site.topology.hosts("server")[0])
        nice = prefer(fleet, origin.site)
        facts = facts_of(fleet, site.topology, schedule.place)
        audit = differing(facts, schedule, options.tune)
        for what, found, why in (row for row in audit if row[0] == audits.QUOTA):
            watcher.notify(f"{what}: {found}; {why}")
        if line := programs.left_out(schedule.recipe):
            watcher.notify(line)
        facts |= measure_links(fleet, schedule, watcher)
        facts |= programs.measured(fleet, schedule)
        facts |= counters.fact(fleet, site.topology.hosts("server")[0])
        tuned = tune.apply(fleet, schedule) if options.tune else None
        seen = _preflight(fleet, schedule, facts, options, watcher)
        run_dir = store.create(runs, schedule.recipe.name)
        if line := _of_clock(run_dir):
            watcher.notify(line)
        files.prepare(fleet, run_dir)
        run = _describe(origin, schedule, run_dir, facts)
        run = replace(run, nice=nice, tuned=tuned, preflight=seen, audit=audit)
        run = replace(run, labels=dict(options.labels), note=options.note)
        if options.until_decided:
            run = extend.begun(run, schedule.seconds, options.for_s)
        store.write_text(run_dir / "recipe.toml", origin.text)
        store.write_json(run_dir / "site.json", origin.site.model_dump())
        printed.keep(origin.recipe, origin.recipe_file, origin.root, run_dir)
        store.write_plan(run_dir, schedule.lines())
        where = str(origin.recipe_file.resolve())
        store.append_event(run_dir, "created", recipe=where, pid=os.getpid())
        # Before it is shown as running: else another command takes it for one that was cut off.
        with execute.hold(run_dir) as holder:
            store.announce(run_dir, run)
            begun.append(run_dir)
            with _tuned(run_dir, fleet, watcher, tuned):
                invalid = _executed(run_dir, schedule, fleet, watcher, run, holder)
                if options.profile:
                    profile.take(run_dir, schedule, fleet, watcher)
                return run_dir, invalid


def _of_clock(run_dir: Path) -> str:
    """Why a run's name is ahead of the clock: another run in its folder is."""
    ahead_s = (store.stamp_s(run_dir.name) or 0.0) - time.time()
    if ahead_s < CLOCK_AHEAD_S:
        return ""
    return (
        f"the clock is {units.duration_for_people(ahead_s)} behind the last run of "
        f"{run_dir.parent}; this run is named as a second later, so that it comes after it"
    )


def _executed(
    run_dir: Path, schedule: Schedule, fleet: Fleet, watcher: Watcher, run: Run, holder: IO[str]
) -> list[Trial]:
    return execute.execute(run_dir, schedule, fleet, watcher, run, holder, DuetRunner)


def _preflight(
    fleet: Fleet, schedule: Schedule, facts: dict[str, Any], options: PlanOptions, watcher: Watcher
) -> str:
    """Seconds before minutes: what this machine can decide now. Short runs go without."""
    if not options.quiet_wait_s and (schedule.seconds < preflight.WORTH_S or schedule.accept_noise):
        return ""
    seen = preflight.wait_for_quiet(fleet, schedule, facts, options.quiet_wait_s, watcher.notify)
    watcher.notify(seen.text(schedule))
    return seen.text(schedule)


def _built(origin: Source, options: PlanOptions, topology: Topology) -> Schedule:
    """The plan, with what it needs built; what cannot be built is shown as not runnable."""
    first = planned(origin, options, topology)
    build(origin.root, parts_of(first))
    schedule = planned(origin, replace(options, seed=first.seed), topology)
    built = cells.without_unbuilt(schedule.recipe, schedule.place, schedule.cells)
    if built != schedule.cells:
        schedule = plans.arrange(
            schedule.recipe, schedule.place, built, replace(options, seed=first.seed)
        )
    _refuse_nothing(schedule)
    return schedule


def facts_of(fleet: Fleet, topology: Topology, where: Place) -> dict[str, Any]:
    """Facts of the server's host; of other machines too where there are some, under `hosts`."""
    server = fleet[topology.hosts("server")[0]]
    facts = machine.facts(server, SEARCH_PATH, where.java, is_audit=True)
    others = {
        host.name: machine.facts(host, SEARCH_PATH, where.java) for host in _others(fleet, server)
    }
    return {**facts, **({"hosts": others} if others else {})}


def _others(fleet: Fleet, server: Host) -> list[Host]:
    """One host for each machine but the server's."""
    return [host for host in fleet.machines if host.info["boot_id"] != server.info["boot_id"]]


def differing(facts: dict[str, Any], schedule: Schedule, is_tuned: bool) -> list[list[str]]:
    """The server machine's facts that differ from the method or disturb; removed from `facts`."""
    rows = [] if is_tuned else tune.differences(schedule)
    named = {row[0] for row in rows}
    for one in audits.judged(facts):
        if one.level != "good" and one.what not in named:
            advice = f"{one.why}: {one.remedy}" if one.remedy else one.why
            rows.append([one.what, one.found, advice])
    del facts["audit"]
    return rows


@dataclass(frozen=True)
class More:
    """What a run that goes on shall measure beyond its plan, and what it may overlook."""

    add_rounds: int = 0
    until_decided: bool = False
    force: bool = False
    accept_noise: bool = False
    runs: Path | None = None  # the folder whose `latest` the run becomes, if it lies there


def resume(run_dir: Path, watcher: Watcher, more: More) -> tuple[Path, list[Trial]]:
    """Goes on with a run: finished trials stay, the rest of the plan is measured, and so many
    rounds more. A run that is refused stays as it was."""
    try:
        return _resumed(run_dir, watcher, more)
    except LostHostError as error:
        if not execute.has_lost_agents(run_dir):
            raise
        return _gone_on(run_dir, watcher, replace(more, add_rounds=0, until_decided=False), error)


def _gone_on(
    run_dir: Path, watcher: Watcher, more: More, lost: LostHostError
) -> tuple[Path, list[Trial]]:
    """After the loss of an agent, and of all that it had started: opens the site again and measures
    the rest. Each trial that is finished meanwhile gives the hosts more time."""
    done, deadline = -1, 0.0
    watcher.notify(f"{lost}; its site is opened again, and the run goes on")
    while True:
        interrupts.check()
        finished = len(store.read_trials(run_dir))
        if finished > done:
            done, deadline = finished, time.monotonic() + AGAIN_FOR_S
        time.sleep(AGAIN_S)
        try:
            _resumed(run_dir, watcher, more)
            return run_dir, [one for one in store.read_trials(run_dir) if not one.valid]
        except (LostHostError, BusyError):  # a host that was cut off keeps its lock for its lease
            is_stuck = len(store.read_trials(run_dir)) == done
            if is_stuck and time.monotonic() > deadline:
                raise


def _resumed(run_dir: Path, watcher: Watcher, more: More) -> tuple[Path, list[Trial]]:
    run = store.read_run(run_dir)
    if execute.is_held(run_dir):
        raise ResultsError(f"run {run_dir.name}: still running (wait for it or stop it)")
    origin = source_of(run_dir, run)
    with opened(origin) as site:
        schedule = _schedule_of(run_dir, run, origin, site.topology)
        build(origin.root, parts_of(schedule))
        return _resumed_on(run_dir, run, (origin, site, schedule), watcher, more)


def _resumed_on(
    run_dir: Path,
    run: Run,
    what: tuple[Source, Opened, Schedule],
    watcher: Watcher,
    more: More,
) -> tuple[Path, list[Trial]]:
    origin, site, schedule = what
    fleet = site.fleet
    fleet.lock(run.run_id)
    fleet.tidy()
    files.prepare(fleet, run_dir)
    is_scheduled = origin.site.kind == "slurm"  # which may name other nodes, and other cores
    places = [
        _other_recipe(run_dir, run),
        _other_machine(run, fleet, schedule, is_scheduled),
        _other_nice(run, prefer(fleet, origin.site)),
        "" if is_scheduled else _other_cores(store.read_trials(run_dir), schedule),
    ]
    remarks = _overlooked(places, MIXED_PLACES, more)
    measure_links(fleet, schedule, watcher)
    builds = _other_build(run, commit_of(origin.root), programs.measured(fleet, schedule))
    differs = f"this build differs from the one that began the run: {builds}"
    _overlooked([differs] if builds else [], MIXED, more)
    remarks += [MIXED.format(builds)] if builds else []
    with execute.hold(run_dir) as holder:
        if store.read_run(run_dir) != run:  # its rounds and analyses are counted there
            raise BusyError(f"another command went on with {run_dir.name} meanwhile; try again")
        return run_dir, _rest(run_dir, run, what, watcher, more, remarks, holder)


def _overlooked(differences: Sequence[str], sentence: str, more: More) -> list[str]:
    """Refuses a difference between the two parts of a run, or words it for the report."""
    differing = [text for text in differences if text]
    if differing and not more.force:
        raise ResultsError(f"{differing[0]}; --force goes on all the same")
    return [sentence.format("; ".join(differing))] if differing else []


def _rest(
    run_dir: Path,
    run: Run,
    what: tuple[Source, Opened, Schedule],
    watcher: Watcher,
    more: More,
    mixed: list[str],
    holder: IO[str],
) -> list[Trial]:
    """Measures what is open of a run that may go on; returns the trials that stayed invalid."""
    origin, site, schedule = what
    fleet = site.fleet
    tuned = None if run.tuned is None else tune.apply(fleet, schedule)
    if more.until_decided and run.state != "done":
        run = extend.begun(run)
    if more.add_rounds:
        added = extend.add_rounds(run_dir, more.add_rounds)
        run = replace(added, is_sequential=run.is_sequential)
        schedule = _schedule_of(run_dir, run, origin, site.topology)
    schedule = replace(schedule, accept_noise=schedule.accept_noise or more.accept_noise)
    store.append_event(run_dir, "resumed", pid=os.getpid(), forced=more.force, mixed=mixed)
    if more.runs is None or store.is_in(more.runs, run_dir):
        store.point_latest(run_dir)
    run = replace(run, state="running", ended=None, tuned=tuned)
    remarks = mixed + [NOISE_ACCEPTED] * schedule.accept_noise
    run = replace(run, thinned=list(dict.fromkeys([*run.thinned, *remarks])))
    store.write_run(run_dir, run)
    with _tuned(run_dir, fleet, watcher, tuned):
        return _executed(run_dir, schedule, fleet, watcher, run, holder)


def measure_links(fleet: Fleet, schedule: Schedule, watcher: Watcher) -> dict[str, str]:
    """Finds out what the run's links carry; reports where that is not what the site declares."""
    topology = schedule.place.topology
    used = {topology.link_of(one.cell.axes) for one in schedule.cells if one.is_measured}
    if topology.hosts("server")[0] in topology.hosts("load"):
        return {}
    fleet.capacities = links.measured(fleet, topology, sorted(used & set(topology.links)))
    for capacity in fleet.capacities.values():
        for sentence in capacity.differences():
            watcher.notify(sentence)
    return {f"link {name}": one.text() for name, one in fleet.capacities.items()}


def scaled(schedule: Schedule) -> list[str]:
    """Links that stand for faster ones, named so in the report."""
    sentences = []
    for link in schedule.place.topology.links.values():
        full_bps = units.speed_bps(link.speed) if link.speed else None
        used = any(one.cell.axes.get("link") == link.name for one in schedule.cells)
        if used and full_bps and link.rate_bps and link.rate_bps < full_bps:
            sentences.append(
                f"Link {link.name} is scaled: {link.rate_bps / 1e9:g} Gb/s stand for "
                f"{full_bps / 1e9:g} Gb/s (1:{full_bps / link.rate_bps:g})."
            )
    return sentences


@contextmanager
def _tuned(
    run_dir: Path, fleet: Fleet, watcher: Watcher, sentences: list[str] | None
) -> Iterator[None]:
    """Reports what was changed on the machine, and undoes it however the run ends."""
    if sentences is None:
        yield
        return
    store.append_event(run_dir, "tuned", done=sentences)
    for sentence in sentences:
        watcher.notify(f"for this run: {sentence}")
    try:
        yield
    finally:
        with held_back():
            undone = tune.undo(fleet)
            execute.note_event(run_dir, "restored", "; ".join(undone))


@contextmanager
def opened(origin: Source) -> Iterator[Opened]:
    """The site's agents; they end with everything they started."""
    mark = f"{os.getpid()}-{os.urandom(2).hex()}"
    site = kinds.open_site(ask_of(origin, mark))
    try:
        yield site
    finally:
        with held_back():
            if site.fleet.close() and origin.site.kind in ("local", "netns"):
                leftovers.tidy()


def audited(fleet: Fleet) -> list[tuple[str, dict[str, Any]]]:
    """Each machine's name and facts, with what an audit judges."""
    return [(host.name, machine.facts(host, SEARCH_PATH, is_audit=True)) for host in fleet.machines]


@contextmanager
def visited(site_name: str) -> Iterator[Opened]:
    """A site without a recipe: for questions about its hosts."""
    site = sites.find(site_name, [Path.cwd(), place.root()])
    opened = kinds.open_site(Ask(site_name, site, has_origin=False, mark="visit"))
    try:
        yield opened
    finally:
        with held_back():
            opened.fleet.close()


def prefer(fleet: Fleet, site: Site) -> int:
    """The nice value of every measured program: other programs and kernel threads come after."""
    return fleet.prefer(NICE) if site.is_high_priority else 0


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
        recipe_format=recipe.wirespeed,
        recipe_hash=_digest(origin.text.encode()),
        site=origin.site_name,
        started=execute.now(),
        wirespeed_version=wirespeed.__version__,
        commit=commit_of(origin.root),
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
            times.settle_s,
            recipe.plan.duet.model_dump() if duet.is_any(schedule.cells) else {},
            recipe.plan.threshold,
        ),
        thinned=[
            *schedule.thinned,
            *scaled(schedule),
            *([NOISE_ACCEPTED] if schedule.accept_noise else []),
        ],
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


def commit_of(root: Path) -> str:
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def source_of(run_dir: Path, run: Run) -> Source:
    """The recipe as it was; its folder is still where templates and assets are looked up."""
    created = next((e for e in store.read_events(run_dir) if e["event"] == "created"), {})
    recipe_file = Path(created.get("recipe", run_dir / "recipe.toml"))
    recipe, text = read.read_copy(run_dir / "recipe.toml")
    site = read.validated(Site, store.read_json(run_dir / "site.json"), run_dir / "site.json")
    return Source(place.root(), recipe_file, recipe, run.site, site, text)


def with_times(plan: Plan, measured: RunPlan) -> Plan:
    """The recipe's plan with the times that a run was measured with after its budget."""
    times = {"warmup": measured.warmup_s, "duration": measured.duration_s}
    times["cooldown"] = measured.cooldown_s
    if measured.settle_s is not None:  # older runs do not record it
        times["settle"] = measured.settle_s
    return plan.model_copy(update=times)


def _schedule_of(run_dir: Path, run: Run, origin: Source, topology: Topology) -> Schedule:
    lines = store.read_plan(run_dir)
    recipe = plans.with_values(origin.recipe, run.axes)
    where = place.at(recipe, origin.recipe_file, origin.site, origin.root, topology)
    plan = with_times(recipe.plan, run.plan)
    times = Times(
        plan.settle, plan.warmup, plan.duration, plan.cooldown,
        plan.warmup_least, plan.step_warmup, plan.duration_least,
    )  # fmt: skip
    where = replace(where, duration_s=times.duration_s, warmup_s=times.warmup_s)
    by_id = {line.cell: _cell_of(line, recipe, where, run.fit) for line in lines}
    sessions: dict[int, order.PlannedSession] = {}
    for line in lines:
        if line.state == "planned":
            session = sessions.setdefault(line.life, order.PlannedSession(line.round, []))
            session.cells.append(by_id[line.cell])
    done = len(store.read_trials(run_dir))
    total = sum(line.state == "planned" for line in lines)
    guess = plans.Guess(recipe, where, run.plan.repeat).seconds(list(by_id.values()), times)
    left = (total - done) / max(1, total)
    return Schedule(
        recipe=recipe,
        place=where,
        cells=list(by_id.values()),
        sessions=list(sessions.values()),
        times=times,
        repeat=run.plan.repeat,
        thinned=run.thinned,
        seed=run.seed,
        fit=run.fit,
        seconds=guess * left,
        accept_noise=NOISE_ACCEPTED in run.thinned,  # all trials of a run are admitted alike
        budget_s=run.budget_s and run.budget_s * left,
    )


def _cell_of(line: PlannedTrial, recipe: Recipe, where: Place, mode: str) -> PlannedCell:
    one = sweep.SweepPoint(line.cell, line.axes)
    if line.state != "planned":
        return PlannedCell(one, line.state, line.reason)
    fitted = fit.fit(Resolver(recipe, one, where), mode)
    if fitted.problem:
        raise ResultsError(f"the run cannot go on here: {fitted.problem}")
    return PlannedCell(one, seats=fitted.seats, shared_cores=fitted.shared, over=line.over)


def _other_build(run: Run, commit: str, builds: Mapping[str, str]) -> str:
    """The measured builds and files that have changed since the run began; earlier runs name
    few."""
    begun = {
        name: text
        for name, text in run.facts.items()
        if name.startswith(("program ", "file ", "environment "))
    }
    pairs = {name: (text, builds.get(name, "not found")) for name, text in begun.items()}
    if run.commit and commit:
        pairs["commit"] = (run.commit, commit)
    texts = [f"{name} was {was}, is {now}" for name, (was, now) in pairs.items() if was != now]
    return "; ".join(texts)


def _other_recipe(run_dir: Path, run: Run) -> str:
    """Whether the run's own copy of its recipe was edited: its cells would be two things."""
    text = (run_dir / "recipe.toml").read_bytes()
    if run.recipe_hash in ("", _digest(text)):  # none: of an early build
        return ""
    return f"{run_dir.name}/recipe.toml is not the recipe that began the run"


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _other_nice(run: Run, nice: int) -> str:
    if nice == run.nice:
        return ""
    return (
        f"the run began with its programs at nice {run.nice}, and this user or site gives them "
        f"nice {nice} now"
    )


def _other_cores(trials: Sequence[Trial], schedule: Schedule) -> str:
    """Programs that would be pinned to other cores than in the trials that are finished."""
    seats = {planned.cell.id: planned.seats for planned in schedule.cells}
    for trial in trials:
        for one in trial.processes:
            pinned = seats.get(trial.cell, {}).get(f"{one.name}-{one.index}")
            now = sorted(seat.core for seat in pinned or ())
            if now and now != sorted(one.cores):
                return f"{one.name}-{one.index} ran on cores {sorted(one.cores)}, now it is {now}"
    return ""


def _other_machine(
    run: Run, fleet: Fleet, schedule: Schedule, is_scheduled: bool = False
) -> str:
    """How the machines differ: figures of two of them do not belong into one run."""
    where = schedule.place
    server = fleet[where.topology.hosts("server")[0]]
    others = _others(fleet, server)
    begun = list(run.facts.get("hosts", {}).values())
    if len(begun) != len(others):
        return f"the run began on {len(begun) + 1} machines, these are {len(others) + 1}"
    names = [*machine.IDENTITY, *machine.KERNEL]
    names += [] if is_scheduled else ["machine"]
    names += machine.SETTINGS if run.tuned is None else ()  # else the run itself has changed them
    started = programs.started(fleet, schedule, machine.PROGRAMS)
    texts = []
    for name, was, host in [  # by place: a scheduler may name other nodes
        ("this machine", run.facts, server),
        *((host.name, was, host) for was, host in zip(begun, others, strict=True)),
    ]:
        facts = machine.facts(host, SEARCH_PATH, where.java)
        programs_there = started.get(host.info["boot_id"], set())
        texts.append(_other_identity(name, was, facts, [*names, *sorted(programs_there)]))
    return "; ".join(filter(None, texts))


def _other_identity(
    name: str, was: dict[str, Any], facts: dict[str, Any], names: Sequence[str]
) -> str:
    """Of facts that both parts of the run know; its identity always."""
    known = [one for one in names if one in machine.IDENTITY or (one in was and one in facts)]
    differing = [
        f"{one} was {was.get(one)}, is {facts.get(one)}"
        for one in known
        if was.get(one) != facts.get(one)
    ]
    if not differing:
        return ""
    return f"{name} differs from the one that began the run: {', '.join(differing)}"
