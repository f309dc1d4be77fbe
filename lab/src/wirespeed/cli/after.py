"""Commands around runs that are there: compare, reproduce, trend, doctor, knee, baselines."""

from __future__ import annotations

from typing import Annotated

import typer

from wirespeed.cli.options import (
    PORT,
    CiOption,
    JsonOption,
    LabelOption,
    NoiseOption,
    NoteOption,
    OnlyOption,
    ProfileOption,
    RecipeArgument,
    RepeatOption,
    RunArgument,
    RunsOption,
    ServerCoresOption,
    SetOption,
    SiteOption,
    runs_folder,
    whole_number,
)
from wirespeed.errors import InputError

MetricOption = Annotated[
    list[str] | None,
    typer.Option("--metric", metavar="NAME", help="Instead of the first one; may be repeated."),
]

COMPARE_NEEDS = (
    "compare: needs two RUNs, or --run COMMAND at least twice, "
    "or --rev BASE --rev NEW with one --run COMMAND"
)


def compare(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN RUN]", help="Runs, baselines, or latest.")
    ] = None,
    metric: MetricOption = None,
    commands: Annotated[
        list[str] | None,
        typer.Option("--run", metavar="COMMAND", help="Measure this server; give two or more."),
    ] = None,
    revs: Annotated[
        list[str] | None,
        typer.Option(
            "--rev", metavar="REV", help="Of this git repository: the base, then the new."
        ),
    ] = None,
    build: Annotated[
        str, typer.Option("--build", metavar="COMMAND", help="With --rev: run in each revision.")
    ] = "",
    path: Annotated[str, typer.Option("--path", metavar="PATH", help="With --run.")] = "/",
    port: Annotated[
        int, typer.Option("--port", parser=PORT, metavar="N", help="With --run.")
    ] = 8000,
    connections: Annotated[
        str, typer.Option("--connections", metavar="N,…", help="With --run.")
    ] = "50",
    duration: Annotated[str, typer.Option("--duration", metavar="TIME", help="With --run.")] = "2s",
    method: Annotated[
        str, typer.Option("--method", metavar="WHAT", help="With --run: duet, or trials.")
    ] = "duet",
    rate: Annotated[
        str,
        typer.Option(
            "--rate", metavar="N", help="With --run: N requests/s for all; CPU per request counts."
        ),
    ] = "",
    server_cores: ServerCoresOption = None,
    repeat: RepeatOption = None,
    accept_noise: NoiseOption = False,
    profile: ProfileOption = False,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on", metavar="WHAT", help="Exit with status 3 on: worse (loss), or undecided."
        ),
    ] = "",
    ci: CiOption = "",
    html: Annotated[
        str, typer.Option("--html", metavar="FILE", help="Of two runs: write a page, too.")
    ] = "",
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """Compare two runs, two commands (--run 'A' --run 'B') or two revisions (--rev A --rev B)."""
    from wirespeed.cli import compare as command
    from wirespeed.runner.plan import PlanOptions

    names = names or []
    if commands or revs:
        is_pair = len(revs or []) == 2 and len(commands or []) == 1
        if names or metric or not (is_pair or (not revs and len(commands or []) >= 2)):
            raise InputError(COMPARE_NEEDS)
        if html:
            raise InputError("--html belongs to compare RUN RUN (--run has a report of its own)")
        given = command.CompareOptions(
            commands or [], path, port, connections, duration, method, server_cores,
            command.rate_of(rate), ci,
        )  # fmt: skip
        options = PlanOptions(repeat=repeat, accept_noise=accept_noise, profile=profile)
        folder = runs_folder(runs)
        if revs:
            from wirespeed.cli import revisions

            wanted = revisions.Revisions(revs, build, (commands or [""])[0])
            code = revisions.measure(wanted, given, folder, options, fail_on, as_json)
        else:
            code = command.measure(given, folder, options, fail_on, as_json)
        raise typer.Exit(code)
    if build or ci or rate or profile:
        raise InputError("--build, --ci, --profile and --rate belong to compare --rev or --run")
    if len(names) != 2:
        raise InputError(COMPARE_NEEDS)
    pair = (names[0], names[1])
    code = command.compare(pair, runs_folder(runs), metric or [], as_json, fail_on, html)
    raise typer.Exit(code)


