"""The hosts of these tests leave nothing behind, even when their link is cut."""

import os
import shutil
import subprocess

import pytest
from site_farm import SSHD, Farm, everybody, network


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which(SSHD), reason="needs root and sshd")
def test_a_session_behind_a_cut_cable_ends_with_the_farm(tmp_path):
    farm = Farm(tmp_path, 1)
    try:
        farm.wait()
        command = ["ssh", "-F", str(tmp_path / "ssh_config"), "host0", "echo up; exec sleep 600"]
        with subprocess.Popen(farm.at_desk(command), stdout=subprocess.PIPE) as client:
            assert client.stdout.readline() == b"up\n"
            farm.cut(0)
            client.kill()
        host = network(farm.hosts[0])
        before = [pid for pid in everybody() if network(pid) == host]
        assert len(before) > 2, "the host itself, its sshd, and the session"
    finally:
        farm.close()
    assert not [pid for pid in before if network(pid) == host]
