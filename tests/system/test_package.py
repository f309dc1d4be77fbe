"""`./wirespeed package`: the Debian package holds a kit that runs from wherever it was unpacked.

Installing, a quickstart and removing in an empty root file system take minutes and need root:
packaging/try_packages.py does that.
"""

import gzip
import json
import os
import re
import subprocess
import zipfile

import pytest
from frontdoor import ROOT


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The unpacked Debian package."""
    folder = tmp_path_factory.mktemp("package")
    command = [ROOT / "wirespeed", "package", "--only", "deb,wheel", "--output", folder]
    maker = {"DEBFULLNAME": "Kim Lee", "DEBEMAIL": "kim@example.org"}
    left = ROOT / "lab/build/lib/wirespeed/removed.py"  # what an earlier build may have left
    left.parent.mkdir(parents=True, exist_ok=True)
    left.touch()
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL, env={**os.environ, **maker})
    left.unlink()
    (deb,) = folder.glob("*.deb")
    fields = subprocess.run(["dpkg-deb", "--field", deb], capture_output=True, text=True, check=True)
    assert "Package: wirespeed\n" in fields.stdout and "Depends: libc6 (>= 2." in fields.stdout
    assert "Maintainer: Kim Lee <kim@example.org>\n" in fields.stdout and "Homepage:" not in fields.stdout
    assert "Conflicts: onload, onload-user, openonload\n" in fields.stdout  # the same files in /usr/bin
    subprocess.run(["dpkg-deb", "--extract", deb, folder / "root"], check=True)
    return folder / "root" / "usr"


def run(tree, home, command, *words, expect=0):
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8"}
    done = subprocess.run([tree / "bin" / command, *words], env=environment, cwd=home, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == expect, f"{command} {words}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def snapshot(tree):
    return {path: path.lstat().st_mtime_ns for path in tree.rglob("*")}


def test_the_commands_find_what_they_need_and_change_nothing_in_the_tree(tree, tmp_path):
    before = snapshot(tree)
    assert run(tree, tmp_path, "wirespeed", "--version").startswith("wirespeed 0.")
    assert "quickstart" in run(tree, tmp_path, "wirespeed", "list")
    assert "trials" in run(tree, tmp_path, "wirespeed", "plan", "quickstart")
    assert "EF_POLL_USEC" in run(tree, tmp_path, "bypass", "options")
    assert "-c, --connections" in run(tree, tmp_path, "wirespeed-load", "--help")
    assert "0" in run(tree, tmp_path, "onload", "-p", "nginx-balanced", "sh", "-c", "echo $?")
    assert run(tree, tmp_path, "onload_stackdump").startswith("#stack-id")
    assert "installed tree" in run(tree, tmp_path, "wirespeed", "package", expect=2)
    assert snapshot(tree) == before


def test_the_parts_in_c_are_there_for_each_python_that_the_package_is_for(tree):
    """A package made with Python 3.11 ran on no other one."""
    home = tree / "lib" / "wirespeed"
    versions = json.loads((home / "INSTALLED").read_text())["pythons"]
    assert {"3.11", "3.12", "3.13"} <= set(versions)
    found = {}
    for path in (home / "python").rglob("*.so"):
        name, minor = re.fullmatch(r"(.+)\.cpython-3(\d+)-.+\.so", path.name).groups()
        found.setdefault(path.parent / name, set()).add(f"3.{minor}")
    assert len(found) >= 3 and all(there == set(versions) for there in found.values()), found


def test_the_collector_of_bypass_metrics_is_there_and_finds_the_program(tree, tmp_path):
    """A page for packages named it, and the packages lacked it."""
    collector = tree / "lib" / "wirespeed" / "docs" / "monitoring" / "collect-bypass"
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}
    subprocess.run([collector, tmp_path / "bypass.prom", "0"], env=environment, check=True, timeout=60)
    assert "# TYPE bypass_kernel_fallbacks_total counter" in (tmp_path / "bypass.prom").read_text()


@pytest.mark.parametrize("name", ["wrk", "wrk2"])
def test_the_generator_is_there_under_the_names_of_wrk_and_wrk2(tree, tmp_path, name):
    command = tree / "lib" / "wirespeed" / "as-wrk" / name
    done = subprocess.run([command, "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert "wirespeed-load" in done.stdout + done.stderr
    done = subprocess.run([command, "-t1", "-c1", "-d1s", "http://127.0.0.1:1/"], capture_output=True,
                          text=True, cwd=tmp_path)
    asked = "MUST be specified with the --rate" in done.stdout + done.stderr
    assert asked == (name == "wrk2")


def test_the_wheel_holds_the_lab_of_today_alone(tree):
    (wheel,) = tree.parents[1].glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        held = {name for name in packed.namelist() if name.endswith(".py")}
    source = ROOT / "lab" / "src"
    assert held == {str(path.relative_to(source)) for path in source.rglob("*.py")}


def test_every_command_has_a_manual_page(tree):
    """The lab's from its parser, `tune apply` as well as `tune`; the programs' as --help names them."""
    script = ("from typer.main import get_command; from wirespeed.cli.app import app\n"
              "def show(group, name):\n"
              "    for word, one in group.commands.items():\n"
              "        print(f'{name}-{word}'); hasattr(one, 'commands') and show(one, f'{name}-{word}')\n"
              "show(get_command(app), 'wirespeed')")
    python = ROOT / "build" / "venv" / "bin" / "python"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True)
    programs = {"wirespeed", "wirespeed-load", "wirespeed-http-server", "wirespeed-origin",
                "wirespeed-gateway", "wirespeed-build", "wirespeed-completion",
                "bypass", "onload", "onload_stackdump", "onload_tcpdump"}
    shown = subprocess.run([tree / "bin" / "bypass", "--help"], capture_output=True, text=True)
    parts = {f"bypass-{word}" for word in re.findall(r"^  ([a-z]+)", shown.stdout, re.M)}
    assert parts >= {"bypass-run", "bypass-stat", "bypass-top", "bypass-options"}
    found = {path.name.removesuffix(".1.gz") for path in (tree / "share/man/man1").iterdir()}
    assert found == {*done.stdout.split(), *programs, *parts}


def test_manual_and_completions_follow_the_option_tables(tree):
    manual = tree / "share" / "man" / "man1"
    page = gzip.decompress((manual / "wirespeed-load.1.gz").read_bytes()).decode()
    assert r"\fB\-c, \-\-connections N\fR" in page
    page = gzip.decompress((manual / "wirespeed-run.1.gz").read_bytes()).decode()
    assert r"\fB\-\-budget TIME\fR" in page
    completions = tree / "share" / "bash-completion" / "completions" / "wirespeed"
    script = f"source {completions}; COMP_WORDS=(wirespeed run --bud); COMP_CWORD=2; _wirespeed; " \
             "echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["--budget"]


def test_a_wrong_kind_of_package_is_one_line(wirespeed):
    done = wirespeed("package", "--only", "rpm", expect=2)
    assert "'rpm' is none of deb, tarball, wheel, image" in done.stderr
