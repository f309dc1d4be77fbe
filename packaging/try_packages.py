"""Tries packages outside a checkout: install, quickstart, remove, nothing left.

    ./wirespeed package --only deb,tarball,wheel,image --output DIR
    python3 packaging/try_packages.py DIR

Needs root, because it unpacks the image into an empty folder and works in there. What it prints is
what a user would see, and a line for each thing that it checked.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

#: Enough to start every program of the kit once: both servers, generator, user-level sockets.
PART = "payload=128,connections=100"
#: Lines of a command's output that are shown, from its end.
LINES_SHOWN = 12
#: Folders that runs write, below a home folder.
DATA = (".local/share/wirespeed", ".local/state/wirespeed")
#: Sees neither the checkout nor any process of this machine; all of it ends with the command.
_ENTER = """\
root=$0
mount -t proc proc "$root/proc" && mount -t sysfs sysfs "$root/sys" && mount --rbind /dev "$root/dev" &&
mount -t tmpfs tmpfs "$root/dev/shm" && mount -t tmpfs tmpfs "$root/run" &&
{ [ ! -d /sys/fs/cgroup ] || mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"; } &&
cd / && exec chroot "$root" "$@"
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", type=Path)
    arguments = parser.parse_args()
    check_by_lintian(arguments.packages)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        version = _unpack_image(arguments.packages, root)
        try_debian_package(root)
        try_tarball(root, arguments.packages / f"wirespeed-{version}.tar.gz")
        try_wheel(root, arguments.packages, version)
    print("all packages work where the checkout is absent, and leave nothing")


def check_by_lintian(packages):
    """Clean but for the tags that debian.py lists, each with its reason."""
    if not shutil.which("lintian"):
        print("lintian is not installed: not checked")
        return
    (deb,) = packages.glob("*.deb")
    command = ["lintian", "--allow-root", "--fail-on", "error,warning,info", deb]
    subprocess.run(command, check=True)
    print("  lintian is content")


def _unpack_image(packages, root):
    (image,) = packages.glob("wirespeed-*-image")
    blob = lambda digest: image / "blobs" / "sha256" / digest.partition(":")[2]  # noqa: E731
    index = json.loads((image / "index.json").read_text())
    manifest = json.loads(blob(index["manifests"][0]["digest"]).read_text())
    for layer in manifest["layers"]:
        _unpack(blob(layer["digest"]), root)
    return index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"]


def _unpack(archive, folder):
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "-xzf", archive, "-C", folder], check=True)


def try_debian_package(root):
    """The image is a Debian with the package installed: quickstart, then remove."""
    _measure(root, ["wirespeed"])
    for page in ("wirespeed", "wirespeed-run", "wirespeed-load", "bypass", "onload"):
        assert (root / "usr/share/man/man1" / f"{page}.1.gz").is_file(), page
    for name in ("include/onload/extensions.h", "libonload_ext.a", "libonload_ext.so"):
        assert (root / "usr/lib/wirespeed/onload" / name).is_file(), name
    _inside(root, "apt-get", "purge", "-q", "-y", "wirespeed")
    _left(root, "the Debian package")


def try_tarball(root, archive):
    _unpack(archive, root / "opt")
    (folder,) = (root / "opt").iterdir()
    _measure(root, [f"/opt/{folder.name}/bin/wirespeed"])
    subprocess.run(["rm", "-rf", folder], check=True)
    _left(root, "the tarball")


def _measure(root, command, path=""):
    _inside(root, *command, "--version", path=path)
    _inside(root, *command, "run", "quickstart", "--only", PART, "--repeat", "2", "--accept-noise",
            path=path)
    runs = root / "root/.local/share/wirespeed/runs"
    reports = list(runs.glob("2*/derived/report.html"))  # not those of the link `latest`
    assert len(reports) == 1, f"{len(reports)} reports"
    print(f"  quickstart wrote a report of {reports[0].stat().st_size // 1024} KiB")
    for folder in DATA:  # as docs/install.md says; a package never touches home folders
        subprocess.run(["rm", "-rf", root / "root" / folder], check=True)


def entered(root, *command, network=False):
    """The words that start a command as root in there, on request with a network of its own."""
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"]
    return [*enter, *["--net"] * network, "sh", "-c", _ENTER, root, *command]


def _inside(root, *command, path=""):
    """A command as root in there; `path` stands before the folders of programs."""
    print("$", *command, flush=True)
    folders = ":".join(filter(None, [path, "/usr/sbin:/usr/bin:/sbin:/bin"]))
    environment = {"PATH": folders, "HOME": "/root", "LC_ALL": "C.UTF-8",
                   "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(entered(root, *command), env=environment, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print("\n".join(f"  {line}" for line in done.stdout.splitlines()[-LINES_SHOWN:]), flush=True)
    if done.returncode:
        raise SystemExit(f"`{' '.join(command)}` failed (exit {done.returncode})")


def _left(root, what):
    """Nothing named after the product, and no compiled Python, is left below the root; except for the lock of runs,
    which two runs at once would not share if the first removed it, and which /tmp loses with the next start."""
    found = [path for folder in ("usr", "opt", "etc", "var/lib", "root", "tmp")
             for path in (root / folder).rglob("*wirespeed*")
             if "dpkg" not in path.parts and "apt" not in path.parts and path != root / "tmp" / "wirespeed.lock"]
    assert not found, f"{what} leaves {found}"
    print(f"  {what} is gone: nothing left")


def try_wheel(root, packages, version):
    """In an environment of its own, with the programs of the unpacked tarball on the path."""
    _inside(root, "apt-get", "update", "-q")
    _inside(root, "apt-get", "install", "-q", "-y", "--no-install-recommends", "python3-venv")
    _unpack(packages / f"wirespeed-{version}.tar.gz", root / "opt")
    (wheel,) = packages.glob(f"wirespeed-{version}-*.whl")
    # The packages that pip would fetch are fetched outside, where this machine's settings of pip count.
    command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check",
               "-d", root / "opt" / "wheels", wheel]
    subprocess.run(command, check=True)
    _inside(root, "python3", "-m", "venv", "/opt/lab")
    _inside(root, "/opt/lab/bin/pip", "install", "-q", "--no-index", "--find-links", "/opt/wheels",
            "wirespeed")
    _measure(root, ["/opt/lab/bin/wirespeed"], f"/opt/wirespeed-{version}/bin")
    _inside(root, "/opt/lab/bin/pip", "uninstall", "-q", "-y", "wirespeed")
    subprocess.run(["rm", "-rf", root / f"opt/wirespeed-{version}", root / "opt/wheels"], check=True)
    _left(root, "the wheel")


if __name__ == "__main__":
    sys.exit(main())
