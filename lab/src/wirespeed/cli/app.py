"""The command line: its options, and errors turned into one line and an exit code."""

from __future__ import annotations

import errno
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import wirespeed
from wirespeed.cli import after, streams
from wirespeed.cli.options import (
    PORT,
    AllowMissingOption,
    BudgetOption,
    CiOption,
    FailOnOption,
    FitOption,
    JsonOption,
    LabelOption,
    NoiseOption,
    NoteOption,
    OnlyOption,
    ProfileOption,
    RecipeArgument,
    RepeatOption,
    RequireOption,
    RunArgument,
    RunsOption,
    SeedOption,
    ServerCoresOption,
    SetOption,
    SiteOption,
    TuneOption,
    complete_recipe,
    runs_folder,
    whole_number,
)
from wirespeed.errors import COMMAND, InputError, RunError, UnitError, WirespeedError

if TYPE_CHECKING:
    from wirespeed.runner.plan import PlanOptions

USAGE_ERROR: Any = (
    typer.BadParameter.__base__
)  # the base of all usage errors; Typer has no name for it

KEPT = 10  # runs of each recipe, where --keep does not say

app = typer.Typer(
    name="wirespeed",
    help="Measures HTTP servers as a recipe describes, and reports how reliable the results are.",
    no_args_is_help=True,
    rich_markup_mode=None,  # an error is a line, without a box around it
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 1 a measurement failed, 2 bad input, "
    "129 stopped by a closed terminal, 130 by Ctrl-C, 143 by TERM.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def plan_options(
    only: str,
    repeat: int | None,
    budget: str,
    fit: str,
    seed: int | None,
    accept_noise: bool = False,
    tune: bool = False,
) -> PlanOptions:
    from wirespeed import units
    from wirespeed.runner.plan import FIT_MODES, PlanOptions

    if fit not in FIT_MODES:
        raise InputError(f"--fit: unknown mode {fit!r} ({', '.join(FIT_MODES)})")
    try:
        budget_s = units.duration_s(budget) if budget else None
    except UnitError as error:
        raise InputError(f"--budget: {error}") from None
    return PlanOptions(only, repeat, budget_s, fit, seed, accept_noise, tune)


@app.callback(invoke_without_command=True)
def every_call(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        typer.echo(f"wirespeed {wirespeed.__version__}")
        raise typer.Exit()


@app.command()
def run(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="[RECIPE]",
            help="A recipe's path, or the name of a shipped one.",
            autocompletion=complete_recipe,
        ),
    ] = "",
    site: SiteOption = "here",
    budget: BudgetOption = "",
    repeat: RepeatOption = None,
    only: OnlyOption = "",
    fit: FitOption = "strict",
    seed: SeedOption = None,
    resume: Annotated[
        str, typer.Option("--resume", metavar="RUN", help="Continue a run that was stopped.")
    ] = "",
    add_rounds: Annotated[
        int,
        typer.Option(
            "--add-rounds",
            parser=whole_number("--add-rounds", 0, 1000),
            metavar="N",
            help="With --resume: measure N more rounds.",
        ),
    ] = 0,
    until_decided: Annotated[
        bool,
        typer.Option(
            "--until-decided",
            help="Add rounds while a comparison is undecided and more rounds would decide it.",
        ),
    ] = False,
    for_: Annotated[
        str,
        typer.Option("--for", metavar="TIME", help="With --until-decided: for at most TIME."),
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Resume even if the machine has changed.")
    ] = False,
    accept_noise: NoiseOption = False,
    tune: TuneOption = False,
    profile: ProfileOption = False,
    wait_for_quiet: Annotated[
        str,
        typer.Option(
            "--wait-for-quiet", metavar="TIME", help="Wait at most TIME for a quiet machine first."
        ),
    ] = "",
    wait_for_calm: Annotated[  # its name in version 0.1.0
        str, typer.Option(hidden=True, metavar="TIME", help="Old name of --wait-for-quiet.")
    ] = "",
    fail_on: FailOnOption = "",
    require: RequireOption = None,
    allow_missing: AllowMissingOption = False,
    ci: CiOption = "",
    set_: SetOption = None,
    label: LabelOption = None,
    note: NoteOption = "",
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """Measure a recipe: every cell several times, interleaved so that drift cancels out."""
    from wirespeed import units
    from wirespeed.cli import run as command
    from wirespeed.runner import session

    check = command.check_of(fail_on, require or [], allow_missing)
    wait_for_quiet = wait_for_quiet or wait_for_calm
    if bool(recipe) == bool(resume):
        raise InputError(
            f"run: needs either RECIPE or --resume RUN (`{COMMAND} list` lists the recipes)"
        )
    if add_rounds and not resume:
        raise InputError("--add-rounds: needs --resume RUN (for a new run use --repeat N)")
    if for_ and (resume or not until_decided):
        raise InputError("--for: needs --until-decided and a new run")
    of_new = {
        "--site": site != "here", "--budget": budget, "--repeat": repeat, "--only": only,
        "--fit": fit != "strict", "--seed": seed is not None, "--tune": tune, "--profile": profile,
        "--wait-for-quiet": wait_for_quiet, "--set": set_, "--label": label, "--note": note,
    }  # fmt: skip
    if resume and (given := [option for option, value in of_new.items() if value]):
        raise InputError(f"--resume: the run keeps its own settings (leave out {', '.join(given)})")
    folder = runs_folder(runs)
    if resume:
        more = session.More(add_rounds, until_decided, force, accept_noise)
        ended = command.resume(resume, folder, more, as_json)
    else:
        wanted = plan_options(only, repeat, budget, fit, seed, accept_noise, tune)
        quiet_wait_s = units.duration_s(wait_for_quiet) if wait_for_quiet else 0.0
        marks = tuple(command.label(text) for text in label or [])
        for_s = units.duration_s(for_) if for_ else 0.0
        wanted = replace(wanted, quiet_wait_s=quiet_wait_s, labels=marks, note=note, for_s=for_s)
        wanted = replace(wanted, profile=profile)
        origin = session.source(recipe, site, set_ or [])
        ended = command.measure(origin, wanted, folder, until_decided, as_json)
    code = ended.code
    if ci and ended.run_dir:
        command.write_ci(ended.run_dir, ci)
    if not code and ended.run_dir:
        code = command.gate(ended.run_dir, check)
    raise typer.Exit(code)


