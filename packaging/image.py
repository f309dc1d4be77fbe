"""An OCI image layout of Debian with the package in it, without a daemon.

Source: OCI Image Format Specification 1.1, image-layout.md, manifest.md, config.md.
"""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

RELEASE = "bookworm"
APT = Path("/etc/apt")  # of this machine
SOURCES = f"""\
deb http://deb.debian.org/debian {RELEASE} main
deb http://deb.debian.org/debian {RELEASE}-updates main
deb http://deb.debian.org/debian-security {RELEASE}-security main
"""
_MEDIA = "application/vnd.oci.image"
_CHUNK = 1 << 20


class Missing(Exception):
    """Something that making an image needs is not there."""


def build(deb, output, version, commit):
    """Writes wirespeed-VERSION-image/ with the base system and the package; returns its path."""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        raise Missing("an image needs root and debootstrap: apt-get install debootstrap, or leave "
                      "it out with --only deb,tarball,wheel")
    target = output / f"wirespeed-{version}-image"
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=output) as folder:
        root = Path(folder) / "root"
        bootstrap(root)
        install(root, deb)
        _layout(target, root, version, commit)
    return target


def bootstrap(root):
    """A minimal Debian from where this machine's own packages come from."""
    _run("debootstrap", "--variant=minbase", RELEASE, root, _mirror())


def _mirror():
    """The archive that apt is configured to use, without options in brackets."""
    files = [APT / "sources.list", *sorted((APT / "sources.list.d").glob("*"))]
    text = "\n".join(path.read_text() for path in files if path.is_file())
    found = re.search(r"^(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s*)(\S+)", text, re.M)
    if not found:
        raise Missing("no Debian archive is configured in /etc/apt")
    return found[1]


def install(root, deb):
    """Installs the package with what it recommends; no service starts in there."""
    policy = root / "usr" / "sbin" / "policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
    # Proxies and certificates of this machine's apt, for as long as it installs: the image is for
    # others, who cannot reach them and need not know them.
    settings = root / "wirespeed-apt.conf"
    settings.write_text(apt_settings())
    shutil.copy(deb, root / "wirespeed.deb")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C",
                   "APT_CONFIG": f"/{settings.name}"}
    try:
        for words in (["update", "-q"], ["install", "-q", "-y", "/wirespeed.deb"], ["clean"]):
            _run(*inside(root), "apt-get", *words, environment=environment)
    finally:
        (root / "wirespeed.deb").unlink(missing_ok=True)
        settings.unlink()
        policy.unlink(missing_ok=True)
    for path in (root / "etc/apt/sources.list.d").glob("*"):
        path.unlink()
    (root / "etc/apt/sources.list").write_text(SOURCES)
    for path in (root / "var/lib/apt/lists").glob("*_*"):
        path.unlink()


def apt_settings():
    """All of this machine's configuration of apt, in the order in which apt reads it."""
    files = [*sorted((APT / "apt.conf.d").glob("*")), APT / "apt.conf"]
    return "".join(path.read_text() + "\n" for path in files if path.is_file())


def inside(root):
    """The words in front of a command that runs in there, with a /proc that goes away with it."""
    script = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, root]


def _run(*command, environment=None):
    done = subprocess.run([str(word) for word in command], env=environment, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-10:])
        raise Missing(f"`{' '.join(map(str, command))}` failed (exit {done.returncode})\n{tail}")


def _layout(target, root, version, commit):
    blobs = target / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    layer, plain_digest = _layer(blobs, root)
    config = {
        "architecture": _architecture(), "os": "linux",
        "config": {"Entrypoint": ["wirespeed"], "Cmd": ["--help"], "WorkingDir": "/root",
                   "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                   "Labels": {"org.opencontainers.image.version": version,
                              "org.opencontainers.image.revision": commit,
                              "org.opencontainers.image.licenses": "Apache-2.0"}},
        "rootfs": {"type": "layers", "diff_ids": [plain_digest]},
    }
    manifest = {
        "schemaVersion": 2, "mediaType": f"{_MEDIA}.manifest.v1+json",
        "config": _blob(blobs, config, f"{_MEDIA}.config.v1+json"), "layers": [layer],
    }
    described = _blob(blobs, manifest, f"{_MEDIA}.manifest.v1+json")
    described["annotations"] = {"org.opencontainers.image.ref.name": version}
    index = {"schemaVersion": 2, "mediaType": f"{_MEDIA}.index.v1+json", "manifests": [described]}
    (target / "index.json").write_text(json.dumps(index))
    (target / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def _architecture():
    machine = os.uname().machine
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _layer(blobs, root):
    """The root file system as one compressed layer: its descriptor, and the digest of the tar."""
    plain = hashlib.sha256()
    draft = blobs / "draft"
    tar = subprocess.Popen(["tar", "--numeric-owner", "--sort=name", "-C", root, "-c", "."],
                           stdout=subprocess.PIPE)
    with gzip.GzipFile(draft, "wb", compresslevel=1, mtime=0) as out:
        assert tar.stdout
        while chunk := tar.stdout.read(_CHUNK):
            plain.update(chunk)
            out.write(chunk)
    if tar.wait():
        raise Missing("tar could not read the image's files")
    with draft.open("rb") as packed:
        digest = hashlib.file_digest(packed, "sha256").hexdigest()
    size = draft.stat().st_size
    draft.rename(blobs / digest)
    media = f"{_MEDIA}.layer.v1.tar+gzip"
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": size}, f"sha256:{plain.hexdigest()}"


def _blob(blobs, content, media):
    data = json.dumps(content).encode()
    digest = hashlib.sha256(data).hexdigest()
    (blobs / digest).write_bytes(data)
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}
