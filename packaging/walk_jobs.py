"""Walks six jobs of the documentation by their pages alone, each in an empty Debian with the package, and times them.

    ./wirespeed package --only deb --output DIR
    python3 packaging/walk_jobs.py DIR [--only JOB,…] [--short]

Needs root and debootstrap. Prints a table: job, seconds, and whether the page ended where it promises (jobs.py has
what that is). `--short` measures less, to see that the pages work; times are those of a machine that does nothing else.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import image
import jobs
import try_packages

ROOT = Path(__file__).resolve().parents[1]
_MARK = "WIRESPEED_WALK"  # set once all mounts are in a namespace that ends with this program


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", type=Path)
    parser.add_argument("--only", default=",".join(jobs.JOBS), metavar="JOB,…")
    parser.add_argument("--short", action="store_true")
    arguments = parser.parse_args()
    chosen = arguments.only.split(",")
    if unknown := set(chosen) - set(jobs.JOBS):
        parser.error(f"--only: unknown job {min(unknown)!r} ({', '.join(jobs.JOBS)})")
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        parser.error("needs root and debootstrap (apt-get install debootstrap)")
    if _MARK not in os.environ:
        os.environ[_MARK] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # roots of hundreds of MB are removed then, too
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        (deb,) = arguments.packages.glob("wirespeed_*.deb")
        rows = [("install", *timed(lambda: install(base, deb)))]
        for job in chosen:
            rows.append((job, *walk(base, Path(folder) / job, job, arguments.short)))
    print_table(rows)
    return any(not end.startswith("yes") for _, _, end in rows)


def timed(work):
    begun = time.monotonic()
    end = work()
    return time.monotonic() - begun, end


def install(root, deb):
    """A minimal Debian with the package and what it recommends, as docs/install.md has it. Nothing starts in there."""
    image.bootstrap(root)
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    shutil.copy(deb, root / deb.name)
    apt(root, "update")
    apt(root, "install", "-y", f"/{deb.name}")
    return "yes: the package is installed in an empty Debian"


def apt(root, *words):
    """apt-get in there, with the proxies and certificates of this machine's."""
    settings = root / "apt.conf"
    settings.write_text(image.apt_settings())
    environment = {"PATH": os.environ["PATH"], "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C",
                   "APT_CONFIG": f"/{settings.name}"}
    done = subprocess.run([*image.inside(root), "apt-get", "-q", *words], env=environment, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise SystemExit(f"apt-get {' '.join(words)} failed (exit {done.returncode})\n{done.stdout[-2000:]}")
    settings.unlink()


def walk(base, folder, job, is_short):
    """One job in a layer of its own above the base; its seconds are those of the page, without packages."""
    root = layered(base, folder)
    print(f"{job}:", flush=True)
    if jobs.NEEDS[job]:
        apt(root, "install", "-y", *jobs.NEEDS[job].split())
    walker = root / "root" / "walk"
    shutil.copytree(ROOT / "docs", walker / "docs")
    shutil.copy(jobs.__file__, walker)
    command = ["python3", "-B", f"/root/walk/{Path(jobs.__file__).name}", job, *["--short"] * is_short]
    try:
        return timed(lambda: typed(root, command))
    finally:
        subprocess.run(["umount", "--lazy", root], check=True)


def layered(base, folder):
    for part in ("upper", "work", "root"):
        (folder / part).mkdir(parents=True)
    options = f"lowerdir={base},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, folder / "root"], check=True)
    return folder / "root"


def typed(root, command):
    """Shows what is typed; returns how it ended."""
    process = subprocess.Popen(try_packages.entered(root, *command, network=True), text=True,
                               env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8"},
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    end = []
    try:
        for line in process.stdout or ():
            print(f"  {line}", end="", flush=True)
            if end or line.startswith(("END ", "BROKEN ", "Traceback")):
                end.append(line)
    except SystemExit:
        process.kill()  # and with it its namespace of processes
        process.wait()
        raise
    text = " ".join("".join(end).split())
    if process.wait() == 0 and text.startswith("END "):
        return f"yes: {text.removeprefix('END ')}"
    return f"no: {text.removeprefix('BROKEN ')[:300]}"


def print_table(rows):
    print("\n| job | seconds | ended where promised |\n|---|---:|---|")
    for job, seconds, end in rows:
        print(f"| {job} | {seconds:.0f} | {end} |")


if __name__ == "__main__":
    sys.exit(main())
