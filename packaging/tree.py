"""Lays out an installed tree: what a checkout needs to run, without what it needs to be built.

    PREFIX/lib/wirespeed/   the checkout's layout: front door, recipes, profiles, programs, jars, python/,
                            docs/monitoring
    PREFIX/lib/wirespeed/onload/   header and libraries for programs that use Onload's extensions
    PREFIX/lib/wirespeed/as-wrk/   links `wrk` and `wrk2` to the generator, for a PATH that scripts of wrk use
    PREFIX/bin/             links to the commands
    PREFIX/share/           manual pages, completions, licence, changelog
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("wirespeed-load", "bypass", "libbypass_preload.so")
SERVERS = ("http-server", "stub-origin", "gateway-netty", "gateway-tomcat")
#: Command → what it is a link to, below lib/wirespeed.
COMMANDS = {
    "wirespeed": "wirespeed",
    "wirespeed-load": "target/release/wirespeed-load",
    "bypass": "target/release/bypass",
    "onload": "target/release/bypass",
    "onload_stackdump": "target/release/bypass",
    "onload_tcpdump": "target/release/bypass",
}
#: Names under which the generator has the command line, output and exit codes of another one. They are not
#: in PREFIX/bin, where Debian's wrk is.
STAND_INS = ("wrk", "wrk2")
#: Versions of Python that run the lab of a package, besides the one that makes it.
PYTHONS = ("3.11", "3.12", "3.13")
#: Parts of the Python packages that no program reads.
_UNREAD = ("__pycache__", "bin", "tests", "*.pyi")


def lay_out(prefix, version, commit):
    """Writes the whole tree below `prefix`."""
    home = prefix / "lib" / "wirespeed"
    _programs(home)
    _extensions(home / "onload")
    _servers(home)
    _data(home)
    _python(home / "python")
    facts = {"version": version, "commit": commit, "pythons": pythons()}
    (home / "INSTALLED").write_text(json.dumps(facts) + "\n")
    _link_stand_ins(home)
    bin_folder = prefix / "bin"
    bin_folder.mkdir(parents=True)
    for command, target in COMMANDS.items():
        (bin_folder / command).symlink_to(Path("..") / "lib" / "wirespeed" / target)


def pythons():
    """The versions that a package made here is for, the oldest first."""
    return sorted({*PYTHONS, _own_python()}, key=lambda version: [*map(int, version.split("."))])


def _own_python():
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def _link_stand_ins(home):
    folder = home / "as-wrk"
    folder.mkdir()
    for name in STAND_INS:
        (folder / name).symlink_to(Path("..") / "target" / "release" / "wirespeed-load")


def _copy(source, target, mode=0o644):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _programs(home):
    for name in PROGRAMS:
        target = home / "target" / "release" / name
        _copy(ROOT / "target" / "release" / name, target, 0o644 if name.endswith(".so") else 0o755)
        subprocess.run(["strip", "--strip-unneeded", "--remove-section=.comment", target], check=True)


def _extensions(target):
    """libonload_ext in both forms, with the name that Onload gives it."""
    source = ROOT / "bypass" / "onload"
    _copy(source / "include/onload/extensions.h", target / "include/onload/extensions.h")
    shared, static = target / "libonload_ext.so.2", target / "libonload_ext.a"
    compiler: list[str | Path] = ["cc", "-O2", "-fPIC", "-I", source / "include"]
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "onload_ext.o"
        subprocess.run([*compiler, "-c", source / "onload_ext.c", "-o", part], check=True)
        link = ["-shared", f"-Wl,-soname,{shared.name}", "-Wl,-z,relro,-z,now"]
        subprocess.run([*compiler, *link, part, "-o", shared], check=True)
        subprocess.run(["ar", "rcsD", static, part], check=True)
    for path in (shared, static):
        subprocess.run(["strip", "--strip-unneeded", "--remove-section=.comment", path], check=True)
        path.chmod(0o644)
    (target / "libonload_ext.so").symlink_to(shared.name)


def _servers(home):
    for name in SERVERS:
        jar = Path("servers") / name / "target" / f"{name}.jar"
        _copy(ROOT / jar, home / jar)
        for options in (ROOT / "servers" / name).glob("*.options"):
            _copy(options, home / "servers" / name / options.name)
    for path in (ROOT / "servers" / "nginx").glob("*.conf"):
        _copy(path, home / "servers" / "nginx" / path.name)


def _data(home):
    _copy(ROOT / "wirespeed", home / "wirespeed", 0o755)
    for folder, pattern in (("recipes", "**/*"), ("profiles", "*.opf")):
        for path in (ROOT / folder).glob(pattern):
            if path.is_file():
                _copy(path, home / path.relative_to(ROOT))
    for path in (ROOT / "docs" / "monitoring").iterdir():
        _copy(path, home / path.relative_to(ROOT), 0o755 if path.suffix == "" else 0o644)


def _python(target):
    """The lab and the packages that it uses, as the environment of the checkout has them."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check",
           "--retries", "8", "--no-compile", "--target", str(target)]
    lock = ROOT / "lab" / "requirements.lock"
    subprocess.run([*pip, "--require-hashes", "-r", lock], check=True)
    for version in pythons():
        if version != _own_python():
            _compiled(target, lock, version)
    for name in ("setuptools", "wheel", "pip", "pkg_resources", "_distutils_hack", "mypyc"):
        for path in target.glob(f"{name}*"):  # they build packages, and nothing is built here
            shutil.rmtree(path, ignore_errors=True)
    for path in target.glob("distutils-precedence.pth"):
        path.unlink()
    source = ROOT / "lab" / "src" / "wirespeed"
    shutil.copytree(source, target / "wirespeed", ignore=shutil.ignore_patterns("__pycache__"))
    (target / "__main__.py").write_text(
        '"""The lab, as the front door starts it."""\n\nfrom wirespeed.cli.app import main\n\nmain()\n'
    )
    for folder, folders, names in os.walk(target):
        for name in [name for name in folders if name in _UNREAD]:
            if folder == str(target) or name == "__pycache__":
                shutil.rmtree(Path(folder) / name)
                folders.remove(name)
        for name in names:
            path = Path(folder) / name
            path.chmod(0o644)
            if path.suffix in (".pyi", ".pyx"):
                path.unlink()
            elif path.suffix == ".so":
                subprocess.run(["strip", "--strip-unneeded", path], check=True)


def _compiled(target, lock, version):
    """The parts in C for another version of Python: their files are named after it, the rest of each
    package is the same for all."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                        "--retries", "8", "--no-compile", "--no-deps", "--only-binary", ":all:",
                        "--python-version", version, "--target", folder, "--require-hashes", "-r", lock],
                       check=True)
        for path in Path(folder).rglob("*.so"):
            shutil.copy(path, target / path.relative_to(folder))
