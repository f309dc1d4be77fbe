"""Options that several commands share, and where runs are kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from wirespeed.errors import InputError


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


RunsOption = Annotated[
    Path | None, typer.Option("--runs", metavar="DIR", help="Where run directories are kept.")
]
SiteOption = Annotated[
    str, typer.Option("--site", metavar="NAME", help="Where to run: a site of sites.toml.")
]
OnlyOption = Annotated[
    str,
    typer.Option(
        "--only", metavar="AXIS=VALUE,…", help="Measure a part: payload=16,128,stack=kernel."
    ),
]
RepeatOption = Annotated[
    int | None,
    typer.Option(
        "--repeat",
        parser=whole_number("--repeat", 1, 1000),
        metavar="N",
        help="Trials per cell; fewer than 3 give no verdict.",
    ),
]
BudgetOption = Annotated[
    str,
    typer.Option("--budget", metavar="TIME", help="Fit the run into this time, for example 20m."),
]
FitOption = Annotated[
    str,
    typer.Option(
        "--fit",
        metavar="MODE",
        help="strict: a core each; share: cores are shared; pairs: server and generator share.",
    ),
]
ServerCoresOption = Annotated[
    int | None,
    typer.Option(
        "--server-cores",
        parser=whole_number("--server-cores", 1),
        metavar="N",
        help="Cores of each server; by default half of the machine.",
    ),
]
PORT = whole_number("--port", 1, 65535)
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        parser=whole_number("--seed", 0),
        metavar="N",
        help="Repeat the order of a former run.",
    ),
]
NoiseOption = Annotated[
    bool,
    typer.Option(
        "--accept-noise",
        help="Keep trials with interference: note it instead of repeating them.",
    ),
]
TuneOption = Annotated[
    bool,
    typer.Option(
        "--tune",
        help="Change the machine for the time of the run: sysctls of the recipe, other programs "
        "off the measured cores. All is put back.",
    ),
]
ProfileOption = Annotated[
    bool,
    typer.Option("--profile", help="Then sample each contender once with perf: flame graphs."),
]
CiOption = Annotated[
    str,
    typer.Option("--ci", metavar="DIR", help="Write a comment, JUnit and benchmark JSON there."),
]
AllowMissingOption = Annotated[
    bool,
    typer.Option(
        "--allow-missing",
        help="Cells that were not runnable, did not fit or were left out do not fail the check.",
    ),
]
FailOnOption = Annotated[
    str,
    typer.Option(
        "--fail-on", metavar="WHAT", help="Exit with status 3 on: loss, undecided, or both."
    ),
]
RequireOption = Annotated[
    list[str] | None,
    typer.Option(
        "--require", metavar="RULE", help="Exit with status 3 unless 'p99 < 5ms'; may be repeated."
    ),
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's path or name, or latest.")]


SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Over the recipe: plan.duration=30s; may be repeated."
    ),
]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="Kept with the run; may be repeated."),
]
NoteOption = Annotated[str, typer.Option("--note", metavar="TEXT", help="Kept with the run.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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
    return (given or Path(os.environ.get("WIRESPEED_RUNS") or place.runs_folder())).absolute()
