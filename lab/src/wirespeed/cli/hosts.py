"""`wirespeed audit`, `tune` and `recover`: commands on hosts, without a run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from wirespeed.cli import output
from wirespeed.errors import COMMAND
from wirespeed.runner import audit as audits
from wirespeed.runner import recover as recovery
from wirespeed.runner import session, tune
from wirespeed.runner.plan import PlanOptions

MARKS = {"good": "[green]✔[/green]", "note": "[yellow]·[/yellow]", "bad": "[red]✘[/red]"}


def audit(site: str, as_json: bool) -> None:
    """Every machine of the site: what was found, why it matters, what to do."""
    with session.visited(site) as opened:
        by_machine = {name: audits.judged(facts) for name, facts in session.audited(opened.fleet)}
    if as_json:
        output.write({name: output.records(rows) for name, rows in by_machine.items()})
        return
    console = Console(emoji=False)
    for name, rows in by_machine.items():
        if len(by_machine) > 1:
            console.print(f"\n[bold]{escape(name)}[/bold]")
        console.print(_judgements(rows))
        console.print(_summary(rows), highlight=False)


def _judgements(judgements: list[audits.Judgement]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for one in judgements:
        advice = f"{one.why}: {one.remedy}" if one.remedy else one.why
        words = escape(one.found) + (f"\n[dim]{escape(advice)}[/dim]" if advice else "")
        table.add_row(MARKS[one.level], escape(one.what), words)
    return table


def _summary(judgements: list[audits.Judgement]) -> str:
    bad = sum(one.level == "bad" for one in judgements)
    notes = sum(one.level == "note" for one in judgements)
    return f"{bad} to fix, {notes} to know, {len(judgements) - bad - notes} good"


def tune_apply(recipe: str, site: str, as_json: bool) -> None:
    """Sets what a recipe asks for until `tune restore`."""
    origin = session.source(recipe, site)
    with session.opened(origin) as opened:
        opened.fleet.lock("wirespeed tune")
        schedule = session.planned(origin, PlanOptions(), opened.topology)
        lines = tune.stand(opened.fleet, schedule)
    if as_json:
        output.write({"changed": lines})
        return
    for line in lines or ["nothing had to be changed"]:
        print(line)
    print(
        f"put it back with: {COMMAND} tune restore" + ("" if site == "here" else f" --site {site}")
    )


def tune_status(site: str, as_json: bool) -> None:
    with session.visited(site) as opened:
        found = tune.standing(opened.fleet)
    if as_json:
        output.write(found)
        return
    for name, status in found.items():
        if status is None:
            print(f"{name}: nothing is changed")
            continue
        for what, was, new, now in status["rows"]:
            other = "" if now == new else f", is {now}: somebody else set it"
            print(f"{name}: {what} was {was}, set to {new}{other}")
        if status["threads"]:
            print(f"{name}: {status['threads']} threads of other programs were moved")
        print(f"{name}: {_whose(status)}")


def _whose(status: dict[str, object]) -> str:
    if status["standing"]:
        return f"it stands until `{COMMAND} tune restore`"
    if status["by"]:
        return f"a run (agent {status['by']}) is at work and puts it back"
    return f"a run that was killed left it; `{COMMAND} tune restore` puts it back"


def tune_restore(site: str, as_json: bool) -> None:
    with session.visited(site) as opened:
        lines = tune.end_standing(opened.fleet)
    if as_json:
        output.write({"restored": lines})
        return
    for line in lines or ["nothing was changed"]:
        print(line)


def recover(folder: Path, site: str, as_json: bool) -> None:
    done = recovery.recover(folder)
    if site != "here":
        with session.visited(site) as opened:
            done = recovery.with_hosts(done, opened.fleet)
    if as_json:
        output.write(asdict(done))
        return
    for name in done.runs:
        print(f"run {name} was cut off; go on with: {COMMAND} run --resume {name}")
    if done.processes:
        print(f"ended {len(done.processes)} processes that were left")
    if done.folders:
        print(f"removed {', '.join(done.folders)}")
    for line in done.settings:
        print(line)
    for name in done.left:
        why = f"another machine has it ({COMMAND} recover there)"
        print(f"left run {name}: {done.reasons.get(name, why)}")
    if not any(asdict(done).values()):
        print("nothing was left behind")
