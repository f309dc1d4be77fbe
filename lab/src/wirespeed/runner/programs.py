"""Which builds were measured: version, path and content of every server's program, and the
content of every file that the recipe has next to it: templates, scripts, profiles.

Two builds that call themselves the same differ in their content; a version that the program does
not print is asked for with the recipe's `version`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from wirespeed.agent import facts as agent_facts
from wirespeed.agent.files import hash_of
from wirespeed.driver import load, stack
from wirespeed.fleet.fleet import Fleet
from wirespeed.fleet.host import Host
from wirespeed.process.start import SEARCH_PATH
from wirespeed.recipe.model import Recipe
from wirespeed.recipe.resolve import Instance, Place, Resolver
from wirespeed.runner.plan import Schedule

ANSWER_S = 60.0
DIGITS = 12  # of a hash
Asked = tuple[tuple[str, ...], tuple[str, ...]]  # (command that prints the version, files)


def measured(fleet: Fleet, schedule: Schedule) -> dict[str, str]:
    """{"program NAME": "version (path, sha256 …)"} for servers and origins, and of the files that
    they and the generators are given {"file NAME": "sha256 …"}."""
    variants_of: dict[str, dict[Asked, str]] = {}
    files: dict[Path, None] = {}
    for planned in schedule.cells:
        resolver = Resolver(schedule.recipe, planned.cell, schedule.place)
        for one in resolver.instances(planned.seats) if planned.is_measured else ():
            files |= dict.fromkeys(_files(schedule.place, one) if one.index == 0 else ())
            if one.role != "load" and one.index == 0:
                variants_of.setdefault(one.name, {}).setdefault(_asked(one), one.host)
    facts: dict[str, str] = {}
    for name, variants in variants_of.items():
        for question, host in variants.items():
            text = _of(fleet[host], question)
            label = name if len(variants) == 1 else f"{name}, {Path(question[1][-1]).name}"
            facts |= {f"program {label}": text} if text else {}
    return facts | _hashes(list(files)) | _inherited(schedule.recipe)


def started(fleet: Fleet, schedule: Schedule, names: Collection[str]) -> dict[str, set[str]]:
    """Which of these programs a command of the schedule names, by the machine's boot."""
    found: dict[str, set[str]] = {}
    for planned in schedule.cells:
        resolver = Resolver(schedule.recipe, planned.cell, schedule.place)
        for one in resolver.instances(planned.seats) if planned.is_measured else ():
            words = " ".join([one.tool, *one.argv]).split()
            started_there = found.setdefault(fleet[one.host].info["boot_id"], set())
            started_there |= {Path(word).name for word in words} & set(names)
    return found


def _inherited(recipe: Recipe) -> dict[str, str]:
    """Variables of the user that programs get; a value may be a secret, so its hash is kept."""
    names = sorted({name for process in recipe.process for name in process.inherit})
    return {f"environment {name}": _digest(os.environ.get(name)) for name in names}


def _digest(value: str | None) -> str:
    if value is None:
        return "not set"
    return f"sha256 {hashlib.sha256(value.encode(errors='replace')).hexdigest()[:DIGITS]}"


#: Variables that change how programs run; whoever exported one may expect that it is used.
TELLING = re.compile(
    r"EF_\w+|LD_(PRELOAD|LIBRARY_PATH|BIND_NOW|AUDIT)|(JAVA|JDK_JAVA)_(TOOL_)?OPTIONS|_JAVA_OPTIONS|"
    r"MALLOC_\w+|GLIBC_TUNABLES|OMP_\w+|GO(GC|MAXPROCS|DEBUG|MEMLIMIT)|NODE_OPTIONS|UV_\w+|"
    r"PYTHON(PATH|OPTIMIZE|MALLOC|HASHSEED)|OPENSSL_\w+"
)


def left_out(recipe: Recipe) -> str:
    """One line that names exported variables which programs would notice and do not get."""
    passed = {name for process in recipe.process for name in process.inherit}
    names = sorted(name for name in os.environ if TELLING.fullmatch(name) and name not in passed)
    if not names:
        return ""
    return (
        f"measured programs do not get {', '.join(names)} of this shell; a recipe passes variables "
        "on with env or inherit"
    )


def _files(place: Place, one: Instance) -> Iterator[Path]:
    """The files besides the server's program that define a trial: were one changed before a run
    goes on, two kinds of trials would stand in one cell."""
    folder = place.recipe_file.resolve().parent
    for source in one.template.values():
        yield folder / source
    for word in one.argv[1:]:
        if word.startswith("/") and Path(word).is_relative_to(folder):
            yield Path(word)
    if one.tool == "load":
        yield load.program(place.root)
    if one.under and stack.provider(place.root, one.under).name == "bypass":
        yield stack.library(place.root)
        if one.under.profile:
            yield stack.profile(place.root, one.under)


def _hashes(paths: list[Path]) -> dict[str, str]:
    """By name; two of one name in two folders are named with their folder."""
    there = sorted({path.resolve() for path in paths if path.is_file()})
    names = [path.name for path in there]
    hashes = {}
    for path in there:
        name = path.name if names.count(path.name) == 1 else f"{path.parent.name}/{path.name}"
        hashes[f"file {name}"] = f"sha256 {hash_of(path)[:DIGITS]}"
    return hashes


def _asked(instance: Instance) -> Asked:
    """A JVM's program is its jar as well."""
    argv = instance.argv
    jars = tuple(jar for word, jar in pairwise(argv) if word == "-jar")
    return instance.version, (*argv[:1], *jars)


def _of(host: Host, question: Asked) -> str:
    version, files = question
    message: dict[str, Any] = {"programs": {"it": [version, files]}, "search_path": SEARCH_PATH}
    answer = host.ask("programs", ANSWER_S, **message)
    if not answer and not host.far.shares_files:  # it will be sent from here
        message["programs"] = {"it": [[], files]}
        answer = agent_facts.of_programs(message)
    return str(answer.get("it", ""))
