"""The OCI image: nothing of the machine that made it is in it."""

import importlib.util

import pytest
from frontdoor import ROOT

PROXY = 'Acquire::http::Proxy "http://proxy.of.the.builder:3128";'


@pytest.fixture
def image(tmp_path, monkeypatch):
    """packaging/image.py on a machine whose apt needs a proxy."""
    spec = importlib.util.spec_from_file_location("image", ROOT / "packaging" / "image.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    apt = tmp_path / "etc-apt"
    (apt / "apt.conf.d").mkdir(parents=True)
    (apt / "apt.conf.d" / "90proxy").write_text(PROXY + "\n")
    (apt / "apt.conf").write_text('APT::Retries "3";')
    monkeypatch.setattr(module, "APT", apt)
    return module


def test_the_builders_proxies_serve_its_apt_and_are_not_in_the_image(image, tmp_path, monkeypatch):
    root = tmp_path / "root"
    for folder in ("usr/sbin", "etc/apt/apt.conf.d", "etc/apt/sources.list.d", "var/lib/apt/lists"):
        (root / folder).mkdir(parents=True)
    (root / "etc/apt/sources.list").write_text("deb http://mirror.of.the.builder/debian bookworm main\n")
    deb = tmp_path / "wirespeed.deb"
    deb.write_text("a package")
    seen = []

    def run(*_command, environment=None):
        assert environment["APT_CONFIG"].startswith("/")
        seen.append((root / environment["APT_CONFIG"].lstrip("/")).read_text())

    monkeypatch.setattr(image, "_run", run)
    image.install(root, deb)
    assert len(seen) == 3 and all(PROXY in text and "APT::Retries" in text for text in seen)
    files = [path for path in root.rglob("*") if path.is_file()]
    assert not [path for path in files if "of.the.builder" in path.read_text()]
    assert "deb.debian.org" in (root / "etc/apt/sources.list").read_text()
