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
    seconds,
    whole_number,
)
from wirespeed.errors import COMMAND, InputError, RunError, WirespeedError

if TYPE_CHECKING:
    from wirespeed.runner.plan import PlanOptions

USAGE_ERROR: Any = (
    typer.BadParameter.__base__
)  # the base of all usage errors; Typer has no name for it

KEPT = 10  # runs of each recipe, where --keep does not say

app = typer.Typer(
    name="wirespeed",
    help="Measures network servers as a recipe describes, and shows how reliable the results are.",
    no_args_is_help=True,
    rich_markup_mode=None,  # an error is a line, without a box around it
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 1 a measurement failed, 2 bad input, 3 a check failed, "
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
    from wirespeed.runner.plan import FIT_MODES, PlanOptions

    if fit not in FIT_MODES:
        raise InputError(f"--fit: unknown mode {fit!r} ({', '.join(FIT_MODES)})")
    budget_s = seconds("--budget", budget) if budget else None
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
            help="Add rounds while they can decide a comparison.",
        ),
    ] = False,
    for_: Annotated[
        str,
        typer.Option("--for", metavar="TIME", help="With --until-decided: at most TIME."),
    ] = "",
    force: Annotated[
        bool,
        typer.Option("--force", help="Resume although machine, programs or recipe have changed."),
    ] = False,
    accept_noise: NoiseOption = False,
    tune: TuneOption = False,
    profile: ProfileOption = False,
    wait_for_quiet: Annotated[
        str,
        typer.Option(
            "--wait-for-quiet", metavar="TIME", help="First wait up to TIME for a quiet machine."
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
    from wirespeed.analysis import gate
    from wirespeed.cli import run as command
    from wirespeed.runner import session

    check = command.check_of(fail_on, require or [], allow_missing)
    gate.refuse_too_few(check, None if until_decided else repeat)
    wait_for_quiet = wait_for_quiet or wait_for_calm
    if bool(recipe) == bool(resume):
        raise InputError(
            f"run: needs either RECIPE or --resume RUN (`{COMMAND} list` lists the recipes)"
        )
    if add_rounds and not resume:
        raise InputError("--add-rounds: needs --resume RUN (for a new run use --repeat N)")
    if force and not resume:
        raise InputError("--force: needs --resume RUN")
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
        options = plan_options(only, repeat, budget, fit, seed, accept_noise, tune)
        quiet_wait_s = seconds("--wait-for-quiet", wait_for_quiet) if wait_for_quiet else 0.0
        marks = tuple(command.label(text) for text in label or [])
        for_s = seconds("--for", for_) if for_ else 0.0
        if for_ and not for_s:
            raise InputError(f"--for {for_}: no time (for example 10m)")
        options = replace(options, quiet_wait_s=quiet_wait_s, labels=marks, note=note, for_s=for_s)
        options = replace(options, profile=profile)
        origin = session.source(recipe, site, set_ or [])
        ended = command.measure(origin, options, folder, until_decided, as_json)
    code = ended.code
    if ci and ended.run_dir:
        command.write_ci(ended.run_dir, ci, check)
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
    otlp: Annotated[
        str,
        typer.Option("--otlp", metavar="URL", help="Send trials to an OpenTelemetry collector."),
    ] = "",
    as_json: JsonOption = False,
    runs: RunsOption = None,
) -> None:
    """Write a run's report, tables and CSV again from its trials, and show the tables."""
    from wirespeed.cli import run as command
    from wirespeed.report import otlp as collectors
    from wirespeed.results import store

    check = command.check_of(fail_on, require or [], allow_missing)
    collector = collectors.collector(otlp) if otlp else None
    run_dir = store.find_run(runs_folder(runs), run)
    command.report(run_dir, as_json)
    if ci:
        command.write_ci(run_dir, ci, check)
    if open_page:
        command.open_page(run_dir)
    code = command.gate(run_dir, check)
    # Last, as a collector that is down costs neither files nor gate.
    sent = command.send(run_dir, collector) if collector else 0
    raise typer.Exit(code or sent)


@app.command(name="list")
def list_recipes(as_json: JsonOption = False) -> None:
    """List the recipes."""
    from wirespeed.cli import show

    show.recipes(as_json)


@app.command(name="runs")
def list_runs(
    prune: Annotated[
        bool,
        typer.Option("--prune", help="List the runs that may be removed; with --yes remove them."),
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(
            "--keep",
            parser=whole_number("--keep", 1),
            metavar="N",
            help="With --prune: keep the newest N of each recipe. Default: 10.",
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
    """Show a site's machines, and which of their settings and programs add noise."""
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
    """Show which settings are changed, by which run, and which were changed again."""
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
        typer.Option(
            "--command", metavar="TEXT", help="Command that starts the server; {port} is its port."
        ),
    ] = "",
    port: Annotated[
        int,
        typer.Option("--port", parser=PORT, metavar="N", help="Port of the server."),
    ] = 8000,
    path: Annotated[
        str, typer.Option("--path", metavar="PATH", help="Path of the requests.")
    ] = "/",
    connections: Annotated[
        str, typer.Option("--connections", metavar="N,…", help="Numbers to measure.")
    ] = "1,50",
    bypass: Annotated[
        bool,
        typer.Option("--bypass/--no-bypass", help="Measure on user-level sockets too, or not."),
    ] = True,
    tried: Annotated[
        bool,
        typer.Option("--try/--no-try", help="Start the server once and send it a request, or not."),
    ] = True,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    server_cores: ServerCoresOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a recipe for your own server; prompts on a terminal for missing options."""
    from wirespeed.cli import init as writer

    given = writer.Answers(command, port, path, connections, bypass, tried, force, server_cores)
    writer.init(file, given, as_json)


@app.command()
def upgrade(
    files: Annotated[list[Path], typer.Argument(metavar="FILE.toml …", help="Your recipes.")],
    as_json: JsonOption = False,
) -> None:
    """Convert recipes of an earlier format in place, and print what changed."""
    from wirespeed.cli import upgrade as command

    command.upgrade(files, as_json)


app.command()(after.compare)
app.command()(after.reproduce)
app.command()(after.trend)
app.command()(after.doctor)
app.command()(after.knee)


@app.command()
def serve(
    port: Annotated[
        int,
        typer.Option(
            "--port", parser=whole_number("--port", 0, 65535), metavar="N",
            help="Port to listen on; 0 takes a free one.",
        ),
    ] = 8642,
    runs: RunsOption = None,
) -> None:  # fmt: skip
    """Show past runs in a browser on this machine: list, trends, differences of two."""
    from wirespeed.cli import serve as command

    command.serve(runs_folder(runs), port)


app.add_typer(after.baseline_app, name="baseline")


@app.command()
def query(
    words: Annotated[
        list[str], typer.Argument(metavar="[RUN] SELECT", help="A run, and one SELECT of SQLite.")
    ],
    all_: Annotated[
        bool, typer.Option("--all", help="Query all runs: tables runs, trials and comparisons.")
    ] = False,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the rows as CSV.")] = False,
    runs: RunsOption = None,
) -> None:
    """Query a run in SQL: tables trials (axes and metrics as columns) and plan."""
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


def _refuse_other_encodings() -> None:
    """Recipes and results are UTF-8: a run with another text in them could not be read again."""
    for word in sys.argv[1:]:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(f"{word!a}: not UTF-8 (rename the file, or set LC_ALL)") from None


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
        _refuse_other_encodings()
        _refuse_recipe_as_command()
        raise SystemExit(_called())
    except WirespeedError as error:
        print(f"wirespeed: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    except UnicodeEncodeError as error:  # a name that this machine has, such as of a folder
        text = ascii(error.object[max(0, error.start - 20) : error.end + 20])
        print(f"wirespeed: {text}: not UTF-8 (rename the file or folder)", file=sys.stderr)
        raise SystemExit(InputError.exit_code) from None
    except OSError as error:  # a file that nothing above speaks of: a disk may fill at any moment
        print(f"wirespeed: {_refused(error)}", file=sys.stderr)
        raise SystemExit(RunError.exit_code) from None
    except SystemExit as end:
        if words := streams.last_words():
            print(f"wirespeed: {words}", file=sys.stderr)
            raise SystemExit(end.code or 1) from None
        raise