@app.command()
def plan(
    recipe: RecipeArgument,
    site: SiteOption = "here",
    budget: BudgetOption = "",
    repeat: RepeatOption = None,
    only: OnlyOption = "",
    fit: FitOption = "strict",
    tune: TuneOption = False,
    commands: Annotated[
        bool, typer.Option("--commands", help="Show the command lines of each measured cell.")
    ] = False,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show cells, trials and time without running anything."""
    from wirespeed.cli import show
    from wirespeed.runner import session

    show.plan(
        session.source(recipe, site, set_ or []),
        plan_options(only, repeat, budget, fit, 0, tune=tune),
        commands,
        as_json,
    )


@app.command()
def schema() -> None:
    """Print the JSON Schema of recipes: editors complete and check TOML with it."""
    from wirespeed.cli import show

    show.schema()


@app.command()
def report(
    run: RunArgument = "latest",
    open_page: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser afterwards.")
    ] = False,
    fail_on: FailOnOption = "",
    require: RequireOption = None,
    allow_missing: AllowMissingOption = False,
    ci: CiOption = "",
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """Rebuild a run's report, tables and CSV from its trials, and show the tables."""
    from wirespeed.cli import run as command
    from wirespeed.results import store

    check = command.check_of(fail_on, require or [], allow_missing)
    command.report(run, runs_folder(runs), as_json)
    if ci:
        command.write_ci(store.find_run(runs_folder(runs), run), ci)
    if open_page:
        command.open_page(run, runs_folder(runs))
    raise typer.Exit(command.gate(store.find_run(runs_folder(runs), run), check))


@app.command(name="list")
def list_recipes(as_json: JsonOption = False) -> None:
    """List the recipes."""
    from wirespeed.cli import show

    show.recipes(as_json)


@app.command(name="runs")
def list_runs(
    prune: Annotated[
        bool, typer.Option("--prune", help="Say which runs may be removed; with --yes remove them.")
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            parser=whole_number("--keep", 1),
            metavar="N",
            help="With --prune: the newest N of each recipe stay (10).",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="With --prune: remove them.")] = False,
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """List past runs, or remove old ones."""
    from wirespeed.cli import prune as pruning
    from wirespeed.cli import show

    if (yes or keep is not None) and not prune:
        raise InputError("--keep and --yes belong to runs --prune")
    if prune:
        pruning.prune(runs_folder(runs), keep or KEPT, yes, as_json)
    else:
        show.runs(runs_folder(runs), as_json)


@app.command()
def audit(site: SiteOption = "here", as_json: JsonOption = False) -> None:
    """Show the facts of a site's machines, and which of them add noise."""
    from wirespeed.cli import hosts

    hosts.audit(site, as_json)


@app.command()
def recover(
    site: SiteOption = "here", as_json: JsonOption = False, runs: RunsOption = None
) -> None:
    """Clean up after a run that was killed: processes, cgroups, folders, settings."""
    from wirespeed.cli import hosts

    hosts.recover(runs_folder(runs), site, as_json)


tune_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Apply the machine settings of a recipe, and restore them.",
)
app.add_typer(tune_app, name="tune")


@tune_app.command()
def apply(recipe: RecipeArgument, site: SiteOption = "here", as_json: JsonOption = False) -> None:
    """Apply a recipe's sysctls, services and card settings, until `tune restore`."""
    from wirespeed.cli import hosts

    hosts.tune_apply(recipe, site, as_json)


