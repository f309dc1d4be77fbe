"""A Debian package from an installed tree, by dpkg-deb alone."""

import gzip
import json
import os
import re
import subprocess

#: Where the environment names no maintainer: Debian requires an address, and this one cannot exist (RFC 2606).
UNNAMED = "Wirespeed maintainers <maintainers@wirespeed.invalid>"
#: Findings of lintian that stay, and why.
OVERRIDES = """\
# The servers' jars lie where a checkout has them, so that one front door serves both.
wirespeed: jar-not-in-usr-share *
# A module of hdrhistogram names an interpreter, but is never started.
wirespeed: unusual-interpreter python *hdrh/dump.py*
# The front door looks who holds dpkg's locks, and opens none of its files besides.
wirespeed: uses-dpkg-database-directly *usr/lib/wirespeed/wirespeed*
"""
#: Packages of Onload: both have /usr/bin/onload, onload_stackdump and onload_tcpdump.
ONLOADS = ("onload", "onload-user", "openonload")
COPYRIGHT = """\
Copyright 2026 the Wirespeed authors

Licensed under the Apache License, Version 2.0. On Debian systems its text is in
/usr/share/common-licenses/Apache-2.0.

The Python packages below /usr/lib/wirespeed/python and the libraries in the jars below
/usr/lib/wirespeed/servers have their own licences, which lie next to or in them.
"""


def build(tree, output, version, commit, changelog):
    """Writes wirespeed_VERSION_ARCH.deb from `tree`/usr; returns its path."""
    share = tree / "usr" / "share"
    _documents(share, version, changelog)
    _interpreter(tree / "usr/lib/wirespeed/wirespeed")
    overrides = share / "lintian" / "overrides" / "wirespeed"
    overrides.parent.mkdir(parents=True)
    overrides.write_text(OVERRIDES)
    architecture = _out("dpkg", "--print-architecture")
    control = tree / "DEBIAN" / "control"
    control.parent.mkdir()
    size_kib = sum(path.lstat().st_size for path in tree.rglob("*")) // 1024
    control.write_text(_control(tree, version, commit, architecture, size_kib))
    target = output / f"wirespeed_{version}_{architecture}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "-z1", "--build", tree, target], check=True,
                   stdout=subprocess.DEVNULL)
    return target


def maintainer():
    """The user who makes the package, by the variables of Debian's own tools (debchange(1))."""
    name, address = os.environ.get("DEBFULLNAME"), os.environ.get("DEBEMAIL")
    return f"{name} <{address}>" if name and address else UNNAMED


def _control(tree, version, commit, architecture, size_kib):
    pythons = json.loads((tree / "usr/lib/wirespeed/INSTALLED").read_text())["pythons"]
    major, minor = pythons[-1].split(".")
    next_python = f"{major}.{int(minor) + 1}"
    return f"""\
Package: wirespeed
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer()}
Installed-Size: {size_kib}
Section: net
Priority: optional
Depends: libc6 (>= {glibc_least(tree)}), libgcc-s1, python3 (>= {pythons[0]}), python3 (<< {next_python})
Recommends: nginx-light | nginx, default-jre-headless (>= 2:1.17) | java17-runtime-headless
Suggests: wrk, haproxy
Conflicts: {", ".join(ONLOADS)}
Description: measure network servers on the kernel and on user-level networking
 Wirespeed measures how fast a network server is, on the kernel's network
 stack and on a user-level one, where its limit lies, and whether the
 difference is real. It brings a load generator, user-level sockets for
 unmodified programs, and HTTP servers to compare with.
 .
 Built from commit {commit}.
"""


def glibc_least(tree):
    """The newest symbol version of glibc that a program of the tree asks for."""
    release = tree / "usr" / "lib" / "wirespeed" / "target" / "release"
    text = "".join(_out("readelf", "--version-info", "--wide", path) for path in release.iterdir())
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_(\d+\.\d+)", text)}
    return ".".join(map(str, max(versions)))


def _interpreter(door):
    """Debian's own Python, whatever comes first on a user's path."""
    _, _, rest = door.read_text().partition("\n")
    door.write_text(f"#!/usr/bin/python3\n{rest}")


def _documents(share, version, changelog):
    folder = share / "doc" / "wirespeed"
    folder.mkdir(parents=True)
    (folder / "copyright").write_text(COPYRIGHT)
    entry = f"wirespeed ({version}) unstable; urgency=medium\n\n  * See NEWS.gz.\n\n -- {maintainer()}  "
    date = _out("date", "-R", "-d", "@" + _out("git", "log", "-1", "--format=%ct"))
    for name, text in {"changelog": f"{entry}{date}\n", "NEWS": changelog.read_text()}.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _out(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