def reproduce(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run, or its folder or report.html.")],
    site: Annotated[str, typer.Option("--site", metavar="NAME", help="Another site.")] = "",
    metric: MetricOption = None,
    label: LabelOption = None,
    note: NoteOption = "",
    accept_noise: NoiseOption = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Start what a run of somebody else names, unasked.")
    ] = False,
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """Measure a run's recipe again as it was, and compare with the original; 3 when it differs."""
    from wirespeed.cli import reproduce as command

    extras = command.Extras(site, metric or [], label or [], note, accept_noise, trust)
    raise typer.Exit(command.reproduce(run, runs_folder(runs), extras, as_json))


def trend(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN …]", help="Else all of one recipe.")
    ] = None,
    metric: Annotated[
        str, typer.Option("--metric", metavar="NAME", help="Instead of the first one.")
    ] = "",
    recipe: Annotated[
        str, typer.Option("--recipe", metavar="NAME", help="Else that of the latest run.")
    ] = "",
    where: Annotated[
        str, typer.Option("--where", metavar="AXIS=VALUE,…", help="These cells only.")
    ] = "",
    label: LabelOption = None,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on", metavar="WHAT", help="Exit with status 3 on: worse, in the last run."
        ),
    ] = "",
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """Follow a metric over runs and commits, and find where it changed."""
    from wirespeed.cli import trend as command

    chosen = command.Choice(names or [], recipe, where, label or [])
    raise typer.Exit(command.trend(chosen, runs_folder(runs), metric, fail_on, as_json))


def doctor(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="A run; else this machine.")] = "",
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """Say what this machine lacks, or why a run could not decide, and what would change it."""
    from wirespeed.cli import doctor as command

    if run:
        command.of_run(run, runs_folder(runs), as_json)
    else:
        raise typer.Exit(command.of_machine(as_json))


def knee(
    recipe: RecipeArgument,
    require: Annotated[
        list[str], typer.Option("--require", metavar="RULE", help="'p99 < 5ms'; may be repeated.")
    ],
    site: SiteOption = "here",
    only: OnlyOption = "",
    set_: SetOption = None,
    repeat: Annotated[
        int,
        typer.Option(
            "--repeat",
            parser=whole_number("--repeat", 1, 100),
            metavar="N",
            help="Trials per rate (3); their median counts.",
        ),
    ] = 3,
    accept_noise: NoiseOption = False,
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """Find, for each cell of a recipe, the highest rate that still meets your latency limit."""
    from wirespeed.cli import knee as command
    from wirespeed.runner import session

    origin = session.source(recipe, site, set_ or [])
    search = command.Search(require, only, repeat, accept_noise)
    raise typer.Exit(command.knee(origin, search, runs_folder(runs), as_json))


baseline_app = typer.Typer(no_args_is_help=True, help="Give runs names to compare with.")


@baseline_app.command(name="save")
def save_baseline(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    run: RunArgument = "latest",
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """Name a run: `wirespeed compare NAME latest` finds it."""
    from wirespeed.cli import baseline as command

    command.save(runs_folder(runs), name, run, as_json)


@baseline_app.command(name="list")
def list_baselines(as_json: JsonOption = False, runs: RunsOption = None) -> None:
    """List the names and their runs."""
    from wirespeed.cli import baseline as command

    command.show(runs_folder(runs), as_json)


@baseline_app.command(name="remove")
def remove_baseline(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """Forget a name; the run stays."""
    from wirespeed.cli import baseline as command

    command.remove(runs_folder(runs), name, as_json)
