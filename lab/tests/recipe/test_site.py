"""Sites: `here` and `netns` without a file, others from sites.toml, and invalid files."""

import os
import signal
import subprocess
import sys
import time

import pytest

from wirespeed.agent.children import is_alive
from wirespeed.errors import InputError, RecipeError
from wirespeed.interrupts import Terminated, signals_as_interrupts
from wirespeed.recipe import site
from wirespeed.recipe.model import RoleSite, Site
from wirespeed.site import base, kinds, slurm
from wirespeed.site.base import Ask
from wirespeed.site.exec import Exec

PATIENCE_S = 120.0
SITES = """
[site.bench]
kind = "local"
server = { cores = [1] }
load = { cores = [0] }
[site.rack]
kind = "ssh"
server = { host = "root@a" }
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sites.toml").write_text(SITES)
    return tmp_path


def topology(one, **more):
    return kinds.topology(Ask("s", one, has_origin=False, **more))


def test_shipped_sites_need_no_file(tmp_path):
    assert site.find("here", [tmp_path]).kind == "local"
    assert site.find("netns", [tmp_path]).kind == "netns"


def test_a_sites_own_cores_are_the_roles(folder):
    roles = topology(site.find("bench", [folder])).roles
    assert [seat.core for seat in roles["server"]] == [1]
    assert [seat.core for seat in roles["load"]] == [0]


def test_a_core_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"server\.cores: core 4096 does not exist"):
        topology(Site.model_validate({"server": {"cores": [4096]}}))


def test_an_unknown_site_lists_the_known_ones(folder):
    with pytest.raises(InputError, match=r"unknown site 'bensh' .*: here, netns, bench, rack"):
        site.find("bensh", [folder])


def test_a_wrong_key_names_the_file(tmp_path):
    (tmp_path / "sites.toml").write_text('[site.x]\nkind = "local"\ncores = [1]\n')
    with pytest.raises(RecipeError, match=r"sites\.toml: site\.x\.cores: unknown key"):
        site.find("x", [tmp_path])


@pytest.mark.parametrize("lease", ["0s", "1ms", "0.9s"])
def test_a_lease_that_no_sign_of_life_can_keep_is_refused(tmp_path, lease):
    """0 gave the far host the lab's own clock: its times were off by the difference of uptimes."""
    text = '[site.rack]\nkind = "ssh"\nserver = { host = "a" }\nload = { host = "b" }\n'
    (tmp_path / "sites.toml").write_text(f'{text}lease = "{lease}"\n')
    with pytest.raises(RecipeError, match=r"site\.rack\.lease: is too short \(at least 1s\)"):
        site.find("rack", [tmp_path])
    (tmp_path / "sites.toml").write_text(f'{text}lease = "1s"\n')
    assert site.find("rack", [tmp_path]).lease == 1.0


ALLOCATION = """
import signal
from wirespeed.recipe.model import Site
from wirespeed.site import slurm
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
slurm.QUEUED_S, slurm.RELEASE_S = 0, 3600
try:
    slurm.Allocation(Site(kind="slurm"))
except KeyboardInterrupt:
    raise SystemExit(130)
"""


