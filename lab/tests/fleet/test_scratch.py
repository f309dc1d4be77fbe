"""The scratch folder of a run whose hosts are one machine: gone after the last of its agents."""

import base64
import hashlib
import os
import sys
import time
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

from wirespeed.fleet.channel import Transport
from wirespeed.fleet.fleet import Fleet
from wirespeed.runner import files, generate

WAIT_S = 60


@pytest.fixture
def fleet():
    transports = [
        Transport(name, python=sys.executable, shares_files=False) for name in ("one", "two")
    ]
    fleet = Fleet(transports, "test-scratch", cgroups=False)
    yield fleet
    fleet.close()


def test_files_written_after_another_agent_has_ended_are_removed_too(fleet, tmp_path):
    """A busy agent still processes its requests while the others are ending."""
    run_dir = tmp_path / "20261122T000000Z-test-scratch"
    files.prepare(fleet, run_dir)
    scratch = files.scratch_folder(run_dir.name)
    first, last = fleet["one"], fleet["two"]
    first.channel.close()
    first.channel.process.wait(WAIT_S)
    data = b"x"
    last.send(
        "put", path=f"{scratch}/nginx.conf", offset=0, data=base64.b64encode(data).decode(),
        sha256=hashlib.sha256(data).hexdigest(), is_last=True, mode=0o644,
    )  # fmt: skip
    deadline = time.monotonic() + WAIT_S
    while not (scratch / "nginx.conf").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (scratch / "nginx.conf").exists()
    last.channel.close()
    last.channel.process.wait(WAIT_S)
    assert not list(Path(scratch).parent.glob(f"{scratch.name}*"))


def test_a_file_that_was_rewritten_with_the_same_length_is_fetched_again(fleet, tmp_path):
    """The lab used the previous window's results for this one if both had as many digits."""
    host, here, there = fleet["one"], tmp_path / "here", tmp_path / "there"
    there.mkdir()
    host.folders = {str(here): str(there)}
    for number, text in enumerate(("100", "200")):
        (there / "wrk.out").write_text(text)
        os.utime(there / "wrk.out", ns=(number, number))
        host.bring_back(here)
        assert (here / "wrk.out").read_text() == text
    (here / "wrk.out").write_text("300")
    host.bring_back(here)
    assert (here / "wrk.out").read_text() == "300", "what is known is not fetched twice"


def test_a_long_output_is_fetched_piece_by_piece(fleet, tmp_path):
    """A server's log of gigabytes was put together in memory, copied again for each piece."""
    host, here, there = fleet["one"], tmp_path / "here", tmp_path / "there"
    there.mkdir()
    host.folders = {str(here): str(there)}
    data = os.urandom(1 << 20) * 24 + b"end"
    (there / "server.out").write_bytes(data)
    tracemalloc.start()
    host.bring_back(here)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (here / "server.out").read_bytes() == data and most < 16 << 20


def test_what_a_window_before_left_is_gone_before_the_next_on_every_host(fleet, tmp_path):
    here = tmp_path / "here"
    (here / "attempt-1").mkdir(parents=True)
    (here / "load-gen-0.out").write_text("of the warm-up")
    for name in ("one", "two"):
        there = tmp_path / name
        there.mkdir()
        (there / "load-gen-0.out").write_text("of the warm-up")
        fleet[name].folders = {str(here): str(there)}
    generate._empty(fleet, [SimpleNamespace(host=name) for name in ("one", "two")], here)
    assert [path.name for path in here.iterdir()] == ["attempt-1"]
    assert not (tmp_path / "one").exists() and not (tmp_path / "two").exists()


def test_a_path_with_a_space_is_sent_and_named_as_it_is_there(fleet, tmp_path):
    """Programs of a checkout in a folder `my projects` did not reach other hosts."""
    checkout, run_dir = tmp_path / "my projects", tmp_path / "my runs"
    checkout.mkdir()
    program = checkout / "wirespeed-load"
    program.write_text("#!/bin/sh\n")
    there = tmp_path / "there"
    fleet["one"].folders = {str(run_dir): str(there)}
    words = [str(program), "--json", f"{run_dir}/load.json", f"file={there}", "/" + "x" * 300]
    found = fleet["one"].carried(words, [checkout])
    assert Path(found[0]).read_text() == "#!/bin/sh\n" and found[0].startswith(f"{there}/put/")
    assert found[1:] == ["--json", f"{there}/load.json", *words[3:]]
