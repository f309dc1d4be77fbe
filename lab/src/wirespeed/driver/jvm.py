"""JVM servers: a log of collections in the folder of the trial, so that pauses can be counted."""

from __future__ import annotations

from pathlib import Path

from wirespeed.driver.base import Command, Instance


def command(instance: Instance, folder: Path) -> Command:
    argv = list(instance.argv)
    if not any(word.startswith("-Xlog:gc") for word in argv):
        argv.insert(1, f"-Xlog:gc:file={gc_log(instance, folder)}:utctime,uptime:filecount=0")
    return Command(argv)


def gc_log(instance: Instance, folder: Path) -> Path:
    """Where the collections are: the recipe's own -Xlog file, or ours."""
    for word in instance.argv:
        if word.startswith("-Xlog:gc") and ":file=" in word:
            return Path(word.split(":file=")[1].split(":")[0])
    return folder / f"gc-{instance.label}.log"
