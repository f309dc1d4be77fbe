"""Which builds were measured: version, path and content of every server's program.

Two builds that call themselves the same differ in their content; a version that nobody prints is
asked for with the recipe's `version`.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from wirespeed.agent import facts as agent_facts
from wirespeed.fleet.fleet import Fleet
from wirespeed.fleet.host import Host
from wirespeed.process.start import SEARCH_PATH
from wirespeed.recipe.resolve import Instance, Resolver
from wirespeed.runner.plan import Schedule

ANSWER_S = 60.0
Asked = tuple[tuple[str, ...], tuple[str, ...]]  # (command that tells the version, files)


def measured(fleet: Fleet, schedule: Schedule) -> dict[str, str]:
    """{"program NAME": "version (path, sha256 …)"} for servers and origins."""
    found: dict[str, dict[Asked, str]] = {}
    for planned in schedule.cells:
        resolver = Resolver(schedule.recipe, planned.cell, schedule.place)
        for one in resolver.instances(planned.seats) if planned.is_measured else ():
            if one.role != "load" and one.index == 0:
                found.setdefault(one.name, {}).setdefault(_asked(one), one.host)
    told: dict[str, str] = {}
    for name, variants in found.items():
        for asked, host in variants.items():
            text = _of(fleet[host], asked)
            label = name if len(variants) == 1 else f"{name}, {Path(asked[1][-1]).name}"
            told |= {f"program {label}": text} if text else {}
    return told


def _asked(instance: Instance) -> Asked:
    """A JVM's program is its jar as well."""
    argv = instance.argv
    jars = tuple(jar for word, jar in pairwise(argv) if word == "-jar")
    return instance.version, (*argv[:1], *jars)


def _of(host: Host, asked: Asked) -> str:
    version, files = asked
    message: dict[str, Any] = {"programs": {"it": [version, files]}, "search_path": SEARCH_PATH}
    found = host.ask("programs", ANSWER_S, **message)
    if not found and not host.far.shares_files:  # it will be sent from here
        message["programs"] = {"it": [[], files]}
        found = agent_facts.of_programs(message)  # type: ignore[no-untyped-call]
    return str(found.get("it", ""))