def test_a_stop_while_slurm_queues_takes_the_request_back(tmp_path):
    """`salloc` waited on without the lab, for nodes that it gave back at once."""
    salloc, pid = tmp_path / "salloc", tmp_path / "pid"
    salloc.write_text(f"#!/bin/sh\necho $$ > {pid}.new\nmv {pid}.new {pid}\nexec sleep 600\n")
    salloc.chmod(0o755)
    asks = subprocess.Popen(
        [sys.executable, "-c", ALLOCATION], stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    try:
        assert asks.stderr.readline() == "wirespeed: waiting for 2 nodes of Slurm\n"
        until = time.monotonic() + PATIENCE_S
        while not pid.exists() and time.monotonic() < until:
            time.sleep(0.02)
        queued = int(pid.read_text())
        asks.send_signal(signal.SIGINT)
        assert asks.wait(PATIENCE_S) == 130
        assert not is_alive(queued)
    finally:
        asks.kill()
        asks.wait()
        asks.stderr.close()


def test_a_stop_at_the_moment_in_which_salloc_is_started_takes_the_request_back(
    tmp_path, monkeypatch
):
    """The lab ended without knowing it, and `salloc` waited on."""
    salloc = tmp_path / "salloc"
    salloc.write_text("#!/bin/sh\nexec sleep 600\n")
    salloc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    begun, start = [], subprocess.Popen

    def started(*words, **more):
        begun.append(start(*words, **more))
        signal.raise_signal(signal.SIGTERM)
        return begun[0]

    monkeypatch.setattr(subprocess, "Popen", started)
    try:
        with pytest.raises(Terminated), signals_as_interrupts():
            slurm.Allocation(Site(kind="slurm"))
        assert begun[0].returncode == -signal.SIGTERM
    finally:
        begun[0].kill()
        begun[0].wait()


def test_a_rate_without_a_unit_names_its_key(tmp_path):
    text = '[site.x]\nkind = "netns"\nlink."25G" = { rate = "25" }\n'
    (tmp_path / "sites.toml").write_text(text)
    with pytest.raises(RecipeError, match=r"25G.*rate.*units: kbit, mbit, gbit"):
        site.find("x", [tmp_path])


def test_a_role_without_a_host_is_asked_for(folder):
    with pytest.raises(InputError, match=r"no host for load \(write load = \{ host"):
        topology(site.find("rack", [folder]))


def test_namespaces_share_the_machines_cores_and_have_a_network_for_each_link():
    found = topology(site.SHIPPED["netns"])
    assert found.machine("server") == found.machine("load")
    assert found.address_of("server", "25G") != found.address_of("server", "100G")
    assert found.links["25G"].rate_bps == 2.5e9


@pytest.mark.parametrize(
    ("site", "preferred"),
    [
        ({}, True),
        ({"priority": "normal"}, False),
        # Next to a program at nice -20 the kernel's packet threads get 1 % of a core it fills.
        ({"link": {"25G": {}}}, False),
        ({"kind": "netns"}, False),
        ({"link": {"25G": {}}, "priority": "high"}, True),
    ],
)
def test_measured_programs_have_priority_only_without_a_link(site, preferred):
    assert Site.model_validate(site).is_high_priority is preferred


@pytest.mark.parametrize("addr", ["fd00::1", {"25G": "fd00::1"}, "server1:8080"])
def test_an_address_that_no_url_can_hold_is_one_line(addr):
    with pytest.raises(
        InputError, match=r"cannot be part of a URL \(write the host's IPv4 address"
    ):
        base.addresses_of(RoleSite(addr=addr), ["25G"], "10.0.0.1")


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        (
            'server = { host = "root@a" }',
            'server.host needs kind = "ssh" or "exec" (this site has kind = "local")',
        ),
        ('kind = "netns"\nload = { hosts = ["a"] }', 'load.hosts needs kind = "ssh" or "exec"'),
        ('kind = "ssh"\nserver = { host = "a" }\nload = { host = "b", count = 2 }', "load.count"),
        ('kind = "netns"\nserver = { addr = "10.0.0.1" }', "server.addr needs kind"),
        ('kind = "netns"\noptions = ["-v"]', 'options needs kind = "ssh"'),
        (
            'kind = "netns"\nserver = { count = 2 }',
            'server.count needs kind = "netns", of load',
        ),
        ('kind = "ssh"\ncommand = ["env"]', 'command needs kind = "exec"'),
        ("slurm = { nodes = 3 }", 'slurm needs kind = "slurm"'),
        ('kind = "ssh"\nlink.a = { queues = 2 }', 'queues of a link needs kind = "netns"'),
    ],
)
def test_what_a_kind_of_site_does_not_read_is_refused(tmp_path, keys, line):
    (tmp_path / "sites.toml").write_text(f"[site.rack]\n{keys}\n")
    with pytest.raises(RecipeError) as caught:
        site.find("rack", [tmp_path])
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_a_site_that_a_run_kept_is_read_again():
    for one in (*site.SHIPPED.values(), Site(kind="ssh", server={"host": "a"}, options=["-v"])):
        assert Site.model_validate(one.model_dump()) == one


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({}, 'has no command (write command = ["docker", "exec", "-i", "{{ host }}"])'),
        ({"command": ["env"], "server": {"host": "a"}}, "server has no address"),
        ({"command": ["{{ hots }}"]}, "unknown name 'hots' (did you mean 'host'?)"),
    ],
)
def test_a_command_that_reaches_no_host_is_one_line(keys, line):
    server = {"host": "a", "addr": "10.0.0.1"}
    with pytest.raises(InputError) as caught:
        Exec().transport(Site(**{"kind": "exec", "server": server, **keys}), "a")
    assert line in str(caught.value) and "\n" not in str(caught.value)


def test_a_command_is_filled_in_for_each_host():
    words = ["docker", "exec", "-i", "{{ host }}"]
    one = Site(kind="exec", server={"host": "a", "addr": "10.0.0.1"}, command=words)
    far = Exec().transport(one, "b")
    assert far.argv()[:5] == ["docker", "exec", "-i", "b", "python3"] and not far.shares_files