@tune_app.command()
def status(site: SiteOption = "here", as_json: JsonOption = False) -> None:
    """Show which settings are changed, by which run, and which were changed by others since."""
    from wirespeed.cli import hosts

    hosts.tune_status(site, as_json)


@tune_app.command()
def restore(site: SiteOption = "here", as_json: JsonOption = False) -> None:
    """Restore settings that `tune apply` or a killed run left changed."""
    from wirespeed.cli import hosts

    hosts.tune_restore(site, as_json)


@app.command()
def init(
    file: Annotated[
        Path, typer.Argument(metavar="[FILE.toml]", help="The recipe to write.")
    ] = Path("my-server.toml"),
    command: Annotated[
        str,
        typer.Option("--command", metavar="TEXT", help="Starts the server; {port} is its port."),
    ] = "",
    port: Annotated[
        int,
        typer.Option("--port", parser=PORT, metavar="N", help="Where the server listens (8000)."),
    ] = 8000,
    path: Annotated[
        str, typer.Option("--path", metavar="PATH", help="Path of the requests.")
    ] = "/",
    connections: Annotated[
        str, typer.Option("--connections", metavar="N,…", help="Rows of the table.")
    ] = "1,50",
    bypass: Annotated[
        bool,
        typer.Option(
            "--bypass/--no-bypass", help="Measure on user-level sockets too (default), or not."
        ),
    ] = True,
    tried: Annotated[
        bool,
        typer.Option(
            "--try/--no-try", help="Start the server once and send it a request (default), or not."
        ),
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    server_cores: ServerCoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a recipe for your own server; prompts on a terminal for missing options."""
    from wirespeed.cli import init as writer

    given = writer.Answers(command, port, path, connections, bypass, tried, force, server_cores)
    writer.init(file, given, as_json)


app.command()(after.compare)
app.command()(after.reproduce)
app.command()(after.trend)
app.command()(after.doctor)
app.command()(after.knee)
app.add_typer(after.baseline_app, name="baseline")


@app.command()
def query(
    words: Annotated[
        list[str], typer.Argument(metavar="[RUN] SELECT", help="A run, and one SELECT of SQLite.")
    ],
    all_: Annotated[
        bool, typer.Option("--all", help="Over all runs: tables runs, trials and comparisons.")
    ] = False,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")] = False,
    runs: RunsOption = None,
) -> None:
    """Ask a run's trials in SQL: tables trials (axes and metrics as columns) and plan."""
    from wirespeed.cli import query as command

    if len(words) != (1 if all_ else 2):
        raise InputError("query: needs RUN and SELECT, or --all and SELECT")
    if all_:
        command.query_all(runs_folder(runs), words[0], as_json, as_csv)
    else:
        command.query_run(words[0], runs_folder(runs), words[1], as_json, as_csv)


@app.command()
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE.csv …", help="Tables of figures.")],
    as_json: JsonOption = False,
) -> None:
    """Check a published table of results: Little's law, link limit, bytes per request, scaling."""
    from wirespeed.cli import check as command

    raise typer.Exit(command.check(files, as_json))


def _refuse_recipe_as_command() -> None:
    """`wirespeed quickstart` is what many type first."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    if word.isidentifier() and word in complete_recipe(word):
        raise InputError(f"{word}: a recipe, not a command (measure it with: {COMMAND} run {word})")


def _called() -> int:
    """The exit code of the command; a usage error is one line, not Typer's four."""
    try:
        code = app(standalone_mode=False, prog_name="wirespeed")
    except USAGE_ERROR as error:
        text = error.format_message()
        if "\n" in text:  # a group without a command, whose text is its help
            error.show()
            return int(error.exit_code)
        path = error.ctx.command_path.partition(" ")[2] if error.ctx else ""
        where = f"{path}: " if path else ""
        help_ = " ".join(filter(None, [COMMAND, path, "--help"]))
        raise InputError(f"{where}{text.rstrip('.')} (see {help_})") from None
    except typer.Abort:
        print("wirespeed: stopped", file=sys.stderr)
        return 130
    return code if isinstance(code, int) else 0


def _refused(error: OSError) -> str:
    """`/tmp/x: no space left on device (free some space …)`."""
    why = (error.strerror or str(error)).lower()
    remedy = " (free some space)" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"{error.filename}: {why}{remedy}" if error.filename else f"{why}{remedy}"


def main() -> None:
    streams.guard()
    try:
        _refuse_recipe_as_command()
        raise SystemExit(_called())
    except WirespeedError as error:
        print(f"wirespeed: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except OSError as error:  # a file that nothing above speaks of: a disk may fill at any moment
        print(f"wirespeed: {_refused(error)}", file=sys.stderr)
        raise SystemExit(RunError.exit_code) from None
    except SystemExit as end:
        if words := streams.last_words():
            print(f"wirespeed: {words}", file=sys.stderr)
            raise SystemExit(end.code or 1) from None
        raise
