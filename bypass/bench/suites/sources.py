"""Fetches the source packages of Debian 12 whose tests the suites run; nothing is installed."""

import os
import subprocess

PLACES = ("deb-src http://deb.debian.org/debian bookworm main\n"
          "deb-src http://deb.debian.org/debian-security bookworm-security main\n")


def debian(runner, package):
    """The unpacked upstream source of a package, below the folder of work."""
    folder = runner.work / "debian" / package
    if not (folder / "ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        _download(runner.work / "debian", folder, package)
        archives = [path for path in folder.iterdir() if ".orig.tar" in path.name]
        if not archives:
            raise SystemExit(f"suites: the sources of {package} could not be had from Debian")
        for archive in archives:
            subprocess.run(["tar", "xf", archive], cwd=folder, check=True)
        (folder / "ready").touch()
    return next(path for path in sorted(folder.iterdir()) if path.is_dir())


def _download(work, folder, package):
    (work / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (work / "sources.list").write_text(PLACES)
    options = ["-o", f"Dir::Etc::SourceList={work / 'sources.list'}", "-o", "Dir::Etc::SourceParts=-",
               "-o", f"Dir::State::Lists={work / 'lists'}", "-q"]
    quiet = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if not any((work / "lists").glob("*Sources*")):
        subprocess.run(["apt-get", *options, "update"], **quiet, check=True)
    # One of several archives of a package may be missing; the tests are in the first.
    subprocess.run(["apt-get", *options, "source", "--download-only", package], **quiet, check=False)


def link(target, place):
    """Makes a program of the system appear where a source tree expects what it builds."""
    place.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(place):
        place.symlink_to(target)
