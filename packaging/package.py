"""`./wirespeed package`: a Debian package, a relocatable tarball, a wheel and an OCI image."""

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import completions
import debian
import image
import manual
import tree
import wirespeed

ROOT = tree.ROOT
KINDS = ("deb", "tarball", "wheel", "image")


def main(words):
    arguments = _arguments(words)
    output = arguments.output.absolute()
    output.mkdir(parents=True, exist_ok=True)
    version, commit = wirespeed.__version__, _commit()
    with tempfile.TemporaryDirectory(dir=output) as folder:
        stage = Path(folder) / "stage"
        usr = stage / "usr"
        _step("laying out the files", lambda: _lay_out(usr, version, commit))
        if "tarball" in arguments.only:
            _step("tarball", lambda: _tarball(usr, output, version))
        if "wheel" in arguments.only:
            _step("wheel", lambda: _wheel(output))
        if {"deb", "image"} & set(arguments.only):
            package = Path(folder) if "deb" not in arguments.only else output
            deb = _step("Debian package", lambda: debian.build(
                stage, package, version, commit, ROOT / "CHANGELOG.md"))
        if "image" in arguments.only:
            _step("OCI image", lambda: image.build(deb, output, version, commit))


def parser():
    """Also what the completions of a checkout are made from."""
    parser = argparse.ArgumentParser(
        prog="wirespeed package", allow_abbrev=False,
        description="Make packages of this checkout. What is missing is built first.")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "packages", metavar="DIR",
                        help="where the packages go (default build/packages)")
    parser.add_argument("--only", default="deb,tarball,wheel", metavar="KIND[,KIND]",
                        help="deb, tarball, wheel, image; without it all but the image, which needs "
                        "root and debootstrap")
    return parser


def _arguments(words):
    arguments = parser().parse_args(words)
    arguments.only = arguments.only.split(",")
    wrong = [kind for kind in arguments.only if kind not in KINDS]
    if wrong:
        parser().error(f"--only: {wrong[0]!r} is none of {', '.join(KINDS)}")
    return arguments


def _step(what, work):
    begun = time.monotonic()
    print(f"wirespeed: {what} …", file=sys.stderr, flush=True)
    made = work()
    seconds = time.monotonic() - begun
    if isinstance(made, Path):
        print(f"{made}  ({seconds:.0f} s)", flush=True)
    return made


def _commit():
    done = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, text=True,
                          capture_output=True)
    return done.stdout.strip() or "unknown"


def _lay_out(usr, version, commit):
    tree.lay_out(usr, version, commit)
    pages = list(manual.pages(usr / "bin"))
    manual.write_manual(pages, usr / "share" / "man" / "man1", version)
    completions.write(pages, usr / "share")


def _tarball(usr, output, version):
    """Unpacks anywhere: everything finds itself from the place of the front door."""
    name = f"wirespeed-{version}"
    target = output / f"{name}.tar.gz"
    with tarfile.open(target, "w:gz", compresslevel=5) as archive:
        archive.add(usr, name, filter=_by_nobody)
    return target


def _by_nobody(member):
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _wheel(output):
    """The lab alone; it finds the programs through the command `bypass` on the path.

    Made from a copy: in the checkout setuptools would take what an earlier build left in lab/build.
    """
    with tempfile.TemporaryDirectory(dir=output) as folder:
        source = shutil.copytree(ROOT / "lab", Path(folder) / "lab", ignore=shutil.ignore_patterns(
            "build", "tests", "__pycache__", "*.egg-info"))
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check",
                   "--no-deps", "--no-build-isolation", "-w", str(output), str(source)]
        subprocess.run(command, check=True)
    return max(output.glob("wirespeed-*.whl"), key=lambda path: path.stat().st_mtime)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except image.Missing as error:
        print(f"wirespeed: package: {error}", file=sys.stderr)
        raise SystemExit(1) from None
    except subprocess.CalledProcessError as error:
        print(f"wirespeed: package: `{' '.join(map(str, error.cmd))}` failed", file=sys.stderr)
        raise SystemExit(1) from None
