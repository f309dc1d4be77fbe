"""The same cell on a local, an ssh and a netns site, in turns: do the figures agree?

    python lab/bench/agree.py [ROUNDS]

NGINX and wirespeed-load, a core each. `here` and `ssh-one` (one sshd in a namespace, server and
generator on its loopback) take the same way; so do `netns` and `ssh-two` (two sshd in namespaces,
joined by a cable, as those of `netns` are). Each round begins with another site. Needs root,
openssh-server, nginx and `./wirespeed build load`. Prints one JSON object.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parents[1] / "tests")]
from site_farm import Farm  # noqa: E402

SITES = """
[site.ssh-one]
kind = "ssh"
priority = "high"
options = ["-F", "{folder}/ssh_config"]
python = "{python}"
server = {{ host = "host0", addr = "127.0.0.1", cores = [0] }}
load = {{ host = "host0", cores = [1] }}
[site.ssh-two]
kind = "ssh"
options = ["-F", "{folder}/ssh_config"]
python = "{python}"
server = {{ host = "host0", addr = "{server}", cores = [0] }}
load = {{ host = "host1", cores = [1] }}
"""
RECIPE = """
wirespeed = 2
name = "agree"
axes = {{ size = [128] }}
plan = {{ repeat = 1, warmup = "500ms", duration = "2s" }}
[[asset]]
files = {{ name = "{{{{ size }}}}.bin", bytes = "{{{{ size }}}}" }}
[[process]]
name = "nginx"
role = "server"
port = {{ base = 8093 }}
template = {{ "nginx.conf" = "{root}/servers/nginx/nginx.conf" }}
argv = ["nginx", "-p", "{{{{ run.tmp }}}}", "-c", "{{{{ template('nginx.conf') }}}}"]
pin = {{ workers = 1 }}
ready.http = "http://{{{{ server.addr }}}}:{{{{ port }}}}/{{{{ size }}}}.bin"
ready.length = "{{{{ size }}}}"
[[process]]
name = "gen"
role = "load"
tool = "load"
pin = {{ cores = "from 0" }}
argv = ["-t", "1", "-c", "50", "-d", "{{{{ duration }}}}",
  "http://{{{{ server.addr }}}}:{{{{ nginx.port }}}}/{{{{ size }}}}.bin"]
[[metric]]
name = "rps"
from = "gen"
[[table]]
rows = "size"
value = "rps"
"""


def rate(folder, farm, site):
    command = [
        sys.executable, "-m", "wirespeed", "run", "agree.toml", "--site", site, "--accept-noise",
        "--runs", "runs",
    ]  # fmt: skip
    environment = {**os.environ, "WIRESPEED_ROOT": str(ROOT)}
    done = subprocess.run(
        farm.at_desk(command) if site.startswith("ssh") else command,
        cwd=folder, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (path,) = (folder / "runs" / "latest").resolve().glob("trials/*/trial.json")
    return json.loads(path.read_text())["metrics"]["rps"]


def rotated(sites, number):
    first = number % len(sites)
    return sites[first:] + sites[:first]


def halves(rates):
    """The noise between two halves of the same site's rounds; None of a single round."""
    if len(rates) < 2:
        return None
    return round(statistics.median(rates[::2]) / statistics.median(rates[1::2]), 3)


def main(rounds):
    found = {"here": [], "ssh-one": [], "netns": [], "ssh-two": []}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        farm = Farm(folder, 2)
        try:
            farm.wait()
            text = SITES.format(folder=folder, python=sys.executable, server=farm.cable(0, 1)[0])
            (folder / "sites.toml").write_text(text)
            (folder / "agree.toml").write_text(RECIPE.format(root=ROOT))
            for number in range(rounds):
                for site in rotated(list(found), number):
                    found[site].append(round(rate(folder, farm, site)))
        finally:
            farm.close()
    median = {site: statistics.median(rates) for site, rates in found.items()}
    return {
        "rates": found,
        "ssh-one/here": round(median["ssh-one"] / median["here"], 3),
        "ssh-two/netns": round(median["ssh-two"] / median["netns"], 3),
        "here, odd/even rounds": halves(found["here"]),
    }


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]) if sys.argv[1:] else 6)))
