"""The commands compare, reproduce, trend, doctor, knee and baseline."""

from __future__ import annotations

from collections.abc import Iterable
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
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Metric to compare. Default: the recipe's first; repeatable.",
    ),
]

COMPARE_NEEDS = (
    "compare: needs two RUNs, or --run COMMAND at least twice, "
    "or --rev BASE --rev NEW with one --run COMMAND"
)


#: Options of a measurement by `compare --rev` or `--run`, which say nothing of two runs.
OF_MEASUREMENT = (
    "accept-noise", "build", "ci", "connections", "duration", "method", "path", "port", "profile",
    "rate", "repeat", "server-cores", "threshold",
)  # fmt: skip


def given(context: typer.Context, options: Iterable[str]) -> list[str]:
    """Those of the options that stand in the command line, whatever their values are."""
    sources = {name: context.get_parameter_source(name.replace("-", "_")) for name in options}
    return [
        f"--{name}" for name, source in sources.items() if source and source.name == "COMMANDLINE"
    ]


def compare(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN RUN]", help="Runs, baselines, or latest.")
    ] = None,
    metric: MetricOption = None,
    commands: Annotated[
        list[str] | None,
        typer.Option(
            "--run",
            metavar="COMMAND",
            help="Command of a server; give the baseline first, then others.",
        ),
    ] = None,
    revs: Annotated[
        list[str] | None,
        typer.Option(
            "--rev", metavar="REV", help="Revision of this git repository; give the baseline first."
        ),
    ] = None,
    build: Annotated[
        str,
        typer.Option(
            "--build", metavar="COMMAND", help="With --rev: command that builds a revision."
        ),
    ] = "",
    path: Annotated[
        str, typer.Option("--path", metavar="PATH", help="With --run or --rev: path to request.")
    ] = "/",
    port: Annotated[
        int,
        typer.Option(
            "--port",
            parser=PORT,
            metavar="N",
            help="With --run or --rev: port of the first server; in duets the second has 1000 "
            "more. {port} stands for each server's own.",
        ),
    ] = 8000,
    connections: Annotated[
        str,
        typer.Option(
            "--connections",
            metavar="N,…",
            help="With --run or --rev: numbers of connections, one row each.",
        ),
    ] = "50",
    duration: Annotated[
        str,
        typer.Option(
            "--duration", metavar="TIME", help="With --run or --rev: measured time of a trial."
        ),
    ] = "2s",
    method: Annotated[
        str,
        typer.Option(
            "--method",
            metavar="WHAT",
            help="With --run or --rev: duet (turns of 25 ms) or trials (one after the other).",
        ),
    ] = "duet",
    rate: Annotated[
        str,
        typer.Option(
            "--rate",
            metavar="N",
            help="With --run or --rev: requests/s for all, to compare CPU per request.",
        ),
    ] = "",
    threshold: Annotated[
        str,
        typer.Option(
            "--threshold",
            metavar="PERCENT",
            help="With --run or --rev: smallest difference that is a gain or loss.",
        ),
    ] = "2%",
    server_cores: ServerCoresOption = None,
    repeat: RepeatOption = None,
    accept_noise: NoiseOption = False,
    profile: ProfileOption = False,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="WHAT",
            help="Exit with status 3 on: loss (with two runs: worse), undecided, or both.",
        ),
    ] = "",
    ci: CiOption = "",
    html: Annotated[
        str,
        typer.Option("--html", metavar="FILE", help="With two runs: also write a page to FILE."),
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
        if build and not revs:
            raise InputError("--build belongs to compare --rev (--run starts what is there)")
        if rate and method == "duet" and given(context, ["method"]):
            raise InputError(
                "--method duet: an open loop cannot be held back for turns (leave out --rate, or "
                "--method)"
            )
        what = command.CompareOptions(
            commands or [], path, port, connections, duration, method, server_cores,
            command.rate_of(rate), ci, threshold,
        )  # fmt: skip
        options = PlanOptions(repeat=repeat, accept_noise=accept_noise, profile=profile)
        folder = runs_folder(runs)
        if revs:
            from wirespeed.cli import revisions

            between = revisions.Revisions(revs, build, (commands or [""])[0])
            code = revisions.measure(between, what, folder, options, fail_on, as_json)
        else:
            code = command.measure(what, folder, options, fail_on, as_json)
        raise typer.Exit(code)
    if vain := given(context, OF_MEASUREMENT):
        verb = "belongs" if len(vain) == 1 else "belong"
        raise InputError(f"{' and '.join(vain)} {verb} to compare --rev or --run")
    if len(names) != 2:
        raise InputError(COMPARE_NEEDS)
    pair = (names[0], names[1])
    code = command.compare(pair, runs_folder(runs), metric or [], as_json, fail_on, html)
    raise typer.Exit(code)


def reproduce(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run, or its folder or report.html.")],
    site: Annotated[
        str, typer.Option("--site", metavar="NAME", help="Another site than the run's.")
    ] = "",
    metric: MetricOption = None,
    label: LabelOption = None,
    note: NoteOption = "",
    accept_noise: NoiseOption = False,
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Start the commands of a run from elsewhere without asking."),
    ] = False,
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """Measure a run again as it was, and compare both; exit with status 3 when they differ."""
    from wirespeed.cli import reproduce as command

    extras = command.Extras(site, metric or [], label or [], note, accept_noise, trust)
    raise typer.Exit(command.reproduce(run, runs_folder(runs), extras, as_json))


def trend(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN …]", help="Runs to use; else all of one recipe."),
    ] = None,
    metric: Annotated[
        str,
        typer.Option("--metric", metavar="NAME", help="Metric to follow. Default: the first."),
    ] = "",
    recipe: Annotated[
        str,
        typer.Option("--recipe", metavar="NAME", help="Recipe. Default: the latest run's."),
    ] = "",
    where: Annotated[
        str,
        typer.Option("--where", metavar="AXIS=VALUE,…", help="Show these cells only."),
    ] = "",
    label: Annotated[
        list[str] | None,
        typer.Option(
            "--label", metavar="KEY=VALUE", help="Use runs with this label only; repeatable."
        ),
    ] = None,
    fail_on: Annotated[
        str,
        typer.Option(
            "--fail-on",
            metavar="WHAT",
            help="worse: exit with status 3 on a new change for the worse.",
        ),
    ] = "",
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """Show a metric over all runs of a recipe, and where it changed."""
    from wirespeed.cli import trend as command

    chosen = command.Choice(names or [], recipe, where, label or [])
    raise typer.Exit(command.trend(chosen, runs_folder(runs), metric, fail_on, as_json))


def doctor(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="A run; else this machine.")] = "",
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """Show what this machine lacks, or why a run did not decide and what would change that."""
    from wirespeed.cli import doctor as command

    if run:
        command.of_run(run, runs_folder(runs), as_json)
    else:
        raise typer.Exit(command.of_machine(as_json))


def knee(
    recipe: RecipeArgument,
    require: Annotated[
        list[str],
        typer.Option("--require", metavar="RULE", help="Rule to meet: 'p99 < 5ms'; repeatable."),
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
            help="Trials per rate; their median counts.",
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
    """Name a run, for example to `wirespeed compare NAME latest`."""
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
