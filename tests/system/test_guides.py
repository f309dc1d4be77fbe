"""Every guide works as it stands: its files in a fresh folder, its commands one after another.

Windows are shortened and one small part is measured; what is shown is otherwise what is run.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from frontdoor import ROOT

sys.path.insert(0, str(ROOT / "packaging"))
from jobs import commands_of, files_of

GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))
NEEDS = {"nginx": "nginx", "python": "python3", "jvm": "java", "redis": "redis-benchmark",
         "postgresql": "pgbench"}
SHORT = ["--repeat", "1", "--accept-noise"]
PART = ["--set", "plan.duration=1s", "--set", "plan.warmup=1s"]


CELL = {"postgresql": "connections=1,stack=kernel,stack=bypass"}


def shortened(words, page):
    if words[1] == "run":
        return [*words, *SHORT, *PART, "--only", CELL.get(page, "connections=1,stack=kernel")]
    if words[1] == "compare":
        return [*words, *SHORT, "--connections", "1", "--duration", "1s"]
    return words


def test_the_configuration_of_the_nginx_guide_needs_no_root():
    """NGINX made its folders in /var/lib/nginx, which an ordinary user may not before root has started it once."""
    nginx = shutil.which("nginx", path="/usr/local/bin:/usr/bin:/usr/sbin:/bin")
    if os.geteuid() or not nginx:
        pytest.skip("this user cannot become another, or nginx is not installed")
    with tempfile.TemporaryDirectory() as folder:
        text = (ROOT / "docs" / "guides" / "nginx.md").read_text()
        Path(folder, "nginx.conf").write_text(files_of(text)["nginx.conf"])
        os.chmod(folder, 0o777)
        user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        done = subprocess.run([*user, nginx, "-t", "-e", "stderr", "-p", folder, "-c", "nginx.conf"],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert len([one for one in Path(folder).iterdir() if one.is_dir()]) == 5


def test_there_is_a_guide_for_each_kind_of_server():
    assert {page.stem for page in GUIDES} == set(NEEDS)


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_a_guide_works_as_it_stands(page, tmp_path):
    if not shutil.which(NEEDS[page.stem], path="/usr/local/bin:/usr/bin:/usr/sbin:/bin"):
        pytest.skip(f"{NEEDS[page.stem]} is not installed")
    text = page.read_text()
    for name, content in files_of(text).items():
        (tmp_path / name).write_text(content)
    (tmp_path / "wirespeed").symlink_to(ROOT / "wirespeed")
    commands = commands_of(text)
    assert len(commands) >= 2
    for command in commands:
        words = shortened(shlex.split(command), page.stem)
        if words[1] in ("run", "compare"):
            words += ["--runs", str(tmp_path / "runs")]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=400,
                              stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    assert list((tmp_path / "runs").glob("2*/derived/report.html"))
