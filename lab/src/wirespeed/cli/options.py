"""Options that several commands share, and where runs are kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from wirespeed import units
from wirespeed.errors import InputError, UnitError


def whole_number(option: str, least: int, most: int | None = None) -> Callable[[object], int]:
    """Reads the value of an option; one that does not fit is one line, alike for all of them."""
    allowed = f"{least} to {most}" if most is not None else f"{least} or more"

    def read(value: object) -> int:
        try:
            number = int(str(value))
        except ValueError:
            raise InputError(
                f"{option}: {str(value)!r} is not a whole number ({allowed})"
            ) from None
        if number < least or (most is not None and number > most):
            raise InputError(f"{option}: {number} is out of range ({allowed})")
        return number

    return read


def seconds(option: str, text: str) -> float:
    """The value of an option that is a time; raises InputError."""
    try:
        return units.duration_s(text)
    except UnitError as error:
        raise InputError(f"{option}: {error}") from None


RunsOption = Annotated[
    Path | None,
    typer.Option("--runs", metavar="DIR", help="Folder of all runs; also WIRESPEED_RUNS."),
]
SiteOption = Annotated[
    str, typer.Option("--site", metavar="NAME", help="Machines to use: a site of sites.toml.")
]
OnlyOption = Annotated[
    str,
    typer.Option(
        "--only",
        metavar="AXIS=VALUE,…",
        help="Measure these cells only, for example payload=16,128,stack=kernel.",
    ),
]
RepeatOption = Annotated[
    int | None,
    typer.Option(
        "--repeat",
        parser=whole_number("--repeat", 1, 1000),
        metavar="N",
        help="Trials per cell; fewer than 3 give no verdict. Default: the recipe's, else as many "
        "as verdicts need.",
    ),
]
BudgetOption = Annotated[
    str,
    typer.Option(
        "--budget", metavar="TIME", help="Shorten and thin the run to fit TIME, for example 20m."
    ),
]
FitOption = Annotated[
    str,
    typer.Option(
        "--fit",
        metavar="MODE",
        help="strict: instances have their own cores; share: they share cores when there are too "
        "few; pairs: server and generator share one.",
    ),
]
ServerCoresOption = Annotated[
    int | None,
    typer.Option(
        "--server-cores",
        parser=whole_number("--server-cores", 1),
        metavar="N",
        help="Cores of each server. Default: all that the machine has for servers.",
    ),
]
PORT = whole_number("--port", 1, 65535)
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        parser=whole_number("--seed", 0),
        metavar="N",
        help="Seed of the random order, to repeat that of an earlier run.",
    ),
]
NoiseOption = Annotated[
    bool,
    typer.Option(
        "--accept-noise",
        help="Keep trials with interference, with a note, instead of repeating them.",
    ),
]
TuneOption = Annotated[
    bool,
    typer.Option(
        "--tune",
        help="Tune the machine for the run: the recipe's settings, other programs off the measured "
        "cores. Everything is restored at the end.",
    ),
]
ProfileOption = Annotated[
    bool,
    typer.Option(
        "--profile", help="After the run, sample each contender with perf, for flame graphs."
    ),
]
CiOption = Annotated[
    str,
    typer.Option(
        "--ci",
        metavar="DIR",
        help="Write a pull-request comment, JUnit XML and benchmark JSON to DIR.",
    ),
]
AllowMissingOption = Annotated[
    bool,
    typer.Option(
        "--allow-missing",
        help="Let cells pass that could not run, did not fit or were left out.",
    ),
]
FailOnOption = Annotated[
    str,
    typer.Option(
        "--fail-on",
        metavar="WHAT",
        help="Exit with status 3 on: loss, undecided, or loss,undecided.",
    ),
]
RequireOption = Annotated[
    list[str] | None,
    typer.Option(
        "--require",
        metavar="RULE",
        help="Exit with status 3 unless RULE holds, for example 'p99 < 5ms'; repeatable.",
    ),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's name or folder, or latest.")
]


SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a key of the recipe, for example plan.duration=30s; repeatable.",
    ),
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="Label to keep with the run; repeatable."),
]
NoteOption = Annotated[
    str, typer.Option("--note", metavar="TEXT", help="Note to keep with the run.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def complete_recipe(incomplete: str) -> list[str]:
    from wirespeed.runner import place

    folder = place.root() / "recipes"
    return sorted(p.stem for p in folder.glob("*.toml") if p.stem.startswith(incomplete))


RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A recipe's path, or the name of a shipped one.",
        autocompletion=complete_recipe,
    ),
]


def runs_folder(given: Path | None) -> Path:
    from wirespeed.runner import place

    # Whole: programs are started elsewhere, and their command lines name files of the run.
    folder = (given or Path(os.environ.get("WIRESPEED_RUNS") or place.runs_folder())).absolute()
    str(folder).encode()  # in command lines that runs keep; see main()
    return folder
